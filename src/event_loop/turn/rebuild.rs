//! Moving to a new poll.
//!
//! Always holds: if no new poll can be opened, the old one stays in use; one source that cannot be moved is closed,
//! with its error, and the others go on; no readiness and no wake is lost. How often the loop may do this by itself
//! is `spin`'s to say. Runs on the loop's thread.

use super::Turn;
use crate::{Error, Result, event_loop::sources::Slot, id::Key};
use std::{fmt, time::Duration};

/// Why a poll was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RebuildCause {
    /// The program asked for it.
    Asked,
    /// It returned for no reason again and again.
    Premature,
    /// It failed.
    PollFailed {
        /// Whether that was not said in the minute before.
        first: bool,
    },
}

/// What came of replacing a poll; see [`EventLoop::rebuild_poll`](crate::EventLoop::rebuild_poll).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RebuildReport {
    /// Why it was done.
    pub cause: RebuildCause,
    /// Which poll of the loop was replaced; the first is 1.
    pub old_poll: u64,
    /// Which is in use now.
    pub new_poll: u64,
    /// Listeners, connections, connections in the making and datagram channels that were moved.
    pub moved: usize,
    /// Those that could not be moved and were closed, with the error.
    pub closed: usize,
    /// How long it took, by the loop's clock.
    pub took: Duration,
}

impl fmt::Display for RebuildCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RebuildCause::Asked => "asked for",
            RebuildCause::Premature => "it returned for no reason",
            RebuildCause::PollFailed { .. } => "it failed",
        })
    }
}

impl fmt::Display for RebuildReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RebuildReport { cause, old_poll, new_poll, moved, closed, took } = self;
        write!(f, "poll rebuilt ({cause}): {moved} sources moved, {closed} closed; ")?;
        write!(f, "poll {new_poll} instead of {old_poll}, in {took:?}")
    }
}

impl RebuildCause {
    /// What a person should see: not what was asked for, and of a poll that fails again and again not every time.
    fn level(self) -> log::Level {
        match self {
            RebuildCause::Asked => log::Level::Info,
            RebuildCause::Premature | RebuildCause::PollFailed { first: true } => log::Level::Warn,
            RebuildCause::PollFailed { first: false } => log::Level::Debug,
        }
    }
}

impl Turn {
    /// Opens a new poll and moves everything to it.
    ///
    /// # Errors
    /// If none can be opened (logged already); the old one stays in use then.
    pub(crate) fn rebuild(&mut self, cause: RebuildCause) -> Result<RebuildReport> {
        self.spin.rebuilt();
        if cfg!(windows) {
            // mio leaves it open whether a source may change its poll; there it may not.
            log::log!(cause.level(), "{}: the poll cannot be replaced on this system", self.shared.name);
            return Err(Error::other("the poll cannot be replaced on this system"));
        }
        let began = self.time().now();
        let old_poll = self.io.selector.number();
        let (successor, waker) = match self.io.selector.successor() {
            Ok(pair) => pair,
            Err(e) => {
                let name = &self.shared.name;
                log::log!(cause.level(), "{name}: cannot open a new poll, keeping the old one: {e}");
                return Err(Error::io("opening a new poll", e));
            }
        };
        let mut moved = 0;
        let mut failed = Vec::new();
        for key in self.sources.keys() {
            let result = match self.sources.get(key) {
                Some(Slot::Channel(slot)) => {
                    let Some(stream) = &mut slot.stream else { continue };
                    self.io.selector.move_source(&successor, stream.source(), key.token(), true)
                }
                Some(Slot::Connecting(connecting)) => {
                    self.io.selector.move_source(&successor, connecting.stream.source(), key.token(), true)
                }
                Some(Slot::Listener(listening)) => {
                    self.io.selector.move_source(&successor, listening.listener.source(), key.token(), false)
                }
                Some(Slot::Datagram(slot)) => {
                    let Some(source) = slot.source() else { continue };
                    self.io.selector.move_source(&successor, source, key.token(), true)
                }
                Some(Slot::Lingering(socket)) => {
                    self.io.selector.move_source(&successor, socket.stream.source(), key.token(), true)
                }
                #[cfg(unix)]
                Some(Slot::Foreign(slot)) => {
                    let (descriptor, interest) = slot.watched();
                    let source = &mut mio::unix::SourceFd(&descriptor);
                    self.io.selector.move_source_for(&successor, source, key.token(), interest)
                }
                None => continue,
            };
            match result {
                Ok(()) => moved += 1,
                Err(e) => failed.push((key, e)),
            }
        }
        // Wakes from here on go to the new poll. One that went to the old poll is lost, but whatever it announced
        // is in the queue, and the queue is looked at before the next sleep.
        self.shared.swap_waker(waker);
        self.io.selector.replace(successor);
        let took = self.time().now().saturating_sub(began);
        let report = RebuildReport {
            cause,
            old_poll,
            new_poll: self.io.selector.number(),
            moved,
            closed: failed.len(),
            took: Duration::from_nanos(took),
        };
        let metrics = &self.shared.metrics;
        metrics.rebuilds.add(1);
        metrics.sources_moved.add(moved as u64);
        metrics.sources_lost.add(failed.len() as u64);
        metrics.time_rebuilding.add(took);
        metrics.clock_reads.add(2);
        let mut failed = failed.into_iter();
        self.guarded(|turn, _| {
            for (key, e) in failed.by_ref() {
                turn.fail_source(key, Error::io("moving to a new poll", e));
            }
        });
        log::log!(cause.level(), "{}: {report}", self.shared.name);
        Ok(report)
    }

    /// Closes one source because of an error.
    pub(crate) fn fail_source(&mut self, key: Key, error: Error) {
        let Turn { sources, io, shared, .. } = self;
        match sources.get(key) {
            Some(Slot::Channel(slot)) => {
                slot.core.handle_io_error(&mut io.services, error);
                slot.settle(io, &shared.metrics);
            }
            Some(Slot::Connecting(_)) => self.fail_connect(key, error),
            Some(Slot::Listener(listening)) => {
                log::error!("{}: the listener on {} is lost: {error}", shared.name, listening.address);
                self.close_listener(key);
            }
            Some(Slot::Datagram(slot)) => slot.fail_for_good(io, &shared.metrics, error),
            Some(Slot::Lingering(_)) => self.end_lingering(key),
            #[cfg(unix)]
            Some(Slot::Foreign(_)) => self.fail_event_source(key, error),
            None => {}
        }
    }
}
