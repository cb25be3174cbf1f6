//! The settings of a worker pool, with their defaults and ranges.

use super::WorkerPool;
use crate::error::{Error, Result};
use std::time::Duration;

/// Settings of a [`WorkerPool`]. [`build`](WorkerPoolBuilder::build) reports invalid values.
///
/// | setting | default | range |
/// |---|---|---|
/// | `threads` | 4 | 1 to 1024 |
/// | `max_pending` | 1024 work items that wait for a thread | 1 or more |
/// | `name` | "netwheel-worker"; threads are named name-0, name-1, … | |
/// | `idle_timeout` | 10 s without work, then a thread ends | more than 0 |
/// | `niceness` | that of the thread that starts a worker thread | 0 to 19 |
#[derive(Debug, Clone)]
#[must_use]
pub struct WorkerPoolBuilder {
    pub(super) threads: usize,
    pub(super) max_pending: usize,
    pub(super) name: String,
    pub(super) idle_timeout: Duration,
    pub(super) niceness: Option<u8>,
}

impl WorkerPoolBuilder {
    pub(super) fn new() -> Self {
        WorkerPoolBuilder {
            threads: 4,
            max_pending: 1024,
            name: "netwheel-worker".to_owned(),
            idle_timeout: Duration::from_secs(10),
            niceness: None,
        }
    }

    /// Sets the maximum number of threads. A thread is started when work finds none that is free.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the maximum number of work items that wait for a thread. More are refused.
    pub fn max_pending(mut self, works: usize) -> Self {
        self.max_pending = works;
        self
    }

    /// Sets the prefix of the thread names, which is followed by `-0`, `-1` and so on.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets how long an idle thread waits for work before it ends.
    pub fn idle_timeout(mut self, time: Duration) -> Self {
        self.idle_timeout = time;
        self
    }

    /// Sets the niceness of the threads, from 0 (normal priority) to 19 (lowest priority).
    ///
    /// Worker threads with a higher niceness than the event loops leave them the CPU where both
    /// compete for it. Long computations, such as a storm of handshakes, then delay the loops less.
    ///
    /// Applies to Linux and Android; other systems ignore it. A process without the privilege to
    /// lower its niceness keeps a value that is higher already, and a warning is logged.
    pub fn niceness(mut self, niceness: u8) -> Self {
        self.niceness = Some(niceness);
        self
    }

    /// Builds the pool. Its threads start when they are first needed.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if a setting is out of range.
    pub fn build(self) -> Result<WorkerPool> {
        if self.threads == 0 || self.threads > 1024 {
            return Err(Error::setting("threads", self.threads, "1 to 1024 threads of a worker pool"));
        }
        if self.max_pending == 0 {
            return Err(Error::setting("max_pending", self.max_pending, "1 work item or more"));
        }
        if self.idle_timeout.is_zero() {
            return Err(Error::setting("idle_timeout", "0", "more than zero"));
        }
        if let Some(niceness) = self.niceness.filter(|niceness| *niceness > 19) {
            return Err(Error::setting("niceness", niceness, "0 to 19"));
        }
        if self.name.contains('\0') {
            return Err(Error::setting("name", format!("{:?}", self.name), "text without a NUL"));
        }
        Ok(WorkerPool::of(self))
    }
}
