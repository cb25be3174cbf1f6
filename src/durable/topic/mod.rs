//! Topics, and the due timers that their handlers receive.

mod due;
#[expect(clippy::module_inception, reason = "each file is named after its main type")]
mod topic;

pub(super) use due::Answering;
pub use due::Due;
pub use topic::Topic;
pub(super) use topic::TopicHandler;
