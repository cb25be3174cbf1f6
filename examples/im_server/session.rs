//! One client's connection: who it is, where it is, and what it asks for.

use crate::{
    direct::{Direct, Receipt, Unacked},
    directory,
    hub::{Hub, Profile, Room},
    protocol::{Code, MessageId, Reason, Reply, Request},
};
use netwheel::{PeerError, prelude::*};
use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Characters of a user's name at most.
const MAX_USER_NAME: usize = 32;
/// Characters of a room's name at most.
const MAX_ROOM_NAME: usize = 64;
/// Rooms that one user may be in at the same time.
const MAX_ROOMS: usize = 32;

/// What every session goes by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) heartbeat: Duration,
    pub(crate) idle_timeout: Duration,
    /// How long a direct message waits for its acknowledgement before it is sent again.
    pub(crate) ack_timeout: Duration,
    /// Direct messages of one sender, and direct messages to one receiver, that may wait for that.
    pub(crate) max_unacked: usize,
    /// How long the directory takes for an answer.
    pub(crate) lookup_time: Duration,
    /// Lookups of one client that may be under way.
    pub(crate) max_lookups: usize,
}

pub(crate) struct Session {
    hub: Arc<Hub>,
    settings: Settings,
    user: Option<Arc<str>>,
    rooms: Vec<Arc<Room>>,
    /// Direct messages to this client.
    pub(crate) unacked: Unacked,
    /// Held by every direct message of this client that is under way: so many of them there are.
    under_way: Arc<()>,
    /// Lookups that wait for the directory.
    lookups: usize,
    /// Lines that the client has missed and was told of.
    missed: u64,
}

/// Why a request is refused: the error that the client gets.
struct Refusal(Code, String);

type Answer = Result<Option<Reply>, Refusal>;

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Refusal(Code::BadRequest, error.to_string())
    }
}

impl Handler for Session {
    type In = Request;
    type Out = Reply;

    fn active(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.hub.counters.connections.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, request: Request) -> Result {
        let answer = match request {
            Request::Login { user } => self.login(ctx, user),
            Request::Join { room } => self.join(ctx, room),
            Request::Leave { room } => self.leave(ctx, &room),
            Request::Say { room, text, id } => self.say(ctx, &room, text, id),
            Request::Who { room } => self.who(room),
            Request::Direct { to, text, id } => return self.direct(ctx, to, text, id),
            Request::Ack { id } => self.ack(ctx, id),
            Request::Lookup { user, id } => return self.lookup(ctx, user, id),
            Request::Ping => Ok(Some(Reply::Pong)),
            // It did its work by coming: the reader is no longer idle.
            Request::Pong => Ok(None),
        };
        match answer {
            Ok(None) => Ok(()),
            Ok(Some(reply)) => ctx.write(reply),
            Err(Refusal(code, message)) => ctx.write(error_reply(code, message)),
        }
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        if writable { self.tell_missed(ctx) } else { Ok(()) }
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, event: IdleEvent) -> Result {
        match event.state {
            IdleState::Writer => {
                // When all channels of a loop share too little room, some drop messages although they were writable all along.
                self.tell_missed(ctx)?;
                ctx.write(Reply::Ping)
            }
            IdleState::Reader => {
                log::debug!("{}: idle", self.describe(ctx));
                bye(ctx, Reason::Idle)
            }
            IdleState::All => Ok(()),
        }
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        match error {
            Error::Peer(PeerError::Malformed(message)) => ctx.write(error_reply(Code::BadRequest, message)),
            Error::Peer(error) => {
                ctx.write(error_reply(Code::TooLarge, error.to_string()))?;
                bye(ctx, Reason::ProtocolError)
            }
            Error::Full { .. } => {
                log::info!("{}: too slow ({error}), closing", self.describe(ctx));
                ctx.close_with(Reply::Bye { reason: Reason::SlowConsumer })
            }
            error => {
                log::debug!("{}: {error}, closing", self.describe(ctx));
                ctx.close();
                Ok(())
            }
        }
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        bye(ctx, Reason::Shutdown)
    }

    /// However the connection ended, also by a panic in a callback, this is the last call.
    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.hub.counters.connections.fetch_sub(1, Ordering::Relaxed);
        let Some(user) = &self.user else { return Ok(()) };
        self.unacked.clear();
        for room in &self.rooms {
            self.hub.leave(room, user, ctx.id());
            let left = Reply::Left { room: room.name().to_owned(), user: user.to_string() };
            self.tell_others(ctx, room, left);
        }
        Ok(())
    }
}

impl Session {
    pub(crate) fn new(hub: Arc<Hub>, settings: Settings) -> Self {
        let unacked = Unacked::new(settings.ack_timeout, settings.max_unacked);
        Session {
            hub,
            settings,
            user: None,
            rooms: Vec::new(),
            unacked,
            under_way: Arc::default(),
            lookups: 0,
            missed: 0,
        }
    }

