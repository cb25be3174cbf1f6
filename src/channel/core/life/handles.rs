//! The state that a channel shares with its handles.

use super::super::{ChannelState, services::LoopServices, status::Memory};
use crate::channel::{ChannelShared, SizeHint};
use std::sync::Arc;

impl ChannelState {
    /// Refuses further messages of handles, as if the output had ended. The pipeline still writes.
    #[cfg(feature = "websocket")]
    pub(crate) fn refuse_handles(&mut self) {
        self.status.set(Memory::HANDLES_REFUSED);
        if let Some(shared) = self.shared.get() {
            shared.set_output_ended();
        }
    }

    /// Returns the state that the handles of this channel share. Created at the first request.
    pub(crate) fn share(&self, services: &LoopServices, size_hint: SizeHint) -> Arc<ChannelShared> {
        self.shared.get_or_init(|| Arc::new(self.new_shared(services, size_hint))).clone()
    }

    #[cold]
    fn new_shared(&self, services: &LoopServices, size_hint: SizeHint) -> ChannelShared {
        let shared = ChannelShared::new(
            self.id(),
            services.sender.clone(),
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
        if self.status.output_is_over() || self.status.has(Memory::HANDLES_REFUSED) {
            shared.set_output_ended();
        }
        shared.producers.add_unconfirmed(self.outbound.unanswered());
        shared.producers.begin(self.outbound.weight(), self.status.has(Memory::WRITABLE));
        shared
    }
}
