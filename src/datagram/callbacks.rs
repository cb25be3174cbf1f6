//! Calls of a datagram channel's handler, and their consequences.
//!
//! Invariants: a callback is never called from within another. An error that a callback returns is
//! reported to the handler's `error`. A panic closes the channel. Runs on the channel's loop.

use super::{
    handler::{AnyDatagramHandler, DatagramContext, DatagramEvent, DatagramLinks},
    source::DatagramSource,
};
use crate::{
    channel::{LoopServices, TaskKey},
    error::{Error, Resource, Result, drop_guarded, panic_message},
    event_loop::Io,
    log_throttle::{CHANNEL_ERRORS, PANICS, log_throttled},
    metrics::Metrics,
};
use log::Level;
use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// The end of a call of the handler.
enum Outcome {
    Returned(Result),
    /// The call has panicked, as opposed to a call that returns the error of another one.
    Panicked(Error),
}

impl DatagramSource {
    pub(super) fn dispatch(&mut self, io: &mut Io, metrics: &Metrics, event: DatagramEvent) {
        self.call_handler(&mut io.services, metrics, event);
        self.finish_call(io, metrics);
    }

    fn call_handler(&mut self, services: &mut LoopServices, metrics: &Metrics, event: DatagramEvent) {
        let called = self.enter(services, metrics, |handler, ctx| handler.call(ctx, event));
        self.handle_outcome(services, metrics, called);
    }

    /// Runs a periodic task, which keeps its slot during the run. So it can be cancelled in its own
    /// run.
    pub(super) fn run_periodic_task(
        &mut self,
        io: &mut Io,
        metrics: &Metrics,
        key: TaskKey,
        mut task: Box<dyn Any>,
    ) {
        let mut continues = false;
        if self.state.is_open() {
            let run = self.enter(&mut io.services, metrics, |handler, ctx| {
                continues = handler.run_periodic(ctx, &mut *task)?.is_continue();
                Ok(())
            });
            self.handle_outcome(&mut io.services, metrics, run);
        }
        let (tasks, channel) = (&mut self.state.tasks, self.state.id.key);
        if continues {
            tasks.rearm(channel, &mut io.services, key, task);
        } else {
            tasks.cancel(&mut io.services, key);
            drop_guarded(task);
        }
        self.finish_call(io, metrics);
    }

    /// Passes the error of a call to the handler. A panic closes the channel.
    fn handle_outcome(&mut self, services: &mut LoopServices, metrics: &Metrics, outcome: Outcome) {
        match outcome {
            Outcome::Returned(Ok(())) => {}
            Outcome::Returned(Err(error)) => self.report_error(services, metrics, error),
            Outcome::Panicked(error) => {
                log_throttled!(
                    services,
                    PANICS,
                    Level::Error,
                    "datagram channel {} ({}): {error:#}; closing it",
                    self.state.id,
                    (self.handler.handler_type())()
                );
                services.note_logged(self.state.id.key, &error);
                self.report_error(services, metrics, error);
                self.state.closing = true;
            }
        }
    }

    /// Calls the handler. A panic is returned as an error.
    pub(super) fn invoke(
        &mut self,
        services: &mut LoopServices,
        metrics: &Metrics,
        event: DatagramEvent,
    ) -> Result {
        match self.enter(services, metrics, |handler, ctx| handler.call(ctx, event)) {
            Outcome::Returned(result) => result,
            Outcome::Panicked(error) => Err(error),
        }
    }

    /// Makes a call of the handler. Meanwhile the watchdog attributes the loop's time to this
    /// channel.
    fn enter(
        &mut self,
        services: &mut LoopServices,
        metrics: &Metrics,
        call: impl FnOnce(&mut dyn DatagramLinks, DatagramContext<'_, AnyDatagramHandler>) -> Result,
    ) -> Outcome {
        let DatagramSource { state, handler, inbox, .. } = self;
        services.activity.enter_channel(state.id.key, handler.handler_type());
        let called = catch_unwind(AssertUnwindSafe(|| {
            call(&mut **handler, DatagramContext::new(state, &mut *services, metrics, inbox))
        }));
        services.activity.leave();
        called.map_or_else(
            |panic| {
                services.forget_logged();
                Outcome::Panicked(Error::panicked(panic_message(panic)))
            },
            Outcome::Returned,
        )
    }

    /// Calls the handler's `error`. If that call fails, its error is logged and the channel closes.
    #[cold]
    pub(super) fn report_error(&mut self, services: &mut LoopServices, metrics: &Metrics, error: Error) {
        services.tally.channel_errors += 1;
        if let Err(error) = self.invoke(services, metrics, DatagramEvent::Error(error)) {
            self.log_failure(services, "in error", &error);
            self.state.closing = true;
        }
    }

    pub(super) fn log_failure(&self, services: &mut LoopServices, place: &str, error: &Error) {
        services.tally.channel_errors += 1;
        let handler = (self.handler.handler_type())();
        let id = self.state.id;
        if services.is_logged(id.key, error) {
            return;
        }
        log_throttled!(
            services,
            CHANNEL_ERRORS,
            Level::Warn,
            "datagram channel {id} ({handler}): {place}: {error:#}"
        );
    }

    /// Runs after a callback: reports the errors that it has caused, and closes the channel if it
    /// has requested that.
    pub(super) fn finish_call(&mut self, io: &mut Io, metrics: &Metrics) {
        if self.state.socket.is_none() {
            return;
        }
        if std::mem::take(&mut self.state.task_refused) {
            let limit = self.state.config.max_scheduled_tasks;
            self.report_error(
                &mut io.services,
                metrics,
                Error::Full { resource: Resource::ChannelTasks, limit },
            );
        }
        if let Some(error) = self.state.reported.take() {
            self.report_error(&mut io.services, metrics, error);
        }
        while self.state.is_open() && self.reported_writable != self.state.queue.is_empty() {
            self.reported_writable = !self.reported_writable;
            self.call_handler(&mut io.services, metrics, DatagramEvent::Writability(self.reported_writable));
        }
        if self.state.closing {
            return self.close_socket(io, metrics);
        }
        // Errors that the handler causes in these calls are reported in the next turn. Otherwise
        // this might not end.
        if self.state.reported.is_some() || self.state.task_refused {
            self.carry_over(io, false);
        }
    }
}
