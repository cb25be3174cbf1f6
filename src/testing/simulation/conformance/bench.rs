//! The calls that all kinds of sockets have, and the record of a run.
//!
//! Each call notes its result. Addresses and sizes of buffers differ between runs and systems, so
//! scripts note comparisons of addresses, and whether a buffer is full.

use super::{
    backend::{Backend, Side},
    watcher::Watcher,
};
use crate::{
    channel::driver::Ready,
    event_loop::{LISTENER_INTEREST, STREAM_INTEREST, WakeCause},
    transport::{Listener, Stream, UdpSocket},
};
use mio::{Interest, event::Source};
use std::{
    fmt, io,
    net::SocketAddr,
    time::{Duration, Instant},
};

/// A socket of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id(pub(super) usize);

pub(super) enum Socket {
    Listener(Listener),
    Stream(Stream),
    Datagrams(UdpSocket),
}

pub(super) struct Slot {
    name: &'static str,
    pub(super) socket: Option<Socket>,
    /// The conditions that polls have reported since they were last noted.
    seen: Ready,
    /// The number of events that polls have reported since they were last noted.
    events: usize,
    /// Bytes written and read so far.
    pub(super) written: usize,
    pub(super) read: usize,
}

pub(super) struct Bench {
    // Sockets close while the backend is still there.
    pub(super) slots: Vec<Slot>,
    /// The first one watches all sockets.
    watchers: Vec<Watcher>,
    outcome: Vec<String>,
    pub(super) backend: Backend,
}

impl Bench {
    pub(super) fn new(backend: Backend) -> Self {
        Bench { slots: Vec::new(), watchers: vec![Watcher::new(&backend)], outcome: Vec::new(), backend }
    }

    pub(super) fn into_outcome(mut self) -> Vec<String> {
        std::mem::take(&mut self.outcome)
    }

    // ---- records --------------------------------------------------------------------------------

    pub(super) fn note(&mut self, what: impl Into<String>) {
        self.outcome.push(what.into());
    }

    /// Notes the result of a call of a socket, and lets time pass.
    pub(super) fn note_call<T: fmt::Display>(&mut self, id: Id, call: &str, result: &io::Result<T>) {
        let name = self.slots[id.0].name;
        let line = match result {
            Ok(value) => format!("{name}.{call} = {value}"),
            Err(e) => format!("{name}.{call} = {}", error_name(e)),
        };
        self.note(line);
        self.backend.pause();
    }

    // ---- sockets --------------------------------------------------------------------------------

    /// Adds a socket that is not registered.
    pub(super) fn add(&mut self, name: &'static str, socket: Socket) -> Id {
        let slot = Slot { name, socket: Some(socket), seen: Ready::NONE, events: 0, written: 0, read: 0 };
        self.slots.push(slot);
        Id(self.slots.len() - 1)
    }

    /// Adds a socket and registers it.
    pub(super) fn watch(&mut self, name: &'static str, socket: Socket) -> Id {
        let id = self.add(name, socket);
        self.register(id).expect("a new socket can be registered");
        self.backend.pause();
        id
    }

    fn source(&mut self, id: Id) -> (&mut dyn Source, Interest) {
        match self.slots[id.0].socket.as_mut().expect("an open socket") {
            Socket::Listener(listener) => (listener.source(), LISTENER_INTEREST),
            Socket::Stream(stream) => (stream.source(), STREAM_INTEREST),
            Socket::Datagrams(datagrams) => (datagrams.source(), STREAM_INTEREST),
        }
    }

    pub(super) fn local(&self, id: Id) -> SocketAddr {
        let local = match self.slots[id.0].socket.as_ref().expect("an open socket") {
            Socket::Listener(listener) => listener.local_address().ok().and_then(|address| address.as_tcp()),
            Socket::Stream(stream) => stream.local_address(),
            Socket::Datagrams(datagrams) => datagrams.local_address().ok(),
        };
        local.expect("the socket has an address")
    }

    /// Closes a socket.
    pub(super) fn close(&mut self, id: Id) {
        self.slots[id.0].socket = None;
        self.backend.pause();
    }

    // ---- the poll -------------------------------------------------------------------------------

    pub(super) fn register(&mut self, id: Id) -> io::Result<()> {
        self.register_with(id, 0, None)
    }

    /// Registers a socket with one of the polls, with the usual interest or another one.
    pub(super) fn register_with(
        &mut self,
        id: Id,
        poll: usize,
        interest: Option<Interest>,
    ) -> io::Result<()> {
        self.with_source(id, |watchers, source, usual| {
            watchers[poll].selector.register(source, id.0, interest.unwrap_or(usual))
        })
    }

