//! The watchdog's thread.
//!
//! Always holds: a group has a thread only while one of its loops runs, and the thread alone owns the
//! observers. It ends when the last [`Watch`] is dropped. It holds nothing of a loop but its
//! whereabouts, and those no longer than the loop's thread lasts. Callbacks run on it and under no
//! lock, so they hold up neither a loop that begins nor one that ends.

use super::{
    Watchdog,
    observer::{Finding, Observer},
};
use crate::{Clock, SystemClock, error::panic_message, sync::Whereabouts};
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
pub(crate) struct Patrol {
    thread_name: String,
    watchdog: Watchdog,
    /// Sends to the thread. Every [`Watch`] owns it, so it is gone when no loop runs.
    commands: Mutex<Weak<Sender<Command>>>,
}

/// What a loop's thread sends to the watchdog's: one of each in its life, which bounds the queue.
enum Command {
    Watch(Watched),
    Forget(Arc<Whereabouts>),
}

struct Watched {
    observer: Observer,
    whereabouts: Arc<Whereabouts>,
}

/// A loop is watched as long as it has this.
pub(crate) struct Watch {
    whereabouts: Arc<Whereabouts>,
    /// None if the thread could not be started.
    commands: Option<Arc<Sender<Command>>>,
}

impl Patrol {
    pub(crate) fn new(group: &str, watchdog: Watchdog) -> Self {
        Patrol { thread_name: format!("{group}-watchdog"), watchdog, commands: Mutex::default() }
    }

    /// Watches a loop that begins to run, until the returned [`Watch`] is dropped.
    pub(crate) fn watch(self: &Arc<Self>, event_loop: &str, id: u32, whereabouts: Arc<Whereabouts>) -> Watch {
        let observer = Observer::new(event_loop.to_owned(), id, SystemClock.now());
        let commands = match self.commands() {
            Ok(commands) => {
                let watched = Watched { observer, whereabouts: whereabouts.clone() };
                let _ = commands.send(Command::Watch(watched)); // the thread receives as long as this is owned
                Some(commands)
            }
            Err(e) => {
                log::error!("{}: cannot start; {event_loop} is not watched: {e}", self.thread_name);
                None
            }
        };
        Watch { whereabouts, commands }
    }

    /// Returns the way to the thread, which is started if there is none.
    fn commands(self: &Arc<Self>) -> io::Result<Arc<Sender<Command>>> {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(commands) = commands.upgrade() {
            return Ok(commands);
        }
        let (sender, receiver) = crossbeam_channel::unbounded();
        let patrol = self.clone();
        thread::Builder::new().name(self.thread_name.clone()).spawn(move || patrol.walk(&receiver))?;
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
                Ok(Command::Forget(whereabouts)) => Some(whereabouts),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let now = SystemClock.now();
            let late = now.saturating_duration_since(last) > interval + tolerance;
            look(&mut loops, now, limit, late).iter().for_each(|finding| self.tell(finding));
            if let Some(ended) = ended {
                loops.retain(|watched| !Arc::ptr_eq(&watched.whereabouts, &ended));
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
        findings.extend(watched.observer.look(&watched.whereabouts.look(), now, limit));
    }
    findings
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.whereabouts.rest();
        if let Some(commands) = &self.commands {
            let _ = commands.send(Command::Forget(self.whereabouts.clone()));
        }
    }
}

impl fmt::Debug for Patrol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patrol").field("watchdog", &self.watchdog).finish_non_exhaustive()
    }
}
