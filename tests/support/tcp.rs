//! Real sockets on 127.0.0.1: a handler that tells the test thread of every call, random bytes, and ways to wait
//! for the loop without looking at a clock.

use bytes::Bytes;
use netwheel::{
    ChannelOptions, ChannelPipeline, Endpoint, LoopMetrics, Peer, codec::RawBytes, pipeline::Codec,
    prelude::*,
};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

/// How long a test waits for what must happen before it gives up. It never decides a test that passes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Port 0 of the only host that tests talk to.
pub(crate) const ANY_PORT: &str = "127.0.0.1:0";

// ---- loops -----------------------------------------------------------------------------------------------

/// A group of one loop, so that its metrics are those of the test.
pub(crate) fn one_loop() -> EventLoopGroup {
    EventLoopGroup::builder().threads(1).build().unwrap()
}

/// The loop of a group of one.
pub(crate) fn the_loop(group: &EventLoopGroup) -> &EventLoop {
    &group.event_loops()[0]
}

/// The counters of a group of one.
pub(crate) fn metrics(group: &EventLoopGroup) -> LoopMetrics {
    the_loop(group).metrics()
}

/// Ends a group; fails if a loop did not end by itself (it panicked, or hangs).
#[track_caller]
pub(crate) fn end(group: &EventLoopGroup) {
    done(group.shutdown_gracefully(Duration::ZERO, Duration::from_secs(5))).expect("no loop has failed");
}

/// The result of a completion that has to come.
#[track_caller]
pub(crate) fn done<T>(completion: Completion<T>) -> Result<T> {
    completion.wait_timeout(PATIENCE).expect("it completes")
}

/// Runs `task` on the loop and waits for it.
#[track_caller]
pub(crate) fn on_loop<T: Send + 'static>(
    group: &EventLoopGroup,
    task: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (sender, receiver) = mpsc::channel();
    the_loop(group).execute(move || sender.send(task()).unwrap()).unwrap();
    receive(&receiver)
}

/// Waits until the loop has turned a few times: whatever it meant to do without being asked, it has done.
#[track_caller]
pub(crate) fn some_turns(group: &EventLoopGroup) {
    let begin = metrics(group).turns;
    while metrics(group).turns < begin + 5 {
        on_loop(group, || ());
    }
}

/// Lets the loop turn until `is_met`, which has to come.
#[track_caller]
pub(crate) fn turn_until(group: &EventLoopGroup, is_met: impl Fn(&LoopMetrics) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_met(&metrics(group)) {
        assert!(Instant::now() < end, "waited in vain: {:#?}", metrics(group));
        some_turns(group);
    }
}

/// Keeps the loop in a task until the answer is dropped.
#[must_use]
pub(crate) fn block(group: &EventLoopGroup) -> Sender<()> {
    let (release, released) = mpsc::channel::<()>();
    let (sender, blocked) = mpsc::channel();
    let task = move || {
        sender.send(()).unwrap();
        let _ = released.recv_timeout(PATIENCE);
    };
    the_loop(group).execute(task).unwrap();
    receive(&blocked);
    release
}

/// The next value of a queue; it has to come.
#[track_caller]
pub(crate) fn receive<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(PATIENCE).expect("it comes")
}

// ---- probe -----------------------------------------------------------------------------------------------

/// One call of a handler.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    Active(Channel<Bytes>),
    Read(Bytes),
    ReadComplete,
    InputShutdown,
    Writable(bool),
    Error(String),
    Inactive,
}

/// What a test wants done in each call.
pub(crate) type Hook = Arc<dyn Fn(&mut Context<'_, Probe>, &Event) -> Result + Send + Sync>;

/// Does what the hook does, and tells the test of every call. After an error it closes.
pub(crate) struct Probe {
    events: Sender<Event>,
    hook: Hook,
}

impl Probe {
    fn call(&mut self, ctx: &mut Context<'_, Self>, event: Event) -> Result {
        let result = (self.hook)(ctx, &event);
        // The test may have seen enough and be gone.
        let _ = self.events.send(event);
        result
    }
}

impl Handler for Probe {
    type In = Bytes;
    type Out = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let channel = ctx.channel();
        self.call(ctx, Event::Active(channel))
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        self.call(ctx, Event::Read(message))
    }

    fn read_complete(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.call(ctx, Event::ReadComplete)
    }

    fn input_shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.call(ctx, Event::InputShutdown)
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        self.call(ctx, Event::Writable(writable))
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        ctx.close();
        self.call(ctx, Event::Error(error.to_string()))
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.call(ctx, Event::Inactive)
    }
}

