//! A test kit: pipelines without sockets, and time that is moved by hand.

mod embedded;
mod embedded_loop;
#[cfg(all(test, not(netwheel_loom)))]
mod idle_cost_tests;
mod outlet;
mod wire;

pub use crate::clock::ManualClock;
pub use embedded::EmbeddedChannel;
pub use embedded_loop::EmbeddedLoop;
