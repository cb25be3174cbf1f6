//! What happens later: reminders, and direct messages to users that are not connected.
//!
//! Both are durable timers. A reminder is a timer of the topic `remind`. When it is due, it becomes
//! a kept message: a timer of the topic `kept`, which is due when the message expires, and whose
//! payload is the message. A direct message to a user that is not connected is kept in the same
//! way. Kept messages are sent after the receiver's login, and their timers are cancelled when the
//! receiver has acknowledged them. So nothing is lost if the server is killed, and a message whose
//! acknowledgement was not stored is sent again.
//!
//! The texts of all timers are also in memory, by user, and are read from the store at the start.
//! Handlers run on one loop, and answers of the store arrive on its own thread.

mod kept;
mod load;
pub(crate) mod mailbox;
pub(crate) mod quota;
mod receipt;
mod reminders;
mod requests;
mod start;

pub(crate) use kept::Kept;
pub(crate) use receipt::KeptReceipt;

use crate::{
    hub::{self, Hub, unix_ms},
    message_id::MessageId,
    protocol::{Code, Reply},
};
use kept::{Content, Reminder};
use mailbox::{Mailbox, Next, Shares};
use netwheel::{
    Channel, Error, Result,
    durable::{Due, DurableTimers, TimerId},
    time::Clock,
};
use quota::Exhausted;
use reminders::Reminders;
use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The topic of reminders.
const REMIND: &str = "remind";
/// The topic of kept messages.
const KEPT: &str = "kept";
/// Bytes that a kept message occupies besides its texts.
const RECORD: usize = 512;
/// Time limit for closing the store.
const CLOSE: Duration = Duration::from_secs(5);

pub(crate) struct Later {
    hub: Weak<Hub>,
    clock: Arc<dyn Clock>,
    timers: OnceLock<DurableTimers>,
    /// Whether direct messages to users that are not connected are kept.
    keeps_messages: bool,
    expiry: Duration,
    /// The next number of a reminder or a message.
    next: AtomicU64,
    reminders: Reminders,
    mailbox: Mailbox,
}

impl Later {
    pub(crate) fn timers(&self) -> &DurableTimers {
        // Set when `start_on` returns. Handlers, which may be called earlier, use `Due::timers`.
        self.timers.wait()
    }

    /// Closes the store. What was not acknowledged is sent again after the next start.
    pub(crate) fn close(&self) -> Result {
        let closed = self.timers().close().wait_timeout(CLOSE);
        closed.unwrap_or_else(|_| Err(Error::other("the timers were not closed in time")))
    }