    fn login(&mut self, ctx: &mut Context<'_, Self>, user: String) -> Answer {
        if let Some(user) = &self.user {
            return Err(Refusal(Code::BadRequest, format!("logged in already, as {user}")));
        }
        check_name("user", &user, MAX_USER_NAME)?;
        let taken = || Refusal(Code::NameTaken, format!("somebody is called {user} already"));
        self.user = Some(self.hub.take_name(&user, ctx.remote()).ok_or_else(taken)?);
        log::debug!("{}: logged in", self.describe(ctx));
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let Settings { heartbeat, idle_timeout, ack_timeout, .. } = self.settings;
        let [heartbeat_ms, idle_ms, ack_timeout_ms] = [heartbeat, idle_timeout, ack_timeout].map(millis);
        Ok(Some(Reply::Welcome { user, heartbeat_ms, idle_ms, ack_timeout_ms }))
    }

    fn join(&mut self, ctx: &mut Context<'_, Self>, room: String) -> Answer {
        let user = self.logged_in()?.clone();
        check_name("room", &room, MAX_ROOM_NAME)?;
        let joined = Reply::Joined { room: room.clone(), user: user.to_string() };
        if self.rooms.iter().any(|known| known.name() == room) {
            // Nothing has changed, so nobody else is told.
            return Ok(Some(joined));
        }
        if self.rooms.len() >= MAX_ROOMS {
            return Err(Refusal(Code::BadRequest, format!("in {MAX_ROOMS} rooms already, leave one first")));
        }
        let full = || Refusal(Code::BadRequest, format!("{room} is full"));
        let room = self.hub.join(&room, &user, ctx.channel()).ok_or_else(full)?;
        self.tell_others(ctx, &room, joined.clone());
        self.rooms.push(room);
        Ok(Some(joined))
    }

    fn leave(&mut self, ctx: &mut Context<'_, Self>, room: &str) -> Answer {
        let user = self.logged_in()?.to_string();
        let at = self.position_of(room)?;
        let room = self.rooms.swap_remove(at);
        self.hub.leave(&room, &user, ctx.id());
        let left = Reply::Left { room: room.name().to_owned(), user };
        self.tell_others(ctx, &room, left.clone());
        Ok(Some(left))
    }

    fn say(
        &mut self,
        ctx: &mut Context<'_, Self>,
        room: &str,
        text: String,
        id: Option<MessageId>,
    ) -> Answer {
        let from = self.logged_in()?.to_string();
        let room = &self.rooms[self.position_of(room)?];
        let mut message =
            Reply::Message { room: room.name().to_owned(), from, text, ts: unix_ms(), id: None };
        let others = room.send_to_others(ctx.id(), message.clone()).map_err(|reason| busy(&reason))?;
        self.hub.counters.count_message(others + 1);
        if let Reply::Message { id: own, .. } = &mut message {
            *own = id;
        }
        Ok(Some(message))
    }

    fn who(&mut self, room: String) -> Answer {
        self.logged_in()?;
        let users = self.hub.who(&room);
        Ok(Some(Reply::Members { room, users }))
    }

    /// Unlike all others, it has two answers: none yet if all is well, and how it ended when that is known.
    fn direct(&self, ctx: &mut Context<'_, Self>, to: String, text: String, id: Option<MessageId>) -> Result {
        match self.send_direct(ctx, &to, text, id.clone()) {
            Ok(()) => Ok(()),
            Err(Refusal(code, message)) => ctx.write(Reply::Error { code, message, to: Some(to), id }),
        }
    }

    fn send_direct(
        &self,
        ctx: &mut Context<'_, Self>,
        to: &str,
        text: String,
        id: Option<MessageId>,
    ) -> Result<(), Refusal> {
        let from = self.logged_in()?;
        check_name("user", to, MAX_USER_NAME)?;
        let max = self.settings.max_unacked;
        // One of them is our own.
        if Arc::strong_count(&self.under_way) > max {
            let why = format!("{max} of your direct messages are not acknowledged yet");
            return Err(Refusal(Code::TooManyUnacked, why));
        }
        let nobody = || Refusal(Code::Undelivered, format!("nobody is called {to}"));
        let receiver = self.hub.find(to).ok_or_else(nobody)?;
        let receipt = Receipt::new(from.clone(), ctx.channel(), to.to_owned(), id, self.under_way.clone());
        let direct = Direct { from: from.to_string(), text, ts: unix_ms(), receipt };
        // If it does not get there, the receipt is dropped, and tells so.
        let _ = receiver.execute(move |session, ctx| session.unacked.deliver(ctx, direct));
        self.hub.counters.count_message(1);
        Ok(())
    }

