//! The requests about rooms.

use super::{Room, Start, room::deliveries};
use crate::{
    hub,
    login::{Identity, MAX_ROOMS},
    message_id::MessageId,
    name,
    ordered_replies::Unanswered,
    pace::Cost,
    protocol::{Code, Reply},
    session::{Answer, Refusal, Session, bad_name, busy},
};
use netwheel::{
    Completion,
    broker::{self, Joined, Receipt},
    prelude::*,
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// The largest number of earlier messages that a client may ask for when it joins a room.
const MAX_HISTORY: u64 = 100;

/// A room in which a client is a member.
pub(crate) struct Membership {
    pub(crate) room: Arc<Room>,
    /// Whether the client receives the number of messages instead of messages.
    pub(crate) passive: bool,
}

impl Session {
    /// Joins a room. The announcer notifies the other members later.
    pub(crate) fn join(&mut self, ctx: &mut Context<'_, Self>, room: &str, history: u64) -> Answer {
        let user = self.logged_in()?.clone();
        if history > MAX_HISTORY {
            let why = format!("history is {history}; it must be at most {MAX_HISTORY}");
            return Err(Refusal(Code::BadRequest, why));
        }
        let (room, is_new) = self.enter(ctx, room)?;
        if !is_new {
            return Ok(Some(room.joined(&user, None, None)));
        }
        self.begin_joined(ctx, room, user, Start::Last(history), || ());
        Ok(None)
    }

    /// Becomes a member of a room, of which the client does not receive messages yet. Returns
    /// whether it was none before.
    pub(crate) fn enter(
        &mut self,
        ctx: &mut Context<'_, Self>,
        room: &str,
    ) -> Result<(Arc<Room>, bool), Refusal> {
        let user = self.logged_in()?.clone();
        let room = name::room(room).map_err(bad_name)?;
        if let Some(known) = self.rooms.iter().find(|known| **known.room.name() == *room) {
            // Already a member, so the other members are not notified.
            return Ok((known.room.clone(), false));
        }
        if self.rooms.len() >= MAX_ROOMS {
            return Err(Refusal(Code::BadRequest, format!("already in {MAX_ROOMS} rooms; leave one first")));
        }
        if self.hub.rooms.find(&room).is_none() {
            // Its topics are opened, and perhaps created.
            self.pace.charge(Cost::stored());
        }
        let room = self.hub.join(&room, &user, ctx.handler_ref())?;
        self.pace.charge(Cost::deliveries(room.local_members()));
        if self.congested {
            room.set_congested(true);
        }
        self.rooms.push(Membership { room: room.clone(), passive: false });
        Ok((room, true))
    }

    /// Begins to receive the messages of a room that the client has entered, from `start` on.
    /// `then` is called behind the `joined`, or when that has failed.
    pub(crate) fn begin_joined(
        &mut self,
        ctx: &mut Context<'_, Self>,
        room: Arc<Room>,
        user: Arc<str>,
        start: Start,
        then: impl FnOnce() + Send + 'static,
    ) {
        let greeting = move |room: &Room, joined: &Joined| {
            let recovered = match start {
                Start::Last(_) => None,
                Start::After(_) => Some(joined.recovered),
                Start::Unknown => Some(false),
            };
            room.joined(&user, Some(joined.position), recovered)
        };
        self.begin_messages(ctx, room, start, greeting, then);
    }

    /// Begins to receive the messages of a room.
    ///
    /// Later requests are not read in the meantime. One could end the membership, or send a message
    /// that the client would receive before the greeting.
    fn begin_messages(
        &mut self,
        ctx: &mut Context<'_, Self>,
        room: Arc<Room>,
        start: Start,
        greeting: impl FnOnce(&Room, &Joined) -> Reply + Send + 'static,
        then: impl FnOnce() + Send + 'static,
    ) {
        let request = self.replies.begin();
        self.joining = Some(ctx.pause_reading());
        let (me, user) = (ctx.handler_ref(), self.user.clone());
        let is_greeted = Arc::new(AtomicBool::new(false));
        let greeted = is_greeted.clone();
        let greeting = move |room: &Room, joined: &Joined| {
            greeted.store(true, Ordering::Relaxed);
            greeting(room, joined)
        };
        room.clone().subscribe(ctx.channel(), start, greeting).on_complete(move |joined| {
            let is_greeted = is_greeted.load(Ordering::Relaxed);
            if let (Ok(_), Some(user)) = (&joined, &user) {
                room.note_joined(user, me.channel().id());
            }
            hub::run(&me, move |me, ctx| me.has_joined(ctx, request, &room, is_greeted, joined.map(drop)));
            then();
        });
    }

    fn has_joined(
        &mut self,
        ctx: &mut Context<'_, Self>,
        request: Unanswered,
        room: &Arc<Room>,
        is_greeted: bool,
        joined: Result,
    ) -> Result {
        self.joining = None;
        let reply = match joined {
            // Some of the messages may not have arrived.
            Err(error) if is_greeted => return Err(error),
            Err(error) => {
                if let Some(at) = self.rooms.iter().position(|known| Arc::ptr_eq(&known.room, room)) {
                    self.leave_at(ctx, at);
                }
                Some(busy(&error).reply_in(Some(room.name().to_string())))
            }
            Ok(()) => None,
        };
        self.replies.answer(ctx, request, reply)
    }

    pub(crate) fn leave(&mut self, ctx: &mut Context<'_, Self>, room: &str) -> Answer {
        let user = self.logged_in()?.to_string();
        let at = self.position_of(room)?;
        let room = self.leave_at(ctx, at);
        self.pace.charge(Cost::deliveries(room.local_members()));
        Ok(Some(Reply::Left { room: room.name().to_string(), user }))
    }

    fn leave_at(&mut self, ctx: &mut Context<'_, Self>, at: usize) -> Arc<Room> {
        let Membership { room, passive } = self.rooms.swap_remove(at);
        if self.congested && !passive {
            room.set_congested(false);
        }
        if let Some(user) = &self.user {
            self.hub.leave(&room, user, ctx.id());
        }
        room
    }

    /// Makes the client passive or active in a room. A passive member does not slow down senders.
    pub(crate) fn set_passive(&mut self, ctx: &mut Context<'_, Self>, room: &str, passive: bool) -> Answer {
        self.logged_in()?;
        let at = self.position_of(room)?;
        let membership = &mut self.rooms[at];
        let room = membership.room.clone();
        let was_passive = std::mem::replace(&mut membership.passive, passive);
        if self.congested && passive != was_passive {
            room.set_congested(!passive);
        }
        if passive {
            let (reply, news) = room.become_passive(ctx.channel());
            if news {
                self.hub.rooms.announcer.add(room);
            }
            return Ok(Some(reply));
        }
        if !was_passive {
            return Ok(Some(room.active(None)));
        }
        let greeting = |room: &Room, joined: &Joined| room.active(Some(joined.position));
        self.begin_messages(ctx, room, Start::Last(0), greeting, || ());
        Ok(None)
    }

    pub(crate) fn say(
        &mut self,
        ctx: &mut Context<'_, Self>,
        room: &str,
        text: String,
        id: Option<MessageId>,
    ) -> Result {
        let (room, stored) = match self.publish(room, text, id.clone()) {
            Ok(published) => published,
            Err(Refusal(code, message)) => {
                return self.replies.write(ctx, Reply::Error { code, message, room: None, to: None, id });
            }
        };
        let request = self.replies.begin();
        if stored.is_done() {
            return self.is_stored(ctx, request, &room, stored.wait(), id);
        }
        let me = ctx.handler_ref();
        stored.on_complete(move |stored| {
            hub::run(&me, move |me, ctx| me.is_stored(ctx, request, &room, stored, id));
        });
        Ok(())
    }

    fn publish(
        &mut self,
        room: &str,
        text: String,
        id: Option<MessageId>,
    ) -> Result<(Arc<Room>, Completion<Receipt>), Refusal> {
        let from = self.logged_in()?.clone();
        let room = self.rooms[self.position_of(room)?].room.clone();
        let message_id = self.unique_id(id.as_ref())?;
        let length = text.len();
        let members = room.active_members() + usize::from(self.is_passive_in(&room));
        let stored = room.publish(&from, text, self.hub.unix_ms(), id, message_id);
        let is_congested = room.is_congested();
        self.pace.charge(Cost::deliveries(deliveries(members, length)));
        if is_congested {
            self.pace.charge(Cost::congestion());
        }
        Ok((room, stored))
    }

    fn is_stored(
        &mut self,
        ctx: &mut Context<'_, Self>,
        request: Unanswered,
        room: &Room,
        stored: Result<Receipt>,
        id: Option<MessageId>,
    ) -> Result {
        let reply = match stored {
            Ok(Receipt { position: Some(at), is_duplicate: true, .. }) => room.said(at, id),
            Ok(Receipt { position: Some(at), .. }) => {
                if room.copies.wait_for(at, ctx.handler_ref(), request) {
                    return self.copy_delivered(ctx, request);
                }
                return Ok(());
            }
            // It has no position, and was passed on at once.
            Ok(_) => return self.copy_delivered(ctx, request),
            Err(error) => {
                let Refusal(code, message) = busy(&error);
                Some(Reply::Error { code, message, room: None, to: None, id })
            }
        };
        self.replies.answer(ctx, request, reply)
    }

    /// Called when the client's copy of a message is in the queue of the loop, or will not come
    /// soon.
    pub(crate) fn copy_delivered(&mut self, ctx: &mut Context<'_, Self>, request: Unanswered) -> Result {
        self.replies.note_copy();
        self.replies.answer(ctx, request, None)
    }

    /// Returns the id by which the broker recognises a repetition of a message.
    fn unique_id(&self, id: Option<&MessageId>) -> Result<Option<broker::MessageId>, Refusal> {
        let identity = self.identity.as_ref().filter(|identity| identity.has_unique_ids);
        let (Some(id), Some(Identity { claim, .. })) = (id, identity) else { return Ok(None) };
        Ok(Some(broker::MessageId::new(claim.as_bytes(), id.as_json())?))
    }

    fn is_passive_in(&self, room: &Arc<Room>) -> bool {
        self.rooms.iter().any(|known| known.passive && Arc::ptr_eq(&known.room, room))
    }

    fn position_of(&self, room: &str) -> Result<usize, Refusal> {
        let room = name::room(room).map_err(bad_name)?;
        let at = self.rooms.iter().position(|known| **known.room.name() == *room);
        at.ok_or_else(|| Refusal(Code::NotInRoom, "join that room first".to_owned()))
    }
}
