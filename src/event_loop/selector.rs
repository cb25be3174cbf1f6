//! The poll, why it returned, and when it has to be built anew.
//!
//! Always holds: every return has exactly one [`WakeCause`]; only [`WakeCause::Premature`] counts towards the
//! threshold, and I/O, a reached deadline, a signal or any work done sets the count back to zero; a waker event
//! or a poll that was not to sleep leaves it alone. Runs on the loop's thread. It does not own the sources that
//! it watches: their owner moves them when the poll is rebuilt.

use mio::{Events, Interest, Poll, Token, Waker, event::Source};
use std::{io, sync::Arc, time::Duration};

/// The waker's token; no source has it (see [`Key::MAX_INDEX`](crate::id::Key::MAX_INDEX)).
const WAKER: Token = Token(usize::MAX);

/// Events taken by one poll; the rest comes with the next one.
const EVENTS: usize = 1024;

/// Premature returns in a row after which the poll is rebuilt, as in Netty: high enough never to be reached by
/// chance, low enough to end a spin within milliseconds.
pub(crate) const DEFAULT_REBUILD_THRESHOLD: u32 = 512;

/// Why a poll returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeCause {
    /// A source is ready.
    Io,
    /// Another thread asked, or did so a little earlier.
    Waker,
    /// The time to sleep until is reached.
    Deadline,
    /// A signal (`EINTR`).
    Interrupted,
    /// It was not to sleep.
    NotAsleep,
    /// None of these.
    Premature,
}

pub(crate) struct Selector {
    poll: Poll,
    events: Option<Events>,
    premature: u32,
    threshold: u32,
}

impl Selector {
    /// A poll and the waker that belongs to it. A threshold below 3 never rebuilds.
    pub(crate) fn new(threshold: u32) -> io::Result<(Self, Arc<Waker>)> {
        let (poll, waker) = Self::open()?;
        let events = Some(Events::with_capacity(EVENTS));
        Ok((Selector { poll, events, premature: 0, threshold }, waker))
    }

    fn open() -> io::Result<(Poll, Arc<Waker>)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        Ok((poll, Arc::new(waker)))
    }

    /// Watches a source for reading and writing. Both from the start and edge-triggered: no call is needed later
    /// to change what is watched.
    pub(crate) fn register(&self, source: &mut dyn Source, token: usize, writable: bool) -> io::Result<()> {
        let interest = if writable { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        self.poll.registry().register(source, Token(token), interest)
    }

    /// Stops watching. Closing alone would not do: a duplicate of the descriptor would keep it watched.
    pub(crate) fn deregister(&self, source: &mut dyn Source) -> io::Result<()> {
        self.poll.registry().deregister(source)
    }

    /// Sleeps until something happens, at most for `timeout`.
    ///
    /// The cause is final but for one: whether nothing happened because the time was up is seen only after the
    /// clock was read, see [`Selector::nothing_happened`].
    pub(crate) fn poll(&mut self, timeout: Option<Duration>) -> io::Result<Option<WakeCause>> {
        let Some(events) = &mut self.events else { return Ok(Some(WakeCause::NotAsleep)) };
        match self.poll.poll(events, timeout) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {
                events.clear();
                self.premature = 0;
                return Ok(Some(WakeCause::Interrupted));
            }
            Err(e) => {
                events.clear();
                return Err(e);
            }
        }
        if events.iter().any(|event| event.token() != WAKER) {
            self.premature = 0;
            return Ok(Some(WakeCause::Io));
        }
        if !events.is_empty() {
            return Ok(Some(WakeCause::Waker));
        }
        Ok((timeout == Some(Duration::ZERO)).then_some(WakeCause::NotAsleep))
    }

    /// What it means that a poll which might sleep returned with nothing.
    pub(crate) fn nothing_happened(&mut self, deadline_reached: bool) -> WakeCause {
        if deadline_reached {
            self.premature = 0;
            WakeCause::Deadline
        } else {
            self.premature = self.premature.saturating_add(1);
            WakeCause::Premature
        }
    }

    /// A turn that ran something was not in vain, whatever woke it.
    #[inline]
    pub(crate) fn worked(&mut self) {
        self.premature = 0;
    }

    /// Whether there were so many premature returns in a row that the poll must be distrusted.
    pub(crate) fn must_rebuild(&self) -> bool {
        self.threshold >= 3 && self.premature >= self.threshold
    }

    /// Takes the events out, to handle them; they are given back with [`Selector::put_events`].
    pub(crate) fn take_events(&mut self) -> Option<Events> {
        self.events.take()
    }

    pub(crate) fn put_events(&mut self, mut events: Events) {
        events.clear();
        self.events = Some(events);
    }

    pub(crate) fn is_waker(token: Token) -> bool {
        token == WAKER
    }

    /// Opens a second poll to move to; the count starts anew.
    pub(crate) fn successor(&mut self) -> io::Result<(Successor, Arc<Waker>)> {
        self.premature = 0;
        let (poll, waker) = Self::open()?;
        Ok((Successor { poll }, waker))
    }

    /// Makes the second poll the one in use; the first is closed.
    pub(crate) fn replace(&mut self, successor: Successor) {
        self.poll = successor.poll;
    }

    /// Moves one source. First off the old poll, then onto the new one: mio refuses the reverse order in debug
    /// builds. A fresh registration reports what is ready at once, so no readiness is lost.
    pub(crate) fn move_source(
        &self,
        to: &Successor,
        source: &mut dyn Source,
        token: usize,
        writable: bool,
    ) -> io::Result<()> {
        if let Err(e) = self.poll.registry().deregister(source) {
            log::debug!("leaving the old poll: {e}");
        }
        let interest = if writable { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        to.poll.registry().register(source, Token(token), interest)
    }
}

