//! `SqliteBroker`: topics of one node, in a file.

mod errors;
mod maps;
mod operation;
mod schema;
mod tables;
mod topic_row;
mod upkeep;
mod writer;
#[cfg(test)]
mod writer_tests;

use super::{
    pending_limit::{MAX_PENDING_BYTES, PendingLimit, PendingPermit},
    store::{
        Broker, BrokerError, BrokerStart, Changed, History, MapUpdate, NodeId, NodeLease, NodeLeases,
        Notification, Partition, PartitionTops, Partitions, Position, Publication, Published, ReadRange,
        Snapshot, TopicName, TopicSeen,
    },
};
use crate::{
    error::{Error, Result},
    machine::{self, Mutex},
    settings::check_range,
    sqlite::MIN_LIMIT,
    sync::{Completion, Sender, channel, completion, loop_id},
};
use errors::StepResult;
use operation::{FnOperation, NodeNumber, WriterRequest};
use std::{
    fmt, mem,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tables::FileTables;
use writer::{BrokerFile, BrokerWriter};

/// The largest number of operations that wait, unless set otherwise.
const MAX_PENDING: usize = 16_384;

/// How long the metadata of an idle topic is kept, unless set otherwise.
const KEEP_IDLE: Duration = Duration::from_secs(30 * 24 * 3600);

/// A broker in an SQLite file, for one process. Its topics survive a crash. A clone is the broker
/// of another node in the same process.
///
/// A message has reached the disk when `publish` completes (write-ahead log, `synchronous=FULL`).
/// Messages that wait share a transaction, and so one `fsync`. The file is locked while the broker
/// is open: a second one fails with [`BrokerError::InUse`]. All operations run on one thread, in
/// the order of the calls.
///
/// The leases of nodes are kept in memory, because no node of the file survives the process. After
/// a restart, the next [`end_lost_leases`](Broker::end_lost_leases) removes the entries of earlier
/// nodes.
///
/// The broker writes nothing more after an error that leaves the state of the disk unknown, such as
/// a failed `fsync`. Operations then fail with [`BrokerError::Failed`]. A full disk is
/// [`BrokerError::Full`], and operations work again when there is room.
///
/// Messages and their ids expire by the wall clock. If it jumps ahead by more than a day, the
/// broker follows it after a minute, so that a glitch removes nothing.
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
    file: Arc<Mutex<FileState>>,
    limit: Arc<PendingLimit>,
    settings: FileSettings,
    thread_id: u32,
    /// The number of this node, and that of the next clone.
    node: NodeNumber,
    next_node: Arc<AtomicU64>,
    /// The number of clones that are not closed.
    open: Arc<AtomicUsize>,
    life: Mutex<NodeLife>,
}

/// The settings that all nodes of a file share.
#[derive(Debug, Clone, Copy)]
struct FileSettings {
    keep_idle: Duration,
    max_log_bytes: u64,
}

enum FileState {
    Opened(Box<BrokerFile>),
    Running(Arc<Sender<WriterRequest>>, Partitions, FileSettings),
    Closed,
}

/// The life of one node.
enum NodeLife {
    New,
    Started(Arc<Sender<WriterRequest>>),
    Closed,
}

impl FileSettings {
    /// Checks that they are those of the node that was started first.
    fn check_same(&self, first: &Self) -> Result<()> {
        let same = "that of the node that was started first";
        if self.keep_idle != first.keep_idle {
            return Err(Error::setting("keep_idle", format!("{:?}", self.keep_idle), same));
        }
        if self.max_log_bytes != first.max_log_bytes {
            return Err(Error::setting("max_log_bytes", self.max_log_bytes, same));
        }
        Ok(())
    }
}

