//! `Topics`: the handle of a node, and its settings.

mod builder;
#[cfg(feature = "prometheus")]
mod collector;
mod handle;

pub use builder::TopicsBuilder;
#[cfg(feature = "prometheus")]
pub use collector::BrokerCollector;
pub use handle::Topics;
