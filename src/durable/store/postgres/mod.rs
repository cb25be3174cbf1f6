//! `PostgresStore`: timers of several nodes in PostgreSQL.
//!
//! # Invariants
//!
//! - A timer never changes its partition. A partition has an owner, an epoch that grows with each
//!   new owner, and the end of the owner's lease, by the clock of the database.
//! - A run ends only in a transaction that holds a share lock on its partition. The transaction has
//!   seen the epoch of the run there and this node as the owner. So no other node has become the
//!   owner, nor does before that transaction has ended. A claim also needs a lease that has not
//!   ended.
//! - Rows are locked in the order of their ids: timers, then partitions, then counts. Only the
//!   search for partitions without an owner, and that for dead letters, skip locked rows. A
//!   transaction that removes dead letters locks their topic before.
//! - Each request has a deadline. That of migrations is long. A session with an unknown state is
//!   given up.
//! - The state in memory ([`Ownership`]) may be ahead of the database after an error. The engine
//!   therefore loads everything again after the next renewal that succeeds.

mod answer_limit;
mod batch;
mod changes;
#[cfg(feature = "postgres-019")]
mod clients;
mod connector;
mod counts;
mod deadline;
mod effects;
mod errors;
mod held;
mod leases;
mod loads;
mod outside_runtime;
mod program_starts;
mod queries;
mod schema;
mod session;
mod settings;
mod starts;
mod transaction;
mod upkeep;

pub use settings::PostgresStoreBuilder;

use super::{
    TimerStore,
    change::{Change, LoadRange, Loaded, Outcome},
    dead_letters::DeadLetters,
    error::StoreError,
    lease::{ClockReading, Lease},
    listing::{TimerFilter, TimerInfo, TopicCounts},
    ownership::Ownership,
    row::{DueKey, TimerRow},
    server_clock::ServerClock,
    start_in::Starter,
    transaction::Effect,
};
use crate::machine::refuse_in_simulation;
use answer_limit::AnswerLimit;
use connector::Connect;
use outside_runtime::outside_runtime;
use program_starts::{Placement, PostgresStarts};
use session::PostgresSession;
use settings::PostgresSettings;
use std::{
    collections::BTreeSet,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};
use transaction::Transaction;

/// The pause between two attempts to connect.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// A store of timers in PostgreSQL, for several nodes.
///
/// The nodes share the partitions of the store. Each node fires the timers of its own partitions.
/// When a node ends or is silent for the time of a lease, others take over its partitions. A node
/// that was only slow can then neither end nor repeat a run, because its epoch is over:
/// [`StoreError::StaleEpoch`].
///
/// ```no_run
/// use netwheel::{EventLoopGroup, durable::{Due, DurableTimers, Late, PostgresStore, Retry, Topic}};
///
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let store = PostgresStore::builder("host=10.0.0.5 user=im dbname=im").node("im-1").open()?;
/// let remind = |due: Due<String>| {
///     let text = due.payload().clone();
///     // Stored if, and only if, the timer ends: exactly once.
///     due.done_with(move |transaction| {
///         let sql = "INSERT INTO reminders (text) VALUES ($1)";
///         transaction.postgres()?.execute(sql, &[&text]).map_err(netwheel::Error::other)?;
///         Ok(())
///     });
/// };
/// let timers = DurableTimers::builder(store)
///     .topic(Topic::new("remind", Late::RunOnce, Retry::backoff(5), remind))
///     .start(&group)?;
/// # Ok::<(), netwheel::Error>(())
/// ```
///
/// # Requirements
///
/// PostgreSQL 13 or newer, with the encoding UTF8; the tests use 15. Connections are direct or
/// through a pool of sessions, because statements are prepared. `synchronous_commit` must not be
/// `off`; the store sets it.
///
/// The clock of the database decides when a timer is due, and when a lease ends. Each node measures
/// it whenever it renews its lease.
///
/// A store can be opened, used and dropped inside a runtime of tokio. There, each operation runs on
/// a thread of its own.
///
/// # Failures
///
/// Every wait for the server has a time limit, except on a Unix socket, where the server's own time
/// limits apply. After a lost connection, the store connects again with the next operation. A start
/// that fails with [`StoreError::Busy`] may have been stored: use an idempotency key to repeat it.
pub struct PostgresStore {
    settings: PostgresSettings,
    connector: Box<dyn Connect>,
    session: Option<PostgresSession>,
    /// When the last attempt to connect failed.
    failed: Option<Instant>,
    /// Requests of sessions that were given up.
    requests: u64,
    /// This node in the tables `nodes` and `partitions`.
    node: i64,
    partitions: u32,
    /// The names and ids of the attached topics.
    topics: Vec<(String, i32)>,
    ownership: Ownership,
    /// The number of renewals since the last search for keys to forget.
    renewals: u32,
    /// Where transactions of the program place their timers.
    placement: Arc<Placement>,
    /// The id of the store in its database.
    store_id: String,
    changes: changes::Changes,
    lost_in: effects::LostIn,
    answer_limit: AnswerLimit,
    loads: loads::Loads,
    clock: Option<ServerClock>,
}

