//! The timer's thread: moves what came into the wheel, runs what is due, sleeps.
//!
//! Always holds: the wheel is this thread's alone. In a turn at most [`MAX_MOVED`] additions and as many cancelled
//! ones are moved, and at most [`MAX_EXPIRED`] are run; what is left comes in the next turn, before which the
//! thread does not sleep. So neither a flood of additions nor one of cancels keeps back what is due, nor the other
//! way round. What is added by a task reaches the wheel when the tick that runs is over.
//!
//! An addition may come here later than its tick: it was on its way while the thread saw the tick begin. The wheel
//! would put it off until the next one, so it is run at once instead, behind what was due when it came (`overdue`).

use super::{
    shared::{Executor, TimerShared, WorkerParts},
    timeout::{Errand, Timeout},
};
use crate::{error::caught, sync::Inbox, timer::Wheel};
use std::{collections::VecDeque, mem, sync::Arc, thread, time::Duration};

/// Additions that a turn puts into the wheel, and cancelled ones that it takes out.
const MAX_MOVED: usize = 100_000;

/// Tasks that a turn runs.
const MAX_EXPIRED: usize = 1024;

/// The shortest sleep to which a clock can bound it: less would be none at all.
const MIN_BOUND: Duration = Duration::from_millis(1);

pub(super) struct Worker {
    shared: Arc<TimerShared<Timeout>>,
    wheel: Wheel<Timeout>,
    additions: Inbox<Timeout>,
    cancelled: Inbox<Timeout>,
    /// Those that came later than their tick; run before the wheel is told of a later time.
    overdue: VecDeque<Timeout>,
    /// The time that the wheel was told last, and the beginning of its tick.
    seen: u64,
    begun: u64,
    executor: Option<Arc<Executor>>,
    real_time: bool,
    /// The longest sleep towards a deadline, if the clock has one.
    longest_sleep: Option<Duration>,
}

impl Worker {
    /// The last argument is whether time passes by itself, and after which sleep the clock wants to be looked at.
    /// Runs on the timer's thread until the timer is stopped. Returns the timeouts that are left.
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

    /// The life of the thread: until it is asked to end. The timeouts that it has cancelled then.
    fn run(mut self) -> Vec<Timeout> {
        // Tasks are guarded each by itself. What else may panic is the clock, and then there is no going on.
        let panicked = caught(|| {
            while !self.shared.is_stopping() {
                self.turn();
            }
        });
        if let Some(message) = panicked {
            caught(|| log::error!("{}: stops, since it panicked: {message}", self.shared.thread_name()));
        }
        self.end()
    }

    fn turn(&mut self) {
        self.transfer();
        let now = self.shared.now();
        // After a task has run, time has passed and things may have come: no sleep before another look at both.
        if self.expire(now) == 0 {
            self.sleep(now);
        }
    }

    /// Moves what was added into the wheel, and what was cancelled out of it.
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

    /// Runs what is due at `now`, up to a bound; how many came out of the wheel.
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
            return self.wheel.expire(self.seen).or_else(|| self.overdue.pop_front());
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

    /// Sleeps until the next occupied tick, or until woken; not at all if something waits.
    #[allow(clippy::disallowed_methods, reason = "only where the clock is real time")]
    fn sleep(&mut self, now: u64) {
        let next = self.wheel.next_expiry();
        if next.is_some_and(|next| next <= now) {
            // What is due is still being moved to where it can be taken.
            return;
        }
        self.shared.wake_up().about_to_sleep(next);
        if self.additions.is_empty() && self.cancelled.is_empty() && !self.shared.is_stopping() {
            match next {
                Some(next) if self.real_time => {
                    let left = Duration::from_nanos(next.saturating_sub(now));
                    thread::park_timeout(self.longest_sleep.map_or(left, |longest| left.min(longest)));
                }
                _ => thread::park(),
            }
        }
        self.shared.wake_up().awake();
    }

    /// Cancels all that is left, nearly in the order in which it would have run.
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
        // Whoever cancels one meanwhile finds the mailbox closed; so its hook is run by who finds it here.
        for timeout in mem::take(&mut self.overdue) {
            finish(timeout);
        }
        // A call may only have moved some: it is over when nothing is left.
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
    use crate::{testing::ManualClock, timer::HashedWheelTimer};
    use std::{sync::Arc, thread, time::Duration};

    /// More than are left in the wheel when they were cancelled.
    const MANY: usize = 40_000;

    #[test]
    #[cfg_attr(miri, ignore = "takes too long there")]
    fn what_is_left_of_cancelled_timeouts_goes_without_anything_coming_due() {
        let timer = HashedWheelTimer::builder().clock(ManualClock::new()).build().unwrap();
        let mut left: Vec<_> = (0..MANY)
            .map(|_| {
                let timeout = timer.new_timeout(Duration::from_secs(3600), |_| Ok(())).unwrap();
                timeout.cancel();
                Arc::downgrade(&timeout.entry)
            })
            .collect();
        // The clock stands still, so the thread does this for no other reason than their number.
        while left.len() > super::super::shared::CROWD {
            left.retain(|entry| entry.strong_count() > 0);
            thread::yield_now();
        }
    }
}
