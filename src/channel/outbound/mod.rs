//! Bytes and messages that wait to be sent.

mod budget;
mod pending_writes;

pub(in crate::channel) use budget::OutboundLease;
pub(crate) use budget::{OutboundBudget, SharedBudget};
pub(in crate::channel) use pending_writes::PendingWrites;
