//! The timer's thread. It moves additions into the wheel, runs due timeouts, and sleeps.
//!
//! Invariants: only this thread accesses the wheel. A turn transfers at most [`MAX_MOVED`]
//! additions and as many cancelled timeouts, and runs at most [`MAX_EXPIRED`]. Remaining work
//! continues in the next turn, without a sleep in between. So floods of additions or cancellations
//! do not starve due timeouts, and vice versa. A timeout added by a task reaches the wheel after
//! the current tick has been processed.
//!
//! An addition may arrive later than its tick, if it was in flight when the thread saw the tick
//! begin. The wheel would delay it until the next tick. Instead, it runs in this tick, after the
//! timeouts that were due when it arrived (`overdue`).

use super::{
    shared::{TimerExecutor, TimerShared, WorkerParts},
    timeout::{Errand, Timeout},
};
use crate::{error::caught, sync::Inbox, timer::wheel::Wheel};
use std::{collections::VecDeque, mem, sync::Arc, time::Duration};

/// The maximum number of additions that a turn puts into the wheel, and of cancelled timeouts that
/// it removes.
const MAX_MOVED: usize = 100_000;

/// The maximum number of tasks that a turn runs.
const MAX_EXPIRED: usize = 1024;

/// The lower bound for a clock's `longest_sleep`. A shorter sleep would be none at all.
const MIN_BOUND: Duration = Duration::from_millis(1);

pub(super) struct Worker {
    shared: Arc<TimerShared<Timeout>>,
    wheel: Wheel<Timeout>,
    additions: Inbox<Timeout>,
    cancelled: Inbox<Timeout>,
    /// Timeouts that arrived later than their tick. They run before the wheel's time advances.
    overdue: VecDeque<Timeout>,
    /// The largest time passed to the wheel, and the start of its tick.
    seen: u64,
    begun: u64,
    executor: Option<Arc<TimerExecutor>>,
    real_time: bool,
    /// The clock's bound for a sleep towards a deadline, if it has one.
    longest_sleep: Option<Duration>,
}

impl Worker {
    /// Runs on the timer's thread until the timer is stopped. Returns the timeouts cancelled by the
    /// stop.
    pub(super) fn work(shared: Arc<TimerShared<Timeout>>, parts: WorkerParts<Timeout>) -> Vec<Timeout> {
        let WorkerParts { wheel, additions, cancelled, executor, clock } = parts;
        let worker = Worker {
            shared,
            wheel,
            additions,
            cancelled,
            overdue: VecDeque::new(),
            seen: 0,
            begun: 0,
            executor,
            real_time: clock.is_real_time(),
            longest_sleep: clock.longest_sleep().map(|longest| longest.max(MIN_BOUND)),
        };
        worker.run()
    }

    /// Runs turns until the timer stops. Returns the timeouts cancelled by the stop.
    fn run(mut self) -> Vec<Timeout> {
        // Each task has its own panic guard. Only the clock can panic here, and that is fatal.
        let panicked = caught(|| {
            while !self.shared.is_stopping() {
                self.turn();
            }
        });
        if let Some(message) = panicked {
            caught(|| {
                log::error!(
                    "{}: the timer's thread stops because it panicked: {message}",
                    self.shared.thread_name()
                )
            });
        }
        self.end()
    }

    fn turn(&mut self) {
        self.transfer();
        let now = self.shared.now();
        // While a task runs, time passes and additions may arrive. Check both again before a sleep.
        if self.expire(now) == 0 {
            self.sleep(now);
        }
    }

    /// Moves additions into the wheel, and removes cancelled timeouts from it.
    fn transfer(&mut self) {
        for _ in 0..MAX_MOVED {
            let Some(timeout) = self.additions.take() else { break };
            if !timeout.arm() {
                timeout.run_hook();
            } else if timeout.deadline_nanos() <= self.begun {
                self.overdue.push_back(timeout);
            } else {
                let key = self.wheel.insert(timeout.deadline_nanos(), timeout.clone());
                timeout.set_key(key);
            }
        }
        for _ in 0..MAX_MOVED {
            let Some(timeout) = self.cancelled.take() else { break };
            if let Some(key) = timeout.key() {
                self.wheel.cancel(key);
            }
            timeout.run_hook();
        }
    }

