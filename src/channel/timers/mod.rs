//! The entries of a loop's heap and wheel.

mod delay;
mod due;
mod due_queue;
mod task_key;
mod timer_token;

pub use delay::Delay;
pub(crate) use due::{Due, Scheduled};
pub(crate) use due_queue::DueQueue;
pub use task_key::TaskKey;
pub(in crate::channel) use task_key::TimerPlace;
pub(crate) use timer_token::{ChannelTimer, TimerToken};
