//! The poll, the reasons why it returns, and a second poll to move to.
//!
//! If a signal interrupts a poll, the poll is repeated without sleeping, so that I/O comes before
//! timers. The process may have been stopped for a long time.
//!
//! Invariant: every return has exactly one [`WakeCause`]. `spin` interprets repeated causes. Runs
//! on the loop's thread. Does not own the sources that it watches: their owner moves them when the
//! poll is rebuilt.

use super::loop_waker::PollWaker;
use crate::channel::driver::Ready;
#[cfg(feature = "simulation")]
use crate::machine::simulated::{self, ReadyEvent, SimulatedPoll};
use mio::{Events, Interest, Poll, Registry, Token, Waker, event::Event, event::Source};
use std::{io, time::Duration};

/// The waker's token. It is never the token of a source (see
/// [`Key::MAX_INDEX`](crate::id::Key::MAX_INDEX)).
const WAKER: Token = Token(usize::MAX);

/// The maximum number of events per poll. The next poll returns the others.
const EVENTS: usize = 1024;

/// The operations that sockets with input and output are watched for. Both directions are included
/// from the start, so that no system call is needed later to change them. Urgent data is only
/// reported if requested.
pub(crate) const STREAM_INTEREST: Interest = Interest::READABLE.add(Interest::WRITABLE).add(PRIORITY);

/// The operation of an error of the poll, when it begins to watch a connection.
pub(crate) const WATCHING: &str = "watching a connection";

#[cfg(any(target_os = "linux", target_os = "android"))]
const PRIORITY: Interest = Interest::PRIORITY;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const PRIORITY: Interest = Interest::READABLE;

/// The operations that listeners are watched for.
pub(crate) const LISTENER_INTEREST: Interest = Interest::READABLE;

/// The reason why a poll returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeCause {
    /// A source is ready.
    Io,
    /// Another thread called the waker, now or a little earlier.
    Waker,
    /// The sleep has reached its deadline.
    Deadline,
    /// A signal (`EINTR`).
    Interrupted,
    /// The timeout was zero.
    NotAsleep,
    /// The poll returned before its timeout without any of these reasons.
    Premature,
}

pub(crate) struct Selector {
    poll: AnyPoll,
    events: Option<Events>,
    /// The number of this poll, counted from 1.
    number: u64,
}

/// A poll of the system or of a simulation. The driver of a simulation asks the world for events.
enum AnyPoll {
    System(Poll),
    #[cfg(feature = "simulation")]
    Simulated(SimulatedPoll),
}

impl AnyPoll {
    fn open() -> io::Result<(Self, PollWaker)> {
        #[cfg(feature = "simulation")]
        if let Some(machine) = simulated::current() {
            let (poll, waker) = SimulatedPoll::new(&machine);
            return Ok((AnyPoll::Simulated(poll), PollWaker::Simulated(waker)));
        }
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        Ok((AnyPoll::System(poll), PollWaker::System(waker)))
    }

    /// Calls `register` with the registry of the poll.
    fn register(&self, register: impl FnOnce(&Registry) -> io::Result<()>) -> io::Result<()> {
        match self {
            AnyPoll::System(poll) => register(poll.registry()),
            #[cfg(feature = "simulation")]
            AnyPoll::Simulated(poll) => poll.register(register),
        }
    }

    fn registry(&self) -> &Registry {
        match self {
            AnyPoll::System(poll) => poll.registry(),
            #[cfg(feature = "simulation")]
            AnyPoll::Simulated(poll) => poll.registry(),
        }
    }
}

impl Selector {
    /// Opens a poll and the waker that belongs to it.
    pub(crate) fn new() -> io::Result<(Self, PollWaker)> {
        let (poll, waker) = AnyPoll::open()?;
        let events = Some(new_events());
        Ok((Selector { poll, events, number: 1 }, waker))
    }

    /// Registers a source, edge-triggered.
    pub(crate) fn register(
        &self,
        source: &mut dyn Source,
        token: usize,
        interest: Interest,
    ) -> io::Result<()> {
        self.poll.register(|registry| registry.register(source, Token(token), interest))
    }

    /// Changes the interest of a registered source. Reports present readiness once more.
    #[cfg(unix)]
    pub(crate) fn reregister(
        &self,
        source: &mut dyn Source,
        token: usize,
        interest: Interest,
    ) -> io::Result<()> {
        self.poll.register(|registry| registry.reregister(source, Token(token), interest))
    }

    /// Deregisters a source. Closing it would not suffice: a duplicate of the descriptor would keep
    /// it registered.
    pub(crate) fn deregister(&self, source: &mut dyn Source) -> io::Result<()> {
        self.poll.registry().deregister(source)
    }

