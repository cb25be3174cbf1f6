//! `Topic`: a channel group that spans nodes.
//!
//! `core` has the topic of a node, and its pump, which carries out the steps of the follower on one
//! thread at a time. No lock is held while code of the program runs.

mod builder;
mod core;
mod event;
mod format;
mod handle;
#[cfg(feature = "json")]
mod json;
mod new_message;
mod publish;
mod pump;
mod settings;
mod subscription;
#[cfg(test)]
mod tests;
mod watch;

pub use builder::TopicBuilder;
pub use event::TopicEvent;
pub use format::TopicFormat;
pub use handle::Topic;
#[cfg(feature = "json")]
pub use json::JsonFormat;
pub use new_message::{NewMessage, Receipt};
pub use settings::WhenUnreachable;
pub use subscription::Subscription;
pub use watch::TopicWatch;
