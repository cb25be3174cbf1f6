//! Bytes that the transport has accepted, with filters and without.
//!
//! Without filters the transport takes bytes of the buffer. With filters it takes sealed bytes. The
//! plaintext stays in the buffer until the last byte of its record was accepted, so a message is
//! confirmed when its peer may receive it.

use super::super::{ChannelCore, ChannelState, services::LoopServices};
use crate::{
    channel::{
        filter::{Filters, Lent},
        shaping::Direction,
    },
    error::Result,
};

impl ChannelCore {
    /// Records that the transport has accepted `n` bytes.
    #[inline(always)]
    pub(in crate::channel) fn handle_written(&mut self, services: &mut LoopServices, n: usize) {
        self.state.log_written(n);
        self.state.note_wire(n, services.now);
        self.state.take_sent(n);
        self.finish_write(services);
    }

    /// Records that the transport has accepted `n` bytes that filters have sealed.
    #[inline(always)]
    pub(in crate::channel) fn handle_sealed_written(&mut self, services: &mut LoopServices, n: usize) {
        let state = &mut self.state;
        state.log_sealed(n);
        state.note_wire(n, services.now);
        let filters = state.extras.filters_mut();
        let plain = filters.map_or(0, |filters| filters.take(n, &mut services.lend_to_filters()));
        if plain > 0 {
            state.log_sent_plaintext(plain);
            state.take_sent(plain);
        }
        self.finish_write(services);
    }

    #[inline(always)]
    fn finish_write(&mut self, services: &mut LoopServices) {
        self.state.outbound.give_back(services);
        self.notify_writability(services);
    }
}

impl ChannelState {
    /// Returns whether bytes wait for the transport: messages, or sealed bytes of filters. A filter
    /// also sends bytes of its own, without a message.
    pub(crate) fn has_unsent(&self) -> bool {
        self.outbound.pending_bytes() > 0 || self.extras.has_sealed()
    }

    /// Accounts for `n` bytes of the wire.
    #[inline]
    fn note_wire(&mut self, n: usize, now: u64) {
        self.outbound.bytes += n as u64;
        self.outbound.last_written = now;
        self.note_moved(Direction::Write, n);
    }

    /// Removes the first `n` bytes from the buffer. Completes the writes that end within them.
    #[inline(always)]
    fn take_sent(&mut self, n: usize) {
        // Includes messages of stages: a message that is partly sent must not be dropped.
        self.enter_written();
        if let Some(lease) = &mut self.outbound.lease {
            lease.buffer.consume(n);
        }
        self.note_taken(n);
        self.confirm_taken(n);
    }

    // ---- filters ----

    /// Seals pending bytes up to the limit. They stay in the buffer until the transport has
    /// accepted the corresponding sealed bytes.
    pub(in crate::channel) fn seal(&mut self, services: &mut LoopServices) -> Result {
        match (self.extras.filters_mut(), &self.outbound.lease) {
            (Some(filters), Some(lease)) if !lease.buffer.is_empty() => {
                let sealed = filters.seal(&lease.buffer, &mut services.lend_to_filters());
                self.note_filters();
                sealed
            }
            _ => Ok(()),
        }
    }

    /// Seals all pending bytes, because a filter is added that must not see them.
    pub(in crate::channel::core) fn seal_all(&mut self, services: &mut LoopServices) -> Result {
        self.outbound.keep_waiting();
        match (self.extras.filters_mut(), &self.outbound.lease) {
            (Some(filters), Some(lease)) => filters.seal_all(&lease.buffer, &mut services.lend_to_filters()),
            _ => Ok(()),
        }
    }

    /// Calls the filters, if there are any.
    pub(in crate::channel) fn with_filters(
        &mut self,
        services: &mut LoopServices,
        f: impl FnOnce(&mut Filters, &mut Lent<'_>) -> Result,
    ) -> Result {
        let Some(filters) = self.extras.filters_mut() else { return Ok(()) };
        let result = f(filters, &mut services.lend_to_filters());
        self.note_filters();
        result
    }
}
