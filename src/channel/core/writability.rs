//! The notifications of a change of writability, which `state::writability` defines.

use super::{ChannelCore, replace::AT_ONCE};
use crate::channel::{event::Event, services::LoopServices, state::Memory};

impl ChannelCore {
    /// Notifies the handler of each change of writability.
    #[inline]
    pub(in crate::channel) fn tell_writability(&mut self, services: &mut LoopServices) {
        if !self.state.is_settled() {
            self.settle_writability(services);
        }
    }

    #[inline(never)]
    fn settle_writability(&mut self, services: &mut LoopServices) {
        // A notified handler may write and change the state again. It is notified of that
        // immediately: the bytes may all be sent before the next check, and a waiting writer would
        // never be woken.
        for _ in 0..AT_ONCE {
            match self.state.update_writable() {
                Some(writable) => self.tell_flip(services, writable),
                None => return,
            }
        }
        // A writer that drops its oldest messages in each notification would change the state
        // endlessly. The last notification is `true`, so that the writer does not wait.
        if !self.state.status.has(Memory::WRITABLE)
            && let Some(writable) = self.state.update_writable()
        {
            self.tell_flip(services, writable);
        }
    }

    #[cold]
    fn tell_flip(&mut self, services: &mut LoopServices, writable: bool) {
        if !self.state.status.is_active() || !self.state.status.is_open() {
            return;
        }
        self.state.borrow_outbound(services);
        self.tell_or_fail(services, Event::Writability(writable));
        self.take_over(services);
        self.tell_failure(services);
        self.note_written(services);
        self.state.return_outbound(services);
        self.state.want_attention(services);
    }
}
