//! What comes from handles and groups: messages to write, tasks, closes.
//!
//! Always holds: what was on its way when the channel closed, its output ended or its pipeline was replaced is dropped, and is
//! nobody's error; a `write_notify` is answered whatever becomes of it. Runs on the channel's loop; it owns nothing.

use super::{
    channel_group::Outcome,
    core::ChannelCore,
    mail::Mail,
    outbound_budget::Loan,
    services::LoopServices,
    state::{ChannelState, Flags},
};
use crate::{
    Error, Result,
    error::drop_guarded,
    log_throttle::{REPLACED, log_throttled},
    pipeline::{EncodingMemo, Links, SharedMessage},
};
use log::Level;
use std::any::Any;

impl ChannelCore {
    /// Mail from a handle.
    pub(crate) fn handle_mail(&mut self, services: &mut LoopServices, mail: Mail) {
        if let (Mail::Message(_) | Mail::Notify(..), Some(shared)) = (&mail, &self.state.shared) {
            shared.dequeued();
        }
        match mail {
            // Whoever sent it raced with the close; it is nobody's error.
            Mail::Message(_) | Mail::Notify(..) | Mail::Run(_) | Mail::Schedule(..)
                if !self.state.is_open() =>
            {
                drop_guarded(mail)
            }
            // Likewise, with the end of the output.
            Mail::Message(message) if self.state.has(Flags::END_OUTPUT) => drop_guarded(message),
            Mail::Message(message) => {
                self.call(services, |links, state, services| {
                    match write(links, state, services, message) {
                        // Whoever sent it raced with the replacement of the pipeline; it is nobody's error.
                        Err(Error::Replaced) => {
                            let id = state.id();
                            log_throttled!(
                                services,
                                REPLACED,
                                Level::Debug,
                                "channel {id}: dropped a message for a replaced pipeline"
                            );
                            Ok(())
                        }
                        written => written,
                    }
                });
            }
            Mail::Notify(message, confirmation) => {
                let mut confirmation = Some(confirmation);
                self.call(services, |links, state, services| {
                    let written = state.may_confirm().and_then(|()| write(links, state, services, message));
                    let Some(confirmation) = confirmation.take() else { return Ok(()) };
                    match written {
                        Ok(()) => state.confirm(confirmation),
                        // Whoever wrote it is told, and nobody else.
                        refused => confirmation.complete(refused),
                    }
                    Ok(())
                });
            }
            Mail::Run(task) => {
                self.call(services, |links, state, services| links.run(state, services, task));
            }
            Mail::Schedule(deadline, task) => {
                self.state.schedule(services, deadline, task);
                self.after(services);
            }
            Mail::Answer(task) => match self.state.take_answered(task) {
                Some(task) if self.state.is_open() => {
                    self.call(services, |links, state, services| links.run(state, services, task));
                }
                gone => drop_guarded(gone),
            },
            Mail::Released => self.state.release(services),
            Mail::EndOutput => {
                self.state.request_end_of_output();
                self.state.want_attention(services);
            }
            Mail::Close => {
                self.state.request_close();
                self.state.want_attention(services);
            }
            Mail::CloseNow => {
                self.state.request_close_now();
                self.state.want_attention(services);
            }
        }
    }

    /// A message that many channels get. That it cannot be encoded is not told to the handler: whoever wrote it hears of it.
    pub(crate) fn handle_broadcast(
        &mut self,
        services: &mut LoopServices,
        message: &dyn SharedMessage,
        memo: &mut EncodingMemo,
    ) -> Outcome {
        if !self.state.is_open() || self.state.has(Flags::END_OUTPUT) {
            return Outcome::Gone;
        }
        let mut outcome = Outcome::Failed(None);
        self.call(services, |links, state, services| {
            state.before_write();
            match links.write_shared(state, message, memo) {
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

/// Writes a message that a handle brought.
fn write(
    links: &mut dyn Links,
    state: &mut ChannelState,
    services: &mut LoopServices,
    message: Box<dyn Any + Send>,
) -> Result {
    state.before_write();
    match links.write(state, message) {
        Ok(()) => {
            state.after_write(services);
            Ok(())
        }
        Err(error) => state.write_failed(services, error),
    }
}

/// What becomes of a broadcast where it was not written; the error is one that the handler is to be told.
#[cold]
fn not_taken(
    state: &mut ChannelState,
    services: &mut LoopServices,
    error: Error,
    outcome: &mut Outcome,
) -> Result {
    if Loan::is_full(&error) {
        let refused = state.write_failed(services, error);
        *outcome = match refused {
            Ok(()) => Outcome::Dropped,
            Err(_) if state.is_open() => Outcome::Refused,
            Err(_) => Outcome::Closed,
        };
        return refused;
    }
    *outcome = if matches!(error, Error::Closed | Error::Replaced) {
        Outcome::Gone
    } else {
        Outcome::Failed(Some(error))
    };
    Ok(())
}
