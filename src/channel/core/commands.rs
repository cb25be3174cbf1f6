//! Requests of handles and groups: messages to write, tasks, closes.
//!
//! Invariants: a message that arrives after the channel has closed, its output has ended or its
//! pipeline was replaced is dropped without an error. Any other accepted message is written, or the
//! handler's `error` is called. A `write_tracked` always completes. Runs on the channel's
//! loop. Owns nothing.

use super::ChannelCore;
use crate::{
    Error, Result,
    channel::{
        close_cause::CloseCause,
        config::Overflow,
        confirmation::Confirmation,
        event::Event,
        filter::Resume,
        handle::Mail,
        links::{EncodingMemo, ErasedPipeline, SharedMessage},
        outbound::OutboundLease,
        services::LoopServices,
        state::ChannelState,
    },
    error::drop_guarded,
    log_throttle::{REPLACED, log_throttled},
    sync::ReservedWeight,
};
use log::Level;
use std::any::Any;

impl ChannelCore {
    /// Handles mail from a handle.
    pub(crate) fn handle_mail(&mut self, services: &mut LoopServices, mail: Mail) {
        if let (Mail::Message(_, reserved) | Mail::Notify(_, _, reserved), Some(shared)) =
            (&mail, self.state.shared.get())
        {
            shared.producers.take(reserved.weight);
        }
        let is_message = matches!(mail, Mail::Message(..) | Mail::Notify(..));
        match mail {
            // The sender raced with the close, which is not an error.
            Mail::Message(..) | Mail::Notify(..) | Mail::Run(_) | Mail::Schedule(_)
                if !self.state.status.is_open() =>
            {
                drop_guarded(mail)
            }
            // The sender raced with the end of the output.
            Mail::Message(message, _) if self.state.status.output_is_over() => drop_guarded(message),
            Mail::Message(message, reserved) => self.write_queued(services, message, reserved, None),
            Mail::Notify(message, confirmation, reserved) => {
                self.write_queued(services, message, reserved, Some(confirmation));
            }
            Mail::Run(task) => {
                self.call(services, |links, state, services| links.run(state, services, task));
            }
            Mail::Schedule(task) => self.state.accept_task(services, *task),
            Mail::Cancel(task) => drop(self.state.cancel(services, task)),
            Mail::Answer(task) => match self.state.take_answered(task) {
                Some(task) if self.state.status.is_open() => {
                    self.call(services, |links, state, services| links.run(state, services, task));
                }
                gone => drop_guarded(gone),
            },
            Mail::WakeFilters => self.resume_filters(services, Resume::Woken),
            Mail::WakeStages if self.state.status.is_open() => self.event(services, Event::StageTimer),
            Mail::WakeStages => {}
            Mail::Released => self.state.release(services),
            Mail::CheckOutput => {
                if let Some(shared) = self.state.shared.get() {
                    shared.producers.checked();
                }
                self.after(services);
            }
            Mail::EndOutput => {
                self.state.request_end_of_output();
                self.state.want_attention(services);
            }
            Mail::Close => {
                self.state.request_close(CloseCause::Clean);
                self.state.want_attention(services);
            }
            Mail::CloseNow => {
                self.state.request_close_now(CloseCause::Cut);
                self.state.want_attention(services);
            }
            Mail::Reset => {
                self.state.request_reset(CloseCause::Reset);
                self.state.want_attention(services);
            }
        }
        if is_message
            && let Some(exchanges) = self.state.shared.get().and_then(|shared| shared.exchanges.as_deref())
        {
            exchanges.take();
        }
    }

