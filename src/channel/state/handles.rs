//! The state that a channel shares with its handles.

use super::{ChannelState, Memory, ReadDemand};
use crate::channel::{
    handle::{ChannelShared, SizeHint},
    services::LoopServices,
};
use std::sync::Arc;

impl ChannelState {
    /// Returns the state that the handles of this channel share. Created at the first request.
    pub(crate) fn share(&self, services: &LoopServices, size_hint: SizeHint) -> Arc<ChannelShared> {
        self.shared.get_or_init(|| Arc::new(self.new_shared(services, size_hint))).clone()
    }

    #[cold]
    fn new_shared(&self, services: &LoopServices, size_hint: SizeHint) -> ChannelShared {
        let shared = ChannelShared::new(
            self.id(),
            services.outlet.clone(),
            (self.local_address(), self.peer_address()),
            &self.config,
            size_hint,
            self.extras.exchanges().cloned(),
        );
        if self.status.is_closed() {
            shared.set_closed(self.close_cause());
        } else if !self.status.is_open() {
            shared.set_closing();
        }
        if self.status.output_is_over() {
            shared.set_output_ended();
        }
        if let Some(pending_writes) = &self.pending_writes {
            shared.producers.add_unconfirmed(pending_writes.unanswered());
        }
        shared.producers.begin(self.weight(), self.status.has(Memory::WRITABLE));
        shared
    }

    /// Resumes reading after held input has dropped below the low mark, unless it is paused again
    /// by now.
    pub(crate) fn release(&mut self, services: &mut LoopServices) {
        if self.shared.get().is_some_and(|shared| shared.holding.is_paused()) {
            return;
        }
        self.status.unset(ReadDemand::INPUT_HELD);
        self.want_attention(services);
    }
}
