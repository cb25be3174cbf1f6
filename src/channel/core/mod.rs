//! The channel core: a state machine that does no I/O.
//!
//! Bytes, commands and time go in through `handle_*`; bytes to write, the request to close and calls to
//! the handler come out. `driver` moves the bytes, and states the contract between the two.
//!
//! Always holds: a callback is never called from within another; an error or a panic in one reaches the
//! handler's `error` at most once and closes this channel only; `inactive` is the last call and is made if and
//! only if `active` was; another pipeline takes over between two calls (`replace`). Runs on the channel's loop; it owns its
//! pipeline, not its socket. What the peer sends comes in through `input`, what handles ask for through `commands`.

mod commands;
mod input;
mod replace;
mod writability;

pub(crate) use commands::Outcome;

use super::{
    config::ChannelConfig,
    event::Event,
    links::{AnyPipeline, Links},
    services::LoopServices,
    shaping::Direction,
    state::{ChannelState, Pending},
    timers::ChannelTimer,
    watch::{Paused, Reached, WatchDue},
};
use crate::{
    Error, Result,
    error::{drop_guarded, panic_message},
    id::ChannelId,
    log_throttle::{CHANNEL_ERRORS, PANICS, STUCK, UNSENT, log_throttled},
    resource::CHANNEL_TASKS,
};
use log::Level;
use replace::AT_ONCE;
use std::{
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
};

pub(crate) struct ChannelCore {
    pub(crate) state: ChannelState,
    pub(in crate::channel) links: Box<dyn Links>,
}

/// What a channel wants of its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Nothing,
    /// Send what waits.
    Flush,
    /// Send what waits, then tell the peer that no more comes.
    FlushAndEnd,
    /// Send what waits, then close.
    FlushAndClose,
    /// Close at once.
    CloseNow,
}

impl ChannelCore {
    pub(crate) fn new(
        id: ChannelId,
        config: Arc<ChannelConfig>,
        pipeline: AnyPipeline,
        addresses: (Option<SocketAddr>, Option<SocketAddr>),
        services: &mut LoopServices,
    ) -> Self {
        let mut state = ChannelState::new(id, config, services.now, addresses.0, addresses.1);
        // A new channel has no extras, so none are replaced.
        state.apply(services, pipeline.settings);
        ChannelCore { state, links: pipeline.links }
    }

