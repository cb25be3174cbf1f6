//! The outcome of a kept message that was sent to its receiver.

use super::{End, Kept, Later};
use std::sync::Arc;

/// Ends a kept message that was acknowledged. If it is dropped without that, the message is held
/// until the receiver's next login.
pub(crate) struct KeptReceipt {
    later: Arc<Later>,
    kept: Arc<Kept>,
    pub(crate) bytes: usize,
    is_delivered: bool,
}

impl KeptReceipt {
    pub(super) fn new(later: Arc<Later>, kept: Arc<Kept>) -> Self {
        KeptReceipt { later, bytes: kept.len(), kept, is_delivered: false }
    }

    pub(crate) fn delivered(mut self) {
        self.is_delivered = true;
        self.later.end(&self.kept.to, self.kept.id, End::Delivered);
    }
}

impl Drop for KeptReceipt {
    fn drop(&mut self) {
        if !self.is_delivered {
            self.later.mailbox.hold(&self.kept);
        }
    }
}
