//! One session of a bot.

use super::{
    BOTS,
    ledger::Ledger,
    support::{Calm, Draw, MS, SECOND},
};
use crate::{
    message_id::MessageId,
    protocol::{Code, Reason, Reply, Request},
};
use netwheel::{error::PeerError, prelude::*, testing::simulation::sometimes};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

const ROOM: &str = "lobby";

/// Returns the name of a bot.
pub(super) fn name(number: u32) -> String {
    format!("bot-{number}")
}

pub(super) struct Bot {
    number: u32,
    is_websocket: bool,
    ledger: Arc<Mutex<Ledger>>,
    draw: Draw,
    calm: Calm,
    /// The number of this session among all.
    session: u32,
    is_member: bool,
    /// The members of the room, as the server has announced them.
    members: BTreeSet<String>,
}

impl Bot {
    pub(super) fn new(number: u32, is_websocket: bool, ledger: Arc<Mutex<Ledger>>, calm: Calm) -> Self {
        let session = ledger.lock().unwrap().begin_session();
        let (draw, members) = (Draw::new(), BTreeSet::new());
        Bot { number, is_websocket, ledger, draw, calm, session, is_member: false, members }
    }

    fn later(&mut self, ctx: &mut Context<'_, Self>) {
        let pause =
            if self.calm.is_now() { 2 * SECOND } else { self.draw.pick(&[50 * MS, SECOND, 4 * SECOND]) };
        ctx.schedule(self.draw.time(pause), Self::act);
    }

    /// Does something on its own account.
    fn act(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.later(ctx);
        if !self.is_member {
            return Ok(());
        }
        match self.draw.below(15) {
            0..6 => {
                for _ in 0..=self.draw.below(4) {
                    self.say(ctx)?;
                }
                Ok(())
            }
            6..8 => self.direct(ctx),
            // In calm, the announcements have to be enough.
            8 if !self.calm.is_now() => ctx.write(Request::Who { room: ROOM.into() }),
            9 => {
                let user = name(self.draw.below(BOTS.into()) as u32);
                ctx.write(Request::Lookup { user, id: None })
            }
            10 if !self.calm.is_now() => {
                sometimes("left the room");
                self.is_member = false;
                ctx.write(Request::Leave { room: ROOM.into() })?;
                self.ledger.lock().unwrap().leaves(self.session);
                ctx.write(Request::join(ROOM))
            }
            11 if !self.calm.is_now() && self.draw.one_in(3) => {
                match self.draw.below(3) {
                    0 => ctx.close(),
                    1 => ctx.close_now(),
                    _ => ctx.reset(),
                }
                Ok(())
            }
            12..15 => self.remind(ctx),
            _ => Ok(()),
        }
    }

    fn say(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let count = self.ledger.lock().unwrap().next_message(self.session);
        let padding = "x".repeat(self.draw.pick(&[0, 0, 30, 1000]));
        let text = format!("{} {count} {padding}", self.session);
        ctx.write(Request::Say { room: ROOM.into(), text, id: None })
    }

    fn direct(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let to = self.draw.below(BOTS.into()) as u32;
        let number = self.ledger.lock().unwrap().begin_direct(self.session, self.number, to);
        let id = serde_json::value::to_raw_value(&number).map_err(Error::other)?;
        let (to, text) = (name(to), format!("direct {number}"));
        ctx.write(Request::Direct { to, text, id: MessageId::from_json(id) })
    }

    fn remind(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let number = self.ledger.lock().unwrap().reminders.begin(self.number);
        let after = format!("{}ms", self.draw.pick(&[1, 300, 2000, 4000]));
        let text = format!("reminder {number}");
        ctx.write(Request::Remind { after, text, id: Some(number.into()) })
    }

    fn read_reminder_set(&mut self, ctx: &mut Context<'_, Self>, number: u64, due: u64, id: u64) -> Result {
        self.ledger.lock().unwrap().reminders.set(id, number, due);
        if !self.draw.one_in(4) {
            return Ok(());
        }
        self.ledger.lock().unwrap().reminders.forgets(id);
        ctx.write(Request::Forget { id: number })
    }

    fn read_direct(&mut self, ctx: &mut Context<'_, Self>, text: &str, id: u64) {
        self.ledger.lock().unwrap().direct_arrives(self.number, self.session, text, id);
        self.acknowledge(ctx, id);
    }

    /// Acknowledges a message, now or later or not at all.
    fn acknowledge(&mut self, ctx: &mut Context<'_, Self>, id: u64) {
        let is_calm = self.calm.is_now();
        if !is_calm && self.draw.one_in(6) {
            // The server sends it again.
            return;
        }
        let pause = if is_calm { MS } else { self.draw.pick(&[MS, MS, 3 * SECOND]) };
        ctx.schedule(self.draw.time(pause), move |_, ctx| ctx.write(Request::Ack { id }));
    }