    /// Runs timeouts that are due at `now`, at most [`MAX_EXPIRED`]. Returns the number taken from
    /// the wheel.
    fn expire(&mut self, now: u64) -> usize {
        for expired in 0..MAX_EXPIRED {
            if self.shared.is_stopping() {
                return expired;
            }
            match self.next_due(now) {
                Some(timeout) if timeout.expire() => self.execute(timeout),
                Some(cancelled) => cancelled.run_hook(),
                None => return expired,
            }
        }
        MAX_EXPIRED
    }

    fn next_due(&mut self, now: u64) -> Option<Timeout> {
        if !self.overdue.is_empty() {
            if let Some(timeout) = self.wheel.expire(self.seen) {
                return Some(timeout);
            }
            // Timeouts of earlier ticks may still be on their way down.
            let is_moving = self.wheel.next_expiry().is_some_and(|at| at <= self.seen);
            return if is_moving { None } else { self.overdue.pop_front() };
        }
        if now > self.seen {
            self.seen = now;
            self.begun = now - now % self.shared.tick_nanos();
        }
        self.wheel.expire(now)
    }

    fn execute(&self, timeout: Timeout) {
        let Some(executor) = &self.executor else { return timeout.run() };
        let errand = Errand(timeout.clone());
        let mut outcome = Ok(());
        let panicked = caught(|| outcome = executor(Box::new(move || errand.run())));
        match (panicked, outcome) {
            (Some(message), _) => timeout.refused(format_args!("it panicked: {message}")),
            (None, Err(e)) => timeout.refused(format_args!("{e:#}")),
            (None, Ok(())) => {}
        }
    }

    /// Sleeps until the next occupied tick or until woken. Returns at once if entries are waiting.
    fn sleep(&mut self, now: u64) {
        let next = self.wheel.next_expiry();
        if next.is_some_and(|next| next <= now) {
            // Due entries are still being moved down the levels.
            return;
        }
        self.shared.wake_up().about_to_sleep(next);
        if self.additions.is_empty() && self.cancelled.is_empty() && !self.shared.is_stopping() {
            let left = next.filter(|_| self.real_time);
            let left = left.map(|next| Duration::from_nanos(next.saturating_sub(now)));
            let longest = self.longest_sleep.unwrap_or(Duration::MAX);
            self.shared.park(left.map(|left| left.min(longest)));
        }
        self.shared.wake_up().awake();
    }

    /// Cancels the remaining timeouts, approximately in the order in which they would have expired.
    fn end(mut self) -> Vec<Timeout> {
        self.shared.close();
        let mut unprocessed = Vec::new();
        let mut finish = |timeout: Timeout| {
            let cancelled_here = timeout.cancel_by_stop();
            timeout.run_hook();
            if cancelled_here {
                unprocessed.push(timeout);
            }
        };
        // A concurrent cancel finds the mailbox closed and cannot pass its hook on. The hook is run
        // here, where the timeout is found.
        for timeout in mem::take(&mut self.overdue) {
            finish(timeout);
        }
        // A call may return `None` after it has only moved entries, so loop until the wheel is
        // empty.
        while !self.wheel.is_empty() {
            if let Some(timeout) = self.wheel.expire(u64::MAX) {
                finish(timeout);
            }
        }
        while let Some(timeout) = self.additions.take() {
            finish(timeout);
        }
        while let Some(timeout) = self.cancelled.take() {
            timeout.run_hook();
        }
        unprocessed
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use crate::{clock::ManualClock, timer::hashed_wheel_timer::HashedWheelTimer};
    use std::{sync::Arc, thread, time::Duration};

    /// More than the number of cancelled timeouts that stay in the wheel without a wakeup.
    const MANY: usize = 40_000;

    #[test]
    #[cfg_attr(miri, ignore = "takes too long there")]
    fn cancelled_timeouts_are_freed_although_nothing_is_due() {
        let timer = HashedWheelTimer::builder().clock(ManualClock::new()).build().unwrap();
        let mut left: Vec<_> = (0..MANY)
            .map(|_| {
                let timeout = timer.new_timeout(Duration::from_secs(3600), |_| Ok(())).unwrap();
                timeout.cancel();
                Arc::downgrade(&timeout.entry)
            })
            .collect();
        // The clock stands still, so only the number of cancelled timeouts wakes the thread.
        while left.len() > super::super::shared::CROWD {
            left.retain(|entry| entry.strong_count() > 0);
            thread::yield_now();
        }
    }
}