impl SqliteBroker {
    /// Opens or creates a file. Older versions of the tables are migrated. A file of another
    /// program is not changed.
    ///
    /// # Errors
    ///
    /// [`BrokerError::InUse`], [`BrokerError::Unsuitable`] for a file of another program,
    /// [`BrokerError::Version`], or [`BrokerError::Failed`], for example if the directory does not
    /// exist.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, BrokerError> {
        machine::refuse_in_simulation("SqliteBroker").map_err(BrokerError::failed)?;
        let file = BrokerFile::open(path.as_ref())?;
        let settings = FileSettings { keep_idle: KEEP_IDLE, max_log_bytes: file.log.limit };
        Ok(SqliteBroker {
            file: Arc::new(Mutex::new(FileState::Opened(Box::new(file)))),
            limit: PendingLimit::new(MAX_PENDING, MAX_PENDING_BYTES),
            settings,
            thread_id: loop_id::next(),
            node: 0,
            next_node: Arc::new(AtomicU64::new(1)),
            open: Arc::new(AtomicUsize::new(1)),
            life: Mutex::new(NodeLife::New),
        })
    }

    /// Sets the largest number of operations that wait for the disk. 16,384 by default, at least 1.
    /// Further operations fail with [`BrokerError::Full`], also if 64 MiB wait.
    #[must_use]
    pub fn max_pending(mut self, operations: usize) -> Self {
        self.limit = PendingLimit::new(operations, MAX_PENDING_BYTES);
        self
    }

    /// Sets how long the metadata of a topic without messages, remembered message ids, entries and
    /// readers is kept. 30 days by default, 1 minute to 10 years. After that, the topic begins anew
    /// with another epoch. Nodes ask for the topics of their members several times in this time. It
    /// should therefore be at least three times as long as their
    /// [`verify_interval`](crate::broker::TopicsBuilder::verify_interval).
    #[must_use]
    pub fn keep_idle(mut self, time: Duration) -> Self {
        self.settings.keep_idle = time;
        self
    }

    /// Sets how many bytes the write-ahead log may have. 256 MiB by default, at least 1 MiB. Above
    /// it, operations fail with [`BrokerError::Refused`]. The log grows beyond 4 MiB only if it
    /// cannot be copied to the file, for example while another connection reads an old state.
    #[must_use]
    pub fn max_log_bytes(mut self, bytes: u64) -> Self {
        self.settings.max_log_bytes = bytes;
        self
    }

    /// Checks the settings.
    fn check(&self) -> Result<()> {
        check_range("max_pending", self.limit.operations(), 1.., "1 or more")?;
        let range = Duration::from_secs(60)..=Duration::from_secs(3660 * 24 * 3600);
        check_range("keep_idle", self.settings.keep_idle, range, "1 minute to 10 years")?;
        check_range("max_log_bytes", self.settings.max_log_bytes, MIN_LIMIT.., "at least 1 MiB")
    }

    fn requests(&self) -> Result<Arc<Sender<WriterRequest>>, BrokerError> {
        match &*self.life.lock() {
            NodeLife::Started(requests) => Ok(requests.clone()),
            NodeLife::New => Err(BrokerError::Unreachable("it was not started".into())),
            NodeLife::Closed => Err(BrokerError::Closed),
        }
    }

    fn permit(&self, bytes: usize) -> Result<PendingPermit, BrokerError> {
        let full = || BrokerError::Full(format!("{} operations wait", self.limit.taken()).into());
        self.limit.take(bytes).ok_or_else(full)
    }

    /// Starts the writer's thread for the first node, and returns the way to it.
    fn run(&self, start: &BrokerStart) -> Result<Arc<Sender<WriterRequest>>> {
        self.check()?;
        let mut state = self.file.lock();
        if let FileState::Running(requests, partitions, settings) = &*state {
            if *partitions != start.partitions {
                let (found, asked) = (partitions.get(), start.partitions.get());
                return Err(BrokerError::Partitions { found, asked }.into());
            }
            self.settings.check_same(settings)?;
            return Ok(requests.clone());
        }
        let FileState::Opened(mut file) = mem::replace(&mut *state, FileState::Closed) else {
            return Err(BrokerError::Closed.into());
        };
        file.log.limit = self.settings.max_log_bytes;
        let (sender, requests) = channel();
        let writer = BrokerWriter::new(*file, requests, start, self.settings.keep_idle, self.thread_id);
        machine::spawn("netwheel-broker".to_owned(), move || writer.run())
            .map_err(|error| Error::io("starting the thread of a broker", error))?;
        let sender = Arc::new(sender);
        *state = FileState::Running(sender.clone(), start.partitions, self.settings);
        Ok(sender)
    }

    /// Passes an operation that carries a number of bytes to the writer's thread.
    fn call<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnMut(&mut FileTables<'_>, &mut NodeLeases) -> StepResult<T> + Send + 'static,
    ) -> Completion<T> {
        let (requests, permit) =
            match self.requests().and_then(|requests| Ok((requests, self.permit(bytes)?))) {
                Ok(found) => found,
                Err(error) => return Completion::ready(Err(error.into())),
            };
        let (completer, done) = completion(Some(self.thread_id));
        let operation = FnOperation { work, result: None, completer, permit };
        if let Err(WriterRequest::Operation(mut refused)) =
            requests.send(WriterRequest::Operation(Box::new(operation)))
        {
            refused.fail(&BrokerError::Closed);
            refused.complete();
        }
        done
    }
}

impl Broker for SqliteBroker {
    fn start(&self, start: BrokerStart) -> Result<()> {
        let mut life = self.life.lock();
        match &*life {
            NodeLife::New => {}
            NodeLife::Started(_) => return Err(BrokerError::InUse.into()),
            NodeLife::Closed => return Err(BrokerError::Closed.into()),
        }
        let requests = self.run(&start)?;
        let joined = requests.send(WriterRequest::Join(self.node, start));
        joined.map_err(|_| BrokerError::Closed)?;
        *life = NodeLife::Started(requests);
        Ok(())
    }

