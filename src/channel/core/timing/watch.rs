//! Idle timeouts, time limits and stage timers.

use super::{
    super::{ChannelCore, ChannelState, services::LoopServices, status::Memory},
    Timing,
};
use crate::{
    channel::{
        IdleState, IdleTimeouts, Pending, TimeLimits,
        close_cause::CloseCause,
        event::Event,
        shaping::Direction,
        watch::{Limits, Paused, Reached, Traffic, Watch, WatchDue},
    },
    clock::nanos,
};
use std::time::Duration;

/// The write limit of a channel that reads only while it is writable, unless the program sets one.
const CHOKED_LIMIT: Duration = Duration::from_secs(60);

impl ChannelCore {
    /// Handles the expired entry of the watch: calls stages, then `idle`, then enforces a time
    /// limit. The driver has checked for unread input before; see `ChannelState::watch_expired`.
    pub(super) fn handle_watch(&mut self, services: &mut LoopServices) {
        let (traffic, now, replaced) = (self.state.traffic(), services.now, services.replaced);
        let reading = !self.state.may_read()
            || self.state.status.input_ended()
            || self.state.was_held_up(Direction::Read);
        let paused = Paused { reading, writing: self.state.was_held_up(Direction::Write) };
        let Some(watch) = &mut self.state.timing.watch else { return };
        let WatchDue { stages, idle, reached } = watch.take_due(traffic, now, paused, &services.random);
        // Armed before the handler is called: an error in it must not end the watch.
        self.state.arm_watch(services);
        if stages && self.state.status.is_open() {
            self.event(services, Event::StageTimer);
        }
        for event in idle.into_iter().flatten() {
            // The handler may have closed the channel, or turned this kind off, in the call before.
            if self.state.status.is_open()
                && self.state.timing.watches(event.state)
                && services.replaced == replaced
            {
                self.event(services, Event::Idle(event));
            }
        }
        // The limits of a pipeline that was replaced in the meantime no longer apply.
        let holds = self.state.status.is_open() && services.replaced == replaced;
        if let Some(Reached { error, send }) = reached.filter(|_| holds) {
            self.state.note_cause(CloseCause::TimedOut);
            self.state.outbound.note_error(|| error.clone());
            self.fail(services, error);
            if send {
                self.state.request_close(CloseCause::TimedOut);
            } else {
                self.state.request_close_now(CloseCause::TimedOut);
            }
            self.after(services);
        }
    }
}

impl Timing {
    fn watch_at(&mut self, now: u64) -> &mut Watch {
        self.watch.get_or_insert_with(|| Box::new(Watch::new(now)))
    }

    pub(crate) fn idle_timeouts(&self) -> IdleTimeouts {
        self.watch.as_ref().map_or_else(IdleTimeouts::new, |watch| watch.idle.timeouts())
    }

    pub(crate) fn time_limits(&self) -> TimeLimits {
        let limits = self.watch.as_ref().and_then(|watch| watch.limits.as_ref());
        limits.map_or_else(TimeLimits::new, |limits| limits.settings())
    }

    /// Returns whether there is an idle timeout of this kind.
    pub(crate) fn watches(&self, kind: IdleState) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.idle.watches(kind))
    }
}

impl ChannelState {
    /// Returns when bytes have crossed the socket last.
    fn traffic(&self) -> Traffic {
        Traffic { read: self.inbound.last_read(), written: self.outbound.last_written() }
    }

    pub(crate) fn set_idle_timeouts(&mut self, services: &mut LoopServices, timeouts: IdleTimeouts) {
        if self.timing.watch.is_none() && timeouts.is_off() {
            return;
        }
        let shared = services.share_idle_timeouts(timeouts);
        self.timing.watch_at(services.now).set_idle_timeouts(shared, services.now, &services.random);
        self.arm_watch(services);
    }

    pub(crate) fn set_time_limits(&mut self, services: &mut LoopServices, settings: TimeLimits) {
        let choking = self.config.read_while_writable;
        let settings = if choking { settings.or_write(CHOKED_LIMIT) } else { settings };
        let has_limits = self.timing.watch.as_ref().is_some_and(|watch| watch.limits.is_some());
        if !has_limits && settings.is_off() {
            return;
        }
        self.status.set(Memory::LIMITED);
        let (heard, served) = (self.inbound.bytes() > 0, self.status.has(Memory::SERVED));
        let kept = self.inbound.undecoded().len() + self.extras.kept_in_filters();
        let now = services.now;
        self.timing.watch_at(now).set_limits(settings, now, heard, served, kept);
        self.arm_watch(services);
    }

    pub(crate) fn reset_idle_of(&mut self, kind: IdleState, now: u64) {
        let traffic = self.traffic();
        if let Some(watch) = &mut self.timing.watch {
            watch.idle.reset(kind, traffic, now);
        }
    }

