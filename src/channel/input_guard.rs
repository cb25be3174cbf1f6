//! Input bytes that the program is still processing, and the pauses of reading that follow.
//!
//! The program controls reading with `set_auto_read` and `read`. In addition, two flags pause a
//! channel with auto-read. `ReadDemand::INPUT_HELD` is set while too much of its input is being
//! processed. `ReadDemand::OUTPUT_FULL` is set while it is not writable, with
//! `read_while_writable`. Both take effect between two messages.
//!
//! Invariants: above the high mark the channel pauses its reading, and below the low mark it
//! resumes. A guard that ends a pause sends mail to the loop (`sync::HeldInput`). The program's own
//! setting does not change. [`InputGuard`] may be dropped on any thread; pauses happen on the loop.

use super::{ChannelShared, LoopServices, Mail, SizeHint};
use crate::channel::core::{ChannelState, ReadDemand};
use std::{fmt, sync::Arc};

/// A guard for input bytes that the program is still processing.
///
/// Returned by [`Context::hold_input`](crate::Context::hold_input) and
/// [`Context::pause_reading`](crate::Context::pause_reading). The channel pauses its reading while
/// too many bytes are held. Dropping the guard releases its bytes, on any thread. Send it along
/// with the work: to a queue, a database, another channel.
#[must_use = "dropping the guard releases the bytes at once"]
pub struct InputGuard {
    bytes: usize,
    shared: Arc<ChannelShared>,
}

impl ChannelState {
    /// Counts `bytes` as held until the guard is dropped, and pauses reading above the high mark.
    pub(crate) fn hold_input(
        &mut self,
        services: &mut LoopServices,
        bytes: usize,
        size_hint: SizeHint,
    ) -> InputGuard {
        let shared = self.share(services, size_hint);
        if shared.holding.add(bytes, self.config.inbound_mark) {
            self.status.set(ReadDemand::INPUT_HELD);
            services.tally.reads_held += 1;
        }
        InputGuard { bytes, shared }
    }

    /// Returns the smallest number of bytes that pauses reading when held.
    pub(crate) fn pausing_bytes(&self) -> usize {
        self.config.inbound_mark.high().saturating_add(1)
    }

    /// Returns the number of bytes that are held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.shared.get().map_or(0, |shared| shared.holding.bytes())
    }
}

impl InputGuard {
    /// Returns the number of bytes that this guard holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for InputGuard {
    fn drop(&mut self) {
        let shared = &self.shared;
        if shared.holding.give_back(self.bytes, shared.inbound_mark) {
            // If the loop has ended, so has the channel.
            let _ = shared.sender.deliver(shared.id.key, Mail::Released);
        }
    }
}

impl fmt::Debug for InputGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputGuard").field("channel", &self.shared.id).field("bytes", &self.bytes).finish()
    }
}