    fn follow(&self, partition: Partition, on: bool) {
        if let Ok(requests) = self.requests() {
            let _ = requests.send(WriterRequest::Follow(self.node, partition, on));
        }
    }

    fn publish(&self, publication: Publication) -> Completion<Published> {
        if let Err(error) = publication.check() {
            return Completion::ready(Err(error));
        }
        self.call(publication.payload.len(), move |tables, _| tables.publish(&publication))
    }

    fn notify(&self, notification: Notification) -> Result<()> {
        let (requests, permit) = (self.requests()?, self.permit(notification.payload.len())?);
        let sent = requests.send(WriterRequest::Notify(notification, permit));
        Ok(sent.map_err(|_| BrokerError::Closed)?)
    }

    fn read(&self, topic: &TopicName, range: ReadRange) -> Completion<History> {
        let topic = topic.clone();
        self.call(0, move |tables, _| tables.read(&topic, range))
    }

    fn tops(&self, partition: Partition, topics: Vec<TopicSeen>) -> Completion<PartitionTops> {
        if topics.len() > TopicSeen::LIMIT {
            return Completion::ready(Err(Error::setting("topics", topics.len(), "at most 1000")));
        }
        self.call(0, move |tables, _| tables.tops(partition, &topics))
    }

    fn metadata_life(&self) -> Option<Duration> {
        Some(self.settings.keep_idle)
    }

    fn change(&self, update: MapUpdate) -> Completion<Changed> {
        if update.changes.len() > MapUpdate::LIMIT {
            return Completion::ready(Err(Error::setting("changes", update.changes.len(), "at most 1000")));
        }
        self.call(update.bytes(), move |tables, leases| tables.change(&update, leases))
    }

    fn snapshot(&self, topic: &TopicName, seen: Option<Position>) -> Completion<Snapshot> {
        let topic = topic.clone();
        self.call(0, move |tables, _| tables.snapshot(&topic, seen))
    }

    fn renew(&self, lease: NodeLease) -> Completion<()> {
        self.call(0, move |tables, leases| {
            leases.renew(&lease, tables.time)?;
            Ok(())
        })
    }

    fn end_lost_leases(&self) -> Completion<Vec<NodeId>> {
        self.call(0, |tables, leases| {
            let mut lost = leases.take_expired(tables.time);
            for owner in tables.owners()? {
                if !leases.is_alive(&owner, tables.time) && !lost.contains(&owner) {
                    lost.push(owner);
                }
            }
            lost.iter().try_for_each(|node| tables.remove_entries_of(node))?;
            Ok(lost)
        })
    }

    fn end_lease(&self, node: &NodeId) -> Completion<()> {
        let node = node.clone();
        self.call(0, move |tables, leases| {
            leases.end(&node);
            tables.remove_entries_of(&node)
        })
    }

    fn close(&self) -> Completion<()> {
        let before = mem::replace(&mut *self.life.lock(), NodeLife::Closed);
        if matches!(before, NodeLife::Closed) {
            return Completion::ready(Ok(()));
        }
        let (completer, done) = completion(Some(self.thread_id));
        let is_last = self.open.fetch_sub(1, Ordering::AcqRel) == 1;
        let file =
            if is_last { mem::replace(&mut *self.file.lock(), FileState::Closed) } else { FileState::Closed };
        let request = match (before, file) {
            (_, FileState::Running(requests, ..)) => Some((requests, WriterRequest::Close(completer))),
            (NodeLife::Started(requests), _) => Some((requests, WriterRequest::Leave(self.node, completer))),
            (_, _) => {
                completer.complete(Ok(()));
                None
            }
        };
        if let Some((requests, request)) = request
            && let Err(WriterRequest::Close(completer) | WriterRequest::Leave(_, completer)) =
                requests.send(request)
        {
            completer.complete(Ok(()));
        }
        done
    }
}

impl Clone for SqliteBroker {
    /// Returns the broker of another node in the same program, such as in a test of several nodes.
    /// It was not started yet. It has the settings of this one. Of these, it may change only
    /// `max_pending` once another node was started. The file is closed when all of them are.
    fn clone(&self) -> Self {
        self.open.fetch_add(1, Ordering::AcqRel);
        SqliteBroker {
            file: self.file.clone(),
            limit: self.limit.clone(),
            settings: self.settings,
            thread_id: self.thread_id,
            node: self.next_node.fetch_add(1, Ordering::Relaxed),
            next_node: self.next_node.clone(),
            open: self.open.clone(),
            life: Mutex::new(NodeLife::New),
        }
    }
}

impl Drop for SqliteBroker {
    fn drop(&mut self) {
        self.close().detach();
    }
}

impl fmt::Debug for SqliteBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteBroker").field("pending", &self.limit.taken()).finish_non_exhaustive()
    }
}