    fn read_error(
        &mut self,
        ctx: &mut Context<'_, Self>,
        code: Code,
        message: &str,
        is_direct: bool,
        id: Option<&MessageId>,
    ) {
        match (code, id.and_then(MessageId::as_u64)) {
            // The store has failed. The reminder may be stored, or forgotten, nevertheless.
            (Code::Busy, Some(_)) if !is_direct => sometimes("reminder refused"),
            // Lookups that arrive together, after a delay of the network.
            (Code::TooManyLookups, None) => {}
            // It has arrived before.
            (Code::NoSuchReminder, Some(_)) => {}
            (Code::NameTaken, _) => {
                sometimes("name is taken");
                ctx.close();
            }
            (Code::Undelivered | Code::TooManyUnacked | Code::Busy, Some(number)) => {
                sometimes("undelivered");
                self.ledger.lock().unwrap().direct_ends(self.session, self.number, number, false);
            }
            // A request without an id had no effect, for example while the loops shut down.
            (Code::Busy, None) => self.ledger.lock().unwrap().may_skip(self.session),
            (code, _) => {
                self.ledger.lock().unwrap().violated(&format!("the server says {code:?}: {message}"))
            }
        }
    }
}

impl Handler for Bot {
    type Read = Reply;
    type Write = Request;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write(Request::login(name(self.number)))
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, reply: Reply) -> Result {
        match reply {
            Reply::Welcome { .. } => {
                ctx.write(Request::join(ROOM))?;
                self.later(ctx);
            }
            Reply::Joined { .. } => {
                self.is_member = true;
                self.ledger.lock().unwrap().joined(self.session);
                ctx.write(Request::Who { room: ROOM.into() })?;
            }
            Reply::Members { users, .. } => self.members = users.into_iter().collect(),
            Reply::Presence { joined, left, .. } => {
                self.members.extend(joined);
                self.members.retain(|user| !left.contains(user));
            }
            Reply::Message { from, text, .. } => {
                sometimes(if self.is_websocket { "message over WebSocket" } else { "message over TCP" });
                self.ledger.lock().unwrap().message_arrives(self.session, &from, &text);
            }
            Reply::Direct { text, id, .. } => self.read_direct(ctx, &text, id),
            Reply::Delivered { id, .. } => {
                sometimes("delivered");
                if let Some(number) = id.as_ref().and_then(MessageId::as_u64) {
                    self.ledger.lock().unwrap().direct_ends(self.session, self.number, number, true);
                }
            }
            Reply::Profile { user, online, .. } => {
                sometimes("looked up");
                if user == name(self.number) && !online {
                    self.ledger.lock().unwrap().violated("a user that is logged in is not online");
                }
            }
            Reply::Kept { id, .. } => {
                if let Some(number) = id.as_ref().and_then(MessageId::as_u64) {
                    self.ledger.lock().unwrap().direct_is_kept(self.session, number);
                }
            }
            Reply::ReminderSet { reminder, due, id } => {
                let id = id.as_ref().and_then(MessageId::as_u64).unwrap_or(u64::MAX);
                self.read_reminder_set(ctx, reminder, due, id)?;
            }
            Reply::Forgotten { reminder } => self.ledger.lock().unwrap().reminders.forgotten(reminder),
            Reply::Reminder { reminder, text, id, .. } => {
                let mut ledger = self.ledger.lock().unwrap();
                ledger.reminders.arrives(self.number, self.session, &text, reminder, id);
                drop(ledger);
                self.acknowledge(ctx, id);
            }
            Reply::Error { code, message, to, id, .. } => {
                self.read_error(ctx, code, &message, to.is_some(), id.as_ref());
            }
            Reply::Bye { reason: Reason::MaxAge, retry_after_ms } => {
                sometimes("reached its age");
                if retry_after_ms != Some(0) {
                    self.ledger.lock().unwrap().violated("a bye at the age without a hint");
                }
            }
            Reply::Bye { .. } => sometimes("goodbye"),
            Reply::Missed { .. } => self.ledger.lock().unwrap().missed(self.session),
            Reply::Ping { .. } => ctx.write(Request::Pong)?,
            Reply::Left { .. } | Reply::Pong => {}
            other => self.ledger.lock().unwrap().violated(&format!("an unexpected reply: {other:?}")),
        }
        self.ledger.lock().unwrap().sees(self.number, self.members.clone());
        Ok(())
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        ctx.close_now();
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        if let Error::Peer(PeerError::Malformed(_)) = error {
            self.ledger.lock().unwrap().violated(&format!("a reply is malformed: {error:#}"));
        }
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        let mut ledger = self.ledger.lock().unwrap();
        ledger.session_ends(self.session);
        ledger.sees(self.number, BTreeSet::new());
        Ok(())
    }
}