    /// Sleeps until something happens, at most for `timeout`.
    ///
    /// Returns `None` if a poll with a timeout above zero returned without an event. Whether the
    /// timeout has passed is only known when the clock is read.
    #[inline(always)]
    pub(crate) fn poll(&mut self, timeout: Option<Duration>) -> io::Result<Option<WakeCause>> {
        let events = self.events.get_or_insert_with(new_events);
        #[allow(clippy::infallible_destructuring_match, reason = "a simulation has another kind of poll")]
        let poll = match &mut self.poll {
            AnyPoll::System(poll) => poll,
            #[cfg(feature = "simulation")]
            AnyPoll::Simulated(_) => return Ok(Some(WakeCause::NotAsleep)),
        };
        match poll.poll(events, timeout) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {
                // The process may have been stopped for a long time. Ready sockets come before
                // expired timers.
                if poll.poll(events, Some(Duration::ZERO)).is_err() {
                    events.clear();
                }
                return Ok(Some(WakeCause::Interrupted));
            }
            Err(e) => {
                events.clear();
                return Err(e);
            }
        }
        if events.iter().any(|event| event.token() != WAKER) {
            return Ok(Some(WakeCause::Io));
        }
        if !events.is_empty() {
            return Ok(Some(WakeCause::Waker));
        }
        Ok((timeout == Some(Duration::ZERO)).then_some(WakeCause::NotAsleep))
    }

    /// Takes the events out, to handle them. Return them with [`Selector::put_events`].
    #[inline]
    pub(crate) fn take_events(&mut self) -> Events {
        self.events.take().unwrap_or_else(new_events)
    }

    pub(crate) fn put_events(&mut self, mut events: Events) {
        events.clear();
        self.events = Some(events);
    }

    /// Returns the token and the readiness of each source in `events`.
    #[inline]
    pub(crate) fn ready_sources(events: &Events) -> impl Iterator<Item = (usize, Ready)> + '_ {
        let sources = events.iter().filter(|event| event.token() != WAKER);
        sources.map(|event| (event.token().0, ready(event)))
    }

    /// Returns the number of the simulated poll in use.
    #[cfg(feature = "simulation")]
    pub(crate) fn simulated(&self) -> Option<simulated::PollId> {
        match &self.poll {
            AnyPoll::System(_) => None,
            AnyPoll::Simulated(poll) => Some(poll.id),
        }
    }

    /// Returns the number of the poll in use, counted from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Opens a second poll to move to.
    pub(crate) fn successor(&self) -> io::Result<(Successor, PollWaker)> {
        let (poll, waker) = AnyPoll::open()?;
        Ok((Successor { poll }, waker))
    }

    /// Puts the second poll into use and closes the first.
    pub(crate) fn replace(&mut self, successor: Successor) {
        self.poll = successor.poll;
        self.number += 1;
    }

    /// Moves one source: deregisters it from the old poll, then registers it with the new one. mio
    /// refuses the reverse order in debug builds. A new registration reports present readiness, so
    /// no readiness is lost.
    pub(crate) fn move_source(
        &self,
        to: &Successor,
        source: &mut dyn Source,
        token: usize,
        interest: Interest,
    ) -> io::Result<()> {
        if let Err(e) = self.poll.registry().deregister(source) {
            log::debug!("deregistering a source from the old poll: {e:#}");
        }
        to.poll.register(|registry| registry.register(source, Token(token), interest))
    }
}

/// The poll that will be in use next.
pub(crate) struct Successor {
    poll: AnyPoll,
}

#[cold]
fn new_events() -> Events {
    Events::with_capacity(EVENTS)
}

/// Converts an event of the poll. Only the selector sees the event itself.
#[inline]
fn ready(event: &Event) -> Ready {
    Ready::NONE
        .with_if(event.is_readable(), Ready::READABLE)
        .with_if(event.is_writable(), Ready::WRITABLE)
        .with_if(event.is_read_closed(), Ready::READ_CLOSED)
        .with_if(event.is_write_closed(), Ready::WRITE_CLOSED)
        .with_if(event.is_error(), Ready::ERROR)
        .with_if(event.is_priority(), Ready::PRIORITY)
}

/// Converts an event of a simulated poll, as mio converts the bits of epoll(7).
#[cfg(feature = "simulation")]
pub(crate) fn simulated_ready(event: &ReadyEvent) -> Ready {
    let has_only_failed =
        event.error && !(event.readable || event.writable || event.read_closed || event.hang_up);
    let is_write_closed = event.hang_up || (event.writable && event.error) || has_only_failed;
    Ready::NONE
        .with_if(event.readable, Ready::READABLE)
        .with_if(event.writable, Ready::WRITABLE)
        .with_if(event.hang_up || (event.readable && event.read_closed), Ready::READ_CLOSED)
        .with_if(is_write_closed, Ready::WRITE_CLOSED)
        .with_if(event.error, Ready::ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e_45_a_poll_with_a_zero_timeout_is_not_a_return_without_cause() {
        let (mut selector, _waker) = Selector::new().unwrap();
        assert_eq!(selector.poll(Some(Duration::ZERO)).unwrap(), Some(WakeCause::NotAsleep));
        assert_eq!(selector.poll(Some(Duration::from_millis(1))).unwrap(), None);
    }

    #[test]
    fn e_46_a_bare_waker_event_is_a_cause_of_its_own() {
        let (mut selector, waker) = Selector::new().unwrap();
        for _ in 0..5 {
            waker.wake().unwrap();
            assert_eq!(selector.poll(None).unwrap(), Some(WakeCause::Waker));
        }
        let mut socket = mio::net::UdpSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        selector.register(&mut socket, 7, STREAM_INTEREST).unwrap();
        waker.wake().unwrap();
        assert_eq!(selector.poll(None).unwrap(), Some(WakeCause::Io), "I/O takes precedence over the waker");
    }

    #[test]
    fn e_48_the_second_poll_has_a_waker_of_its_own() {
        let (mut selector, _old) = Selector::new().unwrap();
        let (successor, waker) = selector.successor().unwrap();
        selector.replace(successor);
        assert_eq!(selector.number(), 2);
        waker.wake().unwrap();
        assert_eq!(selector.poll(None).unwrap(), Some(WakeCause::Waker));
    }
}