    /// Requests a call of the stages at `deadline` or earlier.
    pub(crate) fn wake_stages(&mut self, deadline: u64, now: u64) {
        self.timing.watch_at(now).wake_stages(deadline);
        self.status.set(Pending::ARM_WATCH);
    }

    #[inline]
    fn limits(&mut self) -> Option<&mut Limits> {
        // The status is in cache in every callback, the watch is not.
        if self.status.has(Memory::LIMITED) {
            self.timing.watch.as_mut()?.limits.as_deref_mut()
        } else {
            None
        }
    }

    /// Records the first byte for the time limits.
    #[cold]
    pub(crate) fn note_first_byte(&mut self) {
        if let Some(limits) = self.limits() {
            limits.note_byte();
        }
    }

    /// Records the first message for the time limits.
    #[cold]
    pub(crate) fn note_first_message(&mut self) {
        self.status.set(Memory::SERVED);
        if let Some(limits) = self.limits() {
            limits.note_message();
        }
    }

    /// Records the pending bytes after a callback.
    #[inline]
    pub(crate) fn note_pending(&mut self, now: u64) {
        let pending = self.outbound.pending_bytes();
        if self.limits().is_some_and(|limits| limits.note_pending(pending, now)) {
            self.status.set(Pending::ARM_WATCH);
        }
    }

    /// Records that the kernel has accepted `n` bytes.
    #[inline]
    pub(crate) fn note_taken(&mut self, n: usize) {
        let pending = self.outbound.pending_bytes();
        if let Some(limits) = self.limits() {
            limits.note_taken(n, pending);
        }
    }

    /// Records that `n` pending bytes behind the first `keep` were dropped.
    pub(crate) fn note_dropped(&mut self, keep: usize, n: usize) {
        if let Some(limits) = self.limits() {
            limits.note_dropped(keep, n);
        }
    }

    /// Records that a message has replaced another one of `old` bytes.
    pub(crate) fn note_replaced(&mut self, old: usize) {
        let pending = self.outbound.pending_bytes();
        if let Some(limits) = self.limits() {
            limits.note_replaced(old, pending);
        }
    }

    /// Records after a read that `kept` bytes do not make a message yet. `moved`: the codec
    /// consumed bytes in this read.
    #[inline]
    pub(crate) fn note_kept(&mut self, services: &mut LoopServices, kept: usize, moved: bool) {
        let now = services.now;
        // Bytes kept in filters count too. Looked up only if a limit may need them.
        let limited = self.status.has(Memory::LIMITED);
        let kept = if limited { kept + self.extras.kept_in_filters() } else { kept };
        if self.limits().is_some_and(|limits| limits.note_kept(kept, moved, now)) {
            self.arm_watch(services);
        }
    }

    /// Restarts the time limits on input, because the channel did not read until now.
    pub(crate) fn note_resumed(&mut self, now: u64) {
        if let Some(limits) = self.limits() {
            limits.pause(now);
        }
    }

    /// Restarts the time limits of each direction that the channel's rate limit has stopped,
    /// because the peer could not be late until now.
    pub(super) fn note_held_up(&mut self, now: u64) {
        let [reading, writing] = [Direction::Read, Direction::Write].map(|way| self.was_held_up(way));
        if let Some(limits) = self.limits() {
            limits.restart_paused(Paused { reading, writing }, now);
        }
    }

    /// Moves the channel's entry on the wheel to the next deadline, or removes it.
    pub(crate) fn arm_watch(&mut self, services: &mut LoopServices) {
        self.status.unset(Pending::ARM_WATCH);
        if !self.status.is_active() {
            return;
        }
        let (key, traffic) = (self.key(), self.traffic());
        let Some(watch) = &mut self.timing.watch else { return };
        let cancelled = watch.arm(key, traffic, &mut services.wheel);
        services.tally.wheel_cancelled += u64::from(cancelled);
    }

    /// Handles the expired entry. Returns whether the driver has to check for unread input first,
    /// because input would have postponed the timeout.
    pub(crate) fn watch_expired(&mut self, services: &LoopServices) -> bool {
        let (traffic, now, open) = (self.traffic(), services.now, self.status.is_open());
        let Some(watch) = &mut self.timing.watch else { return false };
        watch.note_expired();
        open && watch.waits_for_peer(traffic, now, nanos(services.wheel.tick()))
    }

    pub(crate) fn end_watch(&mut self, services: &mut LoopServices) {
        if let Some(mut watch) = self.timing.watch.take() {
            services.tally.wheel_cancelled += u64::from(watch.disarm(&mut services.wheel));
        }
    }
}
