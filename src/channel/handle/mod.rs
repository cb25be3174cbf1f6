//! Handles to a channel, for any thread, and the state that they share with its loop.

mod broadcast_report;
mod channel;
mod close_listeners;
mod delivery;
mod mail;
mod pipeline_types;
mod producers;
mod reservation;
mod shared;
mod stats;
mod write_permit;

pub use broadcast_report::BroadcastReport;
pub use channel::Channel;
pub(in crate::channel) use close_listeners::LeaveAtClose;
pub(crate) use delivery::{Delivery, Recipient};
pub(in crate::channel) use delivery::{ErasedBroadcast, Outcome, PartReservations};
pub(crate) use mail::{LatestMessage, Mail};
pub(crate) use pipeline_types::{PipelineTypes, SizeHint};
pub(in crate::channel) use producers::MAX_UNCONFIRMED;
pub(in crate::channel) use reservation::MemberReservation;
pub(crate) use shared::{ChannelShared, TaskPermit};
pub use stats::ChannelStats;

use crate::{
    clock::TimeSource,
    error::{Error, Overloaded},
    id::Key,
};
use std::any::Any;

/// Sends mail to a loop, from any thread.
///
/// [`Any`] lets the layer of the loop find the loop behind a handle again. This layer cannot name
/// its type.
pub(crate) trait MailSender: Any + Send + Sync {
    /// Puts mail into the loop's queue and wakes the loop if it sleeps.
    ///
    /// # Errors
    /// The mail if the loop has ended, or if the queue is full and the mail is not [always
    /// taken](Mail::is_always_taken).
    fn deliver(&self, to: Key, mail: Mail) -> Result<(), (Mail, Error)>;

    /// Puts mail into the loop's queue that the loop handles when it is awake the next time. A full
    /// queue accepts it.
    fn deliver_quietly(&self, to: Key, mail: Mail);

    /// Puts the loop's part of a broadcast into its queue and wakes the loop if it sleeps.
    ///
    /// # Errors
    /// The delivery if the loop has ended or the queue is full.
    fn broadcast(&self, delivery: Box<Delivery>) -> Result<(), (Box<Delivery>, Error)>;

    /// Admits or refuses a broadcast that may be skipped.
    ///
    /// # Errors
    /// If the loop is overloaded.
    fn admit_bulk(&self) -> Result<(), Overloaded> {
        Ok(())
    }

    /// Returns the loop's clock.
    fn time(&self) -> &TimeSource;

    /// Returns whether the calling thread is the loop's.
    fn in_event_loop(&self) -> bool;
}
