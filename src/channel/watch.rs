//! What a channel waits for by itself, with one entry on the loop's wheel: quiet, time limits, and its stages' timers.
//!
//! Always holds: while anything of that is awaited the channel has exactly one entry, whatever it is, at or before the
//! first time at which something may be due. What moves deadlines to a later time does not touch the entry: when it
//! comes due it is armed anew for the rest. Runs on the channel's loop; owns neither the wheel nor the clock.

use super::{
    idle::{Idle, IdleState, IdleTimeouts, Traffic},
    limits::{Limits, TimeLimits},
    services::{LoopServices, WheelToken},
    state::{ChannelState, Flags},
};
use crate::{clock::nanos, timer::WheelKey};
use std::time::Duration;

/// How long a channel that reads only while it can write waits for its peer, unless it has a limit of its own.
const CHOKED_LIMIT: Duration = Duration::from_secs(60);

/// No stage has a timer, or its deadline is after the end of time.
const NEVER: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Watch {
    /// The channel's entry on the wheel; one that names nothing only while it is being armed.
    entry: WheelKey,
    pub(crate) idle: Idle,
    /// Made when there is one.
    pub(crate) limits: Option<Box<Limits>>,
    /// When the next of the stages wants to be called.
    stages: u64,
}

impl Watch {
    fn new(now: u64) -> Self {
        Watch { entry: WheelKey::NONE, idle: Idle::off(now), limits: None, stages: NEVER }
    }

    /// When something may be due if no more bytes move.
    fn deadline(&self, traffic: Traffic) -> Option<u64> {
        let limits = self.limits.as_ref().and_then(|limits| limits.deadline(traffic));
        let stages = (self.stages != NEVER).then_some(self.stages);
        [self.idle.deadline(traffic), limits, stages].into_iter().flatten().min()
    }

    /// Returns whether a timeout has expired that input would have postponed. Stages may depend on
    /// the time of the last read, unless that was less than a tick ago.
    fn waits_for_peer(&self, traffic: Traffic, now: u64, tick: u64) -> bool {
        let stages = self.stages <= now && traffic.read.saturating_add(tick) < now;
        stages
            || self.idle.waits_for_peer(traffic, now)
            || self.limits.as_ref().is_some_and(|limits| limits.waits_for_peer(traffic, now))
    }

    /// Whether a stage's time has come, which is told once.
    pub(crate) fn take_stages(&mut self, now: u64) -> bool {
        let due = self.stages <= now && self.stages != NEVER;
        if due {
            self.stages = NEVER;
        }
        due
    }
}

impl ChannelState {
    fn watch(&mut self, now: u64) -> &mut Watch {
        self.watch.get_or_insert_with(|| Box::new(Watch::new(now)))
    }

    pub(crate) fn idle_timeouts(&self) -> IdleTimeouts {
        self.watch.as_ref().map_or_else(IdleTimeouts::new, |watch| watch.idle.timeouts())
    }

    pub(crate) fn set_idle(&mut self, services: &mut LoopServices, timeouts: IdleTimeouts) {
        if self.watch.is_none() && timeouts.is_off() {
            return;
        }
        let shared = services.share_idle_timeouts(timeouts);
        let watch = self.watch(services.now);
        if watch.idle.timeouts().is_off() {
            watch.idle = Idle::new(shared, services.now, &services.random);
        } else {
            watch.idle.set(shared, &services.random);
        }
        self.arm_watch(services);
    }

    pub(crate) fn time_limits(&self) -> TimeLimits {
        let limits = self.watch.as_ref().and_then(|watch| watch.limits.as_ref());
        limits.map_or_else(TimeLimits::new, |limits| limits.settings())
    }

    pub(crate) fn set_time_limits(&mut self, services: &mut LoopServices, settings: TimeLimits) {
        let choking = self.config.read_while_writable;
        let settings = if choking { settings.or_write(CHOKED_LIMIT) } else { settings };
        let has_limits = self.watch.as_ref().is_some_and(|watch| watch.limits.is_some());
        if !has_limits && settings.is_off() {
            return;
        }
        self.set(Flags::LIMITED);
        let (heard, served) = (self.counts.bytes_read > 0, self.has(Flags::SERVED));
        let now = services.now;
        let watch = self.watch(now);
        let limits = watch.limits.get_or_insert_with(|| Box::new(Limits::new(settings, now)));
        limits.set(settings, now);
        // What came before there were limits has come all the same.
        if heard {
            limits.note_byte();
        }
        if served {
            limits.note_message();
        }
        self.arm_watch(services);
    }