/// The poll that will be in use next.
pub(crate) struct Successor {
    poll: Poll,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e_43_threshold_is_512_and_below_3_is_off() {
        assert_eq!(DEFAULT_REBUILD_THRESHOLD, 512);
        for (threshold, rebuilds) in [(512, true), (3, true), (2, false), (0, false)] {
            let (mut selector, _waker) = Selector::new(threshold).unwrap();
            for _ in 0..600 {
                selector.nothing_happened(false);
            }
            assert_eq!(selector.must_rebuild(), rebuilds, "threshold {threshold}");
        }
    }

    #[test]
    fn e_44_any_work_resets_the_count() {
        let (mut selector, _waker) = Selector::new(3).unwrap();
        selector.nothing_happened(false);
        selector.nothing_happened(false);
        selector.worked();
        selector.nothing_happened(false);
        assert!(!selector.must_rebuild());
        selector.nothing_happened(false);
        selector.nothing_happened(false);
        assert!(selector.must_rebuild());
    }

    #[test]
    fn e_44_a_ready_source_resets_the_count() {
        let (mut selector, _waker) = Selector::new(3).unwrap();
        selector.nothing_happened(false);
        selector.nothing_happened(false);
        let mut socket = mio::net::UdpSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        selector.register(&mut socket, 7, true).unwrap();
        assert_eq!(selector.poll(None).unwrap(), Some(WakeCause::Io), "it can be written to");
        selector.nothing_happened(false);
        assert!(!selector.must_rebuild());
    }

    #[test]
    fn e_48_the_count_begins_anew_with_the_second_poll() {
        let (mut selector, _waker) = Selector::new(3).unwrap();
        for _ in 0..3 {
            selector.nothing_happened(false);
        }
        let (successor, waker) = selector.successor().unwrap();
        assert!(!selector.must_rebuild());
        selector.replace(successor);
        waker.wake().unwrap();
        assert_eq!(selector.poll(None).unwrap(), Some(WakeCause::Waker), "its waker is the one in use");
    }

    #[test]
    fn e_45_a_reached_deadline_is_not_premature_and_a_zero_timeout_does_not_count() {
        let (mut selector, _waker) = Selector::new(3).unwrap();
        for _ in 0..10 {
            assert_eq!(selector.poll(Some(Duration::ZERO)).unwrap(), Some(WakeCause::NotAsleep));
        }
        assert!(!selector.must_rebuild());
        selector.nothing_happened(false);
        selector.nothing_happened(false);
        assert_eq!(selector.nothing_happened(true), WakeCause::Deadline);
        selector.nothing_happened(false);
        assert!(!selector.must_rebuild());
    }

    #[test]
    fn e_46_a_bare_waker_event_is_neither_io_nor_premature() {
        let (mut selector, waker) = Selector::new(3).unwrap();
        selector.nothing_happened(false);
        selector.nothing_happened(false);
        for _ in 0..5 {
            waker.wake().unwrap();
            assert_eq!(selector.poll(None).unwrap(), Some(WakeCause::Waker));
        }
        assert!(!selector.must_rebuild());
        selector.nothing_happened(false);
        assert!(selector.must_rebuild(), "the count is left as it was");
    }
}
