//! Limits on the rate at which a channel moves bytes.

use super::super::{ChannelState, services::LoopServices};
use crate::channel::shaping::{Direction, Shaper, TrafficShaping};

impl ChannelState {
    pub(crate) fn traffic_shaping(&self) -> TrafficShaping {
        self.extras.shaper().map_or_else(TrafficShaping::default, |shaper| shaper.settings().clone())
    }

    /// Replaces the limits. A direction that waits under the old limits is tried again immediately.
    pub(crate) fn set_traffic_shaping(&mut self, services: &mut LoopServices, settings: TrafficShaping) {
        if self.extras.shaper().is_none() && settings.is_off() {
            return;
        }
        self.disarm_shaper(services);
        self.note_held_up(services.now);
        let was_shaped = self.extras.shaper().is_some();
        let shaper = Shaper::new(settings, self.extras.shaper_mut(), services.now);
        self.extras.set_shaper((!shaper.settings().is_off()).then(|| Box::new(shaper)));
        if was_shaped {
            self.want_attention(services);
        }
    }

    /// Returns how many of `want` bytes may be read or written now. If none may, schedules the
    /// resumption.
    #[inline]
    pub(crate) fn allowance(
        &mut self,
        services: &mut LoopServices,
        direction: Direction,
        want: usize,
    ) -> usize {
        if self.extras.shaper().is_none() { want } else { self.shaped_allowance(services, direction, want) }
    }

    #[inline(never)]
    fn shaped_allowance(&mut self, services: &mut LoopServices, direction: Direction, want: usize) -> usize {
        let Some(shaper) = self.extras.shaper_mut() else { return want };
        let (now, instant) = (services.now, services.time.instant(services.now));
        let (allowed, begins_to_wait) = shaper.allow(direction, want, now, instant);
        if begins_to_wait {
            match direction {
                Direction::Read => services.tally.reads_paused += 1,
                Direction::Write => services.tally.writes_paused += 1,
            }
            self.arm_shaper(services);
        }
        allowed
    }

    /// Takes moved bytes off the allowance.
    #[inline]
    pub(crate) fn note_moved(&mut self, direction: Direction, bytes: usize) {
        if let Some(shaper) = self.extras.shaper_mut() {
            shaper.note_moved(direction, bytes);
        }
    }

    /// Returns the unused allowance at the end of a burst, unless the direction waits for its
    /// limit.
    #[inline(always)]
    pub(crate) fn give_allowance_back(&mut self, direction: Direction) {
        if self.extras.shaper().is_some() {
            self.end_burst(direction);
        }
    }

    #[inline(never)]
    fn end_burst(&mut self, direction: Direction) {
        if let Some(shaper) = self.extras.shaper_mut() {
            shaper.end_burst(direction);
        }
    }

    /// Returns whether this direction waits for its limit.
    #[inline]
    pub(crate) fn is_held_up(&self, direction: Direction) -> bool {
        self.extras.shaper().is_some_and(|shaper| shaper.is_waiting(direction))
    }

    /// Returns whether the limit, and not the peer, has recently stopped this direction.
    pub(crate) fn was_held_up(&self, direction: Direction) -> bool {
        self.extras.shaper().is_some_and(|shaper| shaper.was_held_up(direction))
    }

    /// Resumes the directions that have waited long enough, after the entry has expired.
    pub(crate) fn shaper_is_due(&mut self, services: &mut LoopServices) {
        let Some(shaper) = self.extras.shaper_mut() else { return };
        shaper.note_expired(services.now);
        self.note_held_up(services.now);
        // A direction without work must not keep its reservation.
        if !self.wants_read() {
            self.give_allowance_back(Direction::Read);
        }
        if !self.has_unsent() {
            self.give_allowance_back(Direction::Write);
        }
        self.arm_shaper(services);
        self.want_attention(services);
    }

    fn arm_shaper(&mut self, services: &mut LoopServices) {
        self.disarm_shaper(services);
        let key = self.key();
        if let Some(shaper) = self.extras.shaper_mut() {
            shaper.arm(key, &services.queue);
        }
    }

    fn disarm_shaper(&mut self, services: &mut LoopServices) {
        if let Some(entry) = self.extras.shaper_mut().and_then(|shaper| shaper.take_entry()) {
            drop(services.cancel_timer(entry));
        }
    }

    #[inline]
    pub(crate) fn end_shaper(&mut self, services: &mut LoopServices) {
        if self.extras.shaper().is_none() {
            return;
        }
        self.disarm_shaper(services);
        self.extras.set_shaper(None);
    }
}
