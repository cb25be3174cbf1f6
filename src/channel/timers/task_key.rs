//! The name of a task that waits, for those who may cancel it.

use crate::timer::{QueueKey, WheelKey};

/// Names a scheduled task, a timeout or an offloaded work of a channel, to cancel it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskKey {
    pub(in crate::channel) slot: u32,
    pub(in crate::channel) place: TimerPlace,
}

/// Where it waits. It carries a generation: a late cancel finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::channel) enum TimerPlace {
    Exact(QueueKey),
    Wheel(WheelKey),
    /// Among the works of a pool; the loop's count of them.
    Worker(u64),
    /// Nowhere: it was refused.
    Nowhere,
}

impl TaskKey {
    /// Of a task that was refused: it names nothing.
    pub(crate) const NONE: TaskKey = TaskKey { slot: 0, place: TimerPlace::Nowhere };
}
