//! The result of a broadcast, by number of members.

/// The number of members that a broadcast has reached or missed, by result.
///
/// `members` is the sum of all the others. `dropped`, `refused`, `failed` and `unreached` count
/// connected members that have missed the message. `gone` counts members that were no longer
/// connected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BroadcastReport {
    /// The recipients.
    pub members: usize,
    /// The message is in the member's buffer or was passed to the kernel.
    pub written: usize,
    /// The member's policy ([`Overflow::DropNewest`](crate::channel::Overflow::DropNewest)) dropped
    /// the message.
    pub dropped: usize,
    /// The member had no room for the message
    /// ([`Overflow::Refuse`](crate::channel::Overflow::Refuse)), and its handler received an error.
    pub refused: usize,
    /// The member had no room for the message and was closed
    /// ([`Overflow::Close`](crate::channel::Overflow::Close)).
    pub closed: usize,
    /// The message could not be encoded.
    pub failed: usize,
    /// The member was closed or closing before the message reached it, or had ended its output.
    pub gone: usize,
    /// The member's loop refused the message: its queue was full, it had ended, or it was
    /// overloaded and the group is a bulk group.
    pub unreached: usize,
}

impl BroadcastReport {
    pub(super) fn counted(&self) -> usize {
        self.written + self.dropped + self.refused + self.closed + self.failed + self.gone + self.unreached
    }

    pub(in crate::channel) fn add(&mut self, part: &BroadcastReport) {
        self.members += part.members;
        self.written += part.written;
        self.dropped += part.dropped;
        self.refused += part.refused;
        self.closed += part.closed;
        self.failed += part.failed;
        self.gone += part.gone;
        self.unreached += part.unreached;
    }
}
