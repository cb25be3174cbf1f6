//! Calls into the pipeline, and the work after each call.
//!
//! Invariants: a callback is never called from within another one. An error or a panic in a
//! callback reaches the handler's `error` at most once and closes this channel only.

use super::{ChannelCore, ChannelState, ErasedPipeline, life::AT_ONCE, services::LoopServices};
use crate::{
    channel::{Pending, close_cause::CloseCause, event::Event},
    error::{Error, Resource, Result, caught, panic_message},
    log_throttle::{LogTopic, PANICS, STUCK, log_throttled},
};
use log::Level;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

/// Requests that few calls make.
const RARE: Pending = Pending::REPLACED.with(Pending::TASK_REFUSED).with(Pending::FAILED);

impl ChannelCore {
    pub(super) fn event(&mut self, services: &mut LoopServices, event: Event) {
        self.state.log_event(&event);
        self.call(services, |links, state, services| links.event(state, services, event));
    }

    /// Calls into the pipeline with a buffer to write to. Catches errors and panics. Returns
    /// whether it failed.
    #[inline]
    pub(super) fn call(
        &mut self,
        services: &mut LoopServices,
        call: impl FnOnce(&mut dyn ErasedPipeline, &mut ChannelState, &mut LoopServices) -> Result,
    ) -> bool {
        let failed = self.call_unlisted(services, call);
        self.request_attention(services);
        failed
    }

