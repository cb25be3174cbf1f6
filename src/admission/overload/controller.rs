//! From measured delays to the limits of the classes of work.
//!
//! # Delay
//! A source that is handled in a turn became readable after the previous poll, because that one
//! did not report it. So the delay of a turn is measured from the previous poll to the end of the
//! turn. If the loop has slept in between, it is measured from the end of the sleep.
//!
//! # Detection
//! A window lasts for two targets and at least three turns. The loop is late if the *shortest*
//! delay of a window exceeds the target, as in CoDel: a queue that stands, not a single spike.
//!
//! # Limits
//! A late loop is saturated, so the rate of admissions in a late window is its capacity. The first
//! class that is not at its floor gets this rate times target / delay as its limit. A loop that is
//! not late raises the last limit: by the share of time in which it slept, or by 1 % if it did not
//! sleep. If it slept for a tenth of the time, the limit returns to nine tenths of the measured
//! capacity at once. A limit that has refused nothing in a window is doubled, and lifted after two
//! such windows if it is far above the admissions.
//!
//! Handshakes are computed a few per turn, so a queue of them does not lengthen the turns. A queue
//! that would take ten targets limits accepting to the rate of handshakes, and nothing else.
//!
//! # Hint
//! Refused clients get one place after the other in a queue without memory: each refusal makes it
//! longer, and time makes it shorter. The distance of the places is half of the time that the loop
//! needs for a client, at the largest rate of admissions that was measured lately. So the clients
//! return one after the other, and a few more of them than the loop can serve.

use super::{
    work::Work,
    work_limits::{WorkCount, WorkLimits},
};
use crate::{clock::nanos, sync::Random};
use std::{cmp::Ordering, sync::Arc, time::Duration};

/// A window in targets.
const WINDOW: u64 = 2;

/// The least number of turns in a window in which a loop is late. A single slow callback delays two
/// turns: its own and the one after it.
const MIN_TURNS: u32 = 3;

/// A loop that has waited in its poll for this part of the target has had nothing to do.
const IDLE_PART: u64 = 64;

/// The longest queue of handshakes that does not limit accepting, in targets.
const HANDSHAKE_QUEUE: u64 = 10;

/// The longest wait for a handshake, in targets.
const PATIENCE: u32 = 20;

/// The longest wait for a handshake, if twenty targets are longer.
const LONGEST_PATIENCE: Duration = Duration::from_secs(60);

/// What is left of a measurement of the capacity after each window that is late or has refusals.
/// The largest one counts, because a loop that refuses many clients in a window serves fewer.
const FADING: f64 = 0.98;

/// The rate at which refused clients return, in capacities. A place that stays empty is lost, and a
/// client too many costs a refusal only.
const OVERBOOKING: f64 = 2.0;

/// The share of busy time at which a limit is raised slowly only.
const FULL_LOAD: f64 = 0.98;

/// The share of busy time below which a limit returns to the measured capacity. Admitted clients
/// cause work for some more windows, in which the limit goes on falling.
const IDLE_LOAD: f64 = 0.9;

/// The part of the capacity to which such a limit returns.
const RETURN: f64 = 0.9;

/// The factors by which a limit falls and rises in a window.
const CUT: std::ops::RangeInclusive<f64> = 0.3..=0.95;
const RAISE: std::ops::RangeInclusive<f64> = 1.01..=2.0;

/// Windows without a refusal after which a limit is lifted.
const QUIET_WINDOWS: u32 = 2;

/// A limit is lifted only if it is this many times the admissions.
const ROOM: f64 = 4.0;

/// The overload control of one loop.
#[derive(Debug)]
pub(crate) struct OverloadController {
    target: u64,
    limits: Arc<WorkLimits>,
    classes: [ClassControl; Work::ALL.len()],
    /// The begin and the end of the previous turn.
    began: u64,
    ended: u64,
    /// When the queue of the refused clients was last shortened.
    shortened: u64,
    window: Window,
    capacity: Capacity,
}

/// The rate at which a loop can serve clients.
#[derive(Debug, Clone, Copy, Default)]
struct Capacity {
    /// The class by whose admissions it was measured.
    class: usize,
    /// Admissions per nanosecond; 0 before the first late window.
    rate: f64,
}

#[derive(Debug)]
struct Window {
    began: u64,
    ends: u64,
    turns: u32,
    /// The shortest delay of a turn.
    least: u64,
    /// The time in turns.
    busy: u64,
    /// The smallest number of handshakes that a turn has left waiting.
    handshakes: usize,
}