    pub(crate) fn handler_name(&self) -> &'static str {
        (self.links.handler_type())()
    }

    // ---- input ---------------------------------------------------------------------------------------

    /// The channel is connected.
    pub(crate) fn handle_active(&mut self, services: &mut LoopServices) {
        self.state.status.activate();
        self.state.arm_watch(services);
        self.event(services, Event::Active);
    }

    /// The peer was told that no more comes. With both directions at their end, so is the channel.
    pub(crate) fn handle_output_ended(&mut self, services: &mut LoopServices) {
        self.state.status.end_output();
        if self.state.status.input_ended() {
            self.state.request_close();
            self.state.want_attention(services);
        }
    }

    /// The connection broke. A channel that is closing anyway just closes.
    pub(crate) fn handle_io_error(&mut self, services: &mut LoopServices, error: Error) {
        self.state.note_cause(|| error.again());
        if self.state.status.is_open() {
            self.fail(services, error);
        }
        self.state.request_close_now();
        self.after(services);
    }

    /// The kernel took `n` bytes.
    pub(crate) fn handle_written(&mut self, services: &mut LoopServices, n: usize) {
        self.state.consume_outbound(n, services.now);
        self.state.return_outbound(services);
        self.tell_writability(services);
    }

    /// The transport took `n` bytes that filters have sealed.
    pub(crate) fn handle_sealed_written(&mut self, services: &mut LoopServices, n: usize) {
        self.state.consume_sealed(n, services.now);
        self.state.return_outbound(services);
        self.tell_writability(services);
    }

    /// The channel's entry on the wheel is due: stages are called, the handler is told of quiet, then of a time limit.
    /// The driver has looked at the socket before, see `ChannelState::watch_expired`.
    fn handle_watch(&mut self, services: &mut LoopServices) {
        let (traffic, now, replaced) = (self.state.traffic, services.now, services.replaced);
        let reading = !self.state.status.may_read()
            || self.state.status.input_ended()
            || self.state.was_held_up(Direction::Read);
        let paused = Paused { reading, writing: self.state.was_held_up(Direction::Write) };
        let Some(watch) = &mut self.state.watch else { return };
        let WatchDue { stages, idle, reached } = watch.take_due(traffic, now, paused, &services.random);
        // Armed before the handler is told: an error in it must not end the watch.
        self.state.arm_watch(services);
        if stages && self.state.status.is_open() {
            self.event(services, Event::StageTimer);
        }
        for event in idle.into_iter().flatten() {
            // The handler may have closed the channel, or turned this kind off, when it was told of the one before.
            if self.state.status.is_open() && self.state.watches(event.state) && services.replaced == replaced
            {
                self.event(services, Event::Idle(event));
            }
        }
        // The limits of a pipeline that was replaced meanwhile are no longer the channel's.
        let holds = self.state.status.is_open() && services.replaced == replaced;
        if let Some(Reached { error, send }) = reached.filter(|_| holds) {
            self.state.note_cause(|| error.again());
            self.fail(services, error);
            if send {
                self.state.request_close();
            } else {
                self.state.request_close_now();
            }
            self.after(services);
        }
    }

    /// A timer of the channel has expired.
    pub(crate) fn handle_timer(&mut self, services: &mut LoopServices, timer: ChannelTimer) {
        match timer {
            ChannelTimer::Task(slot) => self.handle_task(services, slot),
            ChannelTimer::Watch => self.handle_watch(services),
            ChannelTimer::Shaper => self.state.shaper_is_due(services),
            ChannelTimer::CloseTimeout => self.handle_close_timeout(services),
        }
    }

    fn handle_task(&mut self, services: &mut LoopServices, slot: u32) {
        let Some(task) = self.state.take_due_task(slot) else { return };
        if !self.state.status.is_open() {
            drop_guarded(task);
            return;
        }
        self.call(services, |links, state, services| links.run(state, services, task));
    }

    /// The peer has not taken everything in time.
    fn handle_close_timeout(&mut self, services: &mut LoopServices) {
        let id = self.state.id();
        log_throttled!(
            services,
            UNSENT,
            Level::Debug,
            "channel {id}: closed before its peer took everything"
        );
        self.state.request_close_now();
        self.state.want_attention(services);
    }

    /// The loop is shutting down.
    pub(crate) fn handle_shutdown(&mut self, services: &mut LoopServices) {
        if self.state.status.is_open() {
            self.event(services, Event::Shutdown);
        }
    }

    /// The socket is closed, or lingers without the channel: the channel leaves its groups,
    /// `closed` completes, unsent writes fail, tasks and timers are dropped. `inactive` comes
    /// later.
    pub(crate) fn handle_closed(&mut self, services: &mut LoopServices) {
        self.state.status.close();
        if let Some(shared) = &self.state.shared {
            shared.set_closed();
        }
        self.state.end(services);
    }

    /// The last call: tells the handler that it is over.
    pub(crate) fn handle_inactive(&mut self, services: &mut LoopServices) {
        if !self.state.status.take_inactive() {
            return;
        }
        if let Err(error) = self.tell(services, Event::Inactive) {
            services.tally.channel_errors += 1;
            self.log_failure(services, "in inactive", &error);
        }
        // A task or a timer armed in `inactive` has nobody to run for.
        self.state.end(services);
    }

    // ---- output --------------------------------------------------------------------------------------

    /// What the driver should do now.
    #[inline]
    pub(crate) fn action(&self) -> Action {
        if self.state.status.closes_at_once() {
            Action::CloseNow
        } else if self.state.status.closes_gracefully() {
            Action::FlushAndClose
        } else if self.state.status.wants_to_end_output() {
            Action::FlushAndEnd
        } else if self.state.pending_bytes() > 0 || !self.state.extras.sealed_wire().is_empty() {
            Action::Flush
        } else {
            Action::Nothing
        }
    }

    // ---- inside --------------------------------------------------------------------------------------

    pub(in crate::channel) fn event(&mut self, services: &mut LoopServices, event: Event) {
        self.state.log_event(&event);
        self.call(services, |links, state, services| links.event(state, services, event));
    }

    /// Calls into the pipeline: with a buffer to write to, and with errors and panics caught. Whether it failed.
    #[inline]
    pub(in crate::channel) fn call(
        &mut self,
        services: &mut LoopServices,
        call: impl FnOnce(&mut dyn Links, &mut ChannelState, &mut LoopServices) -> Result,
    ) -> bool {
        let failed = self.call_unlisted(services, call);
        self.request_attention(services);
        failed
    }

    /// The same, where the driver looks by itself at what the channel wishes then, or calls [`ChannelCore::request_attention`].
    #[inline]
    pub(in crate::channel) fn call_unlisted(
        &mut self,
        services: &mut LoopServices,
        call: impl FnOnce(&mut dyn Links, &mut ChannelState, &mut LoopServices) -> Result,
    ) -> bool {
        self.state.borrow_outbound(services);
        let failed = match self.enter(services, call) {
            Ok(Ok(())) => false,
            Ok(Err(error)) => {
                self.forget_replacement(services);
                self.fail(services, error);
                true
            }
            Err(panic) => {
                self.forget_replacement(services);
                let message = panic_message(panic);
                let (id, name) = (self.state.id(), self.handler_name());
                log_throttled!(
                    services,
                    PANICS,
                    Level::Error,
                    "channel {id} ({name}): panicked: {message}; closing this channel"
                );
                // Half a message may have been encoded when it panicked: nothing more of this channel is sent.
                self.state.note_cause(|| Error::Panicked(message.clone()));
                self.fail(services, Error::Panicked(message));
                self.state.request_close_now();
                true
            }
        };
        self.settle(services);
        failed
    }

    /// Calls into the pipeline; while that lasts, the loop is seen to be in this channel.
    #[inline]
    fn enter(
        &mut self,
        services: &mut LoopServices,
        call: impl FnOnce(&mut dyn Links, &mut ChannelState, &mut LoopServices) -> Result,
    ) -> thread::Result<Result> {
        let ChannelCore { state, links } = self;
        services.activity.enter_channel(state.key(), links.handler_type());
        let result = catch_unwind(AssertUnwindSafe(|| call(&mut **links, state, services)));
        services.activity.leave();
        result
    }

    /// Tells the handler something; a panic becomes an error.
    fn tell(&mut self, services: &mut LoopServices, event: Event) -> Result {
        self.state.log_event(&event);
        match self.enter(services, |links, state, services| links.event(state, services, event)) {
            Ok(result) => result,
            Err(panic) => Err(Error::Panicked(panic_message(panic))),
        }
    }

    /// Tells the handler something behind another call; what it fails with goes to its `error`.
    pub(in crate::channel) fn tell_or_fail(&mut self, services: &mut LoopServices, event: Event) {
        if let Err(error) = self.tell(services, event) {
            let panicked = matches!(error, Error::Panicked(_));
            self.forget_replacement(services);
            self.fail(services, error);
            if panicked {
                self.state.request_close_now();
            }
        }
    }

    /// Tells the handler of an error; one that fails itself is logged, and closes the channel.
    #[cold]
    pub(in crate::channel) fn fail(&mut self, services: &mut LoopServices, error: Error) {
        if self.state.status.is_closed() {
            return;
        }
        services.tally.channel_errors += 1;
        // Not every error comes from a call, and the handler may have something to say to its peer.
        self.state.borrow_outbound(services);
        let was_open = self.state.status.is_open();
        let again = self.state.pending_writes.is_some().then(|| error.again());
        let told = self.tell(services, Event::Error(error));
        // What ends in a close was its cause.
        if let Some(again) = again.filter(|_| was_open && (told.is_err() || !self.state.status.is_open())) {
            self.state.note_cause(|| again);
        }
        if let Err(error) = told {
            services.tally.channel_errors += 1;
            self.log_failure(services, "in error", &error);
            self.state.request_close_now();
        }
    }

    #[cold]
    fn log_failure(&self, services: &LoopServices, place: &str, error: &Error) {
        let (id, name) = (self.state.id(), self.handler_name());
        log_throttled!(services, CHANNEL_ERRORS, Level::Warn, "channel {id} ({name}): {place}: {error}");
    }

    /// After every call: gives an unused buffer back, tells of writability, and gets the driver's attention.
    #[inline]
    pub(in crate::channel) fn after(&mut self, services: &mut LoopServices) {
        self.settle(services);
        self.request_attention(services);
    }

    /// Gets the driver's attention if there is something to do for it.
    #[inline]
    pub(crate) fn request_attention(&mut self, services: &mut LoopServices) {
        if self.state.pending_bytes() > 0 || self.state.wants_driver() {
            self.state.want_attention(services);
        }
    }

    #[inline]
    fn settle(&mut self, services: &mut LoopServices) {
        if self.state.status.has(Pending::REPLACED) {
            self.take_over(services);
        }
        if self.state.status.has(Pending::TASK_REFUSED) {
            self.tell_refused(services);
        }
        self.note_written(services);
        self.state.return_outbound(services);
        self.tell_writability(services);
    }

    /// The watch hears of what the handler has written, and of what it wants to be woken for.
    #[inline]
    pub(in crate::channel) fn note_written(&mut self, services: &mut LoopServices) {
        self.state.note_pending(services.now);
        if self.state.status.has(Pending::ARM_WATCH) {
            self.state.arm_watch(services);
        }
    }

    /// Tells the handler that a task which it scheduled was dropped.
    #[cold]
    fn tell_refused(&mut self, services: &mut LoopServices) {
        for _ in 0..AT_ONCE {
            if !self.state.status.take(Pending::TASK_REFUSED) {
                return;
            }
            let limit = self.state.config.max_scheduled_tasks;
            self.fail(services, Error::Full { what: CHANNEL_TASKS, limit });
            self.take_over(services);
        }
        // It schedules one more each time it is told: that would go on for ever.
        if self.state.status.take(Pending::TASK_REFUSED) {
            let id = self.state.id();
            log_throttled!(
                services,
                STUCK,
                Level::Warn,
                "channel {id}: schedules a task whenever one is refused; closing"
            );
            self.state.request_close();
        }
    }
}

impl Drop for ChannelCore {
    /// Should the loop itself fail, nobody is left waiting for a channel of it.
    fn drop(&mut self) {
        if let Some(shared) = &self.state.shared {
            shared.set_closed();
        }
    }
}
