//! The watchdog's thread.
//!
//! Always holds: there is at most one per group, and one only while a loop of the group runs; it holds nothing of a
//! loop but its whereabouts, and those no longer than the loop's thread lasts. Callbacks run on it and under no
//! lock, so they hold up neither a loop that begins nor one that ends.

use super::{
    Watchdog,
    observer::{Finding, Observer},
};
use crate::{Clock, SystemClock, error::panic_message, sync::Activity};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// How late a look may be, at least, before it is taken that the watchdog itself was kept from running: what a
/// scheduler makes a thread wait when there is much to do.
const MIN_TOLERANCE: Duration = Duration::from_millis(10);

/// The watch over one group.
pub(crate) struct WatchdogThread {
    thread_name: String,
    watchdog: Watchdog,
    state: Mutex<WatchdogState>,
    /// A loop has ended.
    ended: Condvar,
}

#[derive(Default)]
struct WatchdogState {
    loops: Vec<Watched>,
    /// Whether there is a thread.
    on_duty: bool,
}

struct Watched {
    observer: Observer,
    activity: Arc<Activity>,
    ended: bool,
}

/// A loop is watched as long as it has this.
pub(crate) struct WatchedLoop {
    watchdog_thread: Arc<WatchdogThread>,
    activity: Arc<Activity>,
}

impl WatchdogThread {
    pub(crate) fn new(group: &str, watchdog: Watchdog) -> Self {
        WatchdogThread {
            thread_name: format!("{group}-watchdog"),
            watchdog,
            state: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, WatchdogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a loop that begins to run, until the answer is dropped.
    pub(crate) fn watch(self: &Arc<Self>, event_loop: &str, id: u32, activity: Arc<Activity>) -> WatchedLoop {
        let observer = Observer::new(event_loop.to_owned(), id, SystemClock.now());
        let watch = WatchedLoop { watchdog_thread: self.clone(), activity: activity.clone() };
        let mut state = self.lock();
        state.loops.push(Watched { observer, activity, ended: false });
        if !state.on_duty {
            let watchdog_thread = self.clone();
            let thread =
                thread::Builder::new().name(self.thread_name.clone()).spawn(move || watchdog_thread.walk());
            match thread {
                Ok(_) => state.on_duty = true,
                Err(e) => log::error!("{}: cannot start; loops are not watched: {e}", self.thread_name),
            }
        }
        watch
    }

    /// The life of the thread. Measures real time, because it is to notice a loop whose clock stands still.
    #[allow(clippy::disallowed_methods, reason = "a watchdog measures real time")]
    fn walk(&self) {
        let (limit, interval) = (self.watchdog.limit, self.watchdog.interval());
        let tolerance = interval.max(MIN_TOLERANCE);
        let mut last = SystemClock.now();
        let mut state = self.lock();
        while !state.loops.is_empty() {
            let waiting = |state: &mut WatchdogState| !state.loops.iter().any(|watched| watched.ended);
            let waited = self.ended.wait_timeout_while(state, interval, waiting);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            let now = SystemClock.now();
            let late = now.saturating_duration_since(last) > interval + tolerance;
            let findings = state.look(now, limit, late);
            if !findings.is_empty() {
                drop(state);
                findings.iter().for_each(|finding| self.tell(finding));
                state = self.lock();
            }
            last = now;
        }
        state.on_duty = false;
    }

    fn tell(&self, finding: &Finding) {
        let result = catch_unwind(AssertUnwindSafe(|| match finding {
            Finding::Stuck(stall) => (self.watchdog.on_stall)(stall),
            Finding::Over(stall) => (self.watchdog.on_recovery)(stall),
        }));
        if let Err(panic) = result {
            log::error!("{}: a callback panicked: {}", self.thread_name, panic_message(panic));
        }
    }
}

impl WatchdogState {
    /// Looks at every loop; those that have ended for the last time.
    fn look(&mut self, now: Instant, limit: Duration, late: bool) -> Vec<Finding> {
        let mut findings = Vec::new();
        self.loops.retain_mut(|watched| {
            if late {
                watched.observer.start_anew(now);
            }
            findings.extend(watched.observer.look(&watched.activity.look(), now, limit));
            !watched.ended
        });
        findings
    }
}

impl Drop for WatchedLoop {
    fn drop(&mut self) {
        self.activity.rest();
        let mut state = self.watchdog_thread.lock();
        if !state.on_duty {
            // There was no thread to be had, and there is nobody to forget it.
            state.loops.retain(|watched| !Arc::ptr_eq(&watched.activity, &self.activity));
            return;
        }
        for watched in &mut state.loops {
            watched.ended |= Arc::ptr_eq(&watched.activity, &self.activity);
        }
        drop(state);
        self.watchdog_thread.ended.notify_all();
    }
}

impl fmt::Debug for WatchdogThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patrol").field("watchdog", &self.watchdog).finish_non_exhaustive()
    }
}
