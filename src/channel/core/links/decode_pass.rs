//! One pass of decoding over the available input, and its limits.
//!
//! A codec or stage may make several messages of one input. It queues all but the first, and says
//! so with `has_more`. The links ask for queued messages before they decode more input. With the
//! default `has_more`, which is `false`, the compiler removes that. If delivery stops while a link
//! has queued messages, the core sets `UNDECODED`, and the driver resumes the delivery without
//! bytes or an event.
//!
//! Invariants: a pass delivers at most [`MAX_EXTRA_MESSAGES`] messages that consume no byte. A pass
//! without progress in bytes counts as a read of the turn. At the end of the stream, the driver
//! reads the end again after the remaining messages.

/// Whether further input follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Batch {
    /// More input may follow at once.
    Part,
    /// No more input for now.
    Complete,
    /// No more input at all: the peer has ended its stream.
    Last,
}

/// The limit per pass for messages that take no input: queued messages of the links, and last
/// messages of the codec. Further queued messages are delivered in the next turn.
pub(crate) const MAX_EXTRA_MESSAGES: u32 = 1024;

/// One pass over the available input. A flush interrupts a pass; the same pass continues
/// afterwards.
#[derive(Debug)]
pub struct DecodePass {
    batch: Batch,
    /// Whether `read_complete` has been called.
    completed: bool,
    /// The remaining number of messages that may take no input.
    extra: u32,
    /// Whether the time for I/O in this turn was up.
    timed_out: bool,
    /// The number of pipelines in a row that were replaced without progress.
    replaced: usize,
}

impl DecodePass {
    #[inline]
    pub(crate) fn new(batch: Batch) -> Self {
        DecodePass { batch, completed: false, extra: MAX_EXTRA_MESSAGES, timed_out: false, replaced: 0 }
    }

    #[inline]
    pub(crate) fn is_last(&self) -> bool {
        self.batch == Batch::Last
    }

    /// Returns whether no more input follows for now.
    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        self.batch == Batch::Complete
    }

    /// Records that `read_complete` is called in this pass.
    #[inline]
    pub(crate) fn set_completed(&mut self) {
        self.completed = true;
    }

    #[inline]
    pub(crate) fn completed(&self) -> bool {
        self.completed
    }

    /// Returns whether the limit for messages that take no input is reached.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.extra == 0
    }

    /// Returns whether the pass ended because the time for I/O in this turn was up.
    #[inline]
    pub(crate) fn timed_out(&self) -> bool {
        self.timed_out
    }

    /// Ends the pass because the time for I/O in this turn is up.
    pub(crate) fn time_out(&mut self) {
        self.timed_out = true;
    }

    /// Counts a pipeline that was replaced. Returns how many in a row made no progress.
    pub(crate) fn count_replacement(&mut self, made_progress: bool) -> usize {
        self.replaced = if made_progress { 0 } else { self.replaced + 1 };
        self.replaced
    }

    /// Counts a message without input of its own. Returns `false` beyond the limit.
    #[inline]
    pub(crate) fn spend(&mut self) -> bool {
        let left = self.extra.checked_sub(1);
        self.extra = left.unwrap_or(0);
        left.is_some()
    }
}
