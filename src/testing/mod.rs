//! A test kit: pipelines without sockets, and time that is moved by hand.

mod embedded;

pub use crate::clock::ManualClock;
pub use embedded::EmbeddedChannel;
