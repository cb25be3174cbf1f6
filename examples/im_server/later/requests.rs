//! The requests about reminders, and the delivery of kept messages.

use super::{KeptReceipt, Later, Next};
use crate::{
    direct::{Direct, Receipt},
    hub,
    message_id::MessageId,
    pace::Cost,
    protocol::{Code, ReminderInfo, Reply},
    session::{Answer, Refusal, Session},
};
use netwheel::prelude::*;
use std::{sync::Arc, time::Duration};

/// Maximum bytes of the text of a reminder.
const MAX_TEXT: usize = 2000;
/// Maximum bytes of the text and the id of a direct message that is kept.
const MAX_KEPT_TEXT: usize = 16 * 1024;
/// Maximum time until a reminder: a leap year.
const MAX_DELAY: Duration = Duration::from_secs(366 * 24 * 3600);
/// Maximum length of a duration as text.
const MAX_DURATION_TEXT: usize = 64;
/// Maximum number of kept messages that are sent and not acknowledged. The rest of the limit is for
/// messages of connected users.
const MAX_SENT: usize = 16;

impl Session {
    /// Stores a reminder. It is answered when it is stored.
    pub(crate) fn remind(
        &mut self,
        ctx: &mut Context<'_, Self>,
        after: &str,
        text: String,
        id: Option<MessageId>,
    ) -> Result {
        match self.begin_reminder(ctx, after, text, id.clone()) {
            Ok(()) => Ok(()),
            Err(Refusal(code, message)) => {
                ctx.write(Reply::Error { code, message, room: None, to: None, id })
            }
        }
    }

    fn begin_reminder(
        &mut self,
        ctx: &mut Context<'_, Self>,
        after: &str,
        text: String,
        id: Option<MessageId>,
    ) -> Result<(), Refusal> {
        let user = self.logged_in()?.clone();
        let bad = |why: String| Refusal(Code::BadRequest, why);
        let delay = delay(after).map_err(bad)?;
        if text.len() > MAX_TEXT {
            return Err(bad(format!("the text of a reminder must have at most {MAX_TEXT} bytes")));
        }
        self.pace.charge(Cost::stored());
        let due = self.hub.unix_ms().saturating_add(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
        let (channel, name) = (ctx.channel(), user.clone());
        let reply = move |stored: Result<u64>| {
            let reply = match stored {
                Ok(reminder) => Reply::ReminderSet { reminder, due, id },
                Err(error) => {
                    let message = format!("the reminder was not stored, try again later: {error:#}");
                    Reply::Error { code: Code::Busy, message, room: None, to: None, id }
                }
            };
            hub::send(&name, &channel, reply);
        };
        let refused = |why| Refusal(Code::TooManyReminders, why);
        self.later()?.remind(&user, text, due, reply).map_err(refused)
    }

    pub(crate) fn reminders(&mut self) -> Answer {
        let user = self.logged_in()?;
        let own = self.later()?.reminders.of(user).into_iter();
        let reminders = own.map(|own| ReminderInfo { reminder: own.number, due: own.due, text: own.text });
        Ok(Some(Reply::Reminders { reminders: reminders.collect() }))
    }

    /// Cancels a reminder of this user. It is answered when that is stored.
    pub(crate) fn forget(&mut self, ctx: &mut Context<'_, Self>, reminder: u64) -> Result {
        let begun = self.logged_in().cloned().and_then(|user| Ok((user, self.later()?.clone())));
        let (user, later) = match begun {
            Ok(begun) => begun,
            Err(Refusal(code, message)) => {
                return ctx.write(Reply::Error {
                    code,
                    message,
                    room: None,
                    to: None,
                    id: Some(reminder.into()),
                });
            }
        };
        self.pace.charge(Cost::stored());
        let (channel, name) = (ctx.channel(), user.clone());
        later.forget(&user, reminder, move |forgotten| {
            let error = |code, message| Reply::Error {
                code,
                message,
                room: None,
                to: None,
                id: Some(reminder.into()),
            };
            let reply = match forgotten {
                Ok(true) => Reply::Forgotten { reminder },
                Ok(false) => error(Code::NoSuchReminder, format!("you have no reminder {reminder}")),
                Err(reason) => error(Code::Busy, format!("not done, try again later: {reason:#}")),
            };
            hub::send(&name, &channel, reply);
        });
        Ok(())
    }

    /// Keeps a direct message to a user that is not connected to any server.
    pub(crate) fn keep_direct(
        &mut self,
        ctx: &mut Context<'_, Self>,
        from: &Arc<str>,
        to: String,
        text: String,
        id: Option<MessageId>,
    ) -> Result<(), Refusal> {
        let undelivered = |why| Refusal(Code::Undelivered, why);
        let Some(later) = self.hub.later() else {
            return Err(undelivered(format!("no user is called {to}")));
        };
        if text.len() + id.as_ref().map_or(0, MessageId::len) > MAX_KEPT_TEXT {
            return Err(undelivered(format!(
                "{to} is not connected, and a message that is kept has at most {MAX_KEPT_TEXT} bytes"
            )));
        }
        self.pace.charge(Cost::stored());
        later.keep(from, ctx.channel(), to, text, id).map_err(undelivered)
    }

    /// Sends the kept messages of this user after the login.
    pub(crate) fn begin_kept(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if let (Some(user), Ok(later)) = (&self.user, self.later()) {
            later.mailbox.log_in(user);
        }
        self.deliver_kept(ctx)
    }

    /// Sends kept messages of this user, as far as the limits for unacknowledged messages allow.
    pub(crate) fn deliver_kept(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let (Some(user), Ok(later)) = (self.user.clone(), self.later().cloned()) else { return Ok(()) };
        loop {
            let room = self.unacked.room();
            // Without authority, another server may have given the name to another client.
            let is_full = room == 0 || self.unacked.kept() >= MAX_SENT;
            if is_full || !self.hub.nodes.has_authority() {
                self.has_kept = true;
                return Ok(());
            }
            match later.mailbox.next(&user, room, later.unix_ms()) {
                Next::Message(kept) => {
                    let receipt = Receipt::Kept(KeptReceipt::new(later.clone(), kept.clone()));
                    self.unacked.deliver(ctx, Direct { message: kept.message(), receipt })?;
                }
                Next::TooLarge => {
                    self.has_kept = true;
                    return Ok(());
                }
                Next::Empty => {
                    self.has_kept = false;
                    return Ok(());
                }
            }
        }
    }

    /// Continues [`deliver_kept`](Self::deliver_kept) after an unacknowledged message has ended.
    pub(crate) fn deliver_more(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if self.has_kept { self.deliver_kept(ctx) } else { Ok(()) }
    }

    fn later(&self) -> Result<&Arc<Later>, Refusal> {
        self.hub.later().ok_or_else(|| Refusal(Code::Busy, "the server has no timers".to_owned()))
    }
}

/// Parses the time until a reminder.
fn delay(text: &str) -> Result<Duration, String> {
    if text.len() > MAX_DURATION_TEXT {
        return Err(format!("a duration must have at most {MAX_DURATION_TEXT} characters"));
    }
    let delay = humantime::parse_duration(text).map_err(|e| format!("{e}; a duration is like 10m or 3d"))?;
    if (Duration::from_millis(1)..=MAX_DELAY).contains(&delay) {
        Ok(delay)
    } else {
        Err("a reminder must be between 1ms and 366d from now".to_owned())
    }
}
