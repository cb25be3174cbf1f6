//! The entries of a loop's heap and wheel.

mod due;
mod due_queue;
mod task_key;

pub(crate) use due::{Due, Scheduled, WheelToken};
pub(crate) use due_queue::DueQueue;
pub use task_key::TaskKey;
pub(in crate::channel) use task_key::TimerPlace;
