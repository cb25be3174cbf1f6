//! The watchdog's thread.
//!
//! Callbacks run on it without a lock, so they delay neither a loop that begins nor one that ends.
//!
//! Invariants: a group has this thread only while one of its loops runs. The thread alone owns the
//! observers. It ends when the last [`WatchedLoop`] is dropped. It holds only the activity of a
//! loop, and no longer than the loop's thread lasts.

use super::{
    Watchdog,
    observer::{Finding, Observer},
};
use crate::{Clock, SystemClock, error::panic_message, sync::Activity};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use std::{
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError, Weak},
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
    /// Sends to the thread. Every [`WatchedLoop`] owns it, so it is gone when no loop runs.
    commands: Mutex<Weak<Sender<Command>>>,
}

/// What a loop's thread sends to the watchdog's: one of each in its life, which bounds the queue.
enum Command {
    Watch(Watched),
    Forget(Arc<Activity>),
}

struct Watched {
    observer: Observer,
    activity: Arc<Activity>,
}

/// A loop is watched as long as it has this.
pub(crate) struct WatchedLoop {
    activity: Arc<Activity>,
    /// None if the thread could not be started.
    commands: Option<Arc<Sender<Command>>>,
}

impl WatchdogThread {
    pub(crate) fn new(group: &str, watchdog: Watchdog) -> Self {
        WatchdogThread { thread_name: format!("{group}-watchdog"), watchdog, commands: Mutex::default() }
    }

    /// Watches a loop that begins to run, until the returned [`WatchedLoop`] is dropped.
    pub(crate) fn watch(self: &Arc<Self>, event_loop: &str, id: u32, activity: Arc<Activity>) -> WatchedLoop {
        let observer = Observer::new(event_loop.to_owned(), id, SystemClock.now());
        let commands = match self.commands() {
            Ok(commands) => {
                let watched = Watched { observer, activity: activity.clone() };
                let _ = commands.send(Command::Watch(watched)); // the thread receives as long as this is owned
                Some(commands)
            }
            Err(e) => {
                log::error!("{}: cannot start; {event_loop} is not watched: {e:#}", self.thread_name);
                None
            }
        };
        WatchedLoop { activity, commands }
    }

    /// Returns the way to the thread, which is started if there is none.
    fn commands(self: &Arc<Self>) -> io::Result<Arc<Sender<Command>>> {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(commands) = commands.upgrade() {
            return Ok(commands);
        }
        let (sender, receiver) = crossbeam_channel::unbounded();
        let watchdog_thread = self.clone();
        thread::Builder::new()
            .name(self.thread_name.clone())
            .spawn(move || watchdog_thread.walk(&receiver))?;
        let sender = Arc::new(sender);
        *commands = Arc::downgrade(&sender);
        Ok(sender)
    }

    /// The life of the thread.
    fn walk(&self, commands: &Receiver<Command>) {
        let (limit, interval) = (self.watchdog.limit, self.watchdog.interval());
        let tolerance = interval.max(MIN_TOLERANCE);
        let mut loops: Vec<Watched> = Vec::new();
        let mut last = SystemClock.now();
        loop {
            let ended = match commands.recv_deadline(last + interval) {
                Ok(Command::Watch(watched)) => {
                    loops.push(watched);
                    continue;
                }
                Ok(Command::Forget(activity)) => Some(activity),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let now = SystemClock.now();
            let late = now.saturating_duration_since(last) > interval + tolerance;
            look(&mut loops, now, limit, late).iter().for_each(|finding| self.tell(finding));
            if let Some(ended) = ended {
                loops.retain(|watched| !Arc::ptr_eq(&watched.activity, &ended));
            }
            last = now;
        }
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

/// Looks at every loop. If the look is late, all times are taken anew.
fn look(loops: &mut [Watched], now: Instant, limit: Duration, late: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for watched in loops {
        if late {
            watched.observer.start_anew(now);
        }
        findings.extend(watched.observer.look(&watched.activity.look(), now, limit));
    }
    findings
}

impl Drop for WatchedLoop {
    fn drop(&mut self) {
        self.activity.rest();
        if let Some(commands) = &self.commands {
            let _ = commands.send(Command::Forget(self.activity.clone()));
        }
    }
}

impl fmt::Debug for WatchdogThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchdogThread").field("watchdog", &self.watchdog).finish_non_exhaustive()
    }
}
