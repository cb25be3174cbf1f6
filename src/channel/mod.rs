//! Channels: one connection each, as a state machine, and the handle by which others reach it.
//!
//! Nothing here does I/O or reads a clock.

mod config;
mod core;
mod due_queue;
mod handle;
mod idle;
mod ledger;
mod limits;
mod mail;
mod scope;
mod services;
mod shaping;
mod state;
mod tally;
mod timers;
mod watch;

pub(crate) use self::core::{ChannelCore, Wish};
pub(crate) use config::ChannelConfig;
pub use config::{ChannelOptions, Overflow};
pub(crate) use due_queue::DueQueue;
pub use handle::Channel;
pub(crate) use handle::ChannelShared;
pub use idle::{IdleEvent, IdleState, IdleTimeouts};
pub use limits::TimeLimits;
pub(crate) use mail::{Mail, Outlet};
pub use scope::Scope;
pub(crate) use scope::ScopeTask;
pub(crate) use services::{Coarse, Due, LoopServices, Scheduled};
pub(crate) use shaping::Way;
pub use shaping::{SharedTraffic, TrafficLimits, TrafficShaping};
pub(crate) use state::ChannelState;
pub(crate) use state::Flags;
pub(crate) use tally::Tally;
pub use timers::TaskKey;
