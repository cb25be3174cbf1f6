//! The mail sender for handles of channels without sockets. Their loop drains the receiving end.

use crate::{
    admission::{Work, WorkLimits},
    channel::{Delivery, Mail, MailSender},
    clock::TimeSource,
    error::{Error, Overloaded},
    id::Key,
    machine::Mutex,
    sync::{Mailbox, loop_id},
};
use std::sync::Arc;

pub(super) struct TestMailSender {
    pub(super) event_loop: u32,
    pub(super) mailbox: Mailbox<TestMail>,
    pub(super) time: TimeSource,
    /// The limits of the loop, while it is overloaded.
    pub(super) limits: Mutex<Option<Arc<WorkLimits>>>,
}

/// Mail from handles and groups.
pub(super) enum TestMail {
    Mail(Key, Mail),
    Broadcast(Box<Delivery>),
}

impl MailSender for TestMailSender {
    fn deliver(&self, to: Key, mail: Mail) -> Result<(), (Mail, Error)> {
        let always = mail.is_always_taken();
        let mail = TestMail::Mail(to, mail);
        let sent = if always { self.mailbox.put_always(mail) } else { self.mailbox.put(mail) };
        sent.map_err(|refused| match refused.into_parts() {
            (TestMail::Mail(_, mail), error) => (mail, error),
            (TestMail::Broadcast(_), _) => unreachable!("the same mail comes back"),
        })
    }

    fn deliver_quietly(&self, to: Key, mail: Mail) {
        // A loop that has ended does not need cleanup.
        let _ = self.mailbox.put_always(TestMail::Mail(to, mail));
    }

    fn broadcast(&self, delivery: Box<Delivery>) -> Result<(), (Box<Delivery>, Error)> {
        self.mailbox.put(TestMail::Broadcast(delivery)).map_err(|refused| match refused.into_parts() {
            (TestMail::Broadcast(delivery), error) => (delivery, error),
            (TestMail::Mail(..), _) => unreachable!("the same mail comes back"),
        })
    }

    fn admit_bulk(&self) -> Result<(), Overloaded> {
        self.limits.lock().as_ref().map_or(Ok(()), |limits| limits.admit(Work::Bulk))
    }

    fn time(&self) -> &TimeSource {
        &self.time
    }

    fn in_event_loop(&self) -> bool {
        loop_id::current() == Some(self.event_loop)
    }
}
