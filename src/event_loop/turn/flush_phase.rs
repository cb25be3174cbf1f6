//! The last phase of a turn: flushes and closes channels, ends the handlers of closed channels, and
//! updates the gauges.
//!
//! Tasks, timers and other channels have written to channels in this turn. Each of these channels
//! is flushed once, so one write sends everything. It also sends bytes that the write directly
//! after a read has left over.
//!
//! Invariants: a channel is flushed at most once per turn in this phase. A handler is dropped after
//! its `inactive` returns, when its slot is already free. Runs on the loop's thread.

use super::Turn;
use crate::{
    error::caught,
    event_loop::{
        budget::Span,
        closing::{ClosedChannel, SocketAfterClose, close_on_worker},
        sources::Slot,
    },
    id::Key,
    log_throttle::{PANICS, log_throttled},
};
use log::Level;

impl Turn {
    /// Flushes and closes channels that have requested it. A channel that requests it again during
    /// this call waits for the next turn.
    #[inline(always)]
    pub(super) fn flush_channels(&mut self) {
        if self.io.services.attention.is_empty() {
            if self.stopwatch.span() == Span::Flushing {
                // Nothing to flush: the time until the next reading is charged to the poll.
                self.stopwatch.rename(Span::Polling);
            }
            return;
        }
        if self.stopwatch.is_sampled() {
            self.stopwatch.rename(Span::Io);
            self.lap(Span::FlushingAndPolling);
        }
        let mut attention = std::mem::take(&mut self.io.services.attention);
        let mut listed = attention.drain(..);
        self.guarded(|turn, current| {
            let Turn { sources, io, shared, .. } = turn;
            for key in listed.by_ref() {
                *current = Some(key);
                if let Some(slot) = sources.channel(key) {
                    slot.attend(io, &shared.metrics);
                }
            }
        });
        drop(listed);
        // Keeps the allocation of the list. Usually no channel was added in the meantime.
        attention.append(&mut self.io.services.attention);
        self.io.services.attention = attention;
    }

    /// Calls `inactive` for channels that are closed, and drops their handlers.
    #[inline]
    pub(super) fn end_closed(&mut self) {
        if !self.io.inactive.is_empty() {
            self.end_channels();
        }
    }

    #[inline(never)]
    fn end_channels(&mut self) {
        for ClosedChannel { key, socket } in std::mem::take(&mut self.io.inactive) {
            self.note_end_of(key);
            self.note_age_ended(key);
            // Removed first, so that a panic leaves nothing behind.
            match socket {
                SocketAfterClose::Closed => {
                    let slot = self.sources.remove(key);
                    self.end_handler(key, slot);
                }
                SocketAfterClose::Lingering(mut socket) => {
                    let assignment = self.sources.channel(key).and_then(|slot| slot.assignment.take());
                    socket.assignment = assignment;
                    let slot = self.sources.linger(key, Box::new(socket)).map(Box::new);
                    self.end_handler(key, slot);
                    self.limit_lingering();
                }
                SocketAfterClose::ClosedByWorker(stream, time) => {
                    let assignment = self.sources.channel(key).and_then(|slot| slot.assignment.take());
                    let slot = self.sources.remove(key);
                    self.end_handler(key, slot);
                    self.guarded_once(None, |turn| {
                        close_on_worker(stream, time, assignment, &turn.io.services);
                    });
                }
            }
        }
    }

    /// Closes the oldest lingering sockets if there are too many.
    fn limit_lingering(&mut self) {
        while self.sources.lingering() > self.io.max_lingering
            && let Some(oldest) = self.sources.oldest_lingering()
        {
            self.shared.metrics.lingering_cut.add(1);
            self.end_source(oldest, Ok(()));
        }
        self.shared.metrics.lingering.set(self.sources.lingering() as u64);
    }

    /// Calls `inactive` and drops the handler.
    #[inline]
    fn end_handler(&mut self, key: Key, mut slot: Option<Box<Slot>>) {
        self.guarded_once(None, |turn| match slot.as_deref_mut() {
            Some(Slot::Channel(slot)) => slot.driver.core.handle_inactive(&mut turn.io.services),
            Some(Slot::Other(source)) => source.inactive(&mut turn.context(key)),
            Some(Slot::Lingering(_)) | None => {}
        });
        if let Some(message) = caught(|| drop(slot)) {
            let name = &self.shared.name;
            caught(|| {
                log_throttled!(
                    self.io.services,
                    PANICS,
                    Level::Error,
                    "{name}: dropping a handler panicked: {message}"
                );
            });
        }
    }

    /// Updates the gauges after a shutdown has ended sources behind the flush.
    #[cold]
    pub(super) fn update_gauges_in_shutdown(&mut self) {
        self.update_gauges();
    }

    #[inline(always)]
    pub(super) fn update_gauges(&mut self) {
        let metrics = &self.shared.metrics;
        metrics.timers_pending.set(self.io.services.queue.len() as u64);
        metrics.wheel_pending.set(self.io.services.wheel.len() as u64);
        let outbound = &mut self.io.services.outbound;
        outbound.exchange();
        metrics.outbound_bytes.set(outbound.used() as u64);
        if let Some(readings) = self.io.services.io_time.take_readings() {
            metrics.clock_reads.add(readings);
        }
        metrics.fold(&mut self.io.services.tally);
        let now = self.io.services.now;
        if self.shared.log.is_due(now) {
            self.guarded_once(None, |turn| turn.shared.log.report(now));
        }
    }
}