    fn ack(&mut self, ctx: &mut Context<'_, Self>, id: u64) -> Answer {
        self.logged_in()?;
        if !self.unacked.ack(ctx, id) {
            // Acknowledged before, or given up meanwhile: that is nobody's fault.
            log::debug!("{}: acknowledges {id}, which does not wait for that", self.describe(ctx));
        }
        Ok(None)
    }

    /// Asks the directory. The session goes on meanwhile, so what was asked later may be answered earlier.
    fn lookup(&mut self, ctx: &mut Context<'_, Self>, user: String, id: Option<MessageId>) -> Result {
        match self.begin_lookup(ctx, user, id.clone()) {
            Ok(()) => Ok(()),
            Err(Refusal(code, message)) => ctx.write(Reply::Error { code, message, to: None, id }),
        }
    }

    fn begin_lookup(
        &mut self,
        ctx: &mut Context<'_, Self>,
        user: String,
        id: Option<MessageId>,
    ) -> Result<(), Refusal> {
        self.logged_in()?;
        check_name("user", &user, MAX_USER_NAME)?;
        let max = self.settings.max_lookups;
        if self.lookups >= max {
            return Err(Refusal(
                Code::TooManyLookups,
                format!("{max} of your lookups are under way already"),
            ));
        }
        let (hub, time) = (self.hub.clone(), self.settings.lookup_time);
        let work = move || {
            let profile = directory::look_up(&hub, time, &user);
            (user, profile)
        };
        let then = move |me: &mut Self, ctx: &mut Context<'_, Self>, found: Result<_>| {
            me.lookups -= 1;
            let (user, Profile { since, rooms }) = found?;
            ctx.write(Reply::Profile { user, online: since.is_some(), since, rooms, id })
        };
        // The pool is full, or no thread can be started: whoever asks again may be luckier.
        ctx.offload(work, then).map_err(|refused| busy(&refused.reason))?;
        self.lookups += 1;
        Ok(())
    }

    /// Tells the client how many lines it has missed, if it does not know yet.
    fn tell_missed(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let total = ctx.stats().messages_dropped;
        let count = total - self.missed;
        if count == 0 || !ctx.is_open() {
            return Ok(());
        }
        log::info!("{}: too slow, has missed {count} lines", self.describe(ctx));
        self.missed = total;
        ctx.write(Reply::Missed { count, total })
    }

    fn logged_in(&self) -> Result<&Arc<str>, Refusal> {
        self.user.as_ref().ok_or_else(|| Refusal(Code::NotLoggedIn, "log in first".to_owned()))
    }

    fn position_of(&self, room: &str) -> Result<usize, Refusal> {
        let at = self.rooms.iter().position(|known| known.name() == room);
        at.ok_or_else(|| Refusal(Code::NotInRoom, "join that room first".to_owned()))
    }

    /// Tells all members of a room but this one, whose copy is written directly, of a join or leave.
    fn tell_others(&self, ctx: &Context<'_, Self>, room: &Room, reply: Reply) {
        if let Err(reason) = room.send_to_others(ctx.id(), reply) {
            log::warn!("{}: nobody hears who comes and goes: {reason}", room.name());
        }
    }

    fn describe(&self, ctx: &Context<'_, Self>) -> String {
        // A client on a Unix socket has no address.
        let peer = ctx.peer_address().map_or_else(|| ctx.id().to_string(), |peer| peer.to_string());
        match &self.user {
            Some(user) => format!("{user} ({peer})"),
            None => peer,
        }
    }
}

impl Drop for Session {
    /// The name is free again when the session is gone, and not before it has left its rooms.
    fn drop(&mut self) {
        if let Some(user) = &self.user {
            self.hub.release_name(user);
        }
    }
}

/// Somebody's queue is full: nothing was done.
fn busy(reason: &Error) -> Refusal {
    Refusal(Code::Busy, format!("not done, try again later: {reason}"))
}

/// What a refused request is answered with, unless it has an `id`.
fn error_reply(code: Code, message: String) -> Reply {
    Reply::Error { code, message, to: None, id: None }
}

fn bye(ctx: &mut Context<'_, Session>, reason: Reason) -> Result {
    ctx.write(Reply::Bye { reason })?;
    ctx.close();
    Ok(())
}

/// Names are shown in terminals and lists, so there is nothing in them that moves a cursor or looks like a gap.
fn check_name(what: &str, name: &str, max: usize) -> Result<(), Refusal> {
    let whole = !name.is_empty() && name.chars().count() <= max;
    if whole && !name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Ok(());
    }
    let rule = format!("the name of a {what} has 1 to {max} characters, none of them blank");
    Err(Refusal(Code::BadRequest, rule))
}

/// The time of day as the protocol tells it: milliseconds since 1970 (UTC).
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
