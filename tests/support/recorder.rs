//! A handler that writes down every call, in the way of Netty's `ReentrantChannelTest`, and helpers to put it
//! at the end of an embedded channel or of a TCP server.

use bytes::Bytes;
use netwheel::{
    ChannelOptions, Error, PeerError, Refused,
    codec::Line,
    pipeline::Codec,
    prelude::*,
    testing::{EmbeddedChannel, ManualClock},
};
use std::{
    fmt,
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, Once, PoisonError,
        mpsc::{Receiver, channel},
    },
    time::{Duration, Instant},
};

/// How long a test waits for what must happen before it gives up. It never decides a test that passes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What happened, in order; shared by handlers, callbacks and the test.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<(Mutex<Vec<String>>, Condvar)>);

impl Log {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, entry: impl Into<String>) {
        self.lock().push(entry.into());
        self.0.1.notify_all();
    }

    /// All entries so far.
    pub(crate) fn all(&self) -> Vec<String> {
        self.lock().clone()
    }

    /// All entries since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lock())
    }

    pub(crate) fn count(&self, entry: &str) -> usize {
        self.lock().iter().filter(|e| *e == entry).count()
    }

    /// Blocks until `entry` is there.
    #[track_caller]
    pub(crate) fn wait_for(&self, entry: &str) {
        self.wait_until(entry, |log| log.iter().any(|e| e == entry));
    }

    /// Blocks until the entries satisfy `is_met`.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, is_met: impl Fn(&[String]) -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut log = self.lock();
        while !is_met(&log) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let log = log.clone();
                panic!("waited in vain for {what:?}; what happened: {log:#?}");
            }
            log = self.0.1.wait_timeout(log, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// One call of a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    Active,
    Read(Bytes),
    ReadComplete,
    Writability(bool),
    Idle(IdleEvent),
    Shutdown,
    Error(String),
    Inactive,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::Active => f.write_str("active"),
            Call::Read(message) => write!(f, "read {}", String::from_utf8_lossy(message)),
            Call::ReadComplete => f.write_str("read_complete"),
            Call::Writability(writable) => write!(f, "writable {writable}"),
            Call::Idle(event) => write!(f, "idle {event}"),
            Call::Shutdown => f.write_str("shutdown"),
            Call::Error(text) => write!(f, "error {text}"),
            Call::Inactive => f.write_str("inactive"),
        }
    }
}

