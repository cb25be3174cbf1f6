//! Requests of handles: messages to write, tasks, closes.
//!
//! Invariants: a message that arrives after the channel has closed or its output has ended is
//! dropped without an error. On an open channel, the end of its reservation may change the
//! writability, of which the handler is notified.

use super::{ChannelCore, services::LoopServices};
use crate::{
    channel::{LatestMessage, Mail, close_cause::CloseCause, event::Event, filter::Resume},
    error::drop_guarded,
};

impl ChannelCore {
    /// Handles mail from a handle.
    pub(crate) fn handle_mail(&mut self, services: &mut LoopServices, mail: Mail) {
        let weight = mail.reserved().map(|reserved| reserved.weight);
        if let (Some(weight), Some(shared)) = (weight, self.state.shared.get()) {
            shared.producers.take(weight);
        }
        let is_message = weight.is_some();
        match mail {
            // The sender raced with the close, which is not an error.
            Mail::Message(..) | Mail::Notify(..) | Mail::Latest(_) | Mail::Run(_) | Mail::Schedule(_)
                if !self.state.status.is_open() =>
            {
                drop_guarded(mail)
            }
            // The sender raced with the end of the output.
            Mail::Message(message, _) if self.state.status.output_is_over() => {
                drop_guarded(message);
                self.after(services);
            }
            Mail::Message(message, reserved) => self.write_queued(services, message, reserved, None, None),
            Mail::Notify(message, confirmation, reserved) => {
                self.write_queued(services, message, reserved, Some(confirmation), None);
            }
            Mail::Latest(latest) => {
                let LatestMessage { key, message, confirmation, reserved } = *latest;
                if confirmation.is_none() && self.state.status.output_is_over() {
                    drop_guarded(message);
                    self.after(services);
                } else {
                    self.write_queued(services, message, reserved, confirmation, Some(key));
                }
            }
            Mail::Run(task) => {
                self.call(services, |links, state, services| links.run(state, services, task));
            }
            Mail::Schedule(task) => self.state.accept_task(services, *task),
            Mail::Cancel(task) => drop(self.state.timing.cancel(services, task)),
            Mail::Answer(task) => match self.state.timing.take_answered(task) {
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
}
