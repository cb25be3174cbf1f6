//! Moving to a new poll.
//!
//! Always holds: if no new poll can be opened, the old one stays in use; one source that cannot be moved is closed,
//! with its error, and the others go on; no readiness and no wake is lost. Runs on the loop's thread.

use super::{sources::Slot, turn::Turn};
use crate::{Error, Result, id::Key};

impl Turn {
    /// Opens a new poll and moves everything to it.
    ///
    /// # Errors
    /// If none can be opened (logged already); the old one stays in use then.
    pub(crate) fn rebuild(&mut self) -> Result {
        if cfg!(windows) {
            // mio leaves it open whether a source may change its poll; there it may not.
            self.io.selector.worked();
            log::warn!(
                "{}: the poll returns for no reason, and cannot be replaced on this system",
                self.shared.name
            );
            return Err(Error::other("the poll cannot be replaced on this system"));
        }
        let began = self.time().now();
        let (successor, waker) = match self.io.selector.successor() {
            Ok(pair) => pair,
            Err(e) => {
                log::warn!("{}: cannot open a new poll, keeping the old one: {e}", self.shared.name);
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
        let metrics = &self.shared.metrics;
        metrics.rebuilds.add(1);
        metrics.sources_moved.add(moved);
        metrics.sources_lost.add(failed.len() as u64);
        metrics.time_rebuilding.add(self.time().now().saturating_sub(began));
        metrics.clock_reads.add(2);
        log::warn!("{}: poll rebuilt: {moved} sources moved, {} closed", self.shared.name, failed.len());
        for (key, e) in failed {
            self.fail_source(key, Error::io("moving to a new poll", e));
        }
        Ok(())
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
            None => {}
        }
    }
}
