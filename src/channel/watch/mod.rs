//! The idle timeouts, time limits and stage timers of a channel, with one entry on the loop's
//! wheel.
//!
//! Reads and writes only store a time or a number in the channel. When the entry expires, the
//! deadlines are computed from these, and the entry is re-armed for the earliest one. Stages are
//! called first. The handler then receives an idle event, and last the limit that was reached,
//! which closes the channel. Coarse tasks of a handler (`ctx.schedule` with `Delay::coarse`) have
//! entries of their own on the wheel, and exact ones in the heap. The channel owns their closures,
//! which are dropped with it.
//!
//! Invariant: while any of them is set, the channel has exactly one entry, at or before the
//! earliest deadline. Events that postpone a deadline do not touch the entry. Runs on the channel's
//! loop. Owns neither the wheel nor the clock.

mod idle;
mod limits;

pub(in crate::channel) use idle::Traffic;
pub use idle::{IdleEvent, IdleState, IdleTimeouts};
pub use limits::TimeLimits;
pub(in crate::channel) use limits::{Limits, Reached};

use super::{ChannelTimer, TimerToken};
use crate::{
    id::Key,
    sync::Random,
    timer::{Wheel, WheelKey},
};
use idle::Idle;
use std::rc::Rc;

/// The deadline of stages without a timer.
const NEVER: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Watch {
    /// The channel's entry on the wheel.
    entry: WheelKey,
    pub(crate) idle: Idle,
    /// Created with the first limit.
    pub(crate) limits: Option<Box<Limits>>,
    /// The earliest deadline of the stages.
    stages: u64,
}

impl Watch {
    pub(in crate::channel) fn new(now: u64) -> Self {
        Watch { entry: WheelKey::NONE, idle: Idle::off(now), limits: None, stages: NEVER }
    }

    /// Changes the idle timeouts. The elapsed idle time counts if timeouts were set before.
    pub(in crate::channel) fn set_idle_timeouts(
        &mut self,
        timeouts: Option<Rc<IdleTimeouts>>,
        now: u64,
        random: &Random,
    ) {
        if self.idle.timeouts().is_off() {
            self.idle = Idle::new(timeouts, now, random);
        } else {
            self.idle.set(timeouts, random);
        }
    }

    /// Changes the time limits. `heard` and `served`: the first byte has come, the first message
    /// was delivered. `kept` bytes do not make a message yet.
    pub(in crate::channel) fn set_limits(
        &mut self,
        settings: TimeLimits,
        now: u64,
        heard: bool,
        served: bool,
        kept: usize,
    ) {
        let limits = self.limits.get_or_insert_with(|| Box::new(Limits::new(TimeLimits::new(), now)));
        limits.set(settings, kept, now);
        // These arrived before the limits were set.
        if heard {
            limits.note_byte();
        }
        if served {
            limits.note_message();
        }
    }

    /// Requests a call of the stages at `deadline`, or before.
    pub(in crate::channel) fn wake_stages(&mut self, deadline: u64) {
        self.stages = self.stages.min(deadline);
    }

    /// Returns the earliest deadline, provided that no more bytes move.
    fn deadline(&self, traffic: Traffic) -> Option<u64> {
        let limits = self.limits.as_ref().and_then(|limits| limits.deadline(traffic));
        let stages = (self.stages != NEVER).then_some(self.stages);
        [self.idle.deadline(traffic), limits, stages].into_iter().flatten().min()
    }

    /// Returns whether a timeout has expired that input would have postponed. Stages may depend on
    /// the time of the last read, unless that was less than a tick ago.
    pub(in crate::channel) fn waits_for_peer(&self, traffic: Traffic, now: u64, tick: u64) -> bool {
        let stages = self.stages <= now && traffic.read.saturating_add(tick) < now;
        stages
            || self.idle.waits_for_peer(traffic, now)
            || self.limits.as_ref().is_some_and(|limits| limits.waits_for_peer(traffic, now))
    }

    /// Moves the channel's entry to the earliest deadline, or removes it if there is none. Returns
    /// whether an entry was removed before it expired.
    pub(in crate::channel) fn arm(
        &mut self,
        channel: Key,
        traffic: Traffic,
        wheel: &mut Wheel<TimerToken>,
    ) -> bool {
        let Some(deadline) = self.deadline(traffic) else { return self.disarm(wheel) };
        if !wheel.rearm(self.entry, deadline) {
            self.entry = wheel.insert(deadline, TimerToken::new(channel, ChannelTimer::Watch));
        }
        false
    }

    /// Removes the channel's entry. Returns whether there was one.
    pub(in crate::channel) fn disarm(&mut self, wheel: &mut Wheel<TimerToken>) -> bool {
        wheel.cancel(std::mem::replace(&mut self.entry, WheelKey::NONE)).is_some()
    }

    /// The entry has expired: there is none until the watch is armed again.
    pub(in crate::channel) fn note_expired(&mut self) {
        self.entry = WheelKey::NONE;
    }

    /// Returns the timeouts that have expired at `now`. Limits of a `paused` direction restart.
    pub(in crate::channel) fn take_due(
        &mut self,
        traffic: Traffic,
        now: u64,
        paused: Paused,
        random: &Random,
    ) -> WatchDue {
        let idle = self.idle.take_due(traffic, now, random);
        let reached = self.limits.as_mut().and_then(|limits| {
            limits.restart_paused(paused, now);
            limits.take_reached(traffic, now)
        });
        WatchDue { stages: self.take_stages(now), idle, reached }
    }

    /// Returns whether the timer of a stage has expired, and disarms it.
    fn take_stages(&mut self, now: u64) -> bool {
        let due = self.stages <= now && self.stages != NEVER;
        if due {
            self.stages = NEVER;
        }
        due
    }
}

/// The directions in which the channel itself does not move bytes.
#[derive(Debug, Clone, Copy)]
pub(in crate::channel) struct Paused {
    pub(in crate::channel) reading: bool,
    pub(in crate::channel) writing: bool,
}

/// The timeouts of a channel that have expired.
pub(in crate::channel) struct WatchDue {
    /// The timer of a stage has expired.
    pub(in crate::channel) stages: bool,
    pub(in crate::channel) idle: [Option<IdleEvent>; 3],
    /// A time limit that was reached.
    pub(in crate::channel) reached: Option<Reached>,
}
