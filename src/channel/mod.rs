//! Channels: one connection each, as a state machine, with the handles by which other threads reach
//! it.
//!
//! Nothing here performs I/O on a socket or reads a clock. A channel takes two allocations: its
//! slot with the state, and its pipeline. A third one holds the watch if there are timeouts. A
//! fourth one holds the shared state if there are handles.

mod config;
mod confirmation;
mod core;
pub(crate) mod driver;
mod event;
mod extras;
pub(crate) mod filter;
mod group;
mod handle;
mod input_guard;
mod links;
mod outbound;
mod pipeline_settings;
mod services;
mod shaping;
mod state;
mod tasks;
mod timers;
mod undecoded;
mod watch;

pub(crate) use self::core::{ChannelCore, Outcome};
pub(crate) use config::ChannelConfig;
pub use config::{ChannelOptions, Overflow};
pub(crate) use confirmation::Confirmation;
pub(crate) use event::Event;
pub use extras::{Attributes, WireLog};
pub(crate) use group::Delivery;
pub use group::{Broadcast, BroadcastReport, ChannelGroup, ChannelGroupBuilder};
pub(crate) use handle::{AnyDelivery, ChannelShared, Mail, MailSender, PipelineTypes, SizeHint};
pub use handle::{Channel, ChannelStats};
pub use input_guard::InputGuard;
pub use links::{AnyPipeline, IntoPipeline, Pipeline};
pub(crate) use links::{DecodePass, EncodingMemo, ErasedPipeline, MAX_EXTRA_MESSAGES, Push, SharedMessage};
pub(crate) use outbound::{OutboundBudget, SharedBudget};
pub(crate) use pipeline_settings::PipelineSettings;
pub(crate) use services::{IoTime, LoopServices};
pub use shaping::{SharedTraffic, TrafficLimits, TrafficShaping};
pub(crate) use state::{ChannelState, Pending, Readiness};
pub(crate) use tasks::{MAX_STAGES, TaskTime, Tasks};
pub use timers::TaskKey;
pub(crate) use timers::{ChannelTimer, Due, DueQueue, Scheduled, TimerToken};
#[cfg(test)]
pub(crate) use watch::Watch;
pub use watch::{IdleEvent, IdleState, IdleTimeouts, TimeLimits};