    /// Like [`call`](ChannelCore::call), for callers that request the driver's attention
    /// themselves.
    #[inline(always)]
    pub(super) fn call_unlisted(
        &mut self,
        services: &mut LoopServices,
        call: impl FnOnce(&mut dyn ErasedPipeline, &mut ChannelState, &mut LoopServices) -> Result,
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
                self.end_after_panic(services, panic_message(panic));
                true
            }
        };
        let reported = self.finish_call(services);
        failed || reported
    }

    /// Passes a panic of a callback to the handler as an error, and closes the channel.
    #[cold]
    fn end_after_panic(&mut self, services: &mut LoopServices, message: String) {
        self.forget_replacement(services);
        let (id, name) = (self.state.id(), self.handler_name());
        log_throttled!(
            services,
            PANICS,
            Level::Error,
            "channel {id} ({name}): panicked: {message}; closing this channel"
        );
        let panicked = Error::panicked(message);
        services.note_logged(id.key, &panicked);
        self.state.outbound.note_error(|| panicked.clone());
        // Bytes that were encoded before the panic may have been taken back. The call is code of
        // the program.
        let _ = caught(|| self.links.forget_encoded());
        self.fail_with(services, panicked, Event::Panicked);
        // The handler may be in any state, so it does not get further messages.
        self.state.request_close(CloseCause::Failed);
        self.forget_failure(services);
    }

    /// Calls into the pipeline and records this channel as the loop's activity.
    #[inline]
    fn enter(
        &mut self,
        services: &mut LoopServices,
        call: impl FnOnce(&mut dyn ErasedPipeline, &mut ChannelState, &mut LoopServices) -> Result,
    ) -> thread::Result<Result> {
        let ChannelCore { state, links } = self;
        services.activity.enter_channel(state.key(), links.handler_type());
        let result = catch_unwind(AssertUnwindSafe(|| call(&mut **links, state, services)));
        services.activity.leave();
        result
    }

    /// Passes an event to the handler. A panic becomes an error.
    pub(super) fn notify(&mut self, services: &mut LoopServices, event: Event) -> Result {
        self.state.log_event(&event);
        match self.enter(services, |links, state, services| links.event(state, services, event)) {
            Ok(result) => result,
            Err(panic) => {
                services.forget_logged();
                Err(Error::panicked(panic_message(panic)))
            }
        }
    }

    /// Passes an event to the handler after another call. Its error goes to `error`.
    pub(super) fn notify_or_fail(&mut self, services: &mut LoopServices, event: Event) {
        self.state.log_event(&event);
        let result = self.enter(services, |links, state, services| links.event(state, services, event));
        match result {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                self.forget_replacement(services);
                self.fail(services, error);
            }
            Err(panic) => self.end_after_panic(services, panic_message(panic)),
        }
    }

    /// Passes an error to the handler. If `error` fails, logs that and closes the channel after its
    /// pending bytes, which may contain the reason for the peer.
    #[cold]
    pub(super) fn fail(&mut self, services: &mut LoopServices, error: Error) {
        self.fail_with(services, error, Event::Error);
    }

    fn fail_with(&mut self, services: &mut LoopServices, error: Error, event: fn(Error) -> Event) {
        if self.state.status.is_closed() {
            return;
        }
        services.tally.channel_errors += 1;
        // Not every error comes from a call, and the handler may write to its peer.
        self.state.borrow_outbound(services);
        let was_open = self.state.status.is_open();
        let copy = self.state.outbound.has_confirmations().then(|| error.clone());
        let cause = CloseCause::of_error(&error);
        let result = self.notify(services, event(error));
        // An error that leads to a close is its cause.
        if was_open && (result.is_err() || !self.state.status.is_open()) {
            self.state.note_cause(cause);
            if let Some(copy) = copy {
                self.state.outbound.note_error(|| copy);
            }
        }
        if let Err(error) = result {
            services.tally.channel_errors += 1;
            // `error` may return its argument unchanged, which keeps its level.
            if !services.is_logged(self.state.key(), &error) {
                self.log_failure(services, error.log_topic(), "in error", &error);
            }
            self.state.request_close(CloseCause::Failed);
        }
    }

    #[cold]
    pub(super) fn log_failure(
        &self,
        services: &LoopServices,
        (topic, level): (LogTopic, Level),
        place: &str,
        error: &Error,
    ) {
        let (id, name) = (self.state.id(), self.handler_name());
        log_throttled!(services, topic, level, "channel {id} ({name}): {place}: {error:#}");
    }

    /// Requests a reset if the channel ends for another cause than `Clean` in the middle of a
    /// message. Does the same if unsent bytes remain that the program has not given up by
    /// `close_now`. Otherwise the peer could take the end of the stream for the end of the message.
    /// Returns whether it does.
    #[inline]
    pub(crate) fn resets_unfinished_output(&mut self) -> bool {
        // A broken connection needs no reset.
        !matches!(self.state.close_cause(), CloseCause::Clean | CloseCause::Reset)
            && self.resets_if_unfinished()
    }

    /// Closes the channel behind a peer that has ended its stream. A message in progress is cut.
    pub(in crate::channel) fn close_behind_peer(&mut self) {
        let is_cut = self.has_unfinished_message();
        self.state.request_close(if is_cut { CloseCause::Cut } else { CloseCause::Clean });
    }

    fn has_unfinished_message(&self) -> bool {
        // A stage that panics here does not say that its message is complete.
        catch_unwind(AssertUnwindSafe(|| self.links.has_unfinished_output())).unwrap_or(true)
    }

    #[cold]
    fn resets_if_unfinished(&mut self) -> bool {
        let is_given_up = self.state.close_cause() == CloseCause::Cut;
        let unfinished = !is_given_up && !self.has_sent_what_it_can() || self.has_unfinished_message();
        if unfinished {
            self.state.request_reset(CloseCause::Clean);
        }
        unfinished
    }

    /// Ends a call: returns an unused buffer, notifies of writability, requests attention.
    #[inline]
    pub(super) fn after(&mut self, services: &mut LoopServices) {
        self.finish_call(services);
        self.request_attention(services);
    }

    /// Requests the driver's attention if there is work for it.
    #[inline]
    pub(crate) fn request_attention(&mut self, services: &mut LoopServices) {
        if self.state.outbound.pending_bytes() > 0 || self.state.wants_driver() {
            self.state.want_attention(services);
        }
    }

    /// Handles the requests of the call. Returns whether the request was to report an error.
    #[inline(always)]
    fn finish_call(&mut self, services: &mut LoopServices) -> bool {
        let mut reported = false;
        if self.state.status.has_requests() {
            reported = self.handle_requests(services);
        }
        self.state.outbound.give_back(services);
        self.notify_writability(services);
        reported
    }

    #[inline(never)]
    pub(super) fn handle_requests(&mut self, services: &mut LoopServices) -> bool {
        let reported = self.state.status.has(RARE) && self.handle_rare_requests(services);
        self.note_written(services);
        reported
    }

    #[cold]
    fn handle_rare_requests(&mut self, services: &mut LoopServices) -> bool {
        let mut reported = false;
        // A new pipeline may report an error too, and each notification may request more.
        for _ in 0..AT_ONCE {
            // The error belongs to the pipeline that has reported it.
            reported |= self.notify_failure(services);
            if self.state.status.has(Pending::REPLACED) {
                self.take_over(services);
            }
            if self.state.status.has(Pending::TASK_REFUSED) {
                self.notify_refused(services);
            }
            if !self.state.status.has(RARE) {
                break;
            }
        }
        reported
    }

    /// Passes on the error that a stage has reported. Returns whether there was one.
    pub(super) fn notify_failure(&mut self, services: &mut LoopServices) -> bool {
        let mut reported = false;
        for _ in 0..AT_ONCE {
            if !self.state.status.take(Pending::FAILED) {
                return reported;
            }
            reported = true;
            if let Some(error) = services.failure.take() {
                self.fail(services, error);
                self.take_over(services);
            }
        }
        // A stage that reports another error in each notification would never end.
        if self.forget_failure(services) {
            let id = self.state.id();
            log_throttled!(
                services,
                STUCK,
                Level::Warn,
                "channel {id}: a stage reports an error whenever it receives one; closing"
            );
            self.state.request_close(CloseCause::Failed);
        }
        reported
    }

    /// Drops the error that a stage has reported. Returns whether there was one.
    fn forget_failure(&mut self, services: &mut LoopServices) -> bool {
        let reported = self.state.status.take(Pending::FAILED);
        if reported {
            services.failure = None;
        }
        reported
    }

    /// Updates the watch with the pending bytes and the requested stage timers.
    #[inline]
    pub(super) fn note_written(&mut self, services: &mut LoopServices) {
        self.state.note_pending(services.now);
        if self.state.status.has(Pending::ARM_WATCH) {
            self.state.arm_watch(services);
        }
    }

    /// Notifies the handler that a scheduled task was dropped.
    #[cold]
    fn notify_refused(&mut self, services: &mut LoopServices) {
        for _ in 0..AT_ONCE {
            if !self.state.status.take(Pending::TASK_REFUSED) {
                return;
            }
            let limit = self.state.config.max_scheduled_tasks;
            self.fail(services, Error::Full { resource: Resource::ChannelTasks, limit });
            self.take_over(services);
        }
        // A handler that schedules another task in each notification would never end.
        if self.state.status.take(Pending::TASK_REFUSED) {
            let id = self.state.id();
            log_throttled!(
                services,
                STUCK,
                Level::Warn,
                "channel {id}: schedules a task whenever one is refused; closing"
            );
            self.state.request_close(CloseCause::Failed);
        }
    }
}

impl ChannelState {
    /// Records an error for the stages and the handler, which receive it after the current
    /// callback. Only the first error of a callback is kept.
    pub(crate) fn report(&mut self, services: &mut LoopServices, error: Error) {
        if !self.status.is_closed() && !self.status.has(Pending::FAILED) {
            self.status.set(Pending::FAILED);
            services.failure = Some(error);
        }
    }
}
