//! The watchdog's thread.
//!
//! Callbacks run on it without a lock, so they delay neither a loop that starts nor one that ends.
//!
//! Invariants: a group has this thread only while one of its loops runs. The thread alone owns the
//! observers. It ends when the last [`WatchedLoop`] is dropped. It holds only the activity of a
//! loop, and no longer than the loop's thread lasts.

use super::{
    Watchdog,
    observer::{Finding, Observer},
};
use crate::{
    clock::{Clock, SystemClock},
    error::{caught, panic_message},
    machine::Mutex,
    sync::{Activity, ReceiveError, Receiver, Sender, channel},
};
use std::{
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

/// The smallest delay of an inspection that counts as a delay of the watchdog itself. A busy
/// scheduler can delay a thread by this much.
const MIN_TOLERANCE: Duration = Duration::from_millis(10);

/// The watchdog of one group.
pub(crate) struct WatchdogThread {
    thread_name: String,
    watchdog: Watchdog,
    /// Sends to the thread. The [`WatchedLoop`]s own the sender, so it is gone when no loop runs.
    commands: Mutex<Weak<Sender<Command>>>,
}

/// A message from a loop's thread to the watchdog's. A loop sends each kind once in its life, which
/// bounds the queue.
enum Command {
    Watch(Watched),
    Forget(Arc<Activity>),
}

struct Watched {
    observer: Observer,
    activity: Arc<Activity>,
}

/// A guard: the loop is watched until this is dropped.
pub(crate) struct WatchedLoop {
    activity: Arc<Activity>,
    /// `None` if the thread could not be started.
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
                // The thread receives for as long as this sender exists.
                let _ = commands.send(Command::Watch(watched));
                Some(commands)
            }
            Err(e) => {
                let name = &self.thread_name;
                caught(|| {
                    log::error!("{name}: cannot start the thread; {event_loop} will not be watched: {e:#}")
                });
                None
            }
        };
        WatchedLoop { activity, commands }
    }

    /// Returns the sender to the thread. Starts the thread if it is not running.
    fn commands(self: &Arc<Self>) -> io::Result<Arc<Sender<Command>>> {
        let mut commands = self.commands.lock();
        if let Some(commands) = commands.upgrade() {
            return Ok(commands);
        }
        let (sender, receiver) = channel();
        let watchdog_thread = self.clone();
        thread::Builder::new()
            .name(self.thread_name.clone())
            .spawn(move || watchdog_thread.walk(&receiver))?;
        let sender = Arc::new(sender);
        *commands = Arc::downgrade(&sender);
        Ok(sender)
    }

    /// Runs the thread.
    fn walk(&self, commands: &Receiver<Command>) {
        let (limit, interval) = (self.watchdog.limit, self.watchdog.interval());
        let tolerance = interval.max(MIN_TOLERANCE);
        let mut loops: Vec<Watched> = Vec::new();
        let mut last = SystemClock.now();
        loop {
            let ended = match commands.receive(Some(last + interval)) {
                Ok(Command::Watch(watched)) => {
                    loops.push(watched);
                    continue;
                }
                Ok(Command::Forget(activity)) => Some(activity),
                Err(ReceiveError::Empty) => None,
                Err(ReceiveError::Disconnected) => return,
            };
            let now = SystemClock.now();
            let late = now.saturating_duration_since(last) > interval + tolerance;
            find_stalls(&mut loops, now, limit, late).iter().for_each(|finding| self.notify(finding));
            if let Some(ended) = ended {
                loops.retain(|watched| !Arc::ptr_eq(&watched.activity, &ended));
            }
            last = now;
        }
    }

    fn notify(&self, finding: &Finding) {
        let result = catch_unwind(AssertUnwindSafe(|| match finding {
            Finding::Stuck(stall) => (self.watchdog.on_stall)(stall),
            Finding::Over(stall) => (self.watchdog.on_recovery)(stall),
        }));
        if let Err(panic) = result {
            // The log may panic too, and the watchdog must go on.
            let message = panic_message(panic);
            caught(|| log::error!("{}: a callback panicked: {message}", self.thread_name));
        }
    }
}

/// Inspects every loop. If the inspection is late, all measurements restart.
fn find_stalls(loops: &mut [Watched], now: Instant, limit: Duration, late: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for watched in loops {
        if late {
            watched.observer.start_anew(now);
        }
        findings.extend(watched.observer.observe(&watched.activity.snapshot(), now, limit));
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
