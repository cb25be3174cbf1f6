//! The timers of a channel: tasks, idle timeouts, time limits, traffic limits, the close timeout.

use super::ChannelCore;
use crate::{
    Error,
    channel::{
        close_cause::CloseCause,
        event::Event,
        services::LoopServices,
        shaping::Direction,
        tasks::DueTask,
        timers::{ChannelTimer, TaskEntry, TaskKey},
        watch::{Paused, Reached, WatchDue},
    },
    error::drop_guarded,
    log_throttle::{UNSENT, log_throttled},
};
use log::Level;
use std::{any::Any, sync::Arc};

impl ChannelCore {
    /// Handles the expired entry of the watch: calls stages, then `idle`, then enforces a time
    /// limit. The driver has checked for unread input before; see `ChannelState::watch_expired`.
    fn handle_watch(&mut self, services: &mut LoopServices) {
        let (traffic, now, replaced) = (self.state.traffic, services.now, services.replaced);
        let reading = !self.state.may_read()
            || self.state.status.input_ended()
            || self.state.was_held_up(Direction::Read);
        let paused = Paused { reading, writing: self.state.was_held_up(Direction::Write) };
        let Some(watch) = &mut self.state.watch else { return };
        let WatchDue { stages, idle, reached } = watch.take_due(traffic, now, paused, &services.random);
        // Armed before the handler is called: an error in it must not end the watch.
        self.state.arm_watch(services);
        if stages && self.state.status.is_open() {
            self.event(services, Event::StageTimer);
        }
        for event in idle.into_iter().flatten() {
            // The handler may have closed the channel, or turned this kind off, in the call before.
            if self.state.status.is_open() && self.state.watches(event.state) && services.replaced == replaced
            {
                self.event(services, Event::Idle(event));
            }
        }
        // The limits of a pipeline that was replaced in the meantime no longer apply.
        let holds = self.state.status.is_open() && services.replaced == replaced;
        if let Some(Reached { error, send }) = reached.filter(|_| holds) {
            self.state.note_cause(CloseCause::TimedOut);
            self.state.note_error(|| error.clone());
            self.fail(services, error);
            if send {
                self.state.request_close(CloseCause::TimedOut);
            } else {
                self.state.request_close_now(CloseCause::TimedOut);
            }
            self.after(services);
        }
    }

    /// Handles an expired timer of the channel.
    pub(crate) fn handle_timer(&mut self, services: &mut LoopServices, timer: ChannelTimer) {
        match timer {
            ChannelTimer::Task(slot) => self.handle_task(services, slot),
            ChannelTimer::Watch => self.handle_watch(services),
            ChannelTimer::Shaper => self.state.shaper_is_due(services),
            ChannelTimer::Handshake => self.handle_handshake_timeout(services),
            ChannelTimer::CloseTimeout => self.handle_close_timeout(services),
        }
    }

    fn handle_task(&mut self, services: &mut LoopServices, slot: u32) {
        match self.state.take_due_task(slot) {
            Some(DueTask::Once(task, entry)) => self.run_due_task(services, task, entry),
            Some(DueTask::Periodic(key, task)) => self.run_periodic_task(services, key, task),
            None => {}
        }
    }

    fn run_due_task(
        &mut self,
        services: &mut LoopServices,
        task: Box<dyn Any>,
        entry: Option<Arc<dyn TaskEntry>>,
    ) {
        if self.state.status.is_open() {
            self.call(services, |links, state, services| links.run(state, services, task));
            return;
        }
        if let Some(entry) = entry {
            entry.end(Error::Closed);
        }
        drop_guarded(task);
    }

    /// Runs a periodic task, which keeps its slot meanwhile. So it can be cancelled in its own run.
    fn run_periodic_task(&mut self, services: &mut LoopServices, key: TaskKey, mut task: Box<dyn Any>) {
        let mut goes_on = false;
        if self.state.status.is_open() {
            self.call(services, |links, state, services| {
                goes_on = links.run_periodic(state, services, &mut *task)?.is_continue();
                Ok(())
            });
        }
        if goes_on && self.state.status.is_open() {
            self.state.rearm_task(services, key, task);
            return;
        }
        if self.state.status.is_open() {
            // It has ended, or does not fit the pipeline.
            drop_guarded(task);
            self.state.cancel(services, key);
        } else {
            self.state.cancel(services, key);
            drop_guarded(task);
        }
    }

    /// Closes a channel whose peer has not accepted all pending bytes in time.
    fn handle_close_timeout(&mut self, services: &mut LoopServices) {
        let id = self.state.id();
        log_throttled!(
            services,
            UNSENT,
            Level::Debug,
            "channel {id}: closed before its peer accepted all bytes"
        );
        self.state.request_close_now(CloseCause::TimedOut);
        self.state.want_attention(services);
    }
}