#[derive(Debug, Default)]
struct ClassControl {
    /// Admissions per nanosecond; `None` without a limit.
    rate: Option<f64>,
    /// The fraction of a permit that is not in the limits yet.
    fraction: f64,
    /// Windows without a refusal.
    quiet: u32,
    /// The counts at the beginning of the window.
    before: WorkCount,
}

impl Window {
    fn new(now: u64, target: u64) -> Self {
        let ends = now.saturating_add(WINDOW * target);
        Window { began: now, ends, turns: 0, least: u64::MAX, busy: 0, handshakes: usize::MAX }
    }
}

impl OverloadController {
    /// Creates the control of a loop with this target, which begins at `now`.
    pub(crate) fn new(target: Duration, random: Arc<Random>, now: u64) -> Self {
        let patience = target.saturating_mul(PATIENCE).min(LONGEST_PATIENCE);
        let limits = Arc::new(WorkLimits::new(target, patience, random));
        let target = nanos(target);
        OverloadController {
            target,
            limits,
            classes: Default::default(),
            began: now,
            ended: now,
            shortened: now,
            window: Window::new(now, target),
            capacity: Capacity::default(),
        }
    }

    /// Returns the limits, which the loop shares with other threads.
    pub(crate) fn limits(&self) -> &Arc<WorkLimits> {
        &self.limits
    }

    /// Returns the time at which the limits have to be looked at although nothing happens. `None`
    /// if nothing is limited.
    pub(crate) fn next_look(&self) -> Option<u64> {
        self.classes[0].rate.map(|_| self.window.ends)
    }

    /// Records a turn, which has left this number of handshakes waiting.
    pub(crate) fn note_turn(&mut self, began: u64, ended: u64, handshakes: usize) {
        let has_slept = began.saturating_sub(self.ended) > self.target / IDLE_PART;
        let since = if has_slept { began } else { self.began };
        self.refill(ended);
        let window = &mut self.window;
        window.turns += 1;
        window.least = window.least.min(ended.saturating_sub(since));
        window.busy = window.busy.saturating_add(ended.saturating_sub(began));
        window.handshakes = window.handshakes.min(handshakes);
        (self.began, self.ended) = (began, ended);
        if ended >= window.ends {
            self.end_window(ended);
        }
    }

    /// Shortens the queue of the refused clients by the time since the last call.
    fn shorten_queue(&mut self, now: u64) {
        self.limits.shorten_queue(now.saturating_sub(self.shortened));
        self.shortened = now;
    }

    /// Gives the limited classes the permits of the time since the last turn.
    fn refill(&mut self, now: u64) {
        if self.classes[0].rate.is_none() {
            return;
        }
        self.shorten_queue(now);
        let passed = now.saturating_sub(self.ended) as f64;
        let window = (WINDOW * self.target) as f64;
        for (class, work) in self.classes.iter_mut().zip(Work::ALL) {
            let Some(rate) = class.rate else { break };
            class.fraction += rate * passed.min(window);
            let permits = class.fraction.floor();
            if permits >= 1.0 {
                class.fraction -= permits;
                self.limits.add(work, permits as u64, (rate * window).ceil().max(1.0) as u64);
            }
        }
    }

    #[cold]
    fn end_window(&mut self, now: u64) {
        let window = &self.window;
        let (least, handshakes) = (window.least, window.handshakes);
        let is_late = least > self.target;
        if is_late && window.turns < MIN_TURNS {
            self.window.ends = now.saturating_add(self.target);
            return;
        }
        let elapsed = now.saturating_sub(window.began).max(1) as f64;
        let load = (window.busy as f64 / elapsed).clamp(0.01, 1.0);
        let counts = self.take_counts();
        self.shorten_queue(now);
        self.window = Window::new(now, self.target);
        if is_late || counts[..Work::Bulk as usize].iter().any(|count| count.refused > 0) {
            self.measure_capacity(&counts, elapsed * load);
        }
        let wait = handshake_wait(handshakes, counts[Work::Handshake as usize], elapsed);
        let tolerated = (HANDSHAKE_QUEUE * self.target) as f64;
        if is_late {
            self.tighten(&counts, elapsed, self.target as f64 / least as f64);
        } else if wait > tolerated {
            let served = counts[Work::Handshake as usize].admitted as f64 / elapsed;
            self.pace_accepts(served * cut(tolerated / wait));
        } else {
            self.relax(&counts, elapsed, load);
        }
    }

