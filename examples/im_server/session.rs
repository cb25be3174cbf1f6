//! The session of one client: its login, its rooms and its requests.

use crate::{
    byte_budget::ByteBudget,
    cpu_work::CpuWork,
    direct::{self, Direct, Receipt, SenderReceipt, Unacked, UnderWay},
    directory,
    hub::{Hub, Route, last_reply},
    login::{Entering, Identity, Resuming, users::Profile},
    message_id::MessageId,
    name,
    ordered_replies::OrderedReplies,
    pace::{Cost, Pace, Rates},
    protocol::{Code, Reason, Reply, Request},
    rooms::{Membership, deliveries},
    store::may_be_stored,
};
use netwheel::{
    admission::Work,
    channel::{InputGuard, ShutdownCause},
    error::PeerError,
    prelude::*,
    time::Delay,
};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// Settings shared by all sessions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) heartbeat: Duration,
    pub(crate) idle_timeout: Duration,
    /// Time without an acknowledgement after which a direct message is sent again.
    pub(crate) ack_timeout: Duration,
    /// Maximum number of unacknowledged direct messages from one sender, and to one receiver.
    pub(crate) max_unacked: usize,
    /// Maximum bytes of unacknowledged direct messages from one sender, and to one receiver.
    pub(crate) max_unacked_bytes: usize,
    /// Time limit for the login; zero for no limit.
    pub(crate) login_timeout: Duration,
    /// Work of a login.
    pub(crate) login_work: CpuWork,
    /// Rate limits of one client.
    pub(crate) rates: Rates,
    /// Duration of a directory lookup.
    pub(crate) lookup_time: Duration,
    /// Maximum concurrent lookups of one client.
    pub(crate) max_lookups: usize,
}

pub(crate) struct Session {
    pub(crate) hub: Arc<Hub>,
    pub(crate) settings: Settings,
    pub(crate) user: Option<Arc<str>>,
    /// The result of the login.
    pub(crate) identity: Option<Identity>,
    /// Set until the shared map of names has answered the login.
    pub(crate) entering: Option<Box<Entering>>,
    pub(crate) rooms: Vec<Membership>,
    /// Held while the client is about to receive the messages of a room.
    pub(crate) joining: Option<InputGuard>,
    /// Held while the session is about to close because its client is at another server.
    pub(crate) ending: Option<InputGuard>,
    /// Held while a list of members is not complete.
    pub(crate) listing: Option<InputGuard>,
    pub(crate) resuming: Resuming,
    pub(crate) replies: OrderedReplies,
    /// Direct messages to this client.
    pub(crate) unacked: Unacked,
    /// Kept messages wait until some of the unacknowledged messages have ended.
    pub(crate) has_kept: bool,
    /// Cloned for every direct message of this client that is in flight, so its reference count
    /// gives their number.
    under_way: Arc<()>,
    /// Bytes of the direct messages of this client that are in flight.
    under_way_bytes: Arc<ByteBudget>,
    /// Rate limits of this client. Reading pauses while it is in debt.
    pub(crate) pace: Pace,
    /// The bytes queued for this client exceed its high water mark.
    pub(crate) congested: bool,
    /// Lookups in progress.
    lookups: usize,
    /// Dropped lines that have been reported to the client.
    missed: u64,
}

/// The error with which a request is refused.
pub(crate) struct Refusal(pub(crate) Code, pub(crate) String);

pub(crate) type Answer = Result<Option<Reply>, Refusal>;

impl Refusal {
    /// Returns the reply to a request without an `id`.
    pub(crate) fn reply(self) -> Reply {
        self.reply_in(None)
    }

