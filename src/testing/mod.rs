//! Test utilities: pipelines without sockets, and a clock that tests advance.

mod builder;
mod embedded;
mod embedded_loop;
#[cfg(all(test, not(netwheel_loom)))]
mod idle_cost_tests;
mod mail_sender;
mod memory_transport;
#[cfg(feature = "simulation")]
pub mod redis;
#[cfg(feature = "simulation")]
pub mod simulation;
mod slot;
#[cfg(test)]
pub(crate) mod wait;

pub use crate::clock::ManualClock;
pub use builder::{EmbeddedChannelBuilder, EmbeddedLoopBuilder};
pub use embedded::EmbeddedChannel;
pub use embedded_loop::EmbeddedLoop;
#[cfg(test)]
pub(crate) use memory_transport::MemoryTransport;
