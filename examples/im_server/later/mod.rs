//! What happens later: reminders, and direct messages to users that are not connected.
//!
//! Direct messages to users that are not connected are entries of a map in the store of the rooms,
//! so all servers of the store have them, each in a replica. A message is sent at the server at
//! which its receiver logs in. The acknowledgement removes the entry, and so does the expiry. The
//! server whose removal has succeeded reports the outcome to the sender, at any server.
//!
//! A reminder is a durable timer of the server at which it was set. When it is due, it becomes a
//! kept message. Its key follows from the timer, so it is kept once if the server is killed before
//! the timer has ended.
//!
//! The texts of all timers are also in memory, by user, and are read from their store at the start.
//! Handlers run on one loop, and answers of the stores arrive on any thread.

mod kept;
mod letters;
mod load;
mod mail;
pub(crate) mod mailbox;
pub(crate) mod quota;
mod receipt;
mod reminders;
mod requests;
mod start;

pub(crate) use kept::{Kept, KeptId, sender_id};
pub(crate) use receipt::KeptReceipt;

use crate::hub::{Hub, unix_ms};
use kept::Reminder;
use mailbox::{End, Mailbox, Next};
use netwheel::{
    Error, Result,
    broker::{MapTopic, NodeId},
    durable::{Due, DurableTimers},
    time::Clock,
};
use quota::Exhausted;
use reminders::Reminders;
use std::{
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The topic of the timers of reminders.
const REMIND: &str = "remind";
/// Bytes that a kept message occupies besides its entry of the map.
const RECORD: usize = 512;
/// Time limit for closing the store.
const CLOSE: Duration = Duration::from_secs(5);

pub(crate) struct Later {
    hub: Weak<Hub>,
    clock: Arc<dyn Clock>,
    timers: OnceLock<DurableTimers>,
    /// The kept messages.
    mail: OnceLock<MapTopic>,
    expiry: Duration,
    /// Differs between all servers of the store, and after a restart.
    server: u64,
    /// The last number of a reminder or a message.
    last: AtomicU64,
    reminders: Reminders,
    mailbox: Mailbox,
    /// The last lease with which this server has sent the messages that had waited for it.
    lease: Mutex<Option<NodeId>>,
}

impl Later {
    pub(crate) fn timers(&self) -> &DurableTimers {
        // Set when `start_on` returns. Handlers, which may be called earlier, use `Due::timers`.
        self.timers.wait()
    }

    /// Closes the store of reminders.
    pub(crate) fn close(&self) -> Result {
        let closed = self.timers().close().wait_timeout(CLOSE);
        closed.unwrap_or_else(|_| Err(Error::other("the timers were not closed in time")))
    }

    /// Returns the time of day by which messages expire, in milliseconds since 1970 (UTC).
    fn unix_ms(&self) -> u64 {
        unix_ms(&*self.clock)
    }

    /// Returns a number above all earlier ones. It is exact in JavaScript, and above those that
    /// other servers have given before, except for the difference of the clocks.
    fn number(&self) -> u64 {
        let now = self.unix_ms().saturating_mul(1000);
        let next = |last: u64| now.max(last.saturating_add(1));
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        last.map_or(now, next)
    }

    /// Returns when a message that is stored now expires, in milliseconds since 1970 (UTC).
    fn expires(&self) -> u64 {
        self.unix_ms().saturating_add(u64::try_from(self.expiry.as_millis()).unwrap_or(u64::MAX))
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
        let (number, server) = (self.number(), self.server);
        let reminder = Reminder { number, server, user: user.to_owned(), text, due };
        self.reminders.add(reminder.clone()).map_err(|limit| match limit {
            Exhausted::User => format!("{} reminders are set already", reminders::MAX_OF_USER),
            Exhausted::All => "the server stores no more reminders".to_owned(),
        })?;
        let later = self.clone();
        self.timers().at(REMIND, at(due), &reminder).start().on_complete(move |stored| {
            match &stored {
                Ok(timer) => later.reminders.stored(&reminder.user, reminder.number, *timer),
                Err(_) => later.reminders.remove(&reminder.user, reminder.number),
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
        let kept = due.payload().clone().into_kept(self.expires());
        if self.mailbox.is_known(&kept.to, kept.id) {
            // An earlier run was interrupted, or its answer was lost.
            return due.done();
        }
        let later = self.clone();
        self.store(&kept).on_complete(move |stored| match stored {
            Ok(changed) if mail::is_made(&changed) || later.mailbox.is_known(&kept.to, kept.id) => due.done(),
            Ok(_) => due.fail("too many messages are kept"),
            Err(error) => due.fail(format!("{error:#}")),
        });
    }
}

fn at(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis)
}
