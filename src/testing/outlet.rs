//! Where handles of channels without sockets send their mail; the receiving end is drained by the loop that drives them.

use crate::{
    Error,
    channel::{Delivery, Mail, Outlet},
    clock::TimeSource,
    id::Key,
    sync::{Mailbox, loop_id},
};

pub(super) struct TestOutlet {
    pub(super) event_loop: u32,
    pub(super) mailbox: Mailbox<Post>,
    pub(super) time: TimeSource,
}

/// What comes from handles, and from groups.
pub(super) enum Post {
    Mail(Key, Mail),
    Broadcast(Box<Delivery>),
}

impl Outlet for TestOutlet {
    fn deliver(&self, to: Key, mail: Mail) -> Result<(), (Mail, Error)> {
        let always = mail.is_always_taken();
        let mail = Post::Mail(to, mail);
        let sent = if always { self.mailbox.put_always(mail) } else { self.mailbox.put(mail) };
        sent.map_err(|refused| match refused.value {
            Post::Mail(_, mail) => (mail, refused.reason),
            Post::Broadcast(_) => unreachable!("the same mail comes back"),
        })
    }

    fn broadcast(&self, delivery: Box<Delivery>) -> Result<(), (Box<Delivery>, Error)> {
        self.mailbox.put(Post::Broadcast(delivery)).map_err(|refused| match refused.value {
            Post::Broadcast(delivery) => (delivery, refused.reason),
            Post::Mail(..) => unreachable!("the same mail comes back"),
        })
    }

    fn now(&self) -> u64 {
        self.time.now()
    }

    fn in_event_loop(&self) -> bool {
        loop_id::current() == Some(self.event_loop)
    }
}
