//! `Topics`: the handle of a node, and its settings.

mod builder;
mod handle;

pub use builder::TopicsBuilder;
pub use handle::Topics;
