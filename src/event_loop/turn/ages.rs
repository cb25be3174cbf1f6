//! The drain of channels that have reached their maximum age. `event_loop::ages` decides when.
//!
//! Invariants: the loop has at most one timer for all ages. Each channel is notified once, and once
//! more if its pipeline was replaced during the grace time. A turn handles at most 1024 channels.
//! Runs on the loop's thread.

use super::Turn;
use crate::{
    channel::{AgeLimit, ChannelCore, Due, LoopServices, ShutdownCause},
    event_loop::ages::AgeStep,
    id::Key,
};

/// The maximum number of channels that are handled in one turn.
const HANDLED_PER_TURN: usize = 1024;

impl Turn {
    /// Begins to measure the age of a channel that was accepted, if its server limits it.
    #[inline]
    pub(super) fn note_age_of(&mut self, key: Key) {
        if let Some(limit) = self.age_limit(key) {
            self.add_age(key, limit);
        }
    }

    #[inline(never)]
    fn add_age(&mut self, key: Key, limit: AgeLimit) {
        let due = limit.draw(self.io.services.now, &self.io.services.random);
        let Turn { ages, sources, .. } = self;
        ages.get_or_insert_default().add(key, due, |key| sources.channel(key).is_some());
        self.arm_ages();
    }

    /// Records that a channel leaves its slot.
    #[inline]
    pub(super) fn note_age_ended(&mut self, key: Key) {
        if self.ages.is_some()
            && self.age_limit(key).is_some()
            && let Some(ages) = &mut self.ages
            && ages.note_end()
        {
            self.arm_ages();
        }
    }

    #[inline]
    fn age_limit(&mut self, key: Key) -> Option<AgeLimit> {
        self.sources.channel(key)?.driver.core.state.config.max_age
    }

    /// Moves the loop's timer to the next entry.
    fn arm_ages(&mut self) {
        let Some(ages) = &mut self.ages else { return };
        let next = ages.next_at();
        match ages.timer {
            Some((at, _)) if next.is_some_and(|next| next >= at) => return,
            Some((_, timer)) => drop(self.io.services.queue.cancel(timer)),
            None => {}
        }
        // Behind the timers that are due: in front of them, it would end the timers of this turn.
        let now = self.io.services.now;
        ages.timer = next.map(|at| (at, self.io.services.queue.insert(at.max(now), Due::Ages)));
    }

    /// Handles the channels that are due.
    pub(super) fn run_ages(&mut self) {
        let now = self.io.services.now;
        if let Some(ages) = &mut self.ages {
            ages.timer = None;
        }
        for _ in 0..HANDLED_PER_TURN {
            let Some(step) = self.ages.as_mut().and_then(|ages| ages.pop_due(now)) else { break };
            match step {
                AgeStep::Notify(key) => self.notify_aged(key, now),
                AgeStep::End(key) => self.end_grace(key, now),
            }
        }
        self.arm_ages();
    }

    fn notify_aged(&mut self, key: Key, now: u64) {
        let Some(slot) = self.sources.channel(key) else { return };
        let state = &slot.driver.core.state;
        // A shutdown of the loop drains the channel already, with its own time limit.
        if !state.status.is_open() || state.shutdown_cause() == Some(ShutdownCause::LoopShutdown) {
            return;
        }
        if let Some(ages) = &mut self.ages {
            ages.note_notified(now);
        }
        self.shared.metrics.connections_aged.add(1);
        self.drain_aged(key, now);
    }

    /// Notifies a channel, and begins its grace time if it stays open.
    fn drain_aged(&mut self, key: Key, now: u64) {
        self.call_guarded(key, ChannelCore::handle_max_age);
        let Turn { ages, sources, .. } = self;
        if let Some(slot) = sources.channel(key)
            && slot.driver.core.state.status.is_open()
            && let Some(limit) = slot.driver.core.state.config.max_age
            && let Some(ages) = ages
        {
            let until = now.saturating_add(limit.grace);
            ages.begin_grace(key, until, |key| sources.channel(key).is_some());
        }
    }

    /// Closes a channel that is still open after its grace time.
    fn end_grace(&mut self, key: Key, now: u64) {
        let Some(slot) = self.sources.channel(key) else { return };
        if !slot.driver.core.state.status.is_open() {
            return;
        }
        if !slot.driver.core.state.is_aged() {
            if slot.driver.core.state.shutdown_cause() != Some(ShutdownCause::LoopShutdown) {
                // Another pipeline has taken over, and does not know.
                self.drain_aged(key, now);
            }
            return;
        }
        self.shared.metrics.grace_expired.add(1);
        self.call_guarded(key, ChannelCore::handle_grace_expired);
    }

    fn call_guarded(&mut self, key: Key, call: fn(&mut ChannelCore, &mut LoopServices)) {
        self.guarded_once(Some(key), |turn| {
            let Turn { sources, io, shared, .. } = turn;
            if let Some(slot) = sources.channel(key) {
                slot.call(io, &shared.metrics, call);
            }
        });
    }
}
