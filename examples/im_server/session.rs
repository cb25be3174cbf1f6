//! One client's connection: who it is, where it is, and what it asks for.

use crate::{
    byte_budget::ByteBudget,
    direct::{self, Direct, Receipt, Unacked, UnderWay},
    directory,
    hub::{Hub, Profile},
    message_id::MessageId,
    name,
    pace::{Cost, Pace, Rates},
    protocol::{Code, Reason, Reply, Request},
    room::{Room, deliveries},
};
use netwheel::{PeerError, prelude::*};
use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

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
    /// Bytes of them, likewise.
    pub(crate) max_unacked_bytes: usize,
    /// How long a connection may take to log in; zero for no limit.
    pub(crate) login_timeout: Duration,
    /// Rate limits of one client.
    pub(crate) rates: Rates,
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
    /// Bytes of these.
    under_way_bytes: Arc<ByteBudget>,
    /// Rate limits of this client, and the pause while it is in debt.
    pub(crate) pace: Pace,
    /// More waits for this client than its high water mark.
    congested: bool,
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
        Refusal(Code::BadRequest, format!("{error:#}"))
    }
}

impl Handler for Session {
    type Read = Request;
    type Write = Reply;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.hub.counters.connections.fetch_add(1, Ordering::Relaxed);
        if !self.settings.login_timeout.is_zero() {
            ctx.timeout(self.settings.login_timeout, |me, ctx| match me.user {
                Some(_) => Ok(()),
                None => me.too_slow(ctx, "has not logged in"),
            });
        }
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, request: Request) -> Result {
        let answered = self.answer(ctx, request);
        self.pace.settle(ctx);
        answered
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        self.set_congested(!writable);
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
            Error::Peer(PeerError::Malformed(message)) => {
                self.pace.charge(Cost::request());
                self.pace.settle(ctx);
                ctx.write(error_reply(Code::BadRequest, message.to_string()))
            }
            Error::Peer(PeerError::TooSlow { .. }) => self.too_slow(ctx, "sends a line too slowly"),
            Error::TimedOut { .. } if self.user.is_none() => self.too_slow(ctx, "has not logged in"),
            Error::Peer(error) => {
                ctx.write(error_reply(Code::TooLarge, format!("{error:#}")))?;
                bye(ctx, Reason::ProtocolError)
            }
            Error::Full { .. } => {
                log::info!("{}: too slow ({error:#}), closing", self.describe(ctx));
                // The others need not wait for it any more.
                self.set_congested(false);
                ctx.close_with(Reply::Bye { reason: Reason::SlowConsumer })
            }
            error => {
                log::debug!("{}: {error:#}, closing", self.describe(ctx));
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
        }
        self.set_congested(false);
        self.rooms.clear();
        Ok(())
    }
}

impl Session {
    pub(crate) fn new(hub: Arc<Hub>, settings: Settings) -> Self {
        let Settings { ack_timeout, max_unacked, max_unacked_bytes, rates, .. } = settings;
        Session {
            hub,
            settings,
            user: None,
            rooms: Vec::new(),
            unacked: Unacked::new(ack_timeout, max_unacked, max_unacked_bytes),
            under_way: Arc::default(),
            under_way_bytes: ByteBudget::new(max_unacked_bytes),
            pace: Pace::new(rates),
            congested: false,
            lookups: 0,
            missed: 0,
        }
    }

