//! The wake-up of a task that waits for a result.

use crate::{
    channel::{Mail, MailSender, TaskKey},
    id::Key,
};
use std::{
    sync::Arc,
    task::{Wake, Waker},
};

/// Sends mail that names the task of a channel, when its result is there.
///
/// A full queue accepts this mail, because each task has at most one. If the task is gone, the mail
/// does nothing.
pub(in crate::pipeline) struct AnswerWaker {
    sender: Arc<dyn MailSender>,
    channel: Key,
    task: TaskKey,
}

impl AnswerWaker {
    pub(in crate::pipeline) fn waker(sender: Arc<dyn MailSender>, channel: Key, task: TaskKey) -> Waker {
        Arc::new(AnswerWaker { sender, channel, task }).into()
    }
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