/// Does nothing.
pub(crate) fn silent(_: &mut Context<'_, Probe>, _: &Event) -> Result {
    Ok(())
}

/// Sends back what comes.
pub(crate) fn echo(ctx: &mut Context<'_, Probe>, event: &Event) -> Result {
    match event {
        Event::Read(message) => ctx.write(message.clone()),
        _ => Ok(()),
    }
}

/// What happened, in order.
pub(crate) struct Events(Receiver<Event>);

impl Events {
    /// The next call; it has to come.
    #[track_caller]
    pub(crate) fn next(&self) -> Event {
        receive(&self.0)
    }

    /// Waits for the connection.
    #[track_caller]
    pub(crate) fn channel(&self) -> Channel<Bytes> {
        match self.next() {
            Event::Active(channel) => channel,
            other => panic!("{other:?} before active"),
        }
    }

    /// Waits for a message.
    #[track_caller]
    pub(crate) fn message(&self) -> Bytes {
        loop {
            match self.next() {
                Event::Read(message) => return message,
                Event::Active(_) | Event::ReadComplete | Event::Writable(_) => {}
                other => panic!("{other:?} instead of a message"),
            }
        }
    }

    /// Waits for `n` bytes, in however many messages.
    #[track_caller]
    pub(crate) fn bytes(&self, n: usize) -> Vec<u8> {
        let mut all = Vec::with_capacity(n);
        while all.len() < n {
            all.extend_from_slice(&self.message());
        }
        all
    }

    /// Everything up to the end of the channel.
    #[track_caller]
    pub(crate) fn until_inactive(&self) -> Vec<Event> {
        let mut all = Vec::new();
        loop {
            all.push(self.next());
            if all.last() == Some(&Event::Inactive) {
                return all;
            }
        }
    }

    /// What is there now.
    pub(crate) fn so_far(&self) -> Vec<Event> {
        self.0.try_iter().collect()
    }

    /// Waits until every handler that could tell something is gone: nothing more can happen.
    #[track_caller]
    pub(crate) fn rest(self) -> Vec<Event> {
        let mut all = Vec::new();
        loop {
            match self.0.recv_timeout(PATIENCE) {
                Ok(event) => all.push(event),
                Err(RecvTimeoutError::Disconnected) => return all,
                Err(RecvTimeoutError::Timeout) => panic!("the handlers are not dropped"),
            }
        }
    }
}

/// The bytes of all messages.
pub(crate) fn read_bytes(events: &[Event]) -> Vec<u8> {
    let message =
        |event: &Event| if let Event::Read(message) = event { message.to_vec() } else { Vec::new() };
    events.iter().flat_map(message).collect()
}

/// What a probe is put behind. The close timeout is always a long one: a slow machine is not a peer that hangs.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(crate) channel: ChannelOptions,
    pub(crate) tcp: TcpOptions,
}

impl Settings {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Nothing is read unless it is asked for.
    pub(crate) fn explicit_read() -> Self {
        Self::channel(ChannelOptions::new().auto_read(false))
    }

    pub(crate) fn channel(channel: ChannelOptions) -> Self {
        Settings { channel, ..Settings::default() }
    }
}

