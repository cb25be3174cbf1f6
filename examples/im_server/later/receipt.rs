//! The outcome of a kept message that was sent to its receiver.

use super::{End, Kept, Later};
use std::sync::Arc;

/// Ends a kept message that was acknowledged. Without an acknowledgement in time, the message is
/// held until the receiver's next login. If the connection has closed, the message is sent on the
/// receiver's next connection, which may be open already.
pub(crate) struct KeptReceipt {
    later: Arc<Later>,
    kept: Arc<Kept>,
    pub(crate) bytes: usize,
    has_ended: bool,
}

impl KeptReceipt {
    pub(super) fn new(later: Arc<Later>, kept: Arc<Kept>) -> Self {
        KeptReceipt { later, bytes: kept.len(), kept, has_ended: false }
    }

    pub(crate) fn delivered(mut self) {
        self.has_ended = true;
        self.later.end(&self.kept.to, self.kept.id, End::Delivered);
    }

    /// Called when the message was not acknowledged in time, or could not be sent.
    pub(crate) fn failed(mut self) {
        self.has_ended = true;
        self.later.mailbox.hold(&self.kept);
    }
}

impl Drop for KeptReceipt {
    fn drop(&mut self) {
        if !self.has_ended {
            self.later.return_kept(&self.kept);
        }
    }
}
