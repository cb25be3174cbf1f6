//! The messages that reach a channel from outside its loop, and their way there.
//!
//! A [`Channel`](super::Channel) handle does not know its event loop. It knows a [`MailSender`],
//! which the loop or the test kit implements. So this layer does not import a higher one.

use crate::{
    Error,
    channel::{confirmation::Confirmation, timers::TaskKey},
    id::Key,
};
use std::any::Any;

/// One thing for one channel; runs on the channel's loop, dropped if the channel is gone.
pub(crate) enum Mail {
    /// A message to write: the pipeline's outermost outbound type, boxed.
    Message(Box<dyn Any + Send>, WriteTicket),
    /// Likewise, and who is to be told when it is sent.
    Notify(Box<dyn Any + Send>, Confirmation, WriteTicket),
    /// A `ScopeTask` of the pipeline's outbound type, or a `RemoteTask` of its handler, to run now.
    Run(Box<dyn Any + Send>),
    /// A `ScopeTask` to run at a time of the loop.
    Schedule(u64, Box<dyn Any + Send>),
    /// The answer is there for which this task waits.
    Answer(TaskKey),
    /// The program holds less of the input than its low mark.
    Released,
    /// End the output after what was written is sent.
    EndOutput,
    /// Close after what was written is sent.
    Close,
    /// Close and drop what was not sent.
    CloseNow,
    /// Likewise, with a reset.
    Reset,
}

/// The weight of a queued message, and whether it has to be accepted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteTicket {
    /// Bytes by which it was added to the channel's gauge.
    pub(in crate::channel) weight: u32,
    /// The producer had seen a writable channel, so the message is written regardless of the limit.
    pub(in crate::channel) admitted: bool,
    /// Producers pause after this message because its size is unknown.
    pub(in crate::channel) pauses: bool,
}

impl Mail {
    /// Whether a full queue takes it all the same: nobody must be kept from getting rid of a channel, nor a channel that
    /// waits to read or for an answer from going on, nor a producer that was told that it may write. There are few of these
    /// for each channel: of answers, as many as it may have tasks; of messages, as many as its high mark holds at 96 bytes
    /// each.
    pub(crate) fn is_always_taken(&self) -> bool {
        match self {
            Mail::Message(_, ticket) | Mail::Notify(_, _, ticket) => ticket.admitted,
            Mail::Run(_) | Mail::Schedule(..) => false,
            Mail::Close
            | Mail::CloseNow
            | Mail::Reset
            | Mail::EndOutput
            | Mail::Released
            | Mail::Answer(_) => true,
        }
    }
}

/// One loop's part of a broadcast: a `Delivery` of the group layer, which is above this one.
pub(crate) type AnyDelivery = dyn Any + Send;

/// The way to a loop, from any thread.
pub(crate) trait MailSender: Send + Sync {
    /// Puts mail into the loop's queue and wakes the loop if it sleeps.
    ///
    /// # Errors
    /// The mail comes back if the loop has ended, or the queue is full; what [always is](Mail::is_always_taken) is taken
    /// all the same.
    fn deliver(&self, to: Key, mail: Mail) -> Result<(), (Mail, Error)>;

    /// Puts the loop's part of a broadcast into its queue and wakes the loop if it sleeps.
    ///
    /// # Errors
    /// It comes back if the loop has ended, or the queue is full.
    fn broadcast(&self, delivery: Box<AnyDelivery>) -> Result<(), (Box<AnyDelivery>, Error)>;

    /// The time of the loop's clock.
    fn now(&self) -> u64;

    /// Whether the calling thread is the loop's.
    fn in_event_loop(&self) -> bool;
}
