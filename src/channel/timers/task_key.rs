//! The key that cancels a task of a channel.

use crate::timer::{QueueKey, WheelKey};

/// A key that cancels a task of a channel: scheduled, or waiting for a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskKey {
    pub(in crate::channel) slot: u32,
    pub(in crate::channel) place: TimerPlace,
}

/// Where a task waits. The key carries a generation, so a late cancel finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::channel) enum TimerPlace {
    Exact(QueueKey),
    Wheel(WheelKey),
    /// A worker or a completion holds it and answers with the loop's number for it.
    Answer(u64),
    /// In the heap or on the wheel, under this number of the loop: the task repeats or has a
    /// handle.
    Kept(u64),
    /// Nowhere: the task was refused.
    Nowhere,
}

impl TaskKey {
    /// The key of a refused task, which names nothing.
    pub(crate) const NONE: TaskKey = TaskKey { slot: 0, place: TimerPlace::Nowhere };
}
