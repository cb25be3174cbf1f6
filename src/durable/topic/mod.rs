//! Topics, and the timers that are passed to their handlers.

mod due;
#[expect(clippy::module_inception, reason = "each file is named after its main type")]
mod topic;

pub(super) use due::Answering;
pub use due::Due;
pub(super) use topic::Handler;
pub use topic::Topic;