/// A server of raw bytes whose children do what `hook` does.
pub(crate) fn serve<F>(group: &EventLoopGroup, settings: Settings, hook: F) -> (Server, Events)
where
    F: Fn(&mut Context<'_, Probe>, &Event) -> Result + Send + Sync + 'static,
{
    serve_with(group, settings, RawBytes, hook)
}

/// As `serve`, with a codec.
pub(crate) fn serve_with<C, F>(
    group: &EventLoopGroup,
    settings: Settings,
    codec: C,
    hook: F,
) -> (Server, Events)
where
    C: Codec<In = Bytes, Out = Bytes> + Clone + Send + Sync,
    F: Fn(&mut Context<'_, Probe>, &Event) -> Result + Send + Sync + 'static,
{
    serve_at(ANY_PORT, group, settings, codec, hook)
}

/// As `serve_with`, of any transport.
pub(crate) fn serve_at<E, C, F>(
    at: E,
    group: &EventLoopGroup,
    settings: Settings,
    codec: C,
    hook: F,
) -> (Server<E::Address>, Events)
where
    E: Endpoint,
    C: Codec<In = Bytes, Out = Bytes> + Clone + Send + Sync,
    F: Fn(&mut Context<'_, Probe>, &Event) -> Result + Send + Sync + 'static,
{
    let (events, received) = mpsc::channel();
    let hook: Hook = Arc::new(hook);
    let server = ServerBootstrap::new(group)
        .channel_options(settings.channel.close_timeout(10 * PATIENCE))
        .child_options(settings.tcp)
        .pipeline(move |_| {
            let probe = Probe { events: events.clone(), hook: hook.clone() };
            Pipeline::new().codec(codec.clone()).handler(probe)
        })
        .bind(at)
        .unwrap();
    (server, Events(received))
}

/// Makes connections of raw bytes.
pub(crate) type RawClient = ClientBootstrap<Arc<Factory>>;
type Factory = Box<dyn Fn(&Peer) -> ChannelPipeline<Bytes> + Send + Sync>;

/// The bootstrap of a client of raw bytes that does what `hook` does; connect it with [`dial`], or by hand.
pub(crate) fn client<F>(group: &EventLoopGroup, settings: Settings, hook: F) -> (RawClient, Events)
where
    F: Fn(&mut Context<'_, Probe>, &Event) -> Result + Send + Sync + 'static,
{
    let (events, received) = mpsc::channel();
    let hook: Hook = Arc::new(hook);
    let factory: Factory = Box::new(move |_| {
        let probe = Probe { events: events.clone(), hook: hook.clone() };
        Pipeline::new().codec(RawBytes).handler(probe)
    });
    let bootstrap = ClientBootstrap::new(group)
        .channel_options(settings.channel.close_timeout(10 * PATIENCE))
        .options(settings.tcp)
        .pipeline(factory);
    (bootstrap, Events(received))
}

/// A client that is connected.
pub(crate) fn dial<F>(
    group: &EventLoopGroup,
    to: impl Endpoint,
    settings: Settings,
    hook: F,
) -> (Channel<Bytes>, Events)
where
    F: Fn(&mut Context<'_, Probe>, &Event) -> Result + Send + Sync + 'static,
{
    let (bootstrap, events) = client(group, settings, hook);
    (done(bootstrap.connect(to)).unwrap(), events)
}

// ---- a peer that is not ours -----------------------------------------------------------------------------

/// A client that is not ours, and gives up rather than hang.
pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    patient(&stream);
    stream
}

/// Makes a stream give up rather than hang.
pub(crate) fn patient(stream: &TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
}

/// Sends bytes and expects the very same back.
#[track_caller]
pub(crate) fn ping(stream: &mut (impl Read + Write), bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    assert_eq!(read_n(stream, bytes.len()), bytes);
}

/// Reads exactly `n` bytes.
#[track_caller]
pub(crate) fn read_n(stream: &mut impl Read, n: usize) -> Vec<u8> {
    let mut bytes = vec![0; n];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// Reads until the peer ends the stream.
#[track_caller]
pub(crate) fn read_all(stream: &mut impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

/// Compares without printing megabytes.
#[track_caller]
pub(crate) fn assert_same(got: &[u8], sent: &[u8]) {
    if got == sent {
        return;
    }
    let at = got.iter().zip(sent).take_while(|(a, b)| a == b).count();
    panic!("{} bytes came of {}, the first wrong one at {at}", got.len(), sent.len());
}

// ---- random bytes ----------------------------------------------------------------------------------------

/// A small generator (xorshift64*): the same numbers in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.max(1))
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number from `from` to `to`, both included.
    pub(crate) fn between(&mut self, from: usize, to: usize) -> usize {
        from + (self.number() % (to - from + 1) as u64) as usize
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Bytes {
        let mut bytes = Vec::with_capacity(n + 8);
        while bytes.len() < n {
            bytes.extend_from_slice(&self.number().to_le_bytes());
        }
        bytes.truncate(n);
        bytes.into()
    }

    /// Cuts `bytes` into chunks of `from` to `to` bytes; the last may be shorter.
    pub(crate) fn chunks(&mut self, bytes: &Bytes, from: usize, to: usize) -> Vec<Bytes> {
        let mut rest = bytes.clone();
        let mut chunks = Vec::new();
        while !rest.is_empty() {
            let n = self.between(from, to).min(rest.len());
            chunks.push(rest.split_to(n));
        }
        chunks
    }
}
