//! Requests to a channel from any thread, and how they reach its loop.
//!
//! A [`Channel`](super::Channel) handle knows a [`MailSender`](super::MailSender), which the loop
//! (or the embedded test loop) implements. So this layer names nothing above it.

use crate::{
    channel::{HandleTask, TaskKey, confirmation::Confirmation},
    sync::ReservedWeight,
};
use std::any::Any;

/// A request to one channel. Runs on the channel's loop; dropped if the channel is gone.
pub(crate) enum Mail {
    /// A message to write: the pipeline's outermost outbound type, boxed.
    Message(Box<dyn Any + Send>, ReservedWeight),
    /// A message to write, with a confirmation that completes when the kernel has accepted it.
    Notify(Box<dyn Any + Send>, Confirmation, ReservedWeight),
    /// A message to write that replaces a waiting one with the same key.
    Latest(Box<LatestMessage>),
    /// A `RemoteTask` of the pipeline's handler, or of any handler with its outbound type, to run
    /// immediately.
    Run(Box<dyn Any + Send>),
    /// A task to run later, once or again and again.
    Schedule(Box<HandleTask>),
    /// A task that its handle has cancelled, so its place is free.
    Cancel(TaskKey),
    /// The answer that this task waits for has arrived.
    Answer(TaskKey),
    /// The bytes held by the program have fallen below the low mark.
    Released,
    /// The weight of a message that was not queued was given back: check the writability.
    CheckOutput,
    /// The filters continue with the input that they have left.
    WakeFilters,
    /// Call the stages' `timer`, because another thread has changed the condition that a stage
    /// waits for.
    WakeStages,
    /// End the output after a flush.
    EndOutput,
    /// Close after a flush.
    Close,
    /// Close without a flush.
    CloseNow,
    /// Close without a flush, with a reset.
    Reset,
}

/// A message to write that replaces a waiting one with the same key.
pub(crate) struct LatestMessage {
    pub(crate) key: u64,
    pub(crate) message: Box<dyn Any + Send>,
    /// Completes when the kernel has accepted the message.
    pub(in crate::channel) confirmation: Option<Confirmation>,
    pub(crate) reserved: ReservedWeight,
}

impl Mail {
    /// Returns the weight that is reserved for a message.
    #[inline]
    pub(crate) fn reserved(&self) -> Option<&ReservedWeight> {
        match self {
            Mail::Message(_, reserved) | Mail::Notify(_, _, reserved) => Some(reserved),
            Mail::Latest(latest) => Some(&latest.reserved),
            _ => None,
        }
    }

    /// Returns the message that is to be written.
    pub(in crate::channel) fn into_message(self) -> Option<Box<dyn Any + Send>> {
        match self {
            Mail::Message(message, _) | Mail::Notify(message, ..) => Some(message),
            Mail::Latest(latest) => Some(latest.message),
            _ => None,
        }
    }

    /// Returns whether a full queue accepts the mail. It accepts closes, the resumption of reading,
    /// checks of the output, answers, cancels, wakes of filters and stages, and messages with a
    /// permit. Their number per channel is bounded. There is at most one check. The limit of tasks
    /// bounds answers and cancels. The work of a filter or the calls of an HTTP client bound wakes.
    /// The high mark bounds messages, at 96 bytes each.
    pub(crate) fn is_always_taken(&self) -> bool {
        match self {
            Mail::Message(_, reserved) | Mail::Notify(_, _, reserved) => reserved.admitted,
            Mail::Latest(latest) => latest.reserved.admitted,
            Mail::Run(_) | Mail::Schedule(_) => false,
            Mail::Close
            | Mail::CloseNow
            | Mail::Reset
            | Mail::EndOutput
            | Mail::Released
            | Mail::CheckOutput
            | Mail::WakeFilters
            | Mail::WakeStages
            | Mail::Cancel(_)
            | Mail::Answer(_) => true,
        }
    }
}
