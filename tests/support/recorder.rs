//! [`Recorder`], the handler of most tests. It records every call and runs a hook of the test.
//!
//! It writes lines to a [`Log`] that it shares with the test, or sends [`Event`]s over a channel
//! whose other end is [`Events`].

use super::{
    journal::Log,
    wait::{PATIENCE, receive},
};
use bytes::Bytes;
use netwheel::{Error, prelude::*};
use std::{
    fmt,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
};

/// One call of a handler.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    Active(Channel<Bytes>),
    Read(Bytes),
    ReadComplete,
    ReadClosed,
    Writable(bool),
    Idle(IdleEvent),
    Shutdown,
    Error(String),
    Inactive,
}

impl Event {
    pub(crate) fn is_active(&self) -> bool {
        matches!(self, Event::Active(_))
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Active(_) => f.write_str("active"),
            Event::Read(message) => write!(f, "read {}", String::from_utf8_lossy(message)),
            Event::ReadComplete => f.write_str("read_complete"),
            Event::ReadClosed => f.write_str("read_closed"),
            Event::Writable(writable) => write!(f, "writable {writable}"),
            Event::Idle(event) => write!(f, "idle {event}"),
            Event::Shutdown => f.write_str("shutdown"),
            Event::Error(text) => write!(f, "error {text}"),
            Event::Inactive => f.write_str("inactive"),
        }
    }
}

