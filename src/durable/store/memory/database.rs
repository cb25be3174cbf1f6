//! `MemoryDatabase`: a memory store of several nodes.

use super::{
    MemoryDisk, MemoryStore,
    shared::{Session, Settings},
};
use crate::{Error, Result, durable::StoreError, machine::Route};
use std::time::{Duration, SystemTime};

/// A database in memory that several nodes share, for tests of programs.
///
/// Each node [opens](MemoryDatabase::open) a store. The stores behave like those of PostgreSQL: the
/// nodes share partitions, with leases by the clock of the database, and a run is claimed before it
/// fires. A clone is a handle to the same database.
///
/// In a [simulation](crate::testing::simulation), the database is on the node that
/// [`host`](MemoryDatabase::host) names, which need not run a program. Each request takes the
/// latency of the links to that node and back, and waits while the node is stalled. Cut links delay
/// requests, and after the [`request_timeout`](MemoryDatabase::request_timeout) they fail. Answers
/// are lost after the commit, and requests are refused (`answer-lost`, `request-refused`). The
/// clock is that of the node. A killed node loses no transactions, and the stores connect again.
/// Requests are not sent over sockets, and one request carries a whole transaction.
///
/// ```
/// use netwheel::{EventLoopGroup, durable::{Due, DurableTimers, Late, MemoryDatabase, Retry, Topic}};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let database = MemoryDatabase::new().partitions(8)?;
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let node = || {
///     let remind = Topic::new("remind", Late::RunOnce, Retry::never(), |due: Due<u32>| due.done());
///     DurableTimers::on(database.open()?).topic(remind).start(&group)
/// };
/// let (one, other) = (node()?, node()?);
/// let id = one.at("remind", Duration::from_secs(3600), &17).start().wait()?;
/// assert!(other.cancel(id).wait()?);
/// one.close().wait()?;
/// other.close().wait()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MemoryDatabase {
    disk: MemoryDisk,
    settings: Settings,
}

impl Default for MemoryDatabase {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryDatabase {
    /// Creates an empty database with 64 partitions and leases of 6 s.
    pub fn new() -> Self {
        let settings = Settings {
            partitions: 64,
            lease: Duration::from_secs(6),
            drain_within: None,
            request_timeout: None,
            host: None,
        };
        MemoryDatabase { disk: MemoryDisk::new(), settings }
    }

    /// Sets the number of partitions, which limits the number of nodes that fire. Set before the
    /// first store is opened.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if `partitions` is 0 or more than 4096.
    pub fn partitions(mut self, partitions: u32) -> Result<Self> {
        if !(1..=4096).contains(&partitions) {
            return Err(Error::setting("partitions", partitions, "1 to 4096"));
        }
        self.settings.partitions = partitions;
        Ok(self)
    }

    /// Sets how long a node owns its partitions without renewing its lease. 6 s by default.
    pub fn lease(mut self, time: Duration) -> Self {
        self.settings.lease = time;
        self
    }

    /// Sets how long a partition that is to be given back is kept for runs without an answer. The
    /// default is the lease.
    pub fn drain_within(mut self, time: Duration) -> Self {
        self.settings.drain_within = Some(time);
        self
    }

    /// Sets the time limit for each request in a simulation. The default is half of the lease.
    pub fn request_timeout(mut self, time: Duration) -> Self {
        self.settings.request_timeout = Some(time);
        self
    }

    /// Sets the node of a simulation that has the database, by its name.
    pub fn host(mut self, name: &str) -> Self {
        self.settings.host = Some(name.into());
        self
    }

    /// Opens a store for one more node.
    ///
    /// # Errors
    ///
    /// [`StoreError::Busy`] if the database cannot be reached in a simulation.
    pub fn open(&self) -> std::result::Result<MemoryStore, StoreError> {
        Session::open(self.disk.clone(), self.settings.clone(), self.route())
    }

    /// Returns the disk of the database, on which a test finds the rows of the program, and makes
    /// commits fail.
    pub fn disk(&self) -> &MemoryDisk {
        &self.disk
    }

    /// Returns the time by the clock of the database, which decides when timers are due.
    pub fn wall_time(&self) -> SystemTime {
        self.route().wall_time()
    }

    fn route(&self) -> Route {
        Route::to(self.settings.host.as_deref())
    }
}
