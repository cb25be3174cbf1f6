//! `MemoryDisk`: the persistent state of a memory store, and the faults of a test.

use super::{
    MemoryStore,
    lent_tables::LentTables,
    tables::{Tables, Write},
    transaction::MemoryTransaction,
};
use crate::{
    durable::store::error::StoreError,
    error::{Error, Result},
    machine::{self, Mutex, MutexGuard, Route},
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    sync::Arc,
};

/// A disk in memory for tests of programs with durable timers. It can crash, fail and be full.
///
/// A clone is a handle to the same disk. [`open`](MemoryDisk::open) opens the store on it, which
/// keeps its timers when it is dropped, and can then be opened again. As with a file, only one
/// store is open at a time.
///
/// # Crashes
///
/// - A test that drops its [`DurableTimers`](crate::durable::DurableTimers) without closing them
///   has killed the program: everything that was committed stays.
/// - [`crash`](MemoryDisk::crash) is a power failure: transactions that were not synced may be
///   lost. By default each commit syncs, as in the stores for files and databases, so nothing that
///   was acknowledged is lost. [`sync_every`](MemoryDisk::sync_every) makes a disk that loses
///   transactions, to show that a test of a program notices.
///
/// A crash does not stop the threads of the test. The open store fails from then on, and the timers
/// stop with an error. End their event loops before the store is opened again, so that no handler
/// of the past runs. With a [manual clock](crate::testing::ManualClock) nothing fires in between.
///
/// # Deadlocks
///
/// The methods wait for the transaction that is running. Do not call them in one.
///
/// ```
/// use netwheel::{EventLoopGroup, shutdown::ShutdownOptions, durable::{Due, DurableTimers, Late, MemoryDisk, Retry, Topic}};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let disk = MemoryDisk::new();
/// let program = |group: &EventLoopGroup| -> netwheel::Result<DurableTimers> {
///     let remind = Topic::new("remind", Late::RunOnce, Retry::never(), |due: Due<u32>| due.done());
///     DurableTimers::builder(disk.open()?).topic(remind).start(group)
/// };
///
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let timers = program(&group)?;
/// let id = timers.at("remind", Duration::from_secs(3600), &17).start().wait()?;
/// disk.crash(1);
/// drop(timers);
/// group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO)).wait()?;
///
/// // The program starts again, and the timer is there.
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let timers = program(&group)?;
/// assert!(timers.cancel(id).wait()?);
/// timers.close().wait()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<Disk>>);

#[derive(Debug)]
struct Disk {
    tables: Tables,
    /// The changes that undo each transaction that was not synced, in the order of the commits.
    unsynced: VecDeque<Vec<Write>>,
    sync_every: usize,
    /// The numbers of the open stores: one, unless it is the disk of a database.
    open: BTreeSet<u64>,
    /// Stores that were opened.
    opened: u64,
    commits: u64,
    /// The disk of the machine on which the store was opened last, in a simulation.
    medium: machine::Disk,
    /// How often that machine had lost its power.
    power_losses: u64,
    /// How often the machine of a database had lost its power.
    host_power_losses: u64,
    crashes: u64,
    /// Commits that will fail.
    failures: u32,
    is_full: bool,
}

impl Default for Disk {
    fn default() -> Self {
        Disk {
            tables: Tables::default(),
            unsynced: VecDeque::new(),
            sync_every: 1,
            open: BTreeSet::new(),
            opened: 0,
            commits: 0,
            medium: machine::Disk::default(),
            power_losses: 0,
            host_power_losses: 0,
            crashes: 0,
            failures: 0,
            is_full: false,
        }
    }
}

/// The kind of a transaction, for the faults of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OperationKind {
    /// Changes of timers, or work of the program.
    Commit,
    /// A note of the store, which does not fail on demand.
    Note,
}

impl MemoryDisk {
    /// The largest number of commits without a sync.
    pub const MAX_UNSYNCED: usize = 10_000;

    /// Creates an empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the store on the disk.
    ///
    /// # Errors
    ///
    /// [`StoreError::InUse`] while another store on this disk is open.
    pub fn open(&self) -> std::result::Result<MemoryStore, StoreError> {
        let mut disk = self.lock();
        if !disk.open.is_empty() {
            return Err(StoreError::InUse);
        }
        let number = disk.open_next();
        disk.medium = machine::Disk::of_machine();
        disk.power_losses = disk.medium.power_losses();
        Ok(MemoryStore::new(self.clone(), number, disk.medium.clone()))
    }

    /// Sets after how many commits the disk syncs. 1 by default: a commit that has returned
    /// survives a crash. With more, a crash may lose the last commits. The commits so far are
    /// synced.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if `commits` is 0 or more than [`MAX_UNSYNCED`](Self::MAX_UNSYNCED).
    pub fn sync_every(&self, commits: usize) -> Result {
        if !(1..=Self::MAX_UNSYNCED).contains(&commits) {
            return Err(Error::setting("sync_every", commits, "between 1 and 10000 commits"));
        }
        let mut disk = self.lock();
        disk.sync_every = commits;
        disk.unsynced.clear();
        Ok(())
    }

    /// Crashes as in a power failure. Of the commits since the last sync, the first ones stay, and
    /// the others are lost; `seed` decides how many. The open store fails from now on, and another
    /// one can be opened. Returns the number of lost commits.
    pub fn crash(&self, seed: u64) -> usize {
        self.lock().crash(seed)
    }

