//! Tasks that wait for a completion, and their wake-up.

use crate::{
    channel::{ChannelState, LoopServices, Mail, MailSender, TaskKey},
    error::{Error, Result},
    id::Key,
    sync::Completion,
};
use std::{any::Any, sync::Arc, task::Wake};

/// Keeps the task that `make` creates, until the completion is done.
///
/// # Errors
/// [`Error::Closed`] if the channel is closing, or [`Error::Full`] if it has reached its limit of
/// tasks. The completion and `make` are dropped.
pub(in crate::pipeline) fn await_completion<T>(
    state: &mut ChannelState,
    services: &mut LoopServices,
    completion: Completion<T>,
    make: impl FnOnce(Completion<T>) -> Box<dyn Any>,
) -> Result<TaskKey> {
    let (sender, channel) = (services.sender.clone(), state.key());
    state.await_answer(services, |task| {
        completion.wake_when_done(Arc::new(AnswerWaker { sender, channel, task }).into());
        make(completion)
    })
}

/// Returns the key of a task. A refusal for the limit of tasks goes to the handler.
pub(in crate::pipeline) fn key_of(state: &mut ChannelState, task: Result<TaskKey>) -> TaskKey {
    task.unwrap_or_else(|error| {
        if !matches!(error, Error::Closed) {
            state.note_refused_task();
        }
        TaskKey::NONE
    })
}

/// Sends mail that names the task of a channel, when its result is there.
///
/// A full queue accepts this mail, because each task has at most one. If the task is gone, the mail
/// does nothing.
struct AnswerWaker {
    sender: Arc<dyn MailSender>,
    channel: Key,
    task: TaskKey,
}

impl Wake for AnswerWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // If the loop has ended, so has the channel.
        let _ = self.sender.deliver(self.channel, Mail::Answer(self.task));
    }
}