    pub(super) fn reregister(&mut self, id: Id, interest: Interest) -> io::Result<()> {
        self.with_source(id, |watchers, source, _| watchers[0].selector.reregister(source, id.0, interest))
    }

    pub(super) fn deregister(&mut self, id: Id) -> io::Result<()> {
        self.with_source(id, |watchers, source, _| watchers[0].selector.deregister(source))
    }

    fn with_source<R>(&mut self, id: Id, call: impl FnOnce(&[Watcher], &mut dyn Source, Interest) -> R) -> R {
        let watchers = std::mem::take(&mut self.watchers);
        let (source, usual) = self.source(id);
        let result = call(&watchers, source, usual);
        self.watchers = watchers;
        result
    }

    /// Opens another poll, and returns its number.
    pub(super) fn open_poll(&mut self) -> usize {
        self.watchers.push(Watcher::new(&self.backend));
        self.watchers.len() - 1
    }

    /// Calls the waker of a poll.
    pub(super) fn wake(&mut self, poll: usize) {
        self.watchers[poll].waker.wake().expect("the waker works");
        self.backend.pause();
    }

    /// Polls once, and remembers the events.
    pub(super) fn poll(&mut self, poll: usize, timeout: Duration) -> Option<WakeCause> {
        let (cause, events) = self.watchers[poll].poll(&self.backend, timeout);
        for (token, ready) in events {
            let slot = &mut self.slots[token];
            slot.seen = slot.seen.with(ready);
            slot.events += 1;
        }
        cause
    }

    /// Polls once, and notes why the poll returned.
    pub(super) fn note_poll(&mut self, poll: usize, timeout: Duration) {
        let cause = self.poll(poll, timeout);
        self.note(format!("poll {poll}: {cause:?}"));
    }

    /// Waits until a condition holds. It is called before the first poll and after each one.
    pub(super) fn until(&mut self, what: &str, mut condition: impl FnMut(&mut Bench) -> bool) {
        let patience = self.backend.patience();
        let begun = Instant::now();
        loop {
            if condition(self) {
                return;
            }
            let left = patience.saturating_sub(begun.elapsed());
            if self.poll(0, left).is_none() {
                self.note(format!("never: {what}"));
                return;
            }
        }
    }

    /// Waits until polls have reported all these conditions of a socket.
    pub(super) fn wait_for(&mut self, id: Id, conditions: Ready) {
        let what = format!("{} {}", self.slots[id.0].name, names(conditions));
        self.until(&what, |bench| bench.slots[id.0].seen.with(conditions) == bench.slots[id.0].seen);
    }

    /// Polls until nothing has happened for a while.
    pub(super) fn settle(&mut self) {
        let lull = self.backend.lull();
        while self.poll(0, lull).is_some() {}
    }

    /// Notes which conditions polls have reported of a socket since the last call.
    pub(super) fn note_seen(&mut self, id: Id) {
        let slot = &mut self.slots[id.0];
        let line = format!("{} is {}", slot.name, names(slot.seen));
        (slot.seen, slot.events) = (Ready::NONE, 0);
        self.note(line);
    }

    /// Notes how many events polls have reported of a socket since the last call.
    pub(super) fn note_events(&mut self, id: Id) {
        let slot = &mut self.slots[id.0];
        let line = format!("{} has {} events", slot.name, slot.events);
        (slot.seen, slot.events) = (Ready::NONE, 0);
        self.note(line);
    }

    /// Forgets which conditions polls have reported of a socket.
    pub(super) fn forget_seen(&mut self, id: Id) {
        (self.slots[id.0].seen, self.slots[id.0].events) = (Ready::NONE, 0);
    }

    /// Returns the address of a machine.
    pub(super) fn ip(&self, side: Side) -> std::net::IpAddr {
        self.backend.ip(side)
    }
}

/// Returns the name of an error's kind, or the number of an error of another kind.
pub(super) fn error_name(error: &io::Error) -> String {
    match format!("{:?}", error.kind()) {
        kind if kind == "Uncategorized" => format!("error {:?}", error.raw_os_error()),
        kind => kind,
    }
}

/// Returns the names of conditions.
fn names(ready: Ready) -> String {
    let all = [
        (Ready::READABLE, "readable"),
        (Ready::WRITABLE, "writable"),
        (Ready::READ_CLOSED, "read-closed"),
        (Ready::WRITE_CLOSED, "write-closed"),
        (Ready::ERROR, "failed"),
        (Ready::PRIORITY, "urgent"),
    ];
    let names: Vec<_> = all.into_iter().filter(|(bit, _)| ready.has(*bit)).map(|(_, name)| name).collect();
    if names.is_empty() { "quiet".to_owned() } else { names.join(" ") }
}
