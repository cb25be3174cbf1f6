//! `Session`: the handler of a client.

use super::room::{Room, Rooms};
use crate::{
    message_id::MessageId as OwnId,
    protocol::{Code, Reason, Reply, Request, Resume, VERSION},
};
use netwheel::{
    broker::{MessageId, NewMessage, Position, Subscription},
    prelude::*,
};
use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

pub(super) struct Session {
    rooms: Arc<Rooms>,
    user: String,
    room: Option<(String, Arc<Room>)>,
}

impl Handler for Session {
    type Read = Request;
    type Write = Reply;

    fn read(&mut self, ctx: &mut Context<'_, Self>, request: Request) -> Result {
        match request {
            Request::Login { user, resume, .. } => self.login(ctx, user, resume.unwrap_or_default()),
            Request::Join { room, .. } => self.join(ctx, room, None),
            Request::Say { room, text, id: Some(id) } => self.say(ctx, room, text, id),
            Request::Who { room } => self.who(ctx, room),
            Request::Ping => ctx.write(Reply::Pong),
            Request::Pong => Ok(()),
            _ => ctx.write(refusal(Code::BadRequest, &"this node does not know that".into(), None)),
        }
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        log::info!("{}: {error:#}", self.user);
        ctx.close();
        Ok(())
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write(Reply::Bye { reason: Reason::Shutdown, retry_after_ms: None })?;
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if let Some((_, room)) = &self.room {
            room.presence.leave(&self.user, ctx.id());
        }
        Ok(())
    }
}

impl Session {
    pub(super) fn new(rooms: Arc<Rooms>) -> Self {
        Session { rooms, user: String::new(), room: None }
    }

    fn login(&mut self, ctx: &mut Context<'_, Self>, user: String, resume: Resume) -> Result {
        let resume_token = format!("token of {user}");
        let is_known = resume.token == resume_token;
        self.user = user.clone();
        // This node has no time limits of its own.
        let (heartbeat_ms, idle_ms, ack_timeout_ms) = (0, 0, 0);
        let version = VERSION;
        ctx.write(Reply::Welcome { user, heartbeat_ms, idle_ms, ack_timeout_ms, version, resume_token })?;
        for (room, (epoch, offset)) in resume.rooms {
            // An epoch is never zero: messages from now on, and `recovered` is false.
            let position = if is_known { Position::new(epoch, offset) } else { Position::new(0, 0) };
            self.join(ctx, room, Some(position))?;
        }
        Ok(())
    }

    fn join(&mut self, ctx: &mut Context<'_, Self>, name: String, after: Option<Position>) -> Result {
        let room = self.rooms.open(&name)?;
        let (who, user, greeted) = (ctx.id(), self.user.clone(), room.clone());
        let greeting = Reply::Joined { room: name.clone(), user, epoch: None, offset: None, recovered: None };
        let mut subscription = Subscription::new(ctx.channel());
        if let Some(after) = after {
            subscription = subscription.after(after);
        }
        let subscription = subscription.greeting(move |joined| {
            let mut greeting = greeting;
            if let Reply::Joined { user, epoch, offset, recovered, .. } = &mut greeting {
                (*epoch, *offset) = (Some(joined.position.epoch), Some(joined.position.offset));
                *recovered = after.is_some().then_some(joined.recovered);
                greeted.presence.join(user, who);
            }
            Some(greeting)
        });
        let joined = room.topic.subscribe(subscription);
        self.room = Some((name, room));
        ctx.on_complete(joined, |_, ctx, joined| {
            if let Err(error) = joined {
                ctx.write(refusal(Code::Busy, &error, None))?;
                ctx.close();
            }
            Ok(())
        });
        Ok(())
    }

    fn say(&mut self, ctx: &mut Context<'_, Self>, name: String, text: String, id: OwnId) -> Result {
        let joined = self.room.as_ref().filter(|(room, _)| *room == name);
        let known = match joined {
            Some((_, known)) => known.clone(),
            None => self.rooms.open(&name)?,
        };
        let room = name.clone();
        let from = self.user.clone();
        let ts = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ts = u64::try_from(ts.as_millis()).unwrap_or(u64::MAX);
        let (epoch, offset) = (None, None);
        let message =
            Reply::Message { room, from, text, ts, epoch, offset, id: None, sender_id: None, is_local: true };
        let message = NewMessage::new(message).id(MessageId::new(&self.user, id.as_json())?);
        let published = known.topic.publish(message);
        ctx.on_complete(published, move |_, ctx, accepted| {
            let accepted = accepted.and_then(|accepted| accepted.position.ok_or(Error::Closed));
            ctx.write(match accepted {
                Ok(at) => Reply::Said { room: name, epoch: at.epoch, offset: at.offset, id },
                Err(error) => refusal(Code::Busy, &error, Some(id)),
            })
        });
        Ok(())
    }

    fn who(&mut self, ctx: &mut Context<'_, Self>, name: String) -> Result {
        let members = self.rooms.open(&name)?.presence.list();
        ctx.on_complete(members, move |_, ctx, members| {
            ctx.write(match members {
                Ok(members) => {
                    let users = members.entries.iter();
                    let users = users.map(|entry| String::from_utf8_lossy(&entry.key).into_owned());
                    Reply::Members { room: name, users: users.collect() }
                }
                Err(error) => refusal(Code::Busy, &error, None),
            })
        });
        Ok(())
    }
}

fn refusal(code: Code, error: &Error, id: Option<OwnId>) -> Reply {
    Reply::Error { code, message: format!("{error:#}"), room: None, to: None, id }
}
