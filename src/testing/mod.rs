//! Test utilities: pipelines without sockets, and a clock that tests advance.

mod builder;
#[cfg(test)]
mod driver_tests;
mod embedded;
mod embedded_loop;
#[cfg(test)]
mod filter_tests;
#[cfg(all(test, not(netwheel_loom)))]
mod idle_cost_tests;
mod memory_transport;
mod outlet;
#[cfg(feature = "simulation")]
pub mod redis;
#[cfg(feature = "simulation")]
pub mod simulation;
mod slot;

pub use crate::clock::ManualClock;
pub use builder::{EmbeddedChannelBuilder, EmbeddedLoopBuilder};
pub use embedded::EmbeddedChannel;
pub use embedded_loop::EmbeddedLoop;
use memory_transport::MemoryTransport;
