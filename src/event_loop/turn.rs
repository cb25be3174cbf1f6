//! One turn of a loop, and the order of things in it.
//!
//! ```text
//!  poll ─► ready I/O ─► tasks within the ioRatio budget ─► due timers ─► flush, close ─┐
//!   ▲                                                                                  │
//!   └──────────── sleep until the next deadline, or not at all if work waits ──────────┘
//! ```
//!
//! Always holds: every turn polls; at most [`TASKS_PER_CHECK`] tasks run beyond the budget; at least that many
//! run in every turn if they wait; what a bound cuts off is carried over and keeps the next poll from sleeping.
//! The clock is read after the poll, after the I/O if there are tasks, after every [`TASKS_PER_CHECK`] tasks, and
//! before a sleep that has a deadline. Runs on the loop's thread and owns everything that the loop owns.

use super::{
    io::Io,
    selector::{Selector, WakeCause},
    shared::{LifeState, LoopMail, LoopShared, Task},
    shutdown::Shutdown,
    sources::{Slot, Sources},
};
use crate::{
    channel::{Due, Scheduled},
    clock::TimeSource,
    error::{drop_guarded, panic_message},
    sync::Inbox,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

/// Tasks between two looks at the clock, as in Netty: reading it for every one would cost more than most tasks.
pub(crate) const TASKS_PER_CHECK: usize = 64;

/// Scheduled tasks, and idle entries, that run in one turn at most.
const TIMERS_PER_TURN: usize = 1024;

/// The longest sleep without a look at the clock, so that no timeout is too long for the operating system's poll.
const MAX_SLEEP: u64 = 24 * 60 * 60 * 1_000_000_000;

/// How long a loop rests after its poll failed, so that an error which stays does not take a whole core.
const POLL_ERROR_REST: Duration = Duration::from_secs(1);

pub(crate) struct Turn {
    pub(crate) shared: Arc<LoopShared>,
    pub(crate) inbox: Inbox<LoopMail>,
    pub(crate) sources: Sources,
    pub(crate) io: Io,
    /// Percent of the busy time that I/O gets; 100: all tasks that wait are run.
    pub(crate) io_ratio: u8,
    pub(crate) shutdown: Option<Shutdown>,
    /// Whether time passes by itself.
    pub(crate) real_time: bool,
    /// A bound was hit in the last turn: timers are still due.
    pub(crate) timers_left: bool,
}

impl Turn {
    /// Turns until the loop has shut down.
    pub(crate) fn run(&mut self) {
        while !self.turn() {}
    }

    /// One turn; true if it was the last.
    fn turn(&mut self) -> bool {
        self.shared.metrics.turns.add(1);
        self.poll();
        let did_io = self.handle_io();
        let mut worked = self.run_tasks(did_io);
        worked |= self.run_timers();
        if worked {
            self.io.selector.worked();
        }
        self.attend();
        self.tell_inactive();
        self.update_gauges();
        self.proceed_with_shutdown()
    }

    fn read_clock(&mut self) {
        self.shared.metrics.clock_reads.add(1);
        // A clock that steps back must not turn the loop's time back.
        self.io.services.now = self.io.services.time.now().max(self.io.services.now);
    }

    // ---- poll ----------------------------------------------------------------------------------------

    fn has_work(&self) -> bool {
        self.timers_left
            || !self.io.services.attention.is_empty()
            || !self.io.to_read.is_empty()
            || !self.io.inactive.is_empty()
            || !self.inbox.is_empty()
    }

    fn next_deadline(&self) -> Option<u64> {
        let timers = self.io.services.next_deadline();
        match (timers, self.shutdown.as_ref().map(Shutdown::next_look)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// How long the poll may sleep; none: until something happens. Publishes the sleep to submitters.
    fn fall_asleep(&mut self) -> (Option<Duration>, Option<u64>) {
        const NOT_AT_ALL: Option<Duration> = Some(Duration::ZERO);
        if self.has_work() {
            return (NOT_AT_ALL, None);
        }
        let mut deadline = self.next_deadline();
        if deadline.is_some() {
            self.read_clock();
            deadline = deadline.map(|at| at.min(self.io.services.now.saturating_add(MAX_SLEEP)));
        }
        if deadline.is_some_and(|deadline| deadline <= self.io.services.now) {
            return (NOT_AT_ALL, deadline);
        }
        self.shared.wake_up.about_to_sleep(deadline);
        // What came before the sleep was published has not written to the waker: look once more.
        if !self.inbox.is_empty() {
            return (NOT_AT_ALL, deadline);
        }
        if self.real_time {
            let delay = deadline.map(|deadline| Duration::from_nanos(deadline - self.io.services.now));
            return (delay, deadline);
        }
        // Time that is moved by hand may have been moved just before the sleep was published.
        self.read_clock();
        let due = deadline.is_some_and(|deadline| deadline <= self.io.services.now);
        (if due { NOT_AT_ALL } else { None }, deadline)
    }

    fn poll(&mut self) {
        let (timeout, deadline) = self.fall_asleep();
        let polled = self.io.selector.poll(timeout);
        self.shared.wake_up.awake();
        self.read_clock();
        let metrics = &self.shared.metrics;
        metrics.polls.add(1);
        let cause = match polled {
            Ok(Some(cause)) => cause,
            Ok(None) => {
                let reached = deadline.is_some_and(|deadline| deadline <= self.io.services.now);
                self.io.selector.nothing_happened(reached)
            }
            Err(e) => {
                metrics.poll_errors.add(1);
                log::error!("{}: poll failed: {e}; opening a new one", self.shared.name);
                let _ = self.rebuild();
                std::thread::sleep(POLL_ERROR_REST);
                return;
            }
        };
        let counter = match cause {
            WakeCause::Io => &metrics.wakes_io,
            WakeCause::Waker => &metrics.wakes_waker,
            WakeCause::Deadline => &metrics.wakes_deadline,
            WakeCause::Interrupted => &metrics.wakes_interrupted,
            WakeCause::NotAsleep => &metrics.polls_without_sleep,
            WakeCause::Premature => &metrics.wakes_premature,
        };
        counter.add(1);
    }

    // ---- I/O -----------------------------------------------------------------------------------------

    /// Handles what is ready; whether anything was.
    fn handle_io(&mut self) -> bool {
        if self.io.selector.must_rebuild() {
            let _ = self.rebuild();
            return false;
        }
        // Taken before the events: whoever has had its share now and is listed again waits for the next turn.
        let mut to_read = std::mem::take(&mut self.io.to_read);
        let mut did_io = !to_read.is_empty();
        if let Some(events) = self.io.selector.take_events() {
            for event in events.iter().filter(|event| !Selector::is_waker(event.token())) {
                did_io = true;
                self.handle_event(event);
            }
            self.io.selector.put_events(events);
        }
        for key in to_read.drain(..) {
            let Turn { sources, io, shared, .. } = self;
            match sources.get(key) {
                Some(Slot::Channel(slot)) => slot.read(io, &shared.metrics),
                Some(Slot::Listener(_)) => self.source_is_due(key),
                _ => {}
            }
        }
        to_read.append(&mut self.io.to_read);
        self.io.to_read = to_read;
        did_io
    }

    fn handle_event(&mut self, event: &mio::event::Event) {
        let Turn { sources, io, shared, .. } = self;
        // An event for a source that was closed earlier in this batch finds another generation, or nothing.
        let Some((key, slot)) = sources.by_token(event.token().0) else { return };
        match slot {
            Slot::Channel(slot) => slot.handle_ready(io, &shared.metrics, event),
            Slot::Listener(_) => self.accept(key),
            Slot::Connecting(_) => self.finish_connect(key, event),
        }
    }

    // ---- tasks ---------------------------------------------------------------------------------------

    /// Runs waiting tasks; whether there were any.
    fn run_tasks(&mut self, did_io: bool) -> bool {
        if self.inbox.is_empty() {
            return false;
        }
        // The time since the poll returned went into I/O, if there was any; time asleep is not I/O time.
        let io_began = self.io.services.now;
        self.read_clock();
        let began = self.io.services.now;
        let io_time = if did_io { began - io_began } else { 0 };
        let until = budget(io_time, self.io_ratio).map(|budget| began.saturating_add(budget));
        // Without a time limit it is what waits now: tasks that give new tasks for ever must not keep out the I/O.
        let mut left = if until.is_some() { usize::MAX } else { self.shared.mailbox.len() };
        let mut ran = 0u64;
        'phase: loop {
            for _ in 0..TASKS_PER_CHECK {
                if left == 0 {
                    break 'phase;
                }
                let Some(mail) = self.inbox.take() else { break 'phase };
                self.handle_mail(mail);
                left -= 1;
                ran += 1;
            }
            self.read_clock();
            if until.is_some_and(|until| self.io.services.now >= until) {
                break;
            }
        }
        self.shared.mailbox.announce_room();
        if !self.inbox.is_empty() {
            self.shared.metrics.tasks_deferred.add(1);
        }
        self.shared.metrics.tasks_run.add(ran);
        true
    }

    pub(super) fn handle_mail(&mut self, mail: LoopMail) {
        match mail {
            LoopMail::Channel(key, mail) => {
                let Turn { sources, io, shared, .. } = self;
                if let Some(slot) = sources.channel(key) {
                    slot.core.handle_mail(&mut io.services, mail);
                    slot.settle(io, &shared.metrics);
                } else {
                    drop_guarded(mail);
                }
            }
            LoopMail::Task(task) => self.run_task(task),
            LoopMail::Schedule(deadline, task) => self.schedule(deadline, task),
            LoopMail::Unschedule(task) => {
                if let Some(place) = task.place() {
                    self.io.services.queue.cancel(place);
                    task.set_place(None);
                }
            }
            LoopMail::Listen(listening) => self.listen(*listening),
            LoopMail::Adopt(accepted) => self.adopt(*accepted),
            LoopMail::Connect(connecting) => self.connect(*connecting),
            // The listener came through this queue before what is asked of it; it has a key unless it was refused.
            LoopMail::CloseListener(server) => {
                if let Some(key) = server.key.get() {
                    self.close_listener(*key);
                }
            }
            LoopMail::Accepting(server, accepting) => {
                if let Some(key) = server.key.get() {
                    self.set_accepting(*key, accepting);
                }
            }
            LoopMail::Rebuild(completer) => {
                let result = self.rebuild();
                completer.complete(result);
            }
            LoopMail::Shutdown => self.begin_shutdown(),
        }
    }

    fn run_task(&mut self, task: Task) {
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.note_task();
        }
        let Task { body, origin } = task;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
            self.shared.metrics.tasks_panicked.add(1);
            let message = panic_message(&*panic);
            log::error!("{}: the task given at {origin} panicked: {message}", self.shared.name);
        }
    }

    // ---- timers --------------------------------------------------------------------------------------

    fn schedule(&mut self, deadline: u64, task: Arc<dyn Scheduled>) {
        if self.shared.state() >= LifeState::ShuttingDown {
            task.abandon();
        } else if task.is_waiting() {
            let place = self.io.services.queue.insert(deadline, Due::Task(task.clone()));
            task.set_place(Some(place));
        }
    }

    /// Runs what is due, within the bound of a turn; whether there was anything.
    fn run_timers(&mut self) -> bool {
        let now = self.io.services.now;
        let mut fired = 0;
        let mut behind = Vec::new();
        while fired < TIMERS_PER_TURN {
            let Some(due) = self.io.services.queue.pop_due(now) else { break };
            fired += 1;
            let (key, deadline) = (due.key, due.deadline);
            match due.value {
                Due::Task(ref task) => {
                    let task = task.clone();
                    task.set_place(None);
                    if let Some(shutdown) = &mut self.shutdown {
                        shutdown.note_task();
                    }
                    match task.run(deadline, &self.io.services.time) {
                        // Makes up for runs that it missed: one in a turn, so that I/O gets through between them.
                        Some(next) if next <= now => behind.push((due, next)),
                        Some(next) => self.put_back(due, next),
                        None => {}
                    }
                }
                Due::Channel(channel, task) => {
                    let Turn { sources, io, shared, .. } = self;
                    if let Some(slot) = sources.channel(channel) {
                        slot.core.handle_task(&mut io.services, key, task);
                        slot.settle(io, &shared.metrics);
                    }
                }
                Due::Source(source) => self.source_is_due(source),
            }
        }
        for (due, next) in behind {
            self.put_back(due, next);
        }
        let mut idle = 0;
        while idle < TIMERS_PER_TURN {
            let Some(channel) = self.io.services.wheel.expire(now) else { break };
            idle += 1;
            let Turn { sources, io, shared, .. } = self;
            if let Some(slot) = sources.channel(channel) {
                slot.core.handle_idle_entry(&mut io.services);
                slot.settle(io, &shared.metrics);
            }
        }
        self.timers_left = fired == TIMERS_PER_TURN || idle == TIMERS_PER_TURN;
        self.shared.metrics.timers_fired.add(fired as u64);
        self.shared.metrics.wheel_fired.add(idle as u64);
        fired + idle > 0
    }

    /// Puts a periodic task back for its next run.
    fn put_back(&mut self, due: crate::timer::Due<Due>, next: u64) {
        let Due::Task(task) = &due.value else { return };
        let task = task.clone();
        let place = self.io.services.queue.reinsert(due, next);
        task.set_place(Some(place));
    }

    // ---- end of the turn -----------------------------------------------------------------------------

    /// Flushes and closes. Who gets attention again meanwhile has its turn in the next one.
    fn attend(&mut self) {
        let Turn { sources, io, shared, .. } = self;
        if io.services.attention.is_empty() {
            return;
        }
        let mut attention = std::mem::take(&mut io.services.attention);
        for key in attention.drain(..) {
            if let Some(slot) = sources.channel(key) {
                slot.attend(io, &shared.metrics);
            }
        }
        // Keeps the memory of the list; usually nobody was listed in between.
        attention.append(&mut io.services.attention);
        io.services.attention = attention;
    }

    /// Tells handlers that their channel is closed, and lets go of them.
    pub(super) fn tell_inactive(&mut self) {
        if self.io.inactive.is_empty() {
            return;
        }
        for key in std::mem::take(&mut self.io.inactive) {
            let Turn { sources, io, shared, .. } = self;
            if let Some(slot) = sources.channel(key) {
                slot.core.handle_inactive(&mut io.services);
            }
            let slot = sources.remove(key);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(slot))) {
                let message = panic_message(&*panic);
                log::error!("{}: dropping a handler panicked: {message}", shared.name);
            }
        }
    }

    fn update_gauges(&self) {
        let metrics = &self.shared.metrics;
        metrics.timers_pending.set(self.io.services.queue.len() as u64);
        metrics.wheel_pending.set(self.io.services.wheel.len() as u64);
    }

    pub(crate) fn time(&self) -> &TimeSource {
        &self.io.services.time
    }
}

/// The time that tasks get after I/O took `io_time`: `io_time × (100 − r) / r`; none is no limit.
pub(crate) fn budget(io_time: u64, io_ratio: u8) -> Option<u64> {
    let ratio = u64::from(io_ratio);
    (ratio < 100).then(|| {
        let budget = u128::from(io_time) * u128::from(100 - ratio) / u128::from(ratio.max(1));
        u64::try_from(budget).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e_35_the_budget_follows_the_ratio() {
        assert_eq!(budget(1_000, 50), Some(1_000));
        assert_eq!(budget(1_000, 80), Some(250));
        assert_eq!(budget(1_000, 20), Some(4_000));
        assert_eq!(budget(1_000, 1), Some(99_000));
        assert_eq!(budget(u64::MAX, 1), Some(u64::MAX));
    }

    #[test]
    fn e_34_a_ratio_of_100_is_no_limit() {
        assert_eq!(budget(1_000, 100), None);
        assert_eq!(budget(0, 100), None);
    }

    #[test]
    fn e_36_no_io_is_a_budget_of_zero() {
        assert_eq!(budget(0, 50), Some(0));
    }
}
