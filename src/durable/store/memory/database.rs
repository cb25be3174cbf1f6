//! `MemoryDatabase`: a memory store of several nodes.

use super::{
    MemoryStore,
    disk::MemoryDisk,
    shared::{MemorySession, MemorySettings},
};
use crate::{
    durable::store::error::StoreError,
    error::{Error, Result},
    machine::Route,
};
use std::time::{Duration, SystemTime};

/// A database in memory that several nodes share, for tests of programs.
///
/// Each node [opens](MemoryDatabase::open) a store. The stores behave like those of PostgreSQL: the
/// nodes share partitions, with leases by the clock of the database, and a run is claimed before it
/// fires. A clone is a handle to the same database, and may have other settings, as each node of a
/// server may. The number of partitions is that of the first store that was opened.
///
/// | setting | default | range |
/// |---|---|---|
/// | `partitions` | 64 | 1 to 4096 |
/// | `lease` | 6 s | 300 ms to 10 min |
/// | `request_timeout` | half of the lease | 50 ms to the lease |
/// | `drain_timeout` | the lease | up to 10 min |
///
/// # Simulations
///
/// In a [simulation](crate::testing::simulation), the database is on the node that
/// [`host`](MemoryDatabase::host) names, which need not run a program. Each request takes the
/// latency of the links to that node and back, and waits while the node is stalled. Cut links and a
/// host without power delay requests, and after the
/// [`request_timeout`](MemoryDatabase::request_timeout) they fail. A killed host refuses them.
/// Answers are lost after the commit, and requests are refused (`answer-lost`, `request-refused`).
/// After a kill of the host, the stores connect again, and all timers are loaded again. A loss of
/// its power is a crash of the [disk](MemoryDatabase::disk) as well. Requests are not sent over
/// sockets, and one request carries a whole transaction.
///
/// # Clocks
///
/// The clock of the database decides when timers are due, when leases end, and what
/// [`wall_time`](MemoryDatabase::wall_time) returns. The clocks of the programs do not, and neither
/// does a [manual clock](crate::testing::ManualClock) of a group.
///
/// | where | the clock of the database |
/// |---|---|
/// | in a simulation, with a `host` | the time of day of the host |
/// | in a simulation, without a `host` | the time of day of the node that asks. If these clocks differ, the leases do not hold |
/// | elsewhere | the time of day of the system |
///
/// ```
/// use netwheel::{EventLoopGroup, durable::{Due, DurableTimers, Late, MemoryDatabase, Retry, Topic}};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let database = MemoryDatabase::new().partitions(8);
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let node = || {
///     let remind = Topic::new("remind", Late::RunOnce, Retry::never(), |due: Due<u32>| due.done());
///     DurableTimers::builder(database.open()?).topic(remind).start(&group)
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
    settings: MemorySettings,
}

impl Default for MemoryDatabase {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryDatabase {
    /// Creates an empty database with 64 partitions and leases of 6 s.
    pub fn new() -> Self {
        MemoryDatabase { disk: MemoryDisk::new(), settings: MemorySettings::default() }
    }

    /// Sets the number of partitions of a database that no store has been opened on, which limits
    /// the number of nodes that fire.
    pub fn partitions(mut self, partitions: u32) -> Self {
        self.settings.sharing.partitions = partitions;
        self
    }

    /// Sets how long a node owns its partitions without renewing its lease.
    pub fn lease(mut self, time: Duration) -> Self {
        self.settings.sharing.lease = time;
        self
    }

    /// Sets how long a partition that is to be given back is kept for runs without an answer.
    pub fn drain_timeout(mut self, time: Duration) -> Self {
        self.settings.sharing.set_drain_timeout(time);
        self
    }

    /// Sets the time limit for each request in a simulation.
    pub fn request_timeout(mut self, time: Duration) -> Self {
        self.settings.sharing.set_request_timeout(time);
        self
    }

    /// Sets the node of a simulation that has the database, by its name. Without effect outside of
    /// a simulation.
    pub fn host(mut self, name: &str) -> Self {
        self.settings.host = Some(name.into());
        self
    }

    /// Opens a store for one more node.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a setting out of its range, and if the simulation has no node with
    /// the name of the [`host`](MemoryDatabase::host). [`Error::Other`] with a
    /// [`StoreError::Busy`] if the database cannot be reached in a simulation.
    pub fn open(&self) -> Result<MemoryStore> {
        self.settings.sharing.check()?;
        let Some(route) = self.route() else {
            let host = self.settings.host.as_deref().unwrap_or_default();
            return Err(Error::setting("host", host, "the name of a node of the simulation"));
        };
        MemorySession::open(self.disk.clone(), self.settings.clone(), route).map_err(StoreError::into)
    }

    /// Returns the disk of the database, on which a test finds the rows of the program, and makes
    /// commits fail.
    pub fn disk(&self) -> &MemoryDisk {
        &self.disk
    }

    /// Returns the time by the clock of the database, which decides when timers are due.
    ///
    /// In a simulation, call it on a thread or loop of a node. The test's own thread does not
    /// belong to the simulation, so there it returns the time of the system.
    pub fn wall_time(&self) -> SystemTime {
        self.route().unwrap_or_default().wall_time()
    }

    /// Returns the way to the database. `None` if its host is unknown.
    fn route(&self) -> Option<Route> {
        Route::to(self.settings.host.as_deref())
    }
}
