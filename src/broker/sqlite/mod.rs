//! `SqliteBroker`: topics of one node, in a file.

mod errors;
mod leases;
mod maps;
mod operation;
mod schema;
mod tables;
mod topic_row;
mod upkeep;
mod writer;

use super::store::{
    Broker, BrokerError, BrokerEvent, BrokerStart, Changed, History, MapUpdate, NodeId, NodeLease,
    Notification, Partition, PartitionTops, Position, Publication, Published, ReadRange, Snapshot, TopicName,
    TopicSeen,
};
use crate::{
    error::{Error, Result},
    machine,
    sync::{Completer, Completion, Permits, Sender, channel, completion, loop_id},
};
use errors::StepResult;
use leases::NodeLeases;
use operation::{FnOperation, OperationPermit, WriterRequest};
use std::{
    fmt,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tables::BrokerTables;
use writer::{BrokerFile, BrokerWriter};

/// The largest number of operations that wait, unless set otherwise.
const MAX_PENDING: usize = 16_384;

/// How long the metadata of an idle topic is kept, unless set otherwise.
const KEEP_IDLE: Duration = Duration::from_secs(30 * 24 * 3600);

/// A broker in an SQLite file, for one process. Its topics survive a crash.
///
/// A message has reached the disk when `publish` completes (write-ahead log, `synchronous=FULL`).
/// Messages that wait share a transaction, and so one `fsync`. The file is locked while the broker is
/// open: a second one fails with [`BrokerError::InUse`]. All operations run on one thread, in the
/// order of the calls.
///
/// NodeLeases of nodes are kept in memory, because no node of the file survives the process. After a
/// restart, the next [`end_lost_leases`](Broker::end_lost_leases) removes the entries of earlier
/// nodes.
///
/// The broker writes nothing more after an error that leaves the state of the disk unknown, such as a
/// failed `fsync`. Operations then fail with [`BrokerError::Failed`]. A full disk is
/// [`BrokerError::Full`], and operations work again when there is room.
///
/// Positions stay valid over restarts. They are not, without an epoch that says so, if the file was
/// replaced by an older copy: remove the file instead, or let all readers begin anew.
///
/// ```
/// use netwheel::broker::{BrokerError, SqliteBroker};
///
/// # fn main() -> Result<(), BrokerError> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("rooms.db");
/// let broker = SqliteBroker::open(path)?;
/// # drop(broker);
/// # Ok(())
/// # }
/// ```
pub struct SqliteBroker {
    state: Mutex<BrokerState>,
    permits: Arc<Permits>,
    keep_idle: Duration,
    thread_id: u32,
}

enum BrokerState {
    Opened(Box<BrokerFile>),
    Started(WriterHandle),
    Closed,
}

/// The way to the writer's thread, and the receiver of notifications.
#[derive(Clone)]
struct WriterHandle {
    sender: Arc<Sender<WriterRequest>>,
    start: BrokerStart,
    followed: Arc<Mutex<Vec<bool>>>,
}

impl SqliteBroker {
    /// Opens or creates a file. Older versions of the tables are migrated. A file of another program
    /// is not changed.
    ///
    /// # Errors
    ///
    /// [`BrokerError::InUse`], [`BrokerError::Unsuitable`] for a file of another program,
    /// [`BrokerError::Version`], or [`BrokerError::Failed`], for example if the directory does not
    /// exist.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, BrokerError> {
        machine::refuse_in_simulation("SqliteBroker").map_err(BrokerError::failed)?;
        let file = BrokerFile::open(path.as_ref())?;
        Ok(SqliteBroker {
            state: Mutex::new(BrokerState::Opened(Box::new(file))),
            permits: Arc::new(Permits::new(MAX_PENDING)),
            keep_idle: KEEP_IDLE,
            thread_id: loop_id::next(),
        })
    }

    /// Sets the largest number of operations that wait for the disk. 16,384 by default, at least 1.
    /// Further operations fail with [`BrokerError::Full`].
    #[must_use]
    pub fn max_pending(mut self, operations: usize) -> Self {
        self.permits = Arc::new(Permits::new(operations));
        self
    }

    /// Sets how long the metadata of a topic is kept after its last message or entry has gone. 30
    /// days by default, 1 minute to 10 years. After that, the topic begins anew with another epoch.
    #[must_use]
    pub fn keep_idle(mut self, time: Duration) -> Self {
        self.keep_idle = time;
        self
    }

    /// Sets how many bytes the write-ahead log may have. 256 MiB by default, at least 1 MiB. Above
    /// it, operations fail with [`BrokerError::Refused`]. The log grows beyond 4 MiB only if it
    /// cannot be copied to the file, for example while another connection reads an old state.
    #[must_use]
    pub fn max_log_bytes(self, bytes: u64) -> Self {
        if let BrokerState::Opened(file) = &mut *self.lock() {
            file.log.limit = bytes;
        }
        self
    }

    fn lock(&self) -> MutexGuard<'_, BrokerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the settings.
    fn check(&self, file: &BrokerFile) -> Result<()> {
        if self.permits.limit() == 0 {
            return Err(Error::setting("max_pending", 0, "1 or more"));
        }
        let range = Duration::from_secs(60)..=Duration::from_secs(3660 * 24 * 3600);
        if !range.contains(&self.keep_idle) {
            return Err(Error::setting(
                "keep_idle",
                format_args!("{:?}", self.keep_idle),
                "1 minute to 10 years",
            ));
        }
        if !file.has_valid_limit() {
            return Err(Error::setting("max_log_bytes", file.log.limit, "at least 1 MiB"));
        }
        Ok(())
    }

    fn requests(&self) -> Result<WriterHandle, BrokerError> {
        match &*self.lock() {
            BrokerState::Started(requests) => Ok(requests.clone()),
            BrokerState::Opened(_) => Err(BrokerError::Unreachable("it was not started".into())),
            BrokerState::Closed => Err(BrokerError::Closed),
        }
    }

    /// Passes an operation to the writer's thread.
    fn call<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut BrokerTables<'_>, &mut NodeLeases) -> StepResult<T> + Send + 'static,
    ) -> Completion<T> {
        let requests = match self.requests() {
            Ok(requests) => requests,
            Err(error) => return Completion::ready(Err(error.into())),
        };
        let Some(permit) = OperationPermit::take(&self.permits) else {
            let limit = self.permits.limit();
            let error = BrokerError::Full(format!("{limit} operations wait").into());
            return Completion::ready(Err(error.into()));
        };
        let (completer, done) = completion(Some(self.thread_id));
        let operation = FnOperation { work, result: None, completer, permit };
        if let Err(WriterRequest::Operation(mut refused)) =
            requests.sender.send(WriterRequest::Operation(Box::new(operation)))
        {
            refused.fail(&BrokerError::Closed);
            refused.complete();
        }
        done
    }
}

