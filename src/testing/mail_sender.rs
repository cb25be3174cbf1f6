//! The mail sender for handles of channels without sockets. Their loop drains the receiving end.

use crate::{
    channel::{Delivery, Mail, MailSender},
    clock::TimeSource,
    error::Error,
    id::Key,
    sync::{Mailbox, loop_id},
};

pub(super) struct TestMailSender {
    pub(super) event_loop: u32,
    pub(super) mailbox: Mailbox<TestMail>,
    pub(super) time: TimeSource,
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

    fn time(&self) -> &TimeSource {
        &self.time
    }

    fn in_event_loop(&self) -> bool {
        loop_id::current() == Some(self.event_loop)
    }
}