/// A closure of the test that runs in each call.
type Hook = Box<dyn FnMut(&mut Context<'_, Recorder>, &Event) -> Result>;

/// A hook that handlers on any loop share.
pub(crate) type SharedHook = Arc<dyn Fn(&mut Context<'_, Recorder>, &Event) -> Result + Send + Sync>;

/// A handler that records each call and then runs a hook.
pub(crate) struct Recorder {
    pub(crate) name: &'static str,
    /// Receives one line per call before the hook runs, prefixed with `name`. Unused if `events` is
    /// set.
    pub(crate) log: Log,
    /// Receives each call after the hook has run, so that the test sees the effects of the hook.
    events: Option<Sender<Event>>,
    hook: Hook,
    /// Whether an error closes the channel after the hook has run.
    pub(crate) closes: bool,
    /// Whether the end of the peer's stream is recorded and leaves the channel open. If not, it
    /// closes the channel, which is the default of [`Handler`].
    half_open: bool,
}

impl Recorder {
    /// Creates a recorder without a hook. It closes the channel after an error.
    pub(crate) fn new(log: &Log) -> Self {
        Self::with(log, |_, _| Ok(()))
    }

    /// Creates a recorder that runs `hook` and closes the channel after an error.
    pub(crate) fn with(
        log: &Log,
        hook: impl FnMut(&mut Context<'_, Recorder>, &Event) -> Result + 'static,
    ) -> Self {
        Recorder {
            name: "",
            log: log.clone(),
            events: None,
            hook: Box::new(hook),
            closes: true,
            half_open: false,
        }
    }

    /// Creates a recorder that runs `hook`. After an error the channel stays open unless `hook`
    /// closes it.
    pub(crate) fn exactly(
        log: &Log,
        hook: impl FnMut(&mut Context<'_, Recorder>, &Event) -> Result + 'static,
    ) -> Self {
        let mut recorder = Self::with(log, hook);
        recorder.closes = false;
        recorder
    }

    /// Records the end of the peer's stream, and leaves the channel open.
    pub(crate) fn half_open(mut self) -> Self {
        self.half_open = true;
        self
    }

    /// Creates a recorder that sends its calls to [`Events`]. It closes the channel after an error.
    pub(crate) fn sending(events: Sender<Event>, hook: SharedHook) -> Self {
        let hook = Box::new(move |ctx: &mut Context<'_, Self>, event: &Event| hook(ctx, event));
        Recorder { name: "", log: Log::new(), events: Some(events), hook, closes: true, half_open: true }
    }

    fn log(&self, line: impl fmt::Display) {
        if self.events.is_none() {
            let space = if self.name.is_empty() { "" } else { " " };
            self.log.push(format!("{}{space}{line}", self.name));
        }
    }

    fn call(&mut self, ctx: &mut Context<'_, Self>, event: Event) -> Result {
        self.log(&event);
        let result = (self.hook)(ctx, &event);
        if let Some(events) = &self.events {
            // Fails if the test has already finished.
            let _ = events.send(event);
        }
        result
    }
}

impl Handler for Recorder {
    type Read = Bytes;
    type Write = Bytes;

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

    fn read_closed(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if self.half_open {
            return self.call(ctx, Event::ReadClosed);
        }
        ctx.close();
        Ok(())
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        self.call(ctx, Event::Writable(writable))
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, event: IdleEvent) -> Result {
        self.call(ctx, Event::Idle(event))
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.close();
        self.call(ctx, Event::Shutdown)
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        let result = self.call(ctx, Event::Error(format!("{error:#}")));
        if self.closes {
            ctx.close();
        }
        result
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.call(ctx, Event::Inactive)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.log("drop");
    }
}

// ---- recorders with a name ---------------------------------------------------------------------

/// Returns a recorder that prefixes each line with its name, to show which of several pipelines is
/// called. The channel stays open at the end of the peer's stream.
pub(crate) fn named(
    name: &'static str,
    log: &Log,
    hook: impl FnMut(&mut Context<'_, Recorder>, &Event) -> Result + 'static,
) -> Recorder {
    let mut recorder = Recorder::with(log, hook);
    recorder.name = name;
    recorder.half_open = true;
    recorder
}

/// Returns a recorder with a name and without a hook. It closes the channel after an error.
pub(crate) fn quiet(name: &'static str, log: &Log) -> Recorder {
    named(name, log, |_, _| Ok(()))
}

// ---- hooks -------------------------------------------------------------------------------------

/// Does nothing.
pub(crate) fn silent(_: &mut Context<'_, Recorder>, _: &Event) -> Result {
    Ok(())
}

/// Echoes every message.
pub(crate) fn echo(ctx: &mut Context<'_, Recorder>, event: &Event) -> Result {
    match event {
        Event::Read(message) => ctx.write(message.clone()),
        _ => Ok(()),
    }
}

/// Turns auto-read off in each `read`.
pub(crate) fn stop_reading(ctx: &mut Context<'_, Recorder>, event: &Event) -> Result {
    if let Event::Read(_) = event {
        ctx.set_auto_read(false);
    }
    Ok(())
}

/// Requests a read when the channel becomes active.
pub(crate) fn read_once(ctx: &mut Context<'_, Recorder>, event: &Event) -> Result {
    if event.is_active() {
        ctx.read();
    }
    Ok(())
}

/// Returns a hook that sends its channel when it becomes active, and the receiver.
pub(crate) fn hand_over() -> (
    impl Fn(&mut Context<'_, Recorder>, &Event) -> Result + Clone + Send + Sync + 'static,
    Receiver<Channel<Bytes>>,
) {
    let (sender, channels) = mpsc::channel();
    let hook = move |_: &mut Context<'_, Recorder>, event: &Event| {
        if let Event::Active(channel) = event {
            // Fails if the test has already finished.
            let _ = sender.send(channel.clone());
        }
        Ok(())
    };
    (hook, channels)
}

// ---- events ------------------------------------------------------------------------------------

/// The calls of one or more recorders, in order.
pub(crate) struct Events<E = Event>(pub(super) Receiver<E>);

impl<E> Events<E> {
    /// Returns the next call. Panics if there is none within [`PATIENCE`].
    #[track_caller]
    pub(crate) fn next(&self) -> E {
        receive(&self.0)
    }

    /// Returns the calls that have arrived, without waiting.
    pub(crate) fn so_far(&self) -> Vec<E> {
        self.0.try_iter().collect()
    }

    /// Returns all calls until the last recorder is dropped.
    #[track_caller]
    pub(crate) fn rest(self) -> Vec<E> {
        let mut all = Vec::new();
        loop {
            match self.0.recv_timeout(PATIENCE) {
                Ok(event) => all.push(event),
                Err(RecvTimeoutError::Disconnected) => return all,
                Err(RecvTimeoutError::Timeout) => panic!("timed out waiting for the handlers to be dropped"),
            }
        }
    }
}

impl Events {
    /// Returns the channel of the next call, which must be `active`.
    #[track_caller]
    pub(crate) fn channel(&self) -> Channel<Bytes> {
        match self.next() {
            Event::Active(channel) => channel,
            other => panic!("{other:?} before active"),
        }
    }

    /// Returns the next message.
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

    /// Returns the next `n` bytes, from any number of messages.
    #[track_caller]
    pub(crate) fn bytes(&self, n: usize) -> Vec<u8> {
        let mut all = Vec::with_capacity(n);
        while all.len() < n {
            all.extend_from_slice(&self.message());
        }
        all
    }

    /// Returns all calls up to `inactive`.
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
}

/// Returns the concatenated bytes of all messages.
pub(crate) fn read_bytes(events: &[Event]) -> Vec<u8> {
    let message =
        |event: &Event| if let Event::Read(message) = event { message.to_vec() } else { Vec::new() };
    events.iter().flat_map(message).collect()
}
