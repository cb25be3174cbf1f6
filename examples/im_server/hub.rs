//! State shared by all connections: names in use, rooms, counters.
//!
//! Invariant: no other lock is taken while that of the users is held. Used by all loops.

use crate::{
    byte_budget::ByteBudget,
    latency::Latency,
    later::Later,
    login::{
        names::Names,
        resume_token::{Claim, TokenKey},
        users::{Profile, Users},
    },
    nodes::Nodes,
    protocol::{Reason, Reply},
    rooms::{Room, Rooms},
    session::{Refusal, Session},
};
use netwheel::{
    Channel, ChannelId, Context, Error, HandlerRef, Result,
    broker::Topics,
    time::{Clock, default_clock},
};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Instant, UNIX_EPOCH},
};

/// Default limit for the bytes of unacknowledged direct messages of all clients.
pub(crate) const MAX_UNACKED_BYTES: usize = 64 * 1024 * 1024;

pub(crate) struct Hub {
    clock: Arc<dyn Clock>,
    pub(crate) users: Mutex<Users>,
    /// The names at all servers of the store.
    pub(crate) names: Names,
    pub(crate) rooms: Rooms,
    /// The other servers of the store.
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) tokens: TokenKey,
    /// Number of the next claim to a name.
    next_claim: AtomicU64,
    /// Bytes of unacknowledged direct messages of all clients.
    pub(crate) unacked_bytes: Arc<ByteBudget>,
    pub(crate) counters: Arc<Counters>,
    /// Delivery times, for the dashboard.
    pub(crate) latency: Latency,
    /// Reminders and kept messages. Set at the start of the server.
    later: OnceLock<Arc<Later>>,
}

/// Where the receiver of a direct message is.
pub(crate) enum Route {
    Here(HandlerRef<Session>),
    /// At the server of this name.
    There(String),
    Absent,
}

/// Counters for the dashboard and the line that `--stats` prints.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicUsize,
    pub(crate) messages: AtomicU64,
    pub(crate) deliveries: AtomicU64,
    /// Deliveries that were dropped because a loop's queue was full.
    pub(crate) unreached: AtomicU64,
    /// Clients whose queued bytes are above their high water mark.
    pub(crate) slow_consumers: AtomicUsize,
    /// Stalls of loops that the watchdog has reported.
    pub(crate) stalls: AtomicU64,
}