    /// Writes a message that a handle has queued. The message was accepted, so a failure goes to
    /// the handler. A full buffer closes the channel, because later messages must not be sent
    /// without it.
    fn write_queued(
        &mut self,
        services: &mut LoopServices,
        message: Box<dyn Any + Send>,
        reserved: ReservedWeight,
        mut confirmation: Option<Confirmation>,
    ) {
        let mut overflowed = false;
        self.call(services, |links, state, services| {
            if reserved.admitted {
                state.admit();
            }
            let written = write(links, state, services, message);
            let Err(error) = written else {
                if let Some(confirmation) = confirmation.take() {
                    state.confirm(confirmation);
                }
                return Ok(());
            };
            if let Some(confirmation) = confirmation.take() {
                state.note_answered(1);
                confirmation.complete(Err(error.clone()));
            }
            match error {
                // The sender raced with a replacement of the pipeline or the close, which is not an
                // error.
                Error::PipelineReplaced | Error::Closed => {
                    let id = state.id();
                    log_throttled!(
                        services,
                        REPLACED,
                        Level::Debug,
                        "channel {id}: dropped a message: {error:#}"
                    );
                    Ok(())
                }
                error => {
                    // Only this policy closes the channel; the others drop messages.
                    overflowed = OutboundLease::is_full(&error) && state.config.overflow == Overflow::Refuse;
                    Err(error)
                }
            }
        });
        if overflowed && self.state.status.is_open() {
            let full = self.state.outbound_is_full();
            self.state.note_error(|| full);
            self.state.request_close(CloseCause::Failed);
            self.state.want_attention(services);
        }
    }

    /// Writes a message of a broadcast. An encoding error goes to the report, not to the handler.
    pub(in crate::channel) fn handle_broadcast(
        &mut self,
        services: &mut LoopServices,
        message: &dyn SharedMessage,
        memo: &mut EncodingMemo,
        reserved: Option<ReservedWeight>,
    ) -> Outcome {
        if let (Some(reserved), Some(shared)) = (&reserved, self.state.shared.get()) {
            shared.producers.take(reserved.weight);
        }
        if !self.state.status.takes_writes() {
            return Outcome::Gone;
        }
        let mut outcome = Outcome::Failed(None);
        self.call(services, |links, state, services| {
            if reserved.is_some_and(|reserved| reserved.admitted) {
                state.admit();
            }
            state.before_write();
            match links.write_shared(state, services, message, memo) {
                Ok(()) => {
                    state.after_write(services);
                    outcome = Outcome::Written;
                    Ok(())
                }
                Err(error) => not_taken(state, services, error, &mut outcome),
            }
        });
        outcome
    }
}

/// Writes a message from a handle.
fn write(
    links: &mut dyn ErasedPipeline,
    state: &mut ChannelState,
    services: &mut LoopServices,
    message: Box<dyn Any + Send>,
) -> Result {
    state.before_write();
    let before = state.pending_bytes();
    match links.write(state, services, message) {
        Ok(()) => {
            if let Some(shared) = state.shared.get() {
                shared.producers.note_encoded(state.pending_bytes() - before);
            }
            state.after_write(services);
            Ok(())
        }
        Err(error) => state.write_failed(services, error),
    }
}

/// Sets the outcome of a broadcast that was not written. Returns the error that the handler
/// receives.
#[cold]
fn not_taken(
    state: &mut ChannelState,
    services: &mut LoopServices,
    error: Error,
    outcome: &mut Outcome,
) -> Result {
    if OutboundLease::is_full(&error) {
        let refused = state.write_failed(services, error);
        *outcome = match refused {
            Ok(()) => Outcome::Dropped,
            Err(_) if state.status.is_open() => Outcome::Refused,
            Err(_) => Outcome::Closed,
        };
        return refused;
    }
    *outcome = if matches!(error, Error::Closed | Error::PipelineReplaced) {
        Outcome::Gone
    } else {
        Outcome::Failed(Some(error))
    };
    Ok(())
}

/// The result of a broadcast for one member.
#[derive(Debug)]
pub(crate) enum Outcome {
    Written,
    Dropped,
    Refused,
    Closed,
    /// The encoding failed; with the error, unless the handler received it.
    Failed(Option<Error>),
    Gone,
}
