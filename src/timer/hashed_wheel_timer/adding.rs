//! Adding a timeout, which any thread may do.
//!
//! Invariant: a timeout is counted before the thread can see it. A refused timeout is not counted.

use super::{
    shared::{CROWD, TimerShared},
    timeout::{Parts, Timeout, TimeoutEntry, TimerTask},
    worker::Worker,
};
use crate::{
    error::{Result, SendError},
    machine::Mutex,
    timer::deadline_after,
};
use std::{
    panic::Location,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

impl TimerShared<Timeout> {
    /// Adds a timeout, or returns the task and the hook if it is refused.
    pub(super) fn add<F, H>(
        self: &Arc<Self>,
        delay: Duration,
        task: F,
        on_cancel: Option<H>,
        origin: &'static Location<'static>,
    ) -> Result<Timeout, SendError<(F, Option<H>)>>
    where
        F: FnOnce(&Timeout) -> Result + Send + 'static,
        H: FnOnce(&Timeout) + Send + 'static,
    {
        let running = if self.is_started() { Ok(()) } else { self.start(Worker::work) };
        if let Err(reason) = running.and_then(|()| self.count_in()) {
            return Err(SendError::new((task, on_cancel), reason));
        }
        // A zero delay belongs to the current tick, even at the very moment when that tick begins.
        let deadline = deadline_after(self.now(), delay.max(Duration::from_nanos(1)));
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let entry: Arc<TimeoutEntry<Mutex<Parts<F, H>>>> =
            Arc::new(TimeoutEntry::new(task, on_cancel, deadline, number, origin, self.clone()));
        if let Err(refused) = self.additions.put(Timeout { entry: entry.clone() }) {
            self.count_out();
            let (Some(task), on_cancel) = entry.take_back() else {
                unreachable!("the timeout was never shared");
            };
            return Err(refused.map(|_| (task, on_cancel)));
        }
        let crowded = self.additions.len() >= CROWD;
        self.wake(if crowded { 0 } else { self.end_of_tick(deadline) });
        let entry: Arc<TimeoutEntry<dyn TimerTask>> = entry;
        Ok(Timeout { entry })
    }
}
