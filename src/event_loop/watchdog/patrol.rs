//! The watchdog's thread.
//!
//! Always holds: there is at most one per group, and one only while a loop of the group runs; it holds nothing of a
//! loop but its whereabouts, and those no longer than the loop's thread lasts. Callbacks run on it and under no
//! lock, so they hold up neither a loop that begins nor one that ends.

use super::{
    Watchdog,
    observer::{Finding, Observer},
};
use crate::{Clock, SystemClock, error::panic_message, sync::Whereabouts};
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
pub(crate) struct Patrol {
    thread_name: String,
    watchdog: Watchdog,
    state: Mutex<State>,
    /// A loop has ended.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    loops: Vec<Watched>,
    /// Whether there is a thread.
    on_duty: bool,
}

struct Watched {
    observer: Observer,
    whereabouts: Arc<Whereabouts>,
    ended: bool,
}

/// A loop is watched as long as it has this.
pub(crate) struct Watch {
    patrol: Arc<Patrol>,
    whereabouts: Arc<Whereabouts>,
}

impl Patrol {
    pub(crate) fn new(group: &str, watchdog: Watchdog) -> Self {
        Patrol {
            thread_name: format!("{group}-watchdog"),
            watchdog,
            state: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a loop that begins to run, until the answer is dropped.
    pub(crate) fn watch(self: &Arc<Self>, event_loop: &str, id: u32, whereabouts: Arc<Whereabouts>) -> Watch {
        let observer = Observer::new(event_loop.to_owned(), id, SystemClock.now());
        let watch = Watch { patrol: self.clone(), whereabouts: whereabouts.clone() };
        let mut state = self.lock();
        state.loops.push(Watched { observer, whereabouts, ended: false });
        if !state.on_duty {
            let patrol = self.clone();
            let thread = thread::Builder::new().name(self.thread_name.clone()).spawn(move || patrol.walk());
            match thread {
                Ok(_) => state.on_duty = true,
                Err(e) => log::error!("{}: cannot start; loops are not watched: {e}", self.thread_name),
            }
        }
        watch
    }

    /// The life of the thread.
    fn walk(&self) {
        let (limit, interval) = (self.watchdog.limit, self.watchdog.interval());
        let tolerance = interval.max(MIN_TOLERANCE);
        let mut last = SystemClock.now();
        let mut state = self.lock();
        while !state.loops.is_empty() {
            let waiting = |state: &mut State| !state.loops.iter().any(|watched| watched.ended);
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

impl State {
    /// Looks at every loop; those that have ended for the last time.
    fn look(&mut self, now: Instant, limit: Duration, late: bool) -> Vec<Finding> {
        let mut findings = Vec::new();
        self.loops.retain_mut(|watched| {
            if late {
                watched.observer.start_anew(now);
            }
            findings.extend(watched.observer.look(&watched.whereabouts.look(), now, limit));
            !watched.ended
        });
        findings
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.whereabouts.rest();
        let mut state = self.patrol.lock();
        if !state.on_duty {
            // There was no thread to be had, and there is nobody to forget it.
            state.loops.retain(|watched| !Arc::ptr_eq(&watched.whereabouts, &self.whereabouts));
            return;
        }
        for watched in &mut state.loops {
            watched.ended |= Arc::ptr_eq(&watched.whereabouts, &self.whereabouts);
        }
        drop(state);
        self.patrol.ended.notify_all();
    }
}

impl fmt::Debug for Patrol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patrol").field("watchdog", &self.watchdog).finish_non_exhaustive()
    }
}
