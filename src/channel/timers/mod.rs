//! What waits for its time: the tasks of a channel, and the loop's heap.

mod due_queue;
mod tasks;

pub(crate) use due_queue::DueQueue;
pub use tasks::TaskKey;
pub(crate) use tasks::{TASKS, Timers, When};
