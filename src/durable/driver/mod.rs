//! What runs the engine and the store: an event loop and a thread.

mod batch;
mod batch_limit;
#[expect(clippy::module_inception, reason = "each file is named after its main type")]
mod driver;
#[cfg(test)]
mod driver_tests;
mod kept_topic;
mod skew_watch;
mod upkeep;
mod writer;
#[cfg(test)]
mod writer_tests;

pub(super) use driver::Driver;
pub(super) use kept_topic::{KeptTopic, paused};
pub(super) use writer::Writer;