    /// Returns the reply to a request to join or leave a room, or to become passive or active
    /// there.
    pub(crate) fn reply_in(self, room: Option<String>) -> Reply {
        let Refusal(code, message) = self;
        Reply::Error { code, message, room, to: None, id: None }
    }
}

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
            ctx.schedule(Delay::coarse(self.settings.login_timeout), Self::check_login);
        }
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, request: Request) -> Result {
        self.renew_token(ctx)?;
        let answered = self.answer(ctx, request);
        self.pace.settle(ctx);
        answered
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        self.set_congested(!writable);
        if !writable {
            return Ok(());
        }
        self.tell_missed(ctx)?;
        self.resume_next(ctx)?;
        self.pace.settle(ctx);
        Ok(())
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, event: IdleEvent) -> Result {
        match event.state {
            IdleState::Writer => {
                // Also reported here: when the loop-wide budget is exhausted, a channel may drop
                // messages although it stayed writable.
                self.tell_missed(ctx)?;
                ctx.write(Reply::Ping { resume_token: None })
            }
            // The client may have sent something that the server has not read.
            IdleState::Reader if self.waits_for_store() => Ok(()),
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
                self.replies.write(ctx, Refusal(Code::BadRequest, message.to_string()).reply())
            }
            Error::Peer(PeerError::TooSlow { .. }) => self.too_slow(ctx, "sends a line too slowly"),
            Error::TimedOut { .. } if self.logged_in().is_err() => self.too_slow(ctx, "has not logged in"),
            Error::Peer(error) => {
                let reply = Refusal(Code::TooLarge, format!("{error:#}")).reply();
                self.replies.end_with(ctx, reply, Reason::ProtocolError)
            }
            Error::Full { .. } => {
                log::info!("{}: too slow ({error:#}), closing", self.describe(ctx));
                // Other clients no longer need to slow down for this one.
                self.set_congested(false);
                ctx.close_with(last_reply(Reason::SlowConsumer))
            }
            error => {
                log::debug!("{}: {error:#}, closing", self.describe(ctx));
                ctx.close();
                Ok(())
            }
        }
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let is_aged = ctx.shutdown_cause() == Some(ShutdownCause::MaxAge);
        bye(ctx, if is_aged { Reason::MaxAge } else { Reason::Shutdown })
    }

    /// Always called last, also after a panic in a callback.
    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.hub.counters.connections.fetch_sub(1, Ordering::Relaxed);
        self.set_congested(false);
        let Some(user) = &self.user else { return Ok(()) };
        self.unacked.clear();
        for membership in &self.rooms {
            self.hub.leave(&membership.room, user, ctx.id());
        }
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
            identity: None,
            entering: None,
            rooms: Vec::new(),
            joining: None,
            listing: None,
            ending: None,
            resuming: Resuming::default(),
            replies: OrderedReplies::default(),
            unacked: Unacked::new(ack_timeout, max_unacked, max_unacked_bytes),
            has_kept: false,
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
        let room = match &request {
            Request::Join { room, .. }
            | Request::Leave { room }
            | Request::Passive { room }
            | Request::Active { room } => Some(room.clone()),
            _ => None,
        };
        let answer = match request {
            // Only a login that can succeed is submitted: the loop counts admissions as its
            // capacity.
            Request::Login { user, resume, unique_ids }
                if self.user.is_some() || name::user(&user).is_err() =>
            {
                return self.login(ctx, &user, resume, unique_ids);
            }
            Request::Login { user, resume, unique_ids } => {
                return match ctx.admit(Work::Login) {
                    Ok(()) => self.login(ctx, &user, resume, unique_ids),
                    Err(refused) => self.overloaded(ctx, refused),
                };
            }
            Request::Join { room, history } => self.join(ctx, &room, history),
            Request::Leave { room } => self.leave(ctx, &room),
            Request::Say { room, text, id } => return self.say(ctx, &room, text, id),
            Request::Who { room } => self.who(ctx, &room),
            Request::Passive { room } => self.set_passive(ctx, &room, true),
            Request::Active { room } => self.set_passive(ctx, &room, false),
            Request::Direct { to, text, id } => return self.direct(ctx, to, text, id),
            Request::Ack { id } => self.ack(ctx, id),
            Request::Lookup { user, id } => return self.lookup(ctx, &user, id),
            Request::Remind { after, text, id } => return self.remind(ctx, &after, text, id),
            Request::Reminders => self.reminders(),
            Request::Forget { id } => return self.forget(ctx, id),
            Request::Ping => Ok(Some(Reply::Pong)),
            // Nothing to do: receiving it has already reset the read idle timer.
            Request::Pong => Ok(None),
        };
        match answer {
            Ok(None) => Ok(()),
            Ok(Some(reply)) => self.replies.write(ctx, reply),
            Err(refusal) => self.replies.write(ctx, refusal.reply_in(room)),
        }
    }

    /// Unlike other requests, a direct message is not answered immediately. The sender receives
    /// `delivered` or an error when the outcome is known.
    fn direct(
        &mut self,
        ctx: &mut Context<'_, Self>,
        to: String,
        text: String,
        id: Option<MessageId>,
    ) -> Result {
        match self.send_direct(ctx, &to, text, id.clone()) {
            Ok(()) => Ok(()),
            Err(Refusal(code, message)) => {
                ctx.write(Reply::Error { code, message, room: None, to: Some(to), id })
            }
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
        let message = |text| Reply::Direct { from: from.to_string(), text, ts: self.hub.unix_ms(), id: 0 };
        match self.hub.route(&to) {
            Route::Absent => self.keep_direct(ctx, &from, to, text, id)?,
            Route::Here(_) if !self.hub.nodes.has_authority() => {
                let why = "not sent, try again later: the store cannot be reached";
                return Err(Refusal(Code::Busy, why.to_owned()));
            }
            Route::Here(receiver) => {
                let receipt = self.receipt(ctx, &from, &to, &text, id)?;
                let direct = Direct { message: message(text), receipt: Receipt::Sender(receipt) };
                // If the message cannot be handed over, the receipt is dropped, which notifies the
                // sender.
                let _ = receiver.execute(move |session, ctx| session.unacked.deliver(ctx, direct));
                self.hub.counters.count_message(1, 0);
            }
            Route::There(node) => {
                let receipt = self.receipt(ctx, &from, &to, &text, id)?;
                let expires = direct::give_up_at(self.hub.now(), self.settings.ack_timeout);
                self.hub.nodes.pass(&node, message(text), &to, receipt, expires);
            }
        }
        Ok(())
    }

    /// Counts a direct message of this client as in flight, until its receipt has ended.
    fn receipt(
        &self,
        ctx: &Context<'_, Self>,
        from: &Arc<str>,
        to: &str,
        text: &str,
        id: Option<MessageId>,
    ) -> Result<SenderReceipt, Refusal> {
        let max = self.settings.max_unacked;
        // `self.under_way` itself counts as one reference.
        if Arc::strong_count(&self.under_way) > max {
            let why = format!("{max} of your direct messages are not acknowledged yet");
            return Err(Refusal(Code::TooManyUnacked, why));
        }
        let bytes = direct::size(from, to, text, id.as_ref());
        let own = self.under_way_bytes.charge(bytes).ok_or_else(|| {
            let (used, limit) = (self.under_way_bytes.used(), self.under_way_bytes.limit());
            let why = format!("{used} of {limit} bytes of your direct messages are not acknowledged yet");
            Refusal(Code::TooManyUnacked, why)
        })?;
        let all = self.hub.unacked_bytes.charge(bytes);
        let all = all.ok_or_else(|| Refusal(Code::Busy, direct::TOO_MANY.to_owned()))?;
        let under_way = UnderWay { bytes, _message: self.under_way.clone(), _own: own, _all: all };
        Ok(SenderReceipt::new(from.clone(), ctx.channel(), to.to_owned(), id, under_way))
    }

    fn ack(&mut self, ctx: &mut Context<'_, Self>, id: u64) -> Answer {
        self.logged_in()?;
        if self.unacked.ack(ctx, id) {
            // The acknowledgement is free of charge: the number of deliveries is up to the senders,
            // not to this client.
            self.pace.refund_request();
        } else {
            // Already acknowledged, or given up in the meantime. Neither is an error of the client.
            log::debug!("{}: acknowledges {id}, which is not pending", self.describe(ctx));
        }
        self.deliver_more(ctx)?;
        Ok(None)
    }

    /// Starts a lookup on the worker pool. The session continues to read, so a later request may be
    /// answered first.
    fn lookup(&mut self, ctx: &mut Context<'_, Self>, user: &str, id: Option<MessageId>) -> Result {
        match self.begin_lookup(ctx, user, id.clone()) {
            Ok(()) => Ok(()),
            Err(Refusal(code, message)) => {
                ctx.write(Reply::Error { code, message, room: None, to: None, id })
            }
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
                format!("{max} of your lookups are already in progress"),
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
        // Fails if the pool's queue is full or a thread cannot be started. A retry may succeed.
        ctx.offload(work, then).map_err(|refused| busy(refused.error()))?;
        self.lookups += 1;
        Ok(())
    }

    /// Reports the number of dropped lines to the client, unless it has already been reported.
    fn tell_missed(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let total = ctx.stats().messages_dropped;
        let count = total - self.missed;
        if count == 0 || !ctx.is_open() {
            return Ok(());
        }
        log::info!("{}: too slow, {count} lines were dropped", self.describe(ctx));
        self.missed = total;
        ctx.write(Reply::Missed { count, total })
    }

    pub(crate) fn logged_in(&self) -> Result<&Arc<str>, Refusal> {
        let user = self.user.as_ref().filter(|_| self.entering.is_none());
        user.ok_or_else(|| Refusal(Code::NotLoggedIn, "log in first".to_owned()))
    }

    /// Updates this client's rooms when it becomes congested or catches up.
    fn set_congested(&mut self, congested: bool) {
        if self.congested != congested {
            self.congested = congested;
            let slow = &self.hub.counters.slow_consumers;
            if congested {
                slow.fetch_add(1, Ordering::Relaxed);
            } else {
                slow.fetch_sub(1, Ordering::Relaxed);
            }
            let active = self.rooms.iter().filter(|membership| !membership.passive);
            active.for_each(|membership| membership.room.set_congested(congested));
        }
    }

    /// Returns whether later requests are not read until the store of the rooms has answered.
    fn waits_for_store(&self) -> bool {
        self.entering.is_some()
            || self.joining.is_some()
            || self.listing.is_some()
            || self.resuming.is_under_way()
            || self.replies.is_paused()
    }

    /// Called when the time limit for the login has passed.
    fn check_login(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        match &mut self.entering {
            // Decided when the map of names has answered.
            Some(entering) => entering.is_overdue = true,
            None if self.user.is_none() => return self.too_slow(ctx, "has not logged in"),
            None => {}
        }
        Ok(())
    }

    pub(crate) fn too_slow(&mut self, ctx: &mut Context<'_, Self>, what: &str) -> Result {
        log::debug!("{}: {what}, closing", self.describe(ctx));
        bye(ctx, Reason::TooSlow)
    }

    pub(crate) fn describe(&self, ctx: &Context<'_, Self>) -> String {
        // A client on a Unix socket has no address.
        let peer = ctx.peer_address().map_or_else(|| ctx.id().to_string(), |peer| peer.to_string());
        match &self.user {
            Some(user) => format!("{user} ({peer})"),
            None => peer,
        }
    }
}

impl Drop for Session {
    /// Releases the name. This happens after the session has left its rooms.
    fn drop(&mut self) {
        if let (Some(user), Some(identity)) = (&self.user, &self.identity) {
            self.hub.release_name(user, identity.who);
        }
    }
}

/// Returns the refusal for a request that failed because a queue was full, or because the store of
/// the rooms did not answer. In the second case a message may have been stored.
pub(crate) fn busy(reason: &Error) -> Refusal {
    let outcome = if may_be_stored(reason) { "perhaps not done" } else { "not done" };
    Refusal(Code::Busy, format!("{outcome}, try again later: {reason:#}"))
}

pub(crate) fn bad_name(why: String) -> Refusal {
    Refusal(Code::BadRequest, why)
}

pub(crate) fn bye(ctx: &mut Context<'_, Session>, reason: Reason) -> Result {
    ctx.write(last_reply(reason))?;
    ctx.close();
    Ok(())
}