impl PostgresStore {
    /// Returns a builder with default settings. `config` is a string of parameters or a URL of
    /// libpq. [`open`](PostgresStoreBuilder::open) reports a string that is not understood.
    pub fn builder(config: &str) -> PostgresStoreBuilder {
        // The string may have a password, so it is not part of the error.
        let invalid =
            |e| crate::error::Error::setting("config", format!("({e})"), "parameters or a URL of libpq");
        PostgresStoreBuilder::new(config.parse().map_err(invalid))
    }

    /// Returns the number of requests to the server since the store was opened. Each request is a
    /// round trip.
    pub fn requests(&self) -> u64 {
        self.requests + self.session.as_ref().map_or(0, PostgresSession::requests)
    }

    fn connect(settings: PostgresSettings, connector: Box<dyn Connect>) -> Result<Self, StoreError> {
        refuse_in_simulation("PostgresStore").map_err(StoreError::failed)?;
        outside_runtime(|| Self::connect_here(settings, connector))
    }

    fn connect_here(settings: PostgresSettings, mut connector: Box<dyn Connect>) -> Result<Self, StoreError> {
        let mut session = PostgresSession::connect(&settings, &mut *connector)?;
        refuse_shared(&mut session, PostgresSession::connect(&settings, &mut *connector)?)?;
        let partitions = schema::migrate(&mut session, &settings)?;
        let (clock, server) = session.identify(None)?;
        let mut changes = changes::Changes::default();
        changes.connected_to(server);
        // A restored database gives the ids of its sequences again, and two nodes with one id would
        // own the same partitions.
        let node = fastrand::i64(1..);
        let row = session.query_one("SELECT id::text FROM {schema}.store", &[])?;
        let store_id = session::column(&row, 0)?;
        Ok(PostgresStore {
            settings,
            connector,
            session: Some(session),
            failed: None,
            requests: 0,
            node,
            partitions,
            topics: Vec::new(),
            ownership: Ownership::default(),
            renewals: 0,
            placement: Arc::new(Placement::new(partitions)),
            store_id,
            changes,
            lost_in: effects::LostIn::default(),
            answer_limit: AnswerLimit::default(),
            loads: loads::Loads::default(),
            clock: Some(clock),
        })
    }

    /// Calls `work` with a session. After an error, rolls back, and closes the session if that
    /// fails.
    fn with_session<T: Send>(
        &mut self,
        work: impl FnOnce(&mut Self, &mut PostgresSession) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        outside_runtime(|| self.with_session_here(work))
    }

    fn with_session_here<T>(
        &mut self,
        work: impl FnOnce(&mut Self, &mut PostgresSession) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut session = match self.session.take().filter(|session| !session.is_closed()) {
            Some(session) => session,
            None => self.reconnect()?,
        };
        let result = work(self, &mut session);
        let is_usable = match &result {
            Ok(_) => true,
            // Another server may be the primary now.
            Err(_) if session.is_read_only() => false,
            Err(_) => session.batch("ROLLBACK").is_ok(),
        };
        if is_usable {
            self.session = Some(session);
        } else {
            self.requests += session.requests();
            log::debug!("the connection of the timer store is closed after an error");
        }
        result
    }

    #[allow(clippy::disallowed_methods, reason = "the pause between two connections is real time")]
    fn reconnect(&mut self) -> Result<PostgresSession, StoreError> {
        if let Some(failed) = self.failed {
            pause(RECONNECT_PAUSE.saturating_sub(failed.elapsed()));
        }
        let session = PostgresSession::connect(&self.settings, &mut *self.connector)
            .and_then(|mut session| session.identify(self.clock).map(|identity| (session, identity)));
        self.failed = session.is_err().then(Instant::now);
        let (session, (clock, server)) = session?;
        self.clock = Some(clock);
        self.changes.connected_to(server);
        Ok(session)
    }

    /// Calls `work` with how many bytes the server may send, which depends on how long earlier
    /// answers have taken.
    #[allow(clippy::disallowed_methods, reason = "how long the server takes is real time")]
    fn with_limit(
        &mut self,
        max_bytes: usize,
        work: impl FnOnce(&mut Self, usize) -> Result<Loaded, StoreError>,
    ) -> Result<Loaded, StoreError> {
        let asked = self.answer_limit.of(max_bytes);
        let begun = Instant::now();
        let result = work(self, asked);
        let received = result.as_ref().map_or(0, Loaded::data_len);
        self.answer_limit.record(asked, received, begun.elapsed(), self.settings.request_timeout);
        result
    }

