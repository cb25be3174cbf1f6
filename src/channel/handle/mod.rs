//! What reaches a channel from outside its callbacks: handles on any thread, and the scope in which tasks run.

mod channel;
mod close_listeners;
mod input_guard;
mod mail;
mod producers;
mod scope;
mod stats;

pub use channel::Channel;
pub(crate) use channel::{ChannelShared, PipelineTypes};
pub(in crate::channel) use close_listeners::LeaveAtClose;
pub use input_guard::InputGuard;
pub(crate) use mail::{Mail, MailSender, WriteTicket};
pub(crate) use producers::SizeHint;
pub(in crate::channel) use producers::UNCONFIRMED;
pub use scope::Scope;
pub(crate) use scope::ScopeTask;
pub use stats::ChannelStats;
pub(in crate::channel) use stats::Counts;
