//! Output of a channel with filters: plaintext is sealed when it is flushed.
//!
//! Invariant: a channel without filters does not use this module.

use super::{ChannelDriver, LoopIo, Transport};
use crate::{
    Error,
    channel::{core::ChannelCore, services::LoopServices},
    log_throttle::{BROKEN, log_throttled},
    metrics::Metrics,
};
use log::Level;
use std::io;

impl<T: Transport> ChannelDriver<T> {
    /// Ends the output of the filters. Returns whether everything is sent.
    pub(super) fn finish_output(&mut self, io: &mut LoopIo) -> bool {
        let Some(filters) = self.core.state.extras.filters_mut() else { return true };
        if let Err(error) = filters.end_output() {
            fail(&mut self.core, &mut io.services, error);
            return true;
        }
        self.flush(io);
        self.core.state.extras.sealed_wire().is_empty()
    }
}

/// Handles the failure of a filter. A handler that was never called is not notified.
#[cold]
pub(super) fn fail(core: &mut ChannelCore, services: &mut LoopServices, error: Error) {
    if core.state.status.is_active() {
        core.handle_io_error(services, error);
        return;
    }
    services.tally.channel_errors += 1;
    let id = core.state.id();
    log_throttled!(services, BROKEN, Level::Debug, "channel {id}: not established: {error:#}");
    core.state.note_cause(|| error);
    core.state.request_close_now();
    core.state.want_attention(services);
}

/// Seals pending bytes, as far as the limit allows. Returns the number of bytes for the transport.
pub(super) fn seal(core: &mut ChannelCore, services: &mut LoopServices) -> usize {
    if let Err(error) = core.state.seal() {
        fail(core, services, error);
        return 0;
    }
    core.state.extras.sealed_wire().len()
}

/// Writes at most `most` sealed bytes.
pub(super) fn write<T: Transport>(core: &ChannelCore, transport: &mut T, most: usize) -> io::Result<usize> {
    let wire = core.state.extras.sealed_wire();
    transport.write(&wire[..wire.len().min(most)])
}

/// Records that the transport has accepted `n` sealed bytes.
pub(super) fn written(core: &mut ChannelCore, services: &mut LoopServices, metrics: &Metrics, n: usize) {
    metrics.bytes_written.add(n as u64);
    core.handle_sealed_written(services, n);
}