    /// Returns the partitions whose timers fire here, as the database has them.
    fn active(&self) -> Vec<i32> {
        self.ownership.active().into_iter().map(|partition| partition as i32).collect()
    }

    /// Returns the index of an attached topic.
    fn topic_index(&self, id: i32) -> Option<usize> {
        self.topics.iter().position(|(_, known)| *known == id)
    }
}

impl TimerStore for PostgresStore {
    fn attach(&mut self, topics: &[String]) -> Result<Vec<TopicCounts>, StoreError> {
        self.topics = self.with_session(|_, session| queries::attach(session, topics))?;
        self.counts()
    }

    fn commit(&mut self, changes: &mut [Change], now: i64) -> Result<Vec<Outcome>, StoreError> {
        let outcomes = self
            .with_session(|store, session| batch::commit(Transaction::new(store, session, now), changes))?;
        self.ownership.committed(changes, &outcomes);
        Ok(outcomes)
    }

    fn load(&mut self, range: LoadRange) -> Result<Loaded, StoreError> {
        self.with_session(|store, session| {
            store.with_limit(range.max_bytes, |store, max_bytes| {
                loads::load(store, session, LoadRange { max_bytes, ..range })
            })
        })
    }

    fn far_periodic(&mut self, after: DueKey, limit: usize) -> Result<Vec<TimerRow>, StoreError> {
        self.with_session(|store, session| queries::far_periodic(store, session, after, limit))
    }

    fn list(&mut self, filter: &TimerFilter) -> Result<Vec<TimerInfo>, StoreError> {
        self.with_session(|_, session| queries::list(session, filter))
    }

    fn counts(&mut self) -> Result<Vec<TopicCounts>, StoreError> {
        self.with_session(|_, session| queries::counts(session))
    }

    fn set_paused(&mut self, topic: &str, is_paused: bool) -> Result<bool, StoreError> {
        self.with_session(|_, session| upkeep::set_paused(session, topic, is_paused))
    }

    fn remove_dead(&mut self, letters: &DeadLetters, now: i64) -> Result<u64, StoreError> {
        self.with_session(|store, session| upkeep::remove_dead(store, session, letters, now))
    }

    fn retry_dead(
        &mut self,
        letters: &DeadLetters,
        dues: &[i64],
    ) -> Result<Vec<Option<TimerRow>>, StoreError> {
        self.with_session(|store, session| upkeep::retry_dead(store, session, letters, dues))
    }

    fn transaction(&mut self, work: &mut Effect) -> Result<(), StoreError> {
        self.with_session(|_, session| effects::transact(session, work))
    }

    fn needs_claims(&self) -> bool {
        true
    }

    fn renew(&mut self, busy: &BTreeSet<u32>) -> Result<Option<Lease>, StoreError> {
        self.with_session(|store, session| leases::renew(store, session, busy)).map(Some)
    }

    fn changed_by_others(&mut self, until: i64, max_bytes: usize) -> Result<Loaded, StoreError> {
        self.with_session(|store, session| {
            store.with_limit(max_bytes, |store, max_bytes| {
                changes::changed_by_others(store, session, until, max_bytes)
            })
        })
    }

    #[allow(clippy::disallowed_methods, reason = "the time since the last answer is real time")]
    fn clock(&mut self) -> Option<ClockReading> {
        self.clock.map(|clock| clock.reading(Instant::now()))
    }

    fn drain(&mut self) {
        self.ownership.drain();
    }

    fn starter(&self) -> Option<Starter> {
        Some(Starter(Arc::new(PostgresStarts::new(self))))
    }

    fn release(&mut self) -> Result<(), StoreError> {
        self.with_session(leases::release)
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        let session = self.session.take();
        outside_runtime(|| drop(session));
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("schema", &self.settings.schema)
            .field("node", &self.settings.node)
            .field("partitions", &self.partitions)
            .finish_non_exhaustive()
    }
}

/// Fails if two connections share a process of the server. Then a pool gives each transaction
/// another process, and the prepared statements and time limits of the store end up in processes of
/// others.
fn refuse_shared(session: &mut PostgresSession, mut other: PostgresSession) -> Result<(), StoreError> {
    let backend = session.backend()?;
    other.batch("BEGIN")?;
    if other.backend()? != backend {
        return Ok(());
    }
    let pool = "the connection belongs to a pool in transaction mode, as pgbouncer has it";
    Err(StoreError::failed(format!("{pool}; connect directly, or through a pool in session mode")))
}

/// Blocks the thread of the store.
#[allow(clippy::disallowed_methods, reason = "the time that passes at the server is real time")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
