//! `RedisServer`: the handle of a simulated Redis.

use super::{
    connection::{ClientConnection, SharedState, schedule_sync, unix_micros},
    disk::RedisDisk,
    process::ProcessCondition,
    script::ScriptContext,
    service::interfere,
    session::Wake,
    settings::{Persistence, RedisUser},
    state::State,
};
use crate::{
    bootstrap::{Server, ServerBootstrap},
    channel::{ChannelOptions, Pipeline},
    codec::{Resp, RespLimits, RespValue},
    error::Result,
    group::EventLoopGroup,
    machine::{self, Mutex},
    sync::Random,
    transport::ToAddress,
};
use bytes::Bytes;
use std::{fmt, sync::Arc, time::Duration};

/// The most input and the most output of a connection, in bytes: `client-query-buffer-limit` of
/// Redis. Redis does not limit the output of clients without subscriptions.
const MAX_BUFFER: usize = 1024 * 1024 * 1024;

/// Returns the limits of Redis for requests: `proto-max-bulk-len`, and the largest array.
fn limits() -> RespLimits {
    RespLimits::new().max_bulk_len(512 * 1024 * 1024).max_elements(i32::MAX as usize)
}

/// A simulated Redis. A clone is a handle to the same server. See the [module](super).
///
/// The settings and the scripts stay when the server is bound again, also
/// [`set_read_only`](RedisServer::set_read_only) and
/// [`set_out_of_memory`](RedisServer::set_out_of_memory). Everything else of the process is lost
/// then: connections, loaded scripts, and the keys that the [`RedisDisk`] does not have.
#[derive(Clone)]
pub struct RedisServer {
    shared: SharedState,
}

impl RedisServer {
    /// Returns a server that keeps its keys on this disk.
    pub fn new(disk: RedisDisk) -> Self {
        RedisServer { shared: Arc::new(Mutex::new(State::new(disk))) }
    }

    /// Sets when writes are safe. The default is [`Persistence::Always`].
    #[must_use]
    pub fn persistence(self, persistence: Persistence) -> Self {
        self.shared.lock().settings.persistence = persistence;
        self
    }

    /// Sets the password of the user `default` (`requirepass`). Without one, clients need not
    /// authenticate.
    #[must_use]
    pub fn password(self, password: impl Into<String>) -> Self {
        self.shared.lock().settings.password = Some(password.into());
        self
    }

    /// Adds a user. The password of the user `default` is that of
    /// [`password`](RedisServer::password).
    #[must_use]
    pub fn user(self, user: RedisUser) -> Self {
        self.shared.lock().settings.users.insert(user.name.clone(), user);
        self
    }

    /// Sets the `maxmemory-policy` that `INFO` replies. The default is `noeviction`. The server
    /// does not evict keys by itself; see [`remove_key`](RedisServer::remove_key).
    #[must_use]
    pub fn maxmemory_policy(self, policy: impl Into<String>) -> Self {
        self.shared.lock().settings.maxmemory_policy = policy.into();
        self
    }

    /// Sets how long the server loads its keys after each start, as by
    /// [`load_for`](RedisServer::load_for). The default is zero.
    #[must_use]
    pub fn loading_time(self, time: Duration) -> Self {
        self.shared.lock().settings.loading_time = time;
        self
    }

