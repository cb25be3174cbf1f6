//! Channels: one connection each, as a state machine, and the handle by which others reach it.
//!
//! Nothing here does I/O or reads a clock.

mod attributes;
mod channel_group;
mod close_listeners;
mod commands;
mod config;
mod core;
pub(crate) mod driver;
mod due_queue;
mod extras;
pub(crate) mod filter;
mod handle;
mod idle;
mod input;
mod input_guard;
mod io_time;
mod limits;
mod mail;
mod outbound_budget;
mod packed_address;
mod pending_writes;
mod producers;
mod replace;
mod scope;
mod services;
mod shaping;
mod state;
mod stats;
mod timers;
mod undecoded;
mod watch;
mod wire_log;
mod writability;

pub(crate) use self::core::ChannelCore;
pub use attributes::Attributes;
pub use channel_group::{Broadcast, BroadcastReport, ChannelGroup, ChannelGroupBuilder};
pub(crate) use channel_group::{Delivery, Outcome};
pub(crate) use config::ChannelConfig;
pub use config::{ChannelOptions, Overflow};
pub(crate) use due_queue::DueQueue;
pub(crate) use extras::Extras;
pub use handle::Channel;
pub(crate) use handle::{ChannelShared, PipelineTypes};
pub use idle::{IdleEvent, IdleState, IdleTimeouts};
pub use input_guard::InputGuard;
pub(crate) use io_time::IoTime;
pub use limits::TimeLimits;
pub(crate) use mail::{Mail, MailSender, WriteTicket};
pub(crate) use outbound_budget::{OutboundBudget, SharedBudget};
pub(crate) use producers::SizeHint;
pub use scope::Scope;
pub(crate) use scope::ScopeTask;
pub(crate) use services::{Due, LoopServices, Scheduled, WheelToken};
pub(crate) use shaping::Direction;
pub use shaping::{SharedTraffic, TrafficLimits, TrafficShaping};
pub(crate) use state::ChannelState;
pub(crate) use state::Flags;
pub use stats::ChannelStats;
pub use timers::TaskKey;
pub(crate) use timers::{TASKS, Timers, When};
use undecoded::InputMemory;
#[cfg(test)]
pub(crate) use watch::Watch;
pub use wire_log::WireLog;