    /// Returns whether direct messages to users that are not connected are kept.
    pub(crate) fn keeps_messages(&self) -> bool {
        self.keeps_messages
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns when a message that is stored now expires, in milliseconds since 1970 (UTC).
    fn expires(&self) -> u64 {
        unix_ms(&*self.clock).saturating_add(u64::try_from(self.expiry.as_millis()).unwrap_or(u64::MAX))
    }

    /// Keeps a direct message. The sender is notified when it is stored.
    ///
    /// # Errors
    /// Returns a human-readable reason if a limit is reached.
    pub(crate) fn keep(
        self: &Arc<Self>,
        from: &Arc<str>,
        sender: Channel<Reply>,
        to: String,
        text: String,
        id: Option<MessageId>,
    ) -> Result<(), String> {
        let own_id = id.as_ref().map(|id| id.as_json().to_owned());
        let content = Content::Direct { from: from.to_string(), text, ts: unix_ms(&*self.clock), id: own_id };
        let kept = Kept { number: self.number(), to: to.clone(), content };
        let shares = self.mailbox.reserve(from, &to, RECORD + kept.len())?;
        self.mailbox.add(kept.clone(), shares);
        let (later, from, number, expires) = (self.clone(), from.clone(), kept.number, self.expires());
        self.timers().at(KEPT, at(expires), &kept).start().on_complete(move |stored| match stored {
            Ok(timer) => {
                hub::send(&from, &sender, Reply::Kept { to: to.clone(), expires, id });
                later.stored(&to, number, timer);
            }
            Err(error) => {
                later.mailbox.remove(&to, number);
                let message = format!("{to} is not connected, and the message was not kept: {error:#}");
                hub::send(
                    &from,
                    &sender,
                    Reply::Error { code: Code::Undelivered, message, to: Some(to), id },
                );
            }
        });
        Ok(())
    }

    /// Stores a reminder. `then` is called with its number, or with the error of the store.
    ///
    /// # Errors
    /// Returns a human-readable reason if a limit is reached.
    fn remind(
        self: &Arc<Self>,
        user: &str,
        text: String,
        due: u64,
        then: impl FnOnce(Result<u64>) + Send + 'static,
    ) -> Result<(), String> {
        let reminder = Reminder { number: self.number(), user: user.to_owned(), text, due };
        self.reminders.add(reminder.clone()).map_err(|limit| match limit {
            Exhausted::User => format!("{} reminders are set already", reminders::MAX_OF_USER),
            Exhausted::All => "the server stores no more reminders".to_owned(),
        })?;
        let later = self.clone();
        self.timers().at(REMIND, at(due), &reminder).start().on_complete(move |stored| {
            match &stored {
                Ok(timer) => later.reminders.stored(&reminder.user, reminder.number, *timer),
                Err(_) => drop(later.reminders.remove(&reminder.user, reminder.number)),
            }
            then(stored.map(|_| reminder.number));
        });
        Ok(())
    }

    /// Cancels a reminder of the user. `then` is called with whether there was one.
    fn forget(self: &Arc<Self>, user: &str, number: u64, then: impl FnOnce(Result<bool>) + Send + 'static) {
        let Some(timer) = self.reminders.timer(user, number) else { return then(Ok(false)) };
        let (later, user) = (self.clone(), user.to_owned());
        self.timers().cancel(timer).on_complete(move |cancelled| {
            if let Ok(true) = cancelled {
                later.reminders.remove(&user, number);
            }
            then(cancelled);
        });
    }

    /// Turns a reminder whose time has come into a kept message. Called on the loop of the timers.
    fn remind_now(self: &Arc<Self>, due: Due<Reminder>) {
        let Reminder { number, user, text, due: time } = due.payload().clone();
        if self.mailbox.contains(&user, number) {
            // The server was killed between the two transactions below.
            return due.done();
        }
        let kept = Kept { number, to: user, content: Content::Reminder { text, due: time } };
        let later = self.clone();
        due.timers().at(KEPT, at(self.expires()), &kept).start().on_complete(move |stored| match stored {
            Ok(timer) => {
                let share = later.reminders.remove(&kept.to, number);
                let share = share.unwrap_or_else(|| later.reminders.count(&kept.to));
                let to = kept.to.clone();
                later.mailbox.add(kept, Shares::Reminder { _share: share });
                later.stored(&to, number, timer);
                due.done();
            }
            Err(error) => due.fail(format!("{error:#}")),
        });
    }

    /// Sends a message to its receiver, if that is connected.
    fn stored(&self, to: &str, number: u64, timer: TimerId) {
        let is_ready = self.mailbox.stored(to, number, timer);
        if let Some(session) = self.hub.upgrade().filter(|_| is_ready).and_then(|hub| hub.find(to)) {
            // A session that is about to end leaves the message for the next login.
            let _ = session.execute(|session, ctx| session.deliver_kept(ctx));
        }
    }

    /// Ends a message that was not acknowledged in time. Called on the loop of the timers.
    fn expire(self: &Arc<Self>, due: Due<Kept>) {
        let kept = due.payload();
        if self.mailbox.remove(&kept.to, kept.number).is_some() {
            log::debug!("a message to {} has expired", kept.to);
            self.notify_sender(kept, |to, id| {
                let message = format!("{to} was not connected in time");
                Reply::Error { code: Code::Expired, message, to: Some(to), id }
            });
        }
        due.done();
    }

    /// Ends a message that its receiver has acknowledged.
    fn delivered(&self, to: &str, number: u64) {
        let Some((kept, timer)) = self.mailbox.remove(to, number) else { return };
        if let Some(timer) = timer {
            self.timers().cancel(timer).on_complete(|cancelled| {
                if let Err(error) = cancelled {
                    log::warn!("a delivered message will be sent again: {error:#}");
                }
            });
        }
        self.notify_sender(&kept, |to, id| Reply::Delivered { to, id });
    }

    /// Sends the outcome of a direct message to its sender, if a user with that name is connected.
    fn notify_sender(&self, kept: &Kept, outcome: impl FnOnce(String, Option<MessageId>) -> Reply) {
        let Some((from, id)) = kept.sender() else { return };
        let Some(session) = self.hub.upgrade().and_then(|hub| hub.find(from)) else { return };
        let outcome = outcome(kept.to.clone(), id);
        let _ = session.execute(move |_, ctx| ctx.write(outcome));
    }
}

fn at(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis)
}
