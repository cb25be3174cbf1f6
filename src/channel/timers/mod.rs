//! The entries of a loop's heap and wheel, and what scheduled tasks of loops and channels share.

mod delay;
mod due;
mod due_queue;
mod handle_task;
mod periodic;
mod scheduled_task;
mod task_cell;
mod task_key;
mod task_time;
mod timer_token;

pub use delay::Delay;
pub(crate) use due::{Due, Scheduled};
pub(crate) use due_queue::DueQueue;
pub(crate) use handle_task::{HandleTask, TaskEntry, TaskStart};
pub(crate) use periodic::Repeat;
pub use periodic::{MissedRuns, Periodic};
pub use scheduled_task::ScheduledTask;
pub(crate) use scheduled_task::{NEVER, TaskControl};
pub(crate) use task_cell::TaskCell;
pub use task_key::TaskKey;
pub(in crate::channel) use task_key::TimerPlace;
pub(crate) use task_time::TaskTime;
pub(crate) use timer_token::{ChannelTimer, TimerToken};
