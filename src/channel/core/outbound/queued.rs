//! Messages of handles and groups, which other threads have queued.
//!
//! Invariants: a message is dropped without an error if its pipeline was replaced while it was
//! queued. Any other accepted message is written, or the handler's `error` is called. A
//! `write_tracked` always completes.

use super::super::{ChannelCore, ChannelState, ErasedPipeline, services::LoopServices};
use crate::{
    channel::{
        Delivery, Recipient,
        budget::OutboundLease,
        close_cause::CloseCause,
        config::Overflow,
        confirmation::Confirmation,
        handle::{MemberReservation, Outcome},
    },
    error::{Error, Result},
    log_throttle::{REPLACED, log_throttled},
    sync::ReservedWeight,
};
use log::Level;
use std::any::Any;

impl ChannelCore {
    /// Writes a message that a handle has queued. The message was accepted, so a failure goes to
    /// the handler. A full buffer closes the channel, because later messages must not be sent
    /// without it.
    pub(in crate::channel::core) fn write_queued(
        &mut self,
        services: &mut LoopServices,
        message: Box<dyn Any + Send>,
        reserved: ReservedWeight,
        mut confirmation: Option<Confirmation>,
        latest: Option<u64>,
    ) {
        let mut overflowed = false;
        self.call(services, |links, state, services| {
            if reserved.admitted {
                state.outbound.admit_queued(&state.config);
            }
            let written = write(links, state, services, message, latest);
            let Err(error) = written else {
                match (confirmation.take(), latest) {
                    (Some(confirmation), None) => state.confirm(confirmation),
                    (Some(confirmation), Some(key)) => state.confirm_latest(key, confirmation),
                    (None, _) => {}
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
        if overflowed {
            // The handler's `error` may have closed the channel already.
            services.tally.closes_overflowed += 1;
            if self.state.status.is_open() {
                let full = self.state.outbound_is_full();
                self.state.outbound.note_error(|| full);
                self.state.request_close(CloseCause::Failed);
                self.state.want_attention(services);
            }
        }
    }

    /// Writes the message of a broadcast, within the call of the loop that delivers it. An encoding
    /// error goes to the report, not to the handler.
    #[inline]
    pub(crate) fn handle_delivery(
        &mut self,
        services: &mut LoopServices,
        delivery: &mut Delivery,
        recipient: Recipient,
    ) {
        let reserved = delivery.take_reservation(&recipient).and_then(MemberReservation::hand_over);
        let (outcome, error) = self.write_shared(services, delivery, reserved);
        services.tally.deliveries += 1;
        if let Some(error) = error {
            delivery.note_error(error, &services.log, services.now);
        }
        delivery.count(outcome);
    }

    #[inline(always)]
    fn write_shared(
        &mut self,
        services: &mut LoopServices,
        delivery: &mut Delivery,
        reserved: Option<ReservedWeight>,
    ) -> (Outcome, Option<Error>) {
        if let (Some(reserved), Some(shared)) = (&reserved, self.state.shared.get()) {
            shared.producers.take(reserved.weight);
        }
        if !self.state.status.takes_writes() {
            if reserved.is_some() && self.state.status.is_open() {
                self.after(services);
            }
            return (Outcome::Gone, None);
        }
        let mut outcome = (Outcome::Failed, None);
        let (message, memo) = delivery.message();
        let latest = memo.latest;
        self.call(services, |links, state, services| {
            if reserved.is_some_and(|reserved| reserved.admitted) {
                state.outbound.admit_queued(&state.config);
            }
            state.before_write();
            match links.write_shared(state, services, message, memo) {
                Ok(()) => {
                    outcome.0 = Outcome::Written;
                    match latest {
                        None => state.after_write(services),
                        Some(key) if !state.after_write_latest(services, key) => outcome.0 = Outcome::Dropped,
                        Some(_) => {}
                    }
                    Ok(())
                }
                Err(error) => not_taken(state, services, error, &mut outcome),
            }
        });
        services.tally.broadcast_encodings += std::mem::take(&mut memo.encodings);
        outcome
    }
}

/// Writes a message from a handle.
fn write(
    links: &mut dyn ErasedPipeline,
    state: &mut ChannelState,
    services: &mut LoopServices,
    message: Box<dyn Any + Send>,
    latest: Option<u64>,
) -> Result {
    state.before_write();
    let before = state.outbound.pending_bytes();
    let conflated = latest.map(|_| state.extras.messages_conflated());
    let written = match latest {
        None => links.write(state, services, message),
        Some(key) => links.write_latest(state, services, key, message),
    };
    match written {
        Ok(()) => {
            // A replacement has noted its length, which the buffer has not grown by.
            if let Some(shared) = state.shared.get()
                && conflated.is_none_or(|conflated| state.extras.messages_conflated() == conflated)
            {
                shared.producers.note_encoded(state.outbound.pending_bytes() - before);
            }
            match latest {
                None => state.after_write(services),
                Some(key) => drop(state.after_write_latest(services, key)),
            }
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
    outcome: &mut (Outcome, Option<Error>),
) -> Result {
    if OutboundLease::is_full(&error) {
        let refused = state.write_failed(services, error);
        outcome.0 = match refused {
            Ok(()) => Outcome::Dropped,
            Err(_) if state.status.is_open() => Outcome::Refused,
            Err(_) => Outcome::Closed,
        };
        return refused;
    }
    *outcome = if matches!(error, Error::Closed | Error::PipelineReplaced) {
        (Outcome::Gone, None)
    } else {
        (Outcome::Failed, Some(error))
    };
    Ok(())
}
