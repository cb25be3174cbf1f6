//! Moving to a new poll.
//!
//! Each source is deregistered from the old poll and registered with the new one, in this order,
//! because mio refuses the reverse. A new registration reports present readiness, so no edge is
//! lost. The waker is swapped afterwards. A wake that went to the old poll is lost, but its mail is
//! in the queue, which the loop checks before its next sleep. The log, the metrics and a
//! [`PollRebuild`] describe the result.
//!
//! Invariants: if a new poll cannot be opened, the old one stays in use. A source that cannot be
//! moved is closed with its error, and the others continue. `poll::SpinGuard` limits how often the
//! loop rebuilds by itself. Windows cannot replace a poll. Runs on the loop's thread.

use super::Turn;
use crate::{
    error::{Error, Result},
    event_loop::poll::{PollRebuild, RebuildCause, Successor},
    id::Key,
};
use std::{io, time::Duration};

impl Turn {
    /// Opens a new poll and moves all sources to it.
    ///
    /// # Errors
    /// [`Error::Io`] if no poll can be opened, and [`Error::Other`] on systems without this. Both
    /// have been logged. The old poll then stays in use.
    pub(crate) fn rebuild(&mut self, cause: RebuildCause) -> Result<PollRebuild> {
        self.spin.rebuilt();
        if cfg!(windows) {
            // mio does not specify whether a source may change its poll. On Windows it may not.
            log::log!(cause.level(), "{}: the poll cannot be replaced on this system", self.shared.name);
            return Err(Error::other("the poll cannot be replaced on this system"));
        }
        let began = self.time().now();
        let old_poll = self.io.selector.number();
        let (successor, waker) = match self.io.selector.successor() {
            Ok(pair) => pair,
            Err(e) => {
                let name = &self.shared.name;
                log::log!(cause.level(), "{name}: cannot open a new poll, keeping the old one: {e:#}");
                return Err(Error::io("opening a new poll", e));
            }
        };
        let (moved, failed) = self.move_sources(&successor);
        // From here on, wakes go to the new poll. A wake that went to the old poll is lost, but its
        // mail is in the queue, which is checked before the next sleep.
        self.shared.swap_waker(waker);
        self.io.selector.replace(successor);
        let took = self.time().now().saturating_sub(began);
        let report = PollRebuild {
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

    /// Moves all sources. Returns the number of moved sources, and the keys of the others with
    /// their errors.
    fn move_sources(&mut self, successor: &Successor) -> (usize, Vec<(Key, io::Error)>) {
        let (mut moved, mut failed) = (0, Vec::new());
        for key in self.sources.keys() {
            let Turn { sources, io, .. } = self;
            let Some(slot) = sources.get(key) else { continue };
            match slot.as_source().watched(&mut |source, interest| {
                io.selector.move_source(successor, source, key.token(), interest)
            }) {
                None => {}
                Some(Ok(())) => moved += 1,
                Some(Err(e)) => failed.push((key, e)),
            }
        }
        (moved, failed)
    }
}