    fn answer(&mut self, ctx: &mut Context<'_, Self>, request: Request) -> Result {
        self.pace.charge(Cost::request());
        let answer = match request {
            Request::Login { user } => self.login(ctx, &user),
            Request::Join { room } => self.join(ctx, &room),
            Request::Leave { room } => self.leave(ctx, &room),
            Request::Say { room, text, id } => self.say(ctx, &room, text, id),
            Request::Who { room } => self.who(&room),
            Request::Direct { to, text, id } => return self.direct(ctx, to, text, id),
            Request::Ack { id } => self.ack(ctx, id),
            Request::Lookup { user, id } => return self.lookup(ctx, &user, id),
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

    fn login(&mut self, ctx: &mut Context<'_, Self>, user: &str) -> Answer {
        if let Some(user) = &self.user {
            return Err(Refusal(Code::BadRequest, format!("logged in already, as {user}")));
        }
        let user = name::user(user).map_err(bad_name)?;
        let taken = |by: Arc<str>| {
            let like = if *by == *user { "" } else { ", which looks like that," };
            Refusal(Code::NameTaken, format!("somebody is called {by}{like} already"))
        };
        let user = self.hub.take_name(&user, ctx.remote()).map_err(taken)?;
        self.user = Some(user.clone());
        log::debug!("{}: logged in", self.describe(ctx));
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let Settings { heartbeat, idle_timeout, ack_timeout, .. } = self.settings;
        let [heartbeat_ms, idle_ms, ack_timeout_ms] = [heartbeat, idle_timeout, ack_timeout].map(millis);
        Ok(Some(Reply::Welcome { user: user.to_string(), heartbeat_ms, idle_ms, ack_timeout_ms }))
    }

    /// The announcer notifies the other members later.
    fn join(&mut self, ctx: &mut Context<'_, Self>, room: &str) -> Answer {
        let user = self.logged_in()?.clone();
        let room = name::room(room).map_err(bad_name)?;
        let joined = Reply::Joined { room: room.to_string(), user: user.to_string() };
        if self.rooms.iter().any(|known| **known.name() == *room) {
            // Nothing has changed, so nobody else is told.
            return Ok(Some(joined));
        }
        if self.rooms.len() >= MAX_ROOMS {
            return Err(Refusal(Code::BadRequest, format!("in {MAX_ROOMS} rooms already, leave one first")));
        }
        let full = || Refusal(Code::BadRequest, format!("{room} is full"));
        let room = self.hub.join(&room, &user, ctx.channel()).ok_or_else(full)?;
        self.pace.charge(Cost::deliveries(room.len()));
        if self.congested {
            room.set_congested(true);
        }
        self.rooms.push(room);
        Ok(Some(joined))
    }

    fn leave(&mut self, ctx: &mut Context<'_, Self>, room: &str) -> Answer {
        let user = self.logged_in()?.clone();
        let at = self.position_of(room)?;
        let room = self.rooms.swap_remove(at);
        if self.congested {
            room.set_congested(false);
        }
        self.pace.charge(Cost::deliveries(room.len()));
        self.hub.leave(&room, &user, ctx.id());
        Ok(Some(Reply::Left { room: room.name().to_string(), user: user.to_string() }))
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
        let length = text.len();
        let mut message =
            Reply::Message { room: room.name().to_string(), from, text, ts: unix_ms(), id: None };
        let sent = room.send_to_others(ctx.id(), message.clone()).map_err(|reason| busy(&reason))?;
        let congested = room.is_congested();
        self.hub.counters.count_message(sent.members + 1, sent.unreached);
        self.pace.charge(Cost::deliveries(deliveries(sent.members + 1, length)));
        if congested {
            self.pace.charge(Cost::congestion());
        }
        if let Reply::Message { id: own, .. } = &mut message {
            *own = id;
        }
        Ok(Some(message))
    }

    fn who(&mut self, room: &str) -> Answer {
        self.logged_in()?;
        let room = name::room(room).map_err(bad_name)?.into_owned();
        let users = self.hub.who(&room);
        self.pace.charge(Cost::deliveries(users.len() / 8));
        Ok(Some(Reply::Members { room, users }))
    }

    /// Unlike all others, it has two answers: none yet if all is well, and how it ended when that is known.
    fn direct(
        &mut self,
        ctx: &mut Context<'_, Self>,
        to: String,
        text: String,
        id: Option<MessageId>,
    ) -> Result {
        match self.send_direct(ctx, &to, text, id.clone()) {
            Ok(()) => Ok(()),
            Err(Refusal(code, message)) => ctx.write(Reply::Error { code, message, to: Some(to), id }),
        }
    }

    fn send_direct(
        &mut self,
        ctx: &mut Context<'_, Self>,
        to: &str,
        text: String,
        id: Option<MessageId>,
    ) -> Result<(), Refusal> {
        let from = self.logged_in()?.clone();
        let to = name::user(to).map_err(bad_name)?.into_owned();
        self.pace.charge(Cost::deliveries(deliveries(1, text.len())));
        let max = self.settings.max_unacked;
        // One of them is our own.
        if Arc::strong_count(&self.under_way) > max {
            let why = format!("{max} of your direct messages are not acknowledged yet");
            return Err(Refusal(Code::TooManyUnacked, why));
        }
        let bytes = direct::size(&from, &to, &text, id.as_ref());
        let own = self.under_way_bytes.charge(bytes).ok_or_else(|| {
            let (used, limit) = (self.under_way_bytes.used(), self.under_way_bytes.limit());
            let why = format!("{used} of {limit} bytes of your direct messages are not acknowledged yet");
            Refusal(Code::TooManyUnacked, why)
        })?;
        let all = self.hub.unacked_bytes.charge(bytes).ok_or_else(|| {
            Refusal(Code::Busy, "not sent, try again later: too many direct messages wait".to_owned())
        })?;
        let nobody = || Refusal(Code::Undelivered, format!("nobody is called {to}"));
        let receiver = self.hub.find(&to).ok_or_else(nobody)?;
        let under_way = UnderWay { bytes, _message: self.under_way.clone(), _own: own, _all: all };
        let receipt = Receipt::new(from.clone(), ctx.channel(), to, id, under_way);
        let direct = Direct { from: from.to_string(), text, ts: unix_ms(), receipt };
        // If it does not get there, the receipt is dropped, and tells so.
        let _ = receiver.execute(move |session, ctx| session.unacked.deliver(ctx, direct));
        self.hub.counters.count_message(1, 0);
        Ok(())
    }

    fn ack(&mut self, ctx: &mut Context<'_, Self>, id: u64) -> Answer {
        self.logged_in()?;
        if self.unacked.ack(ctx, id) {
            // How many of these come is not up to the client: they answer what others sent.
            self.pace.refund_request();
        } else {
            // Acknowledged before, or given up meanwhile: that is nobody's fault.
            log::debug!("{}: acknowledges {id}, which does not wait for that", self.describe(ctx));
        }
        Ok(None)
    }

    /// Asks the directory. The session goes on meanwhile, so what was asked later may be answered earlier.
    fn lookup(&mut self, ctx: &mut Context<'_, Self>, user: &str, id: Option<MessageId>) -> Result {
        match self.begin_lookup(ctx, user, id.clone()) {
            Ok(()) => Ok(()),
            Err(Refusal(code, message)) => ctx.write(Reply::Error { code, message, to: None, id }),
        }
    }

    fn begin_lookup(
        &mut self,
        ctx: &mut Context<'_, Self>,
        user: &str,
        id: Option<MessageId>,
    ) -> Result<(), Refusal> {
        self.logged_in()?;
        let user = name::user(user).map_err(bad_name)?.into_owned();
        self.pace.charge(Cost::lookup());
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
        ctx.offload(work, then).map_err(|refused| busy(&refused.error()))?;
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
        let room = name::room(room).map_err(bad_name)?;
        let at = self.rooms.iter().position(|known| **known.name() == *room);
        at.ok_or_else(|| Refusal(Code::NotInRoom, "join that room first".to_owned()))
    }

    /// Tells the rooms of this client whether it keeps up.
    fn set_congested(&mut self, congested: bool) {
        if self.congested != congested {
            self.congested = congested;
            self.rooms.iter().for_each(|room| room.set_congested(congested));
        }
    }

    fn too_slow(&mut self, ctx: &mut Context<'_, Self>, what: &str) -> Result {
        log::debug!("{}: {what}, closing", self.describe(ctx));
        bye(ctx, Reason::TooSlow)
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
    Refusal(Code::Busy, format!("not done, try again later: {reason:#}"))
}

fn bad_name(why: String) -> Refusal {
    Refusal(Code::BadRequest, why)
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

/// The time of day as the protocol tells it: milliseconds since 1970 (UTC).
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
