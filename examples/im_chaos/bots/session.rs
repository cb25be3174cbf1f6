//! `Session`: the handler of one connection of a bot.

use super::{
    Manners, Shared, lock,
    resumes::PlannedResume,
    state::{Bot, Place},
};
use crate::{
    journal::{Census, Event, Recovered},
    message_id::MessageId,
    protocol::{Reply, Request},
};
use netwheel::{broker::Position, prelude::*};
use std::{
    sync::{Arc, MutexGuard, atomic::Ordering},
    time::Duration,
};

pub(super) struct Session {
    shared: Arc<Shared>,
    bot: usize,
    attempt: u64,
    /// The time after which the server wants the bot to come back.
    hint: Option<Duration>,
}

impl Handler for Session {
    type Read = Reply;
    type Write = Request;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let patience = self.shared.manners.patience;
        ctx.set_idle_timeouts(IdleTimeouts::new().reader(patience).writer(patience / 4));
        let login = self.bot().login();
        ctx.write(login)
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, reply: Reply) -> Result {
        if self.bot().attempt != self.attempt {
            ctx.reset();
            return Ok(());
        }
        match reply {
            Reply::Welcome { resume_token, .. } => {
                let mut bot = self.bot();
                bot.token = resume_token;
                if bot.is_publisher {
                    bot.enter(ctx.channel(), self.shared.start.elapsed());
                    return Ok(());
                }
                let room = bot.position.is_none().then(|| bot.room.clone());
                drop(bot);
                match room {
                    Some(room) => ctx.write(Request::join(room)),
                    None => Ok(()),
                }
            }
            Reply::Joined { epoch, offset, recovered, .. } => {
                self.joined(ctx, position(epoch, offset), recovered);
                Ok(())
            }
            Reply::Gap { epoch, offset, .. } => {
                let position = Position::new(epoch, offset);
                self.bot().position = Some(position);
                self.note(Event::Gap { position });
                Ok(())
            }
            Reply::Message { from, text, epoch, offset, id, .. } => {
                self.received(&from, &text, position(epoch, offset), number(id.as_ref()));
                Ok(())
            }
            Reply::Said { epoch, offset, id, .. } => {
                if let Some(id) = id.as_u64() {
                    self.accepted(Position::new(epoch, offset), id);
                }
                Ok(())
            }
            Reply::Members { users, .. } => {
                self.members(&users);
                Ok(())
            }
            Reply::Error { code, message, id, .. } => {
                log::debug!("bot {}: {code:?}: {message}", self.bot);
                let mut bot = self.bot();
                if let Some(number) = number(id.as_ref()) {
                    bot.refuse(number, self.shared.start.elapsed());
                    return Ok(());
                }
                bot.asked = None;
                if !matches!(bot.place, Place::Inside(_)) {
                    ctx.close();
                }
                Ok(())
            }
            Reply::Bye { retry_after_ms, .. } => {
                self.hint = retry_after_ms.map(Duration::from_millis);
                ctx.close();
                Ok(())
            }
            Reply::Ping { .. } => ctx.write(Request::Pong),
            // The rest has nothing to do with the messages of rooms.
            _ => Ok(()),
        }
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, event: IdleEvent) -> Result {
        if event.state == IdleState::Writer {
            return ctx.write(Request::Ping);
        }
        log::debug!("bot {}: the node does not answer", self.bot);
        ctx.reset();
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        log::debug!("bot {}: {error:#}", self.bot);
        ctx.reset();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.shared.lost(self.bot, self.attempt, self.hint);
        Ok(())
    }
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>, bot: usize, attempt: u64) -> Self {
        Session { shared, bot, attempt, hint: None }
    }

    fn bot(&self) -> MutexGuard<'_, Bot> {
        lock(&self.shared.bots[self.bot])
    }

    fn note(&self, event: Event) {
        self.shared.note(self.bot, event);
    }

    fn joined(&self, ctx: &Context<'_, Self>, position: Position, recovered: Option<bool>) {
        let recovered = match recovered {
            None => Recovered::New,
            Some(true) => Recovered::Yes,
            Some(false) => Recovered::No,
        };
        let resumed = self.bot().planned.as_ref().map(PlannedResume::event);
        if let Some(resumed) = resumed {
            self.note(resumed);
        }
        // Before the bot can talk: otherwise its message could be recorded first.
        self.note(Event::Joined { position, recovered });
        let mut bot = self.bot();
        bot.position = Some(position);
        bot.planned = None;
        bot.enter(ctx.channel(), self.shared.start.elapsed());
    }

    fn received(&self, from: &str, text: &str, position: Position, id: Option<u64>) {
        let sender = from.strip_prefix("bot-").and_then(|number| number.parse().ok());
        let (Some(sender), Ok(number)) = (sender, text.parse()) else { return };
        self.bot().position = Some(position);
        self.note(Event::Received { position, sender, number });
        self.shared.deliveries.fetch_add(1, Ordering::Relaxed);
        if let Some(id) = id {
            self.accepted(position, id);
        }
    }

    fn accepted(&self, position: Position, id: u64) {
        if let Ok(number) = u32::try_from(id)
            && self.bot().accept(number)
        {
            self.note(Event::Accepted { position, number });
            let Manners { rooms, .. } = self.shared.manners;
            let members = self.shared.manners.members(self.bot as u32 % rooms);
            self.shared.expected.fetch_add(members.into(), Ordering::Relaxed);
        }
    }

    fn members(&self, users: &[String]) {
        let Some(asked) = self.bot().asked.take() else { return };
        let numbers = users.iter().filter_map(|user| user.strip_prefix("bot-")?.parse().ok());
        let mut users: Vec<u32> = numbers.collect();
        users.sort_unstable();
        let room = self.bot as u32 % self.shared.manners.rooms;
        self.shared.note_census(Census { asked, at: self.shared.start.elapsed(), room, users });
    }
}

/// Returns the position in a message. A server without positions has none.
fn position(epoch: Option<u64>, offset: Option<u64>) -> Position {
    Position::new(epoch.unwrap_or_default(), offset.unwrap_or_default())
}

/// Returns the number of a message of this bot.
fn number(id: Option<&MessageId>) -> Option<u64> {
    id.and_then(MessageId::as_u64)
}