type Hook = Box<dyn FnMut(&mut Context<'_, Recorder>, &Call) -> Result>;

/// Writes down each call, then does what the test wants done in it.
pub(crate) struct Recorder {
    pub(crate) log: Log,
    hook: Hook,
}

impl Recorder {
    /// Does nothing but close on errors.
    pub(crate) fn new(log: &Log) -> Self {
        Self::with(log, |_, _| Ok(()))
    }

    /// Does what `hook` does; after an error it closes.
    pub(crate) fn with(
        log: &Log,
        mut hook: impl FnMut(&mut Context<'_, Recorder>, &Call) -> Result + 'static,
    ) -> Self {
        Self::exactly(log, move |ctx, call| {
            let result = hook(ctx, call);
            if matches!(call, Call::Error(_)) {
                ctx.close();
            }
            result
        })
    }

    /// Does what `hook` does, and stays open after errors unless `hook` closes.
    pub(crate) fn exactly(
        log: &Log,
        hook: impl FnMut(&mut Context<'_, Recorder>, &Call) -> Result + 'static,
    ) -> Self {
        Recorder { log: log.clone(), hook: Box::new(hook) }
    }

    fn call(&mut self, ctx: &mut Context<'_, Self>, call: Call) -> Result {
        self.log.push(call.to_string());
        (self.hook)(ctx, &call)
    }
}

impl Handler for Recorder {
    type In = Bytes;
    type Out = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.call(ctx, Call::Active)
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        self.call(ctx, Call::Read(message))
    }

    fn read_complete(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.call(ctx, Call::ReadComplete)
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        self.call(ctx, Call::Writability(writable))
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, event: IdleEvent) -> Result {
        self.call(ctx, Call::Idle(event))
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.close();
        self.call(ctx, Call::Shutdown)
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        self.call(ctx, Call::Error(error.to_string()))
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.call(ctx, Call::Inactive)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.log.push("drop");
    }
}

/// A hook that hands its channel to the test when it is active, and where the test gets it.
pub(crate) fn hand_over() -> (
    impl Fn(&mut Context<'_, Recorder>, &Call) -> Result + Clone + Send + Sync + 'static,
    Receiver<Channel<Bytes>>,
) {
    let (sender, channels) = channel();
    let hook = move |ctx: &mut Context<'_, Recorder>, call: &Call| {
        if *call == Call::Active {
            // The test may have seen enough and be gone.
            let _ = sender.send(ctx.channel());
        }
        Ok(())
    };
    (hook, channels)
}

/// Lines in and out, plus messages that show what happens when encoding and decoding fail:
/// `fail` after some bytes, `panic` after some bytes; inbound the line `bad`.
pub(crate) struct Fussy(Line);

impl Fussy {
    pub(crate) fn new() -> Self {
        Fussy(Line::new())
    }
}

impl Codec for Fussy {
    type In = Bytes;
    type Out = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        match self.0.decode(input)? {
            Some(line) if line == "bad" => Err(PeerError::Malformed("bad".to_owned()).into()),
            Some(line) if line == "burst" => panic!("decode on purpose"),
            other => Ok(other),
        }
    }

    fn encode(&mut self, message: Bytes, output: &mut netwheel::buffer::Outbound) -> Result {
        match &message[..] {
            b"fail" => {
                output.put_slice(b"half of it");
                output.put(Bytes::from(vec![b'x'; 10_000]));
                output.put_slice(b"and some");
                Err(netwheel::EncodeError::Unencodable("on purpose".to_owned()).into())
            }
            b"panic" => {
                output.put_slice(b"half of it");
                panic!("encode on purpose");
            }
            _ => self.0.encode(message, output),
        }
    }
}

/// Single bytes, but only once no more will come.
pub(crate) struct AtLast;

impl Codec for AtLast {
    type In = Bytes;
    type Out = Bytes;

    fn decode(&mut self, _: &mut Bytes) -> Result<Option<Bytes>> {
        Ok(None)
    }

    fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        Ok((!input.is_empty()).then(|| input.split_to(1)))
    }

    fn encode(&mut self, message: Bytes, output: &mut netwheel::buffer::Outbound) -> Result {
        output.put(message);
        Ok(())
    }
}

/// An embedded channel of lines.
pub(crate) fn embedded(handler: Recorder) -> EmbeddedChannel<Bytes> {
    EmbeddedChannel::new(Pipeline::new().codec(Line::new()).handler(handler))
}

/// An embedded channel of lines with settings.
pub(crate) fn embedded_with(options: &ChannelOptions, handler: Recorder) -> EmbeddedChannel<Bytes> {
    let pipeline = Pipeline::new().codec(Line::new()).handler(handler);
    EmbeddedChannel::with(pipeline, options, ManualClock::new(), Duration::from_millis(1)).unwrap()
}

/// A group of one loop.
pub(crate) fn one_loop() -> EventLoopGroup {
    EventLoopGroup::builder().threads(1).wheel_tick(Duration::from_millis(1)).build().unwrap()
}

/// Ends a group; fails if a loop did not end by itself (it panicked, or hangs).
#[track_caller]
pub(crate) fn end(group: &EventLoopGroup) {
    let ended = group.shutdown_gracefully(Duration::ZERO, Duration::from_secs(5)).wait_timeout(PATIENCE);
    ended.expect("the loops end").expect("no loop has failed");
}

/// A client that is not ours.
pub(crate) fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.local_address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Sends `text` and expects `answer`.
#[track_caller]
pub(crate) fn ask(stream: &mut (impl Read + Write), text: &str, answer: &str) {
    stream.write_all(text.as_bytes()).unwrap();
    let mut got = vec![0; answer.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), answer);
}

/// Reads until the peer ends the stream; a reset is an end as well.
pub(crate) fn read_to_end(stream: &mut impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return all,
            Ok(n) => all.extend_from_slice(&buffer[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return all,
            Err(e) => panic!("waiting for the end of the stream: {e}"),
        }
    }
}

/// The result of a completion that has to come.
#[track_caller]
pub(crate) fn done<T>(completion: Completion<T>) -> Result<T> {
    completion.wait_timeout(PATIENCE).expect("it completes")
}

/// The reason of a refusal.
pub(crate) fn reason<T>(refused: Result<(), Refused<T>>) -> Error {
    refused.expect_err("it is refused").reason
}

/// Panics that a test makes on purpose do not fill the output.
pub(crate) fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.to_string().contains("on purpose") {
                loud(info);
            }
        }));
    });
}
