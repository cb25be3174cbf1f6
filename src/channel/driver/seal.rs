//! Output of a channel with filters: plaintext is sealed when it is flushed.
//!
//! Invariant: a channel without filters does not use this module.

use super::{ChannelDriver, loop_io::LoopIo, transport::Transport};
use crate::{
    channel::{
        LoopServices, Readiness,
        core::{ChannelCore, ReadDemand},
        filter::Filters,
    },
    error::Error,
    metrics::Metrics,
};
use std::io;

impl<T: Transport> ChannelDriver<T> {
    /// Ends the output of the filters. Returns whether everything is sent.
    pub(super) fn finish_output(&mut self, io: &mut LoopIo) -> bool {
        if !self.core.state.extras.has_filters() {
            return true;
        }
        let ended = self.core.state.with_filters(&mut io.services, |filters, lent| filters.end_output(lent));
        if let Err(error) = ended {
            fail(&mut self.core, &mut io.services, error);
            return true;
        }
        self.flush(io);
        !self.core.state.extras.has_sealed()
    }
}

/// Handles the failure of a filter.
#[cold]
pub(super) fn fail(core: &mut ChannelCore, services: &mut LoopServices, error: Error) {
    core.fail_filters(services, error);
}

/// Seals pending bytes up to the limit. Returns the number of bytes for the transport.
pub(super) fn seal(core: &mut ChannelCore, services: &mut LoopServices) -> usize {
    let is_due = |core: &ChannelCore| core.state.extras.filters().is_some_and(Filters::is_due);
    // A call that was due before waits for the read, perhaps for a traffic limit.
    let was_due = is_due(core);
    if let Err(error) = core.state.seal(services) {
        fail(core, services, error);
        return 0;
    }
    if !was_due && is_due(core) {
        // Input that was kept for a filter which has finished with its output.
        core.state.status.set(Readiness::MAYBE_READABLE);
        core.state.want_attention(services);
    }
    if core.state.status.has(ReadDemand::HANDSHAKING) && core.state.status.is_active() {
        // A filter may have begun another handshake with its output.
        core.proceed_with_handshake(services);
    }
    core.state.extras.sealed_wire().len()
}

/// Writes at most `most` sealed bytes.
pub(super) fn write<T: Transport>(core: &ChannelCore, transport: &mut T, most: usize) -> io::Result<usize> {
    let wire = core.state.extras.sealed_wire();
    transport.write(&wire[..wire.len().min(most)])
}

/// Records that the transport has accepted `n` sealed bytes.
#[inline(always)]
pub(super) fn written(core: &mut ChannelCore, services: &mut LoopServices, metrics: &Metrics, n: usize) {
    metrics.bytes_written.add(n as u64);
    core.handle_sealed_written(services, n);
}
