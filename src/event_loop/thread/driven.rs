//! A loop that its owner runs, one turn at a time, on the calling thread.
//!
//! Invariants: callbacks run within [`DrivenLoop::run_turn`] and [`Drop`], and nowhere else. A
//! dropped loop ends like one that was shut down without a quiet period and with a timeout of zero.
//! Owns the loop. Its handles own no part of it.

use super::{LoopConfig, end};
use crate::{
    error::{Result, caught},
    event_loop::{
        AcceptedShare, EventLoop, ShutdownRequest,
        mail::LoopMail,
        shared::{LifeState, LoopShared},
        task::Task,
        tasks,
        turn::Turn,
        watchdog::WatchedLoop,
    },
    sync::loop_id::{self, Owned},
};
use std::{
    panic::Location,
    sync::Arc,
    task::{Wake, Waker},
};

/// A loop without its own thread. It cannot leave the thread that created it.
pub(crate) struct DrivenLoop {
    /// `None` once the loop has ended.
    pub(in crate::event_loop) turn: Option<Turn>,
    watch: Option<WatchedLoop>,
    shared: Arc<LoopShared>,
    _owned: Owned,
}

impl DrivenLoop {
    pub(crate) fn new(config: LoopConfig) -> Result<Self> {
        let watchdog_thread = config.watchdog_thread.clone();
        let (shared, make) = EventLoop::prepare(config)?;
        shared.advance(LifeState::Started);
        let watch = watchdog_thread
            .map(|watchdog_thread| watchdog_thread.watch(&shared.name, shared.id, shared.activity.clone()));
        let owned = loop_id::own(shared.id);
        Ok(DrivenLoop { turn: Some(make(shared.clone())), watch, shared, _owned: owned })
    }

    /// Returns a handle to the loop.
    pub(crate) fn event_loop(&self) -> EventLoop {
        EventLoop { shared: self.shared.clone() }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.turn.is_none()
    }

    /// Runs one turn, which sleeps for at most `max_wait` nanoseconds. Returns the number of items
    /// that it has handled.
    pub(crate) fn run_turn(&mut self, max_wait: Option<u64>) -> usize {
        let Some(turn) = &mut self.turn else { return 0 };
        let _entered = enter(turn);
        let has_broadcasts = !turn.broadcasts.lanes.is_empty();
        let left = turn.io.services.attention.len() + turn.io.inactive.len() + usize::from(has_broadcasts);
        let before = things_run(&turn.shared);
        turn.sleep.at_most = max_wait;
        let mut last = false;
        let cause = caught(|| last = turn.turn());
        let ran = things_run(&turn.shared).wrapping_sub(before);
        if (last || cause.is_some())
            && let Some(turn) = self.turn.take()
        {
            end(turn, cause, self.watch.take());
        }
        left.saturating_add(usize::try_from(ran).unwrap_or(usize::MAX))
    }

    /// Returns a waker that ends the sleep of the running turn, or of the next one.
    pub(crate) fn waker(&self) -> Waker {
        Waker::from(Arc::new(WakeLoop(self.shared.clone())))
    }
}

impl Drop for DrivenLoop {
    fn drop(&mut self) {
        let Some(mut turn) = self.turn.take() else { return };
        let _entered = enter(&turn);
        let request = ShutdownRequest { quiet: 0, timeout: 0, window: 0 };
        for share in AcceptedShare::of(&[&turn.shared]) {
            turn.shared.shut_down(request, share);
        }
        let cause = caught(|| turn.end_now());
        end(turn, cause, self.watch.take());
    }
}

/// Makes the calling thread the loop's thread, until the result is dropped.
fn enter(turn: &Turn) -> (loop_id::Entered, tasks::LocalQueue) {
    (loop_id::enter(turn.shared.id), tasks::enter(turn.shared.id, turn.io.services.queue.clone()))
}

/// Returns the number of ready sources, tasks and timers that a loop has counted so far.
fn things_run(shared: &LoopShared) -> u64 {
    let metrics = &shared.metrics;
    let counters = [&metrics.ready, &metrics.tasks_run, &metrics.timers_fired, &metrics.wheel_fired];
    counters.into_iter().fold(0, |sum, counter| sum.wrapping_add(counter.read()))
}

/// Ends the sleep of the loop's turn, so that its owner polls the completion again.
struct WakeLoop(Arc<LoopShared>);

impl Wake for WakeLoop {
    fn wake(self: Arc<Self>) {
        // On the loop's thread, the owner polls again after the turn. From another thread, a bare
        // wake could arrive just before the loop falls asleep, and be lost. Mail in the queue
        // cannot be lost.
        if !self.0.is_in_event_loop() {
            let nothing = Task::new(|| {}, Location::caller());
            // A loop that has ended is not asleep.
            let _ = self.0.submit_always(LoopMail::Task(nothing));
        }
    }
}
