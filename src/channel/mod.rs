//! Options, limits and statistics of channels, and groups of channels.
//!
//! [`Channel`] is the handle of a channel,
//! [`ChannelGroup`](crate::ChannelGroup) a set of channels that messages are broadcast to.

// Channels: one connection each, as a state machine, with the handles by which other threads reach
// it.
//
// Nothing here performs I/O on a socket or reads a clock. A channel takes two allocations: its
// slot with the state, and its pipeline. A third one holds the watch if there are timeouts. A
// fourth one holds the shared state if there are handles.

mod budget;
mod close_cause;
mod config;
mod confirmation;
pub(crate) mod core;
pub(crate) mod driver;
mod event;
mod exchanges;
mod extras;
pub(crate) mod filter;
pub(crate) mod group;
pub(crate) mod handle;
mod input_guard;
mod max_connection_age;
pub(crate) mod peer;
mod pending_writes;
pub(crate) mod shaping;
mod shared_message;
pub(crate) mod timers;
mod undecoded;
pub(crate) mod watch;

pub(crate) use self::core::{AnyPipeline, links::IntoPipeline};
pub(crate) use self::core::{
    ChannelCore, ChannelState, ErasedPipeline, IoTime, LoopServices, Pending, PipelineSettings, Readiness,
    links::{DecodePass, Establish, MAX_EXTRA_MESSAGES, Pipeline, Push},
    timing::tasks::{DueTask, MAX_STAGES, Tasks, continues},
};
pub(crate) use budget::{OutboundBudget, SharedBudget};
pub use close_cause::CloseCause;
pub(crate) use config::{ChannelConfig, HANDSHAKE_TIMEOUT, check_handshake_timeout};
pub use config::{ChannelOptions, Overflow};
pub(crate) use confirmation::Confirmation;
pub(crate) use event::Event;
pub(crate) use exchanges::{Exchanges, Reuse};
pub use extras::{Attributes, LogLevel, WireLog};
#[cfg(test)]
pub(crate) use group::TestGroup;
pub use group::{Broadcast, ChannelGroupBuilder};
pub(crate) use handle::Channel;
pub use handle::{BroadcastReport, ChannelStats};
pub(crate) use handle::{
    ChannelShared, Delivery, LatestMessage, Mail, MailSender, PipelineTypes, Recipient, SizeHint, TaskPermit,
};
pub use input_guard::InputGuard;
pub(crate) use max_connection_age::AgeLimit;
pub use max_connection_age::{MaxConnectionAge, ShutdownCause};
pub(crate) use peer::Peer;
pub(crate) use shaping::TrafficShaping;
pub(crate) use shared_message::{Encoding, EncodingMemo, SharedMessage};
pub use timers::TaskKey;
pub(crate) use timers::{
    ChannelTimer, Delay, Due, DueQueue, HandleTask, NEVER, Periodic, Repeat, Scheduled, ScheduledTask,
    TaskCell, TaskControl, TaskEntry, TaskStart, TaskTime, TimerToken,
};
pub use watch::TimeLimits;
#[cfg(test)]
pub(crate) use watch::Watch;
pub(crate) use watch::{IdleEvent, IdleState, IdleTimeouts};
