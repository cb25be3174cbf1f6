//! Bytes and messages that wait to be sent: the budget of a loop and its group, and the messages
//! with boundaries or confirmations to track.

mod budget;
mod pending_writes;

pub(in crate::channel) use budget::OutboundLease;
pub(crate) use budget::{OutboundBudget, SharedBudget};
pub(in crate::channel) use pending_writes::PendingWrites;