    /// Makes the next commits fail with [`StoreError::Busy`], with nothing stored. Applies to
    /// changes of timers and to transactions of the program.
    pub fn fail_commits(&self, commits: u32) {
        self.lock().failures = commits;
    }

    /// Sets whether the disk is full. Then every transaction that writes fails with
    /// [`StoreError::DiskFull`], with nothing stored.
    pub fn set_full(&self, is_full: bool) {
        self.lock().is_full = is_full;
    }

    /// Returns the number of transactions that have written to the disk.
    pub fn commits(&self) -> u64 {
        self.lock().commits
    }

    /// Returns the value of a row that the program has stored with a [`MemoryTransaction`].
    pub fn row(&self, name: &str) -> Option<Vec<u8>> {
        self.lock().tables.rows.get(name).cloned()
    }

    /// Returns a copy of all rows that the program has stored, by their names.
    pub fn rows(&self) -> BTreeMap<String, Vec<u8>> {
        self.lock().tables.rows.clone()
    }

    /// Calls `read` with the tables, for a store.
    pub(super) fn read<T>(
        &self,
        store: u64,
        read: impl FnOnce(&Tables) -> T,
    ) -> std::result::Result<T, StoreError> {
        let disk = self.lock();
        disk.check(store)?;
        Ok(read(&disk.tables))
    }

    /// Calls `work` in a transaction of a store, and commits it if the work succeeds. Returns also
    /// the timers that the program has started in it.
    pub(super) fn transact<T>(
        &self,
        store: u64,
        kind: OperationKind,
        work: impl FnOnce(&mut MemoryTransaction) -> std::result::Result<T, StoreError>,
    ) -> std::result::Result<(T, Vec<i64>), StoreError> {
        let mut disk = self.lock();
        disk.check(store)?;
        if kind == OperationKind::Commit && disk.failures > 0 {
            disk.failures -= 1;
            return Err(StoreError::Busy("the test has asked for a failed commit".into()));
        }
        let mut lent = LentTables::begin(&mut disk.tables, self.id(), store);
        let result = work(lent.transaction());
        let (inverse, started) = lent.end();
        let result = result.and_then(|value| {
            if disk.is_full && !inverse.is_empty() { Err(StoreError::DiskFull) } else { Ok(value) }
        });
        match result {
            Ok(value) => {
                disk.commit(inverse);
                Ok((value, started))
            }
            Err(error) => {
                disk.tables.undo(inverse.into_iter());
                Err(error)
            }
        }
    }

    /// Returns a number that no other disk has while there is a handle to this one.
    pub(super) fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Opens a session of a store with several nodes, and returns its number. Only the first one
    /// sets the number of partitions, because timers in others would have no owner.
    pub(super) fn connect(&self, partitions: u32) -> u64 {
        let mut disk = self.lock();
        if disk.tables.partitions.is_empty() {
            disk.tables.partitions.resize_with(partitions as usize, Default::default);
        }
        disk.open_next()
    }

    /// Returns how often the disk of a database has crashed. If the machine at the end of `route`
    /// has lost its power since the last time, that happens first.
    pub(super) fn crashes(&self, route: &Route) -> u64 {
        let mut disk = self.lock();
        let losses = route.power_losses();
        if losses > disk.host_power_losses {
            disk.host_power_losses = losses;
            disk.crash(route.seed());
        }
        disk.crashes
    }

    /// Returns whether a store or session is open.
    pub(super) fn is_open(&self, store: u64) -> bool {
        self.lock().open.contains(&store)
    }

    /// Notes that a store was dropped.
    pub(super) fn close(&self, store: u64) {
        self.lock().open.remove(&store);
    }

    /// Notes that the transactions of a store are synced.
    pub(super) fn synced(&self, store: u64) -> std::result::Result<(), StoreError> {
        let mut disk = self.lock();
        disk.check(store)?;
        disk.sync();
        Ok(())
    }

    /// Locks the disk. If its machine has lost the power since the last time, that happens first.
    fn lock(&self) -> MutexGuard<'_, Disk> {
        let mut disk = self.0.lock();
        let losses = disk.medium.power_losses();
        if losses != disk.power_losses {
            disk.power_losses = losses;
            let seed = disk.medium.seed();
            disk.crash(seed);
        }
        disk
    }
}

impl Disk {
    fn check(&self, store: u64) -> std::result::Result<(), StoreError> {
        if self.open.contains(&store) {
            Ok(())
        } else {
            Err(StoreError::failed("the memory disk has crashed since the store was opened"))
        }
    }

    fn commit(&mut self, inverse: Vec<Write>) {
        if !inverse.is_empty() {
            self.commits += 1;
            self.unsynced.push_back(inverse);
            if !self.medium.needs_sync() {
                self.sync();
            }
        }
    }

    fn open_next(&mut self) -> u64 {
        self.opened += 1;
        self.open.insert(self.opened);
        self.opened
    }

    fn sync(&mut self) {
        if self.unsynced.len() >= self.sync_every {
            self.unsynced.clear();
        }
    }

    /// Loses some of the last transactions, or none, and returns their number.
    fn crash(&mut self, seed: u64) -> usize {
        self.crashes += 1;
        self.open.clear();
        let kept = fastrand::Rng::with_seed(seed).usize(..=self.unsynced.len());
        let lost = self.unsynced.split_off(kept);
        let count = lost.len();
        self.tables.undo(lost.into_iter().flatten());
        self.unsynced.clear();
        count
    }
}

impl fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDisk").finish_non_exhaustive()
    }
}
