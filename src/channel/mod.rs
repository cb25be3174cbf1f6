//! Channels: one connection each, as a state machine, and the handle by which others reach it.
//!
//! Nothing here does I/O or reads a clock.

mod config;
mod core;
mod due_queue;
mod handle;
mod idle;
mod mail;
mod scope;
mod services;
mod state;
mod tally;

pub(crate) use self::core::{ChannelCore, Wish};
pub(crate) use config::ChannelConfig;
pub use config::ChannelOptions;
pub(crate) use due_queue::DueQueue;
pub use handle::Channel;
pub(crate) use handle::ChannelShared;
pub use idle::{IdleEvent, IdleState, IdleTimeouts};
pub(crate) use mail::{Mail, Outlet};
pub(crate) use scope::ScopeTask;
pub use scope::{Scope, TaskKey};
pub(crate) use services::{Due, LoopServices, Scheduled};
pub(crate) use state::ChannelState;
pub(crate) use state::Flags;
pub(crate) use tally::Tally;