    /// Whether this kind of quiet is watched.
    pub(crate) fn watches(&self, kind: IdleState) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.idle.watches(kind))
    }

    pub(crate) fn reset_idle(&mut self, kind: IdleState, now: u64) {
        if let Some(watch) = &mut self.watch {
            watch.idle.reset(kind, self.traffic, now);
        }
    }

    /// Has the stages be called at `deadline`, or before.
    pub(crate) fn wake_stages(&mut self, deadline: u64, now: u64) {
        let watch = self.watch(now);
        watch.stages = watch.stages.min(deadline);
        self.set(Flags::ARM);
    }

    #[inline]
    fn limits(&mut self) -> Option<&mut Limits> {
        // The flag is at hand in every callback, the watch is not.
        if self.has(Flags::LIMITED) { self.watch.as_mut()?.limits.as_deref_mut() } else { None }
    }

    /// The first byte is there.
    #[cold]
    pub(crate) fn note_first_byte(&mut self) {
        if let Some(limits) = self.limits() {
            limits.note_byte();
        }
    }

    /// The handler was given its first message.
    #[cold]
    pub(crate) fn note_first_message(&mut self) {
        self.set(Flags::SERVED);
        if let Some(limits) = self.limits() {
            limits.note_message();
        }
    }

    /// After a callback: bytes may have been written.
    #[inline]
    pub(crate) fn note_pending(&mut self, now: u64) {
        let pending = self.pending_bytes();
        if self.limits().is_some_and(|limits| limits.note_pending(pending, now)) {
            self.set(Flags::ARM);
        }
    }

    /// The kernel took `n` bytes.
    #[inline]
    pub(crate) fn note_taken(&mut self, n: usize) {
        let pending = self.pending_bytes();
        if let Some(limits) = self.limits() {
            limits.note_taken(n, pending);
        }
    }

    /// Of what waits, `n` bytes behind the first `keep` were dropped.
    pub(crate) fn note_dropped(&mut self, keep: usize, n: usize) {
        if let Some(limits) = self.limits() {
            limits.note_dropped(keep, n);
        }
    }

    /// After a read: so many bytes do not make a message yet.
    #[inline]
    pub(crate) fn note_kept(&mut self, services: &mut LoopServices, kept: usize) {
        let (moved, now) = (self.take(Flags::MOVED), services.now);
        // What filters keep counts too. Looked up only where a limit may need it.
        let kept = if self.has(Flags::LIMITED) { kept + self.kept_in_filters() } else { kept };
        if self.limits().is_some_and(|limits| limits.note_kept(kept, moved, now)) {
            self.arm_watch(services);
        }
    }

    /// Puts the channel's entry where something may be due next; takes it off where nothing is.
    pub(crate) fn arm_watch(&mut self, services: &mut LoopServices) {
        self.unset(Flags::ARM);
        if !self.has(Flags::ACTIVE) || self.has(Flags::CLOSED) {
            return;
        }
        let (key, traffic) = (self.key(), self.traffic);
        let Some(watch) = &mut self.watch else { return };
        let Some(deadline) = watch.deadline(traffic) else {
            let entry = std::mem::replace(&mut watch.entry, WheelKey::NONE);
            services.tally.wheel_cancelled += u64::from(services.wheel.cancel(entry).is_some());
            return;
        };
        if !services.wheel.rearm(watch.entry, deadline) {
            watch.entry = services.wheel.insert(deadline, WheelToken::watch(key));
        }
    }

    /// The entry has expired. Returns whether the driver has to look for unread input first,
    /// because input would have postponed the timeout.
    pub(crate) fn watch_expired(&mut self, services: &LoopServices) -> bool {
        let (traffic, now, open) = (self.traffic, services.now, self.is_open());
        let Some(watch) = &mut self.watch else { return false };
        watch.entry = WheelKey::NONE;
        open && watch.waits_for_peer(traffic, now, nanos(services.wheel.tick()))
    }

    /// Counts unread bytes in the socket as activity at `now`.
    pub(crate) fn note_unread(&mut self, now: u64) {
        self.traffic.read = now;
    }

    pub(crate) fn end_watch(&mut self, services: &mut LoopServices) {
        if let Some(watch) = self.watch.take() {
            services.tally.wheel_cancelled += u64::from(services.wheel.cancel(watch.entry).is_some());
        }
    }
}

#[cfg(all(test, not(netwheel_loom)))]
#[path = "watch_tests.rs"]
mod tests;
