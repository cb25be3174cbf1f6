//! Handles to a channel, for any thread, and the state that they share with its loop.

mod channel;
mod close_listeners;
mod mail;
mod pipeline_types;
mod producers;
mod reservation;
mod shared;
mod stats;
mod write_permit;

pub use channel::Channel;
pub(in crate::channel) use close_listeners::LeaveAtClose;
pub(crate) use mail::{AnyDelivery, Mail, MailSender};
pub(crate) use pipeline_types::{PipelineTypes, SizeHint};
pub(in crate::channel) use producers::MAX_UNCONFIRMED;
pub(in crate::channel) use reservation::MemberReservation;
pub(crate) use shared::{ChannelShared, TaskPermit};
pub use stats::ChannelStats;
pub(in crate::channel) use stats::Counts;
