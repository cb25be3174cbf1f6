//! State shared by all connections: names in use, rooms, counters.
//!
//! Invariants: a name, and every name that looks like it, belongs to at most one connection. A room
//! in the hub has at least one user. The locks guard membership only: messages to a room go through
//! its `ChannelGroup`, without any lock of this program. If both locks are held, the hub's lock is
//! taken before the room's lock. Used by all loops.

use crate::{
    byte_budget::ByteBudget,
    latency::Latency,
    later::Later,
    name,
    presence::Announcer,
    protocol::{Reason, Reply},
    room::Room,
    session::Session,
};
use netwheel::{
    Channel, ChannelId, Error, HandlerRef,
    time::{Clock, default_clock},
};
use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Instant, UNIX_EPOCH},
};

/// Maximum number of members of a room.
pub(crate) const MAX_MEMBERS: usize = 10_000;
/// Default limit for the bytes of unacknowledged direct messages of all clients.
pub(crate) const MAX_UNACKED_BYTES: usize = 64 * 1024 * 1024;

pub(crate) struct Hub {
    clock: Arc<dyn Clock>,
    users: Mutex<Users>,
    rooms: Mutex<BTreeMap<Arc<str>, Arc<Room>>>,
    /// Number of the next room.
    next_room: AtomicU64,
    /// Rooms with joins and leaves that have not been announced.
    pub(crate) announcer: Announcer,
    /// Bytes of unacknowledged direct messages of all clients.
    pub(crate) unacked_bytes: Arc<ByteBudget>,
    pub(crate) counters: Counters,
    /// Delivery times, for the dashboard.
    pub(crate) latency: Latency,
    /// Reminders and kept messages. Set at the start of the server.
    later: OnceLock<Arc<Later>>,
}

#[derive(Default)]
struct Users {
    by_name: BTreeMap<Arc<str>, User>,
    /// Maps the skeleton of each name in use to that name.
    looks: BTreeMap<String, Arc<str>>,
}

impl Default for Hub {
    fn default() -> Self {
        Hub::new(MAX_UNACKED_BYTES)
    }
}

/// A user that is logged in.
struct User {
    session: HandlerRef<Session>,
    /// Time of login, in milliseconds since 1970 (UTC).
    since: u64,
    rooms: BTreeSet<Arc<str>>,
}

/// Directory entry of a name.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    /// Time of login; `None` if no user with that name is logged in.
    pub(crate) since: Option<u64>,
    /// Rooms in alphabetical order.
    pub(crate) rooms: Vec<String>,
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
    /// Returns a hub with a limit for the bytes of unacknowledged direct messages.
    pub(crate) fn new(max_unacked_bytes: usize) -> Self {
        let clock = default_clock();
        Hub {
            latency: Latency::new(clock.clone()),
            clock,
            users: Mutex::default(),
            rooms: Mutex::default(),
            next_room: AtomicU64::new(0),
            announcer: Announcer::default(),
            unacked_bytes: ByteBudget::new(max_unacked_bytes),
            counters: Counters::default(),
            later: OnceLock::new(),
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

    /// Reserves a name for a session.
    ///
    /// # Errors
    /// Returns the name in conflict: the same name, or one that looks like it.
    pub(crate) fn take_name(&self, name: &str, session: HandlerRef<Session>) -> Result<Arc<str>, Arc<str>> {
        let looks = name::looks(name);
        let name: Arc<str> = name.into();
        let mut users = lock(&self.users);
        match users.looks.entry(looks) {
            Entry::Occupied(taken) => return Err(taken.get().clone()),
            Entry::Vacant(free) => drop(free.insert(name.clone())),
        }
        users.by_name.insert(name.clone(), User { session, since: self.unix_ms(), rooms: BTreeSet::new() });
        Ok(name)
    }

    /// Returns the session of a user. The session may be about to end.
    pub(crate) fn find(&self, name: &str) -> Option<HandlerRef<Session>> {
        lock(&self.users).by_name.get(name).map(|user| user.session.clone())
    }

    /// Returns the current directory entry of a name.
    pub(crate) fn profile(&self, name: &str) -> Profile {
        match lock(&self.users).by_name.get(name) {
            Some(user) => Profile {
                since: Some(user.since),
                rooms: user.rooms.iter().map(|room| room.to_string()).collect(),
            },
            None => Profile::default(),
        }
    }

    pub(crate) fn release_name(&self, name: &str) {
        let looks = name::looks(name);
        let mut users = lock(&self.users);
        users.by_name.remove(name);
        users.looks.remove(&looks);
    }

    /// Makes `user` a member of a room and creates the room if necessary. Returns `None` if the
    /// room is full.
    pub(crate) fn join(&self, room: &str, user: &Arc<str>, channel: Channel<Reply>) -> Option<Arc<Room>> {
        let mut rooms = lock(&self.rooms);
        let room = match rooms.get(room) {
            Some(room) => room.clone(),
            None => {
                let number = self.next_room.fetch_add(1, Ordering::Relaxed);
                let room = Arc::new(Room::new(room, number));
                rooms.insert(room.name().clone(), room.clone());
                room
            }
        };
        // Keep the hub's lock: otherwise the last user could leave now, which would remove the
        // room.
        let news = room.join(user, channel, MAX_MEMBERS)?;
        drop(rooms);
        if news {
            self.announcer.add(room.clone());
        }
        if let Some(user) = lock(&self.users).by_name.get_mut(user) {
            user.rooms.insert(room.name().clone());
        }
        Some(room)
    }

    /// Ends the membership of `user`, whose channel id is `who`.
    pub(crate) fn leave(&self, room: &Arc<Room>, user: &Arc<str>, who: ChannelId) {
        if let Some(user) = lock(&self.users).by_name.get_mut(user) {
            user.rooms.remove(room.name());
        }
        let mut rooms = lock(&self.rooms);
        let news = room.leave(user, who);
        if room.len() == 0 {
            rooms.remove(room.name());
        }
        drop(rooms);
        if news {
            self.announcer.add(room.clone());
        }
    }

    /// Returns the number of passive members of all rooms.
    pub(crate) fn passive_members(&self) -> usize {
        lock(&self.rooms).values().map(|room| room.passive_members()).sum()
    }

    /// Returns the names of a room's members; empty if the room does not exist.
    pub(crate) fn who(&self, room: &str) -> Vec<String> {
        let room = lock(&self.rooms).get(room).cloned();
        room.map_or_else(Vec::new, |room| room.users())
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
