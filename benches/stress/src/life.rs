//! The life of one connection's handler, as its callbacks show it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

#[derive(Default)]
pub(crate) struct Life {
    pub(crate) created: AtomicU32,
    pub(crate) dropped: AtomicU32,
    pub(crate) active: AtomicU32,
    pub(crate) inactive: AtomicU32,
    /// Pipelines that were replaced.
    pub(crate) replaced: AtomicU32,
    /// Scheduled tasks and results of other threads that have neither run nor been dropped.
    tasks: AtomicU32,
    /// Tasks that were dropped without having been cancelled.
    lost: AtomicU32,
    /// The handler was asked to shut down, which cancels tasks; or a task was refused.
    pub(crate) loses_tasks: AtomicBool,
}

impl Life {
    /// Returns the violations found after all loops have ended.
    pub(crate) fn fault_at_the_end(&self) -> Option<String> {
        let read = |count: &AtomicU32| count.load(SeqCst);
        let (active, inactive) = (read(&self.active), read(&self.inactive));
        let (created, dropped, replaced) = (read(&self.created), read(&self.dropped), read(&self.replaced));
        if inactive > 1 {
            return Some(format!("inactive was called {inactive} times"));
        }
        if inactive != u32::from(active > 0) {
            return Some(format!("active was called {active} times, inactive {inactive} times"));
        }
        if active > 1 + replaced {
            return Some(format!("active was called {active} times, with {replaced} replaced pipelines"));
        }
        (created != dropped).then(|| format!("{dropped} of {created} handlers were dropped"))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.active.load(SeqCst) > 0 && self.inactive.load(SeqCst) == 0
    }

    pub(crate) fn open_tasks(&self) -> u32 {
        self.tasks.load(SeqCst)
    }

    pub(crate) fn lost_tasks(&self) -> u32 {
        if self.loses_tasks.load(SeqCst) || self.replaced.load(SeqCst) > 0 {
            0
        } else {
            self.lost.load(SeqCst)
        }
    }
}

/// Owned by a task of a channel.
pub(crate) struct TaskToken {
    life: std::sync::Arc<Life>,
    ran: bool,
    cancelled: std::sync::Arc<AtomicBool>,
}

impl TaskToken {
    pub(crate) fn new(life: &std::sync::Arc<Life>) -> Self {
        life.tasks.fetch_add(1, SeqCst);
        TaskToken { life: life.clone(), ran: false, cancelled: Default::default() }
    }

    pub(crate) fn cancelled(&self) -> std::sync::Arc<AtomicBool> {
        self.cancelled.clone()
    }

    pub(crate) fn ran(mut self) {
        self.ran = true;
    }
}

impl Drop for TaskToken {
    fn drop(&mut self) {
        self.life.tasks.fetch_sub(1, SeqCst);
        if !self.ran && !self.cancelled.load(SeqCst) {
            self.life.lost.fetch_add(1, SeqCst);
        }
    }
}