/// Locks a mutex and ignores poisoning: the data is consistent at every moment, so a panic
/// elsewhere does not corrupt it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// Returns a hub whose rooms are topics of the server `node`, with a key for tokens, and with a
    /// limit for the bytes of unacknowledged direct messages.
    ///
    /// # Errors
    /// Fails if the name of the server is not allowed.
    pub(crate) fn start(
        topics: Topics,
        node: &str,
        tokens: TokenKey,
        counters: Arc<Counters>,
        max_unacked_bytes: usize,
    ) -> Result<Arc<Self>> {
        let clock = default_clock();
        let nodes = Arc::new(Nodes::new(topics.clone(), node.to_owned(), tokens.server()));
        let this = Arc::<OnceLock<Weak<Hub>>>::default();
        let lost_by = this.clone();
        let names = Names::open(&topics, node, move |looks| {
            if let Some(hub) = lost_by.get().and_then(Weak::upgrade) {
                hub.name_lost(looks);
            }
        })?;
        let hub = Arc::new(Hub {
            latency: Latency::new(clock.clone()),
            clock,
            users: Mutex::default(),
            rooms: Rooms::new(topics),
            tokens,
            next_claim: AtomicU64::new(0),
            unacked_bytes: ByteBudget::new(max_unacked_bytes),
            counters,
            later: OnceLock::new(),
            nodes,
            names,
        });
        // This is the only call.
        let _ = this.set(Arc::downgrade(&hub));
        hub.nodes.start(&hub)?;
        Ok(hub)
    }

    /// Runs the periodic tasks. Called once per [`PERIOD`](crate::rooms::PERIOD).
    pub(crate) fn tick(self: &Arc<Self>) {
        let now = self.now();
        self.rooms.announcer.announce(now);
        self.rooms.tick(now, self);
        self.release_names();
        self.nodes.tick(now);
        if let Some(later) = self.later() {
            later.tick(self);
        }
    }

    /// Returns the time by which rates are measured.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns the time of day in the protocol's format: milliseconds since 1970 (UTC).
    pub(crate) fn unix_ms(&self) -> u64 {
        unix_ms(&*self.clock)
    }

    /// Sets where reminders and messages are kept. Called once, before there are sessions.
    pub(crate) fn set_later(&self, later: Arc<Later>) {
        let _ = self.later.set(later);
    }

    pub(crate) fn later(&self) -> Option<&Arc<Later>> {
        self.later.get()
    }

    /// Returns the claim of a login that does not continue an earlier one.
    pub(crate) fn new_claim(&self) -> Claim {
        let number = self.next_claim.fetch_add(1, Ordering::Relaxed);
        self.tokens.new_claim(number)
    }

    /// Returns the session of a user. The session may be about to end.
    pub(crate) fn find(&self, name: &str) -> Option<HandlerRef<Session>> {
        lock(&self.users).find(name)
    }

    /// Returns where a user is.
    pub(crate) fn route(&self, name: &str) -> Route {
        match self.find(name) {
            Some(session) => Route::Here(session),
            None => self.names.find(name).map_or(Route::Absent, |user| Route::There(user.node)),
        }
    }

    /// Returns the current directory entry of a name.
    pub(crate) fn profile(&self, name: &str) -> Profile {
        let here = lock(&self.users).profile(name);
        match self.names.find(name).filter(|_| here.since.is_none()) {
            Some(user) => Profile { since: Some(user.since), rooms: self.rooms.of_user_elsewhere(name) },
            None => here,
        }
    }

    /// Makes `user` a member of a room, and creates the room if necessary.
    ///
    /// # Errors
    /// Fails if the room is full, or if there are too many rooms.
    pub(crate) fn join(
        self: &Arc<Self>,
        room: &str,
        user: &Arc<str>,
        session: HandlerRef<Session>,
    ) -> Result<Arc<Room>, Refusal> {
        let who = session.channel().id();
        let room = self.rooms.join(room, user, session, self)?;
        lock(&self.users).joined(user, who, room.name());
        Ok(room)
    }

    /// Ends the membership of `user`, whose channel id is `who`.
    pub(crate) fn leave(self: &Arc<Self>, room: &Arc<Room>, user: &Arc<str>, who: ChannelId) {
        lock(&self.users).left(user, who, room.name());
        self.rooms.leave(room, user, who, self);
    }
}

/// Returns the time of day of a clock, in milliseconds since 1970 (UTC).
pub(crate) fn unix_ms(clock: &dyn Clock) -> u64 {
    let since = clock.wall_time().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Sends a message to another session.
///
/// If that session's buffer is full, the session is closed, because it has now missed a message and
/// the sender must not wait. A session that is already closed is about to leave the hub by itself.
pub(crate) fn send(user: &str, channel: &Channel<Reply>, message: Reply) {
    let Err(refused) = channel.write(message) else { return };
    if let Error::Full { .. } = refused.error() {
        log::info!("{user}: too slow ({}), closing", refused.error());
        let goodbye = channel.execute(|scope| scope.close_with(last_reply(Reason::SlowConsumer)));
        if goodbye.is_err() {
            channel.close_now();
        }
    }
}

/// Runs a task for which a client waits.
///
/// If the queue of the session's loop is full, the session is closed: the task would never run. A
/// client that has gone is ignored.
pub(crate) fn run(
    session: &HandlerRef<Session>,
    task: impl FnOnce(&mut Session, &mut Context<'_, Session>) -> Result + Send + 'static,
) {
    if let Err(Error::Full { .. }) = session.execute(task) {
        session.channel().close_now();
    }
}

/// Returns the last reply to a client.
pub(crate) fn last_reply(reason: Reason) -> Reply {
    // The server goes on, and spreads the closes itself.
    let retry_after_ms = (reason == Reason::MaxAge).then_some(0);
    Reply::Bye { reason, retry_after_ms }
}

impl Counters {
    /// Counts a message and its deliveries. `unreached` is the number of members that missed it
    /// because their loops' queues were full.
    pub(crate) fn count_message(&self, deliveries: usize, unreached: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.unreached.fetch_add(unreached as u64, Ordering::Relaxed);
        self.deliveries.fetch_add(deliveries as u64, Ordering::Relaxed);
    }
}
