//! Channels: one connection each, as a state machine, and the handle by which others reach it.
//!
//! Nothing here does I/O or reads a clock.

mod config;
mod core;
mod extras;
mod group;
mod handle;
mod outbound;
mod services;
mod shaping;
mod state;
mod timers;
mod undecoded;
mod watch;

pub(crate) use self::core::{Action, ChannelCore};
pub(crate) use config::ChannelConfig;
pub use config::{ChannelOptions, Overflow};
pub(crate) use extras::Extras;
pub use extras::{Attributes, WireLog};
pub use group::{Broadcast, BroadcastReport, ChannelGroup, ChannelGroupBuilder};
pub(crate) use group::{Delivery, Outcome};
pub use handle::{Channel, ChannelStats, InputGuard, Scope};
pub(crate) use handle::{ChannelShared, Mail, MailSender, PipelineTypes, ScopeTask, SizeHint, WriteTicket};
pub(crate) use outbound::{OutboundBudget, SharedBudget};
pub(crate) use services::{Due, IoTime, LoopServices, Scheduled, Tally, WheelToken};
pub(crate) use shaping::Direction;
pub use shaping::{SharedTraffic, TrafficLimits, TrafficShaping};
pub(crate) use state::{ChannelState, Flags};
pub use timers::TaskKey;
pub(crate) use timers::{DueQueue, TASKS, Timers, When};
pub(crate) use undecoded::InputMemory;
#[cfg(test)]
pub(crate) use watch::Watch;
pub use watch::{IdleEvent, IdleState, IdleTimeouts, TimeLimits};