    /// Registers a script: `EVAL` of `source`, and `EVALSHA` of its SHA-1, call `body`.
    ///
    /// The server does not interpret Lua. It is up to a test that runs both with a real
    /// `redis-server` to show that `body` has the effects and the reply of `source`. No other
    /// command runs during a call. `body` must not use the server otherwise.
    ///
    /// ```
    /// use netwheel::{codec::RespValue, testing::redis::{RedisDisk, RedisServer}};
    ///
    /// const ADD: &str = "return redis.call('INCRBY', KEYS[1], ARGV[1])";
    ///
    /// let server = RedisServer::new(RedisDisk::new()).script(ADD, |script| {
    ///     let (key, by) = (script.keys()[0].clone(), script.arguments()[0].clone());
    ///     script.call([bytes::Bytes::from("INCRBY"), key, by])
    /// });
    /// # let _ = server;
    /// ```
    #[must_use]
    pub fn script(
        self,
        source: &str,
        body: impl Fn(&mut ScriptContext<'_>) -> std::result::Result<RespValue, RespValue> + Send + Sync + 'static,
    ) -> Self {
        self.shared.lock().scripts.insert(source, Arc::new(body));
        self
    }

    /// Starts the process and listens. The process has the keys that the disk has kept. It ends an
    /// earlier process on that disk, also one of another server: the connections of that are cut.
    ///
    /// # Errors
    /// The errors of [`ServerBootstrap::bind`]. The earlier process has ended even then.
    pub fn bind<E: ToAddress>(&self, group: &EventLoopGroup, address: E) -> Result<Server<E::Address>> {
        self.end_process();
        let (start, loading_time) = {
            let mut state = self.shared.lock();
            let crash_seed = machine::seed();
            let seed = crash_seed.unwrap_or_else(Random::system_seed);
            state.start_process(seed, crash_seed);
            state.disk.set_wake(self.wake());
            state.start += 1;
            state.event_loop = Some(group.next().clone());
            (state.start, state.settings.loading_time)
        };
        if !loading_time.is_zero() {
            self.load_for(loading_time);
        }
        let shared = self.shared.clone();
        let codec = Resp::server().inline_commands().limits(limits())?;
        ServerBootstrap::new(group)
            .channel_options(ChannelOptions::new().max_inbound(MAX_BUFFER).max_outbound(MAX_BUFFER))
            .pipeline(move |_peer| {
                let connection = ClientConnection::new(shared.clone(), start);
                Pipeline::codec(codec.clone()).handler(connection)
            })
            .bind(address)
    }

    /// Makes the server load its keys for a time: most commands are refused with `LOADING`. Does
    /// nothing before the server is bound, see [`loading_time`](RedisServer::loading_time). A new
    /// process ends the condition.
    pub fn load_for(&self, time: Duration) {
        self.begin(ProcessCondition::Loading, time);
    }

    /// Makes the server run a script for a time: most commands are refused with `BUSY`. Does
    /// nothing before the server is bound. A new process ends the condition.
    pub fn busy_for(&self, time: Duration) {
        self.begin(ProcessCondition::Busy, time);
    }

    /// Makes the server execute nothing for a time. Requests wait. Does nothing before the server
    /// is bound. A new process ends the condition.
    pub fn hold_for(&self, time: Duration) {
        self.begin(ProcessCondition::Held, time);
    }

    /// Sets whether the server is a replica, which refuses writes with `READONLY`. This stays when
    /// the server is bound, until a [failover](RedisServer::fail_over).
    pub fn set_read_only(&self, is_read_only: bool) {
        self.shared.lock().process.conditions.is_read_only = is_read_only;
    }

    /// Sets whether `maxmemory` is reached: commands that need memory are refused with `OOM`. This
    /// stays when the server is bound, until a [failover](RedisServer::fail_over).
    pub fn set_out_of_memory(&self, is_out_of_memory: bool) {
        self.shared.lock().process.conditions.is_out_of_memory = is_out_of_memory;
    }

    /// Replaces the process by that of a replica that lacks the last `lag` writes, at most
    /// [`RedisDisk::MAX_LAG`]. All connections are cut. New ones reach the replica, which has
    /// become the master, at the same address.
    pub fn fail_over(&self, lag: usize) {
        self.end_process();
        let mut state = self.shared.lock();
        state.fail_over(lag);
        state.disk.set_wake(self.wake());
    }

    /// Removes all keys, as `FLUSHALL` of another client does.
    pub fn flush_all(&self) {
        self.interfere(0, &[Bytes::from_static(b"FLUSHALL")]);
    }

    /// Removes a key of a database, as an eviction or another client does.
    pub fn remove_key(&self, database: usize, key: impl Into<Bytes>) {
        self.interfere(database, &[Bytes::from_static(b"DEL"), key.into()]);
    }

    fn interfere(&self, database: usize, args: &[Bytes]) {
        let mut state = self.shared.lock();
        let Some(now) = state.event_loop.as_ref().map(|event_loop| event_loop.shared.time.wall_time()) else {
            return;
        };
        interfere(&mut state, unix_micros(now), database, args);
        drop(state);
        schedule_sync(&self.shared);
    }

    /// Ends the process that uses the disk, which may be that of another server.
    fn end_process(&self) {
        let disk = self.shared.lock().disk.clone();
        disk.end_process();
    }

    /// Returns what wakes all connections.
    fn wake(&self) -> Wake {
        let shared = Arc::downgrade(&self.shared);
        Arc::new(move || {
            if let Some(shared) = shared.upgrade() {
                wake_all(&shared);
            }
        })
    }

    /// Begins a condition, which the loop of the server ends.
    fn begin(&self, condition: ProcessCondition, time: Duration) {
        let mut state = self.shared.lock();
        let Some(event_loop) = state.event_loop.clone() else { return };
        let request = state.begin(condition);
        drop(state);
        let shared = self.shared.clone();
        let ended = event_loop.schedule(time, move || end(&shared, condition, request));
        if ended.is_err() {
            end(&self.shared, condition, request);
        }
    }
}

/// Ends a condition, and continues with the requests that were held.
fn end(shared: &SharedState, condition: ProcessCondition, request: u64) {
    shared.lock().end(condition, request);
    wake_all(shared);
}

/// Makes all connections look at the process.
fn wake_all(shared: &SharedState) {
    let woken: Vec<Wake> = {
        let state = shared.lock();
        state.process.sessions.values().map(|session| session.wake.clone()).collect()
    };
    woken.iter().for_each(|wake| wake());
}

impl fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        f.debug_struct("RedisServer")
            .field("connections", &state.process.sessions.len())
            .field("settings", &state.settings)
            .finish_non_exhaustive()
    }
}
