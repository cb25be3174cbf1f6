//! Ends the process when a round does not end.

use crate::{
    player::World,
    report::{Invariant, Report},
    resources::spinning,
};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

/// How long anything may wait that depends on other parts of the world, all of which move.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(6);

pub(crate) struct Watchdog {
    stop: Option<Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
    world: Arc<Mutex<Option<Arc<World>>>>,
}

impl Watchdog {
    /// Watches a round. When the time is up, prints what hangs and calls `hung`.
    pub(crate) fn start(
        report: Arc<Report>,
        limit: Duration,
        hung: impl FnOnce(&Report) + Send + 'static,
    ) -> Self {
        let (stop, stopped) = channel();
        let world: Arc<Mutex<Option<Arc<World>>>> = Arc::default();
        let watched = world.clone();
        let watch = move || {
            if is_in_time(&stopped, limit) {
                return;
            }
            let spins = spinning(Duration::from_millis(500));
            let mut detail = format!("the round does not end within {limit:?}; it was {}", report.phase());
            if !spins.is_empty() {
                detail += &format!("; loops that spin: {}", spins.join(", "));
            }
            let world = watched.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(world) = world {
                detail += &describe(&world);
            }
            report.violation(Invariant::Progress, detail);
            hung(&report);
        };
        let thread = thread::Builder::new().name("watchdog".into()).spawn(watch).ok();
        Watchdog { stop: Some(stop), thread, world }
    }

    pub(crate) fn watch(&self, world: Option<Arc<World>>) {
        let previous =
            std::mem::replace(&mut *self.world.lock().unwrap_or_else(PoisonError::into_inner), world);
        drop(previous);
    }
}

fn is_in_time(stopped: &Receiver<()>, limit: Duration) -> bool {
    !matches!(stopped.recv_timeout(limit), Err(RecvTimeoutError::Timeout))
}

/// The loops that do not answer, and the completions that are open.
pub(crate) fn describe(world: &World) -> String {
    let mut text = String::new();
    for event_loop in world.groups.iter().flat_map(|group| group.event_loops()) {
        let state = match event_loop.call(|| ()).wait_timeout(Duration::from_secs(1)) {
            Err(_) => "does not answer",
            Ok(Ok(())) => "answers",
            Ok(Err(_)) if event_loop.is_terminated() => "has ended",
            Ok(Err(_)) => "refuses tasks",
        };
        text += &format!("; loop {} {state}, {} connections", event_loop.name(), event_loop.connections());
    }
    text + &format!("; open completions: {:?}", world.tokens.open())
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
