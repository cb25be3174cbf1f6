//! The policy for a message that does not fit into the buffer.

use super::super::{ChannelState, services::LoopServices, status::Memory};
use crate::{
    channel::{budget::OutboundLease, close_cause::CloseCause, config::Overflow},
    error::{Error, Result},
    log_throttle::{SLOW_PEERS, log_throttled},
};
use log::Level;

impl ChannelState {
    /// Applies the overflow policy to a message that could not be written.
    #[cold]
    pub(crate) fn write_failed(&mut self, services: &mut LoopServices, error: Error) -> Result {
        if OutboundLease::is_full(&error) { self.overflow(services) } else { Err(error) }
    }

    fn overflow(&mut self, services: &mut LoopServices) -> Result {
        let refuses = self.status.take(Memory::REFUSES);
        match self.config.overflow {
            Overflow::DropNewest if !refuses => {
                services.tally.messages_dropped += 1;
                self.extras.note_messages_dropped(1);
                self.status.set(Memory::DROPPED);
                return Ok(());
            }
            Overflow::Close if self.status.is_open() => {
                let full = self.outbound_is_full();
                let id = self.id();
                log_throttled!(
                    services,
                    SLOW_PEERS,
                    Level::Info,
                    "channel {id}: its peer does not keep up ({full}); closing"
                );
                services.note_logged(id.key, &full);
                services.tally.closes_overflowed += 1;
                self.outbound.note_error(|| full);
                self.request_close_now(CloseCause::Failed);
            }
            _ => services.tally.messages_refused += 1,
        }
        Err(self.outbound_is_full())
    }

    /// Drops messages until the buffer holds seven eighths of its limit, if it exceeds the limit.
    #[cold]
    pub(super) fn drop_oldest(&mut self, services: &mut LoopServices) {
        let (pending, limit) = (self.outbound.pending_bytes(), self.outbound.limit(&self.config));
        if pending <= limit {
            return;
        }
        let full = self.outbound_is_full();
        let sealed = self.extras.sealed_bytes();
        let Some(lease) = &mut self.outbound.lease else { return };
        let dropped = lease.writes.drop_oldest(sealed, pending - limit + limit / 8, || full.clone());
        self.note_answered(dropped.answered);
        services.tally.messages_dropped += dropped.messages as u64;
        self.extras.note_messages_dropped(dropped.messages as u64);
        self.drop_behind(dropped.keep, dropped.bytes);
        if self.outbound.pending_bytes() == 0
            && let Some(lease) = &mut self.outbound.lease
        {
            // The messages of no bytes that are left have nothing in front of them now.
            let answered = lease.writes.consume(0);
            self.note_answered(answered);
        }
    }

    /// Drops the `n` bytes behind the first `keep`.
    fn drop_behind(&mut self, keep: usize, n: usize) {
        #[cfg(feature = "simulation")]
        crate::machine::simulated::note_dropped_output();
        // The time limits must count the bytes before their loss is recorded.
        self.note_pending(self.now());
        if let Some(lease) = &mut self.outbound.lease {
            lease.buffer.drop_behind(keep, n);
        }
        self.note_dropped(keep, n);
    }

    /// Returns the time of the phase during a call of the pipeline, and otherwise of the last
    /// traffic.
    fn now(&self) -> u64 {
        let last = self.inbound.last_read().max(self.outbound.last_written);
        self.outbound.leased_at().unwrap_or(last)
    }
}