    /// Returns the counts of the window, and begins those of the next one.
    fn take_counts(&mut self) -> [WorkCount; Work::ALL.len()] {
        Work::ALL.map(|work| {
            let now = self.limits.count(work);
            now.since(std::mem::replace(&mut self.classes[work as usize].before, now))
        })
    }

    /// Returns the lowest limit: one admission per window keeps a probe of the load alive.
    fn floor(&self) -> f64 {
        1.0 / (WINDOW * self.target) as f64
    }

    /// Cuts the limit of the first class that is not at its floor. Classes without work fall to
    /// their floor at once.
    fn tighten(&mut self, counts: &[WorkCount], elapsed: f64, factor: f64) {
        let floor = self.floor();
        for (work, count) in Work::ALL.into_iter().zip(counts) {
            let admitted = count.admitted as f64 / elapsed;
            let base = match self.classes[work as usize].rate {
                Some(rate) if rate <= floor => continue,
                Some(rate) => rate.min(admitted),
                None => admitted,
            };
            self.set_rate(work, (base * cut(factor)).max(floor));
            if !count.is_none() {
                return;
            }
        }
    }

    /// Limits accepting to this rate, unless it is lower.
    fn pace_accepts(&mut self, rate: f64) {
        let rate = self.classes[0].rate.map_or(rate, |before| before.min(rate));
        self.set_rate(Work::Accept, rate.max(self.floor()));
    }

    fn set_rate(&mut self, work: Work, rate: f64) {
        let class = &mut self.classes[work as usize];
        if class.rate.is_none() {
            class.fraction = 0.0;
            self.limits.limit(work, 0);
        }
        (class.rate, class.quiet) = (Some(rate), 0);
    }

    /// Raises the limit of the last limited class, or lifts it.
    fn relax(&mut self, counts: &[WorkCount], elapsed: f64, load: f64) {
        let Some(at) = self.classes.iter().rposition(|class| class.rate.is_some()) else { return };
        let class = &mut self.classes[at];
        let Some(rate) = class.rate else { return };
        let admitted = counts[at].admitted as f64 / elapsed;
        if counts[at].refused > 0 {
            class.quiet = 0;
            let raised = rate * (FULL_LOAD / load).clamp(*RAISE.start(), *RAISE.end());
            let known = if load < IDLE_LOAD && at <= self.capacity.class { self.capacity.rate } else { 0.0 };
            class.rate = Some(raised.max(known * RETURN));
            return;
        }
        class.quiet += 1;
        class.rate = Some(rate * RAISE.end());
        if class.quiet >= QUIET_WINDOWS && rate >= ROOM * admitted {
            class.rate = None;
            self.limits.lift(Work::ALL[at]);
            if at == 0 {
                self.capacity = Capacity::default();
            }
        }
    }

    /// Measures how fast refused clients can return: at the rate of the last of the three classes
    /// of clients that had work, because earlier classes are ahead of it or behind it while queues
    /// grow and shrink. Refused broadcasts do not count, because they do not return.
    fn measure_capacity(&mut self, counts: &[WorkCount], busy: f64) {
        let of_clients = &counts[..Work::Bulk as usize];
        let at = of_clients.iter().rposition(|count| count.admitted > 0).unwrap_or(0);
        let measured = (counts[at].admitted as f64 / busy).max(self.floor());
        let Capacity { class, rate } = self.capacity;
        self.capacity = match at.cmp(&class) {
            Ordering::Greater => Capacity { class: at, rate: measured },
            Ordering::Equal => Capacity { class, rate: measured.max(rate * FADING) },
            // An earlier class says nothing about a later one.
            Ordering::Less => Capacity { class, rate: (rate * FADING).max(self.floor()) },
        };
        self.limits.set_place_time((1.0 / (self.capacity.rate * OVERBOOKING)) as u64);
    }
}

/// Returns the factor by which a limit falls.
fn cut(factor: f64) -> f64 {
    factor.clamp(*CUT.start(), *CUT.end())
}

/// Returns the time that the waiting handshakes will take.
fn handshake_wait(waiting: usize, count: WorkCount, elapsed: f64) -> f64 {
    if waiting == 0 || waiting == usize::MAX {
        return 0.0;
    }
    waiting as f64 * elapsed / count.admitted.max(1) as f64
}

#[cfg(all(test, not(netwheel_loom)))]
#[path = "controller_tests.rs"]
mod tests;
