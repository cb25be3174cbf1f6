//! Limits on the rate at which a channel moves bytes.

use super::ChannelState;
use crate::channel::{
    services::LoopServices,
    shaping::{Direction, Shaper, TrafficShaping},
};

impl ChannelState {
    pub(crate) fn traffic_shaping(&self) -> TrafficShaping {
        self.extras.shaper().map_or_else(TrafficShaping::default, |shaper| shaper.settings().clone())
    }

    /// From now on; whoever waits by the old settings looks again at once.
    pub(crate) fn set_traffic_shaping(&mut self, services: &mut LoopServices, settings: TrafficShaping) {
        if self.extras.shaper().is_none() && settings.is_off() {
            return;
        }
        self.disarm_shaper(services);
        let was_shaped = self.extras.shaper().is_some();
        let shaper = Shaper::new(settings, self.extras.shaper_mut(), services.now);
        self.extras.set_shaper((!shaper.settings().is_off()).then(|| Box::new(shaper)));
        if was_shaped {
            self.want_attention(services);
        }
    }

    /// How many of `want` bytes may be read or written now; if none may, the channel is told when some may, and waits.
    #[inline]
    pub(crate) fn allowance(&mut self, services: &mut LoopServices, way: Direction, want: usize) -> usize {
        if self.extras.shaper().is_none() { want } else { self.shaped_allowance(services, way, want) }
    }

    #[inline(never)]
    fn shaped_allowance(&mut self, services: &mut LoopServices, way: Direction, want: usize) -> usize {
        let Some(shaper) = self.extras.shaper_mut() else { return want };
        let (now, instant) = (services.now, services.time.instant(services.now));
        let (allowed, begins_to_wait) = shaper.allow(way, want, now, instant);
        if begins_to_wait {
            match way {
                Direction::Read => services.tally.reads_paused += 1,
                Direction::Write => services.tally.writes_paused += 1,
            }
            self.arm_shaper(services);
        }
        allowed
    }

    /// So many bytes have moved.
    #[inline]
    pub(crate) fn note_moved(&mut self, way: Direction, bytes: usize) {
        if let Some(shaper) = self.extras.shaper_mut() {
            shaper.note_moved(way, bytes);
        }
    }

    /// No more bytes move for now, for whatever reason: what may have moved besides is for others, or for later. Unless it
    /// is the limit that it waits for: then nothing changes.
    #[inline]
    pub(crate) fn give_allowance_back(&mut self, way: Direction) {
        if let Some(shaper) = self.extras.shaper_mut() {
            shaper.end_burst(way);
        }
    }

    /// Whether this direction waits.
    #[inline]
    pub(crate) fn is_held_up(&self, way: Direction) -> bool {
        self.extras.shaper().is_some_and(|shaper| shaper.is_waiting(way))
    }

    /// Whether the limit, and not the peer, is why nothing has moved of late.
    pub(crate) fn was_held_up(&self, way: Direction) -> bool {
        self.extras.shaper().is_some_and(|shaper| shaper.was_held_up(way))
    }

    /// The entry has come due, and is gone: who has waited long enough goes on.
    pub(crate) fn shaper_is_due(&mut self, services: &mut LoopServices) {
        let Some(shaper) = self.extras.shaper_mut() else { return };
        shaper.note_expired(services.now);
        // Whoever does not want to go on now must not keep what was booked.
        if !self.wants_read() {
            self.give_allowance_back(Direction::Read);
        }
        if self.pending_bytes() == 0 {
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

    pub(crate) fn end_shaper(&mut self, services: &mut LoopServices) {
        self.disarm_shaper(services);
        self.extras.set_shaper(None);
    }
}