impl Broker for SqliteBroker {
    fn start(&self, start: BrokerStart) -> Result<()> {
        let mut state = self.lock();
        let file = match std::mem::replace(&mut *state, BrokerState::Closed) {
            BrokerState::Opened(file) => file,
            other => {
                let error = if matches!(other, BrokerState::Closed) {
                    BrokerError::Closed
                } else {
                    BrokerError::InUse
                };
                *state = other;
                return Err(error.into());
            }
        };
        if let Err(error) = self.check(&file) {
            *state = BrokerState::Opened(file);
            return Err(error);
        }
        let (sender, requests) = channel();
        let writer = BrokerWriter::new(*file, requests, start.clone(), self.keep_idle, self.thread_id);
        machine::spawn("netwheel-broker".to_owned(), move || writer.run())
            .map_err(|error| Error::io("starting the thread of a broker", error))?;
        let followed = Arc::new(Mutex::new(vec![false; start.partitions.get().into()]));
        *state = BrokerState::Started(WriterHandle { sender: Arc::new(sender), start, followed });
        Ok(())
    }

    fn follow(&self, partition: Partition, on: bool) {
        let Ok(requests) = self.requests() else { return };
        let mut followed = requests.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(is_followed) = followed.get_mut(usize::from(partition.get())) else { return };
        // Under the lock, so that requests are sent in the order of the calls.
        if std::mem::replace(is_followed, on) != on {
            let _ = requests.sender.send(WriterRequest::Follow(partition, on));
        }
    }

    fn publish(&self, publication: Publication) -> Completion<Published> {
        if let Err(error) = publication.limits.check() {
            return Completion::ready(Err(error));
        }
        self.call(move |tables, _| tables.publish(&publication))
    }

    fn notify(&self, notification: Notification) -> Result<()> {
        let requests = self.requests()?;
        let partition = requests.start.partitions.of(&notification.topic);
        let followed = requests.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_followed = followed.get(usize::from(partition.get())).is_some_and(|followed| *followed);
        drop(followed);
        if is_followed {
            requests.start.sink.handle(BrokerEvent::Notified(notification));
        }
        Ok(())
    }

    fn read(&self, topic: &TopicName, range: ReadRange) -> Completion<History> {
        let topic = topic.clone();
        self.call(move |tables, _| tables.read(&topic, range))
    }

    fn tops(&self, partition: Partition, topics: Vec<TopicSeen>) -> Completion<PartitionTops> {
        if topics.len() > TopicSeen::LIMIT {
            return Completion::ready(Err(Error::setting("topics", topics.len(), "at most 1000")));
        }
        self.call(move |tables, _| tables.tops(partition, &topics))
    }

    fn change(&self, update: MapUpdate) -> Completion<Changed> {
        if update.changes.len() > MapUpdate::LIMIT {
            return Completion::ready(Err(Error::setting("changes", update.changes.len(), "at most 1000")));
        }
        self.call(move |tables, leases| tables.change(&update, leases))
    }

    fn snapshot(&self, topic: &TopicName, seen: Option<Position>) -> Completion<Snapshot> {
        let topic = topic.clone();
        self.call(move |tables, _| tables.snapshot(&topic, seen))
    }

    fn renew(&self, lease: NodeLease) -> Completion<()> {
        self.call(move |tables, leases| Ok(leases.renew(&lease, tables.now)?))
    }

    fn end_lost_leases(&self) -> Completion<Vec<NodeId>> {
        self.call(|tables, leases| {
            let mut lost = leases.take_expired(tables.now);
            for owner in tables.owners()? {
                if !leases.is_alive(&owner, tables.now) && !lost.contains(&owner) {
                    lost.push(owner);
                }
            }
            lost.iter().try_for_each(|node| tables.remove_entries_of(node))?;
            Ok(lost)
        })
    }

    fn end_lease(&self, node: &NodeId) -> Completion<()> {
        let node = node.clone();
        self.call(move |tables, leases| {
            leases.end(&node);
            tables.remove_entries_of(&node)
        })
    }

    fn close(&self) -> Completion<()> {
        let requests = match std::mem::replace(&mut *self.lock(), BrokerState::Closed) {
            BrokerState::Started(requests) => requests,
            BrokerState::Opened(_) | BrokerState::Closed => return Completion::ready(Ok(())),
        };
        let (completer, done): (Completer<()>, _) = completion(Some(self.thread_id));
        if let Err(WriterRequest::Close(completer)) = requests.sender.send(WriterRequest::Close(completer)) {
            completer.complete(Ok(()));
        }
        done
    }
}

impl fmt::Debug for SqliteBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteBroker").field("pending", &self.permits.taken()).finish_non_exhaustive()
    }
}
