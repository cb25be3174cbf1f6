//! `BrokerWriter`: the thread that owns the file.
//!
//! Invariants: operations are done in the order of their calls. Those that wait share a
//! transaction, so that one `fsync` is enough for them. After the commit, the events of an
//! operation are delivered, and then it completes. After an error that is not transient nothing is
//! written again.

use super::{
    errors::{StepError, StepResult},
    operation::{FileOperation, NodeNumber, WriterRequest},
    schema::FORMAT,
    tables::{FileTables, Sequences},
    upkeep,
};
use crate::{
    broker::store::{
        BrokerError, BrokerEvent, BrokerSink, BrokerStart, NodeLeases, Partition, Partitions, StoredEvent,
    },
    clock::{Clock, ClockWatch, nanos},
    error::caught,
    machine,
    sqlite::{CachedStatements, FileError, OpenDatabase, WriteAheadLog, keep_log},
    sync::{AdaptiveWait, Completer, Random, ReceiveError, Receiver, loop_id},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

/// The largest number of requests that are handled before a commit.
const BATCH_LIMIT: usize = 1024;

/// The time between two removals of expired rows.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(10);

/// The file of a broker, before it is started.
pub(super) struct BrokerFile {
    pub(super) database: OpenDatabase,
    pub(super) log: WriteAheadLog,
}

impl BrokerFile {
    pub(super) fn open(path: &Path) -> Result<Self, FileError> {
        let mut database = OpenDatabase::open(path, &FORMAT)?;
        FORMAT.migrate(&mut database.connection)?;
        database.connection.set_prepared_statement_cache_capacity(64);
        let log = WriteAheadLog::new(&database.connection, "broker")?;
        Ok(BrokerFile { database, log })
    }
}

/// A node of the file.
struct JoinedNode {
    sink: Arc<dyn BrokerSink>,
    followed: BTreeSet<Partition>,
}

pub(super) struct BrokerWriter {
    file: BrokerFile,
    requests: Receiver<WriterRequest>,
    wait: AdaptiveWait,
    partitions: Partitions,
    clock: Arc<dyn Clock>,
    /// When the writer was created, by that clock.
    origin: Instant,
    watch: ClockWatch,
    random: Random,
    sequences: Sequences,
    /// The nodes that have started.
    nodes: BTreeMap<NodeNumber, JoinedNode>,
    leases: NodeLeases,
    keep_idle: Duration,
    next_upkeep: Instant,
    thread_id: u32,
    failed: Option<BrokerError>,
}

impl BrokerWriter {
    /// Creates the writer for the nodes of a file. The first one brings its clock and its seed.
    pub(super) fn new(
        file: BrokerFile,
        requests: Receiver<WriterRequest>,
        first: &BrokerStart,
        keep_idle: Duration,
        thread_id: u32,
    ) -> Self {
        let random = Random::new(first.seed ^ Random::system_seed());
        let numbers = vec![0; usize::from(first.partitions.get())];
        BrokerWriter {
            file,
            requests,
            wait: AdaptiveWait::default(),
            partitions: first.partitions,
            clock: first.clock.clone(),
            origin: first.clock.now(),
            watch: ClockWatch::default(),
            sequences: Sequences { generation: random.next(), numbers },
            random,
            nodes: BTreeMap::new(),
            leases: NodeLeases::default(),
            keep_idle,
            next_upkeep: machine::now(),
            thread_id,
            failed: None,
        }
    }

    /// Works until the broker is closed or dropped.
    pub(super) fn run(mut self) {
        let _entered = loop_id::enter(self.thread_id);
        let closed = self.work();
        let BrokerWriter { file, requests, failed, .. } = self;
        drop(file);
        // A request that comes later is returned to its sender.
        for request in requests.close() {
            match request {
                WriterRequest::Operation(mut operation) => {
                    operation.fail(&BrokerError::Closed);
                    operation.complete();
                }
                // Of a clone that was closed at the same time as the last one.
                WriterRequest::Leave(_, completer) => completer.complete(Ok(())),
                _ => {}
            }
        }
        if let Some(completer) = closed {
            completer.complete(failed.map_or(Ok(()), |error| Err(error.into())));
        }
    }

    fn work(&mut self) -> Option<Completer<()>> {
        loop {
            let request = match self.wait.recv(&self.requests, Some(self.next_upkeep), || {}) {
                Ok(request) => request,
                Err(ReceiveError::Empty) => {
                    self.upkeep();
                    continue;
                }
                Err(ReceiveError::Disconnected) => return None,
            };
            let mut batch = Vec::new();
            let mut next = Some(request);
            let mut handled = 0;
            // Other requests wait for the operations before them.
            let other = loop {
                match next.take() {
                    Some(WriterRequest::Operation(operation)) => batch.push(operation),
                    Some(WriterRequest::Notify(notification, permit)) => {
                        drop(permit);
                        let partition = self.partitions.of(&notification.topic);
                        self.deliver(partition, &BrokerEvent::Notified(notification));
                    }
                    other => break other,
                }
                handled += 1;
                if handled < BATCH_LIMIT {
                    next = self.requests.try_receive().ok();
                }
            };
            if !batch.is_empty() {
                self.commit(batch);
            }
            if let Some(closed) = other.and_then(|request| self.handle(request)) {
                return Some(closed);
            }
            if self.next_upkeep <= machine::now() {
                self.upkeep();
            }
        }
    }

    /// Handles a request other than an operation. Returns the completer of `Close`.
    fn handle(&mut self, request: WriterRequest) -> Option<Completer<()>> {
        match request {
            WriterRequest::Join(number, start) => {
                self.nodes.insert(number, JoinedNode { sink: start.sink, followed: BTreeSet::new() });
            }
            WriterRequest::Follow(number, partition, on) => {
                let node = self.nodes.get_mut(&number)?;
                if !on {
                    node.followed.remove(&partition);
                } else if partition.get() < self.partitions.get() && node.followed.insert(partition) {
                    tell(&node.sink, BrokerEvent::Following(partition));
                }
            }
            WriterRequest::Leave(number, completer) => {
                self.nodes.remove(&number);
                completer.complete(Ok(()));
            }
            WriterRequest::Close(completer) => return Some(completer),
            WriterRequest::Operation(_) | WriterRequest::Notify(..) => {}
        }
        None
    }

    /// Returns the wall time by which messages and ids expire. A jump that is probably wrong does
    /// not count for a minute, because it would remove everything.
    fn now(&mut self) -> i64 {
        let time = self.clock.wall_time().duration_since(SystemTime::UNIX_EPOCH);
        let passed = self.clock.now().saturating_duration_since(self.origin);
        let seen = self.watch.observe(time.map_or(0, super::tables::millis), nanos(passed));
        if let Some(jump) = seen.jump {
            let how = if seen.is_doubtful { "if it stays so for a minute" } else { "at once" };
            log::warn!("the wall clock jumped by {jump} ms; the broker follows it {how}");
        }
        seen.wall
    }

    /// Commits the operations, and completes them.
    fn commit(&mut self, mut batch: Vec<Box<dyn FileOperation>>) {
        if let Some(error) = &self.failed {
            batch.iter_mut().for_each(|operation| operation.fail(error));
            return batch.into_iter().for_each(|operation| operation.complete());
        }
        let mut ends = Vec::with_capacity(batch.len());
        let done = self.transact(|tables, leases| {
            for operation in &mut batch {
                match operation.run(tables, leases) {
                    Ok(()) => {}
                    Err(StepError::Operation(error)) => operation.fail(&error),
                    Err(failure) => return Err(failure),
                }
                ends.push(tables.events.len());
            }
            Ok(())
        });
        match done {
            Ok(events) => {
                let mut events = events.into_iter();
                let mut delivered = 0;
                for (operation, end) in batch.into_iter().zip(ends) {
                    events.by_ref().take(end - delivered).for_each(|event| self.deliver_stored(event));
                    delivered = end;
                    operation.complete();
                }
            }
            Err(error) => {
                batch.iter_mut().for_each(|operation| operation.fail(&error));
                batch.into_iter().for_each(|operation| operation.complete());
            }
        }
    }

    /// Runs `work` in a transaction, and returns its events after the commit.
    fn transact(
        &mut self,
        work: impl FnOnce(&mut FileTables<'_>, &mut NodeLeases) -> StepResult<()>,
    ) -> Result<Vec<StoredEvent>, BrokerError> {
        let now = self.now();
        let BrokerFile { database, log } = &mut self.file;
        let connection = &database.connection;
        let execute = |sql: &str| -> StepResult<()> {
            connection.run(sql, [])?;
            Ok(())
        };
        let mut tables = FileTables {
            connection,
            partitions: self.partitions,
            now,
            time: self.clock.now(),
            keep_idle: super::tables::millis(self.keep_idle),
            random: &self.random,
            sequences: self.sequences.clone(),
            events: Vec::new(),
        };
        let result = log.make_room(connection, |_| {}, false).map_err(StepError::File).and_then(|()| {
            execute("BEGIN IMMEDIATE")?;
            work(&mut tables, &mut self.leases)?;
            execute("COMMIT")?;
            Ok(database.files.check()?)
        });
        let failure = match result {
            Ok(()) => {
                self.sequences = tables.sequences;
                let events = tables.events;
                log.note_commit();
                if let Err(error) = log.maintain(connection, |_| {}) {
                    self.failed = Some(error.into());
                }
                return Ok(events);
            }
            Err(failure) => failure,
        };
        if !connection.is_autocommit() {
            // The error that counts is the first one. If the rollback fails, so does the next
            // BEGIN.
            let _ = execute("ROLLBACK");
        }
        Err(match failure {
            StepError::Operation(error) => error,
            StepError::File(error) => {
                let is_transient = error.is_transient();
                let error = BrokerError::from(error);
                if !is_transient {
                    keep_log(connection);
                    log::error!("the broker writes nothing more: {error}");
                    self.failed = Some(error.clone());
                }
                error
            }
        })
    }

    fn deliver_stored(&self, event: StoredEvent) {
        self.deliver(event.partition, &BrokerEvent::Stored(event));
    }

    /// Delivers an event to the nodes that follow its partition.
    fn deliver(&self, partition: Partition, event: &BrokerEvent) {
        for node in self.nodes.values().filter(|node| node.followed.contains(&partition)) {
            tell(&node.sink, event.clone());
        }
    }

    /// Removes expired rows.
    fn upkeep(&mut self) {
        self.next_upkeep = machine::now() + UPKEEP_INTERVAL;
        if self.failed.is_some() {
            return;
        }
        let mut is_done = true;
        let done = self.transact(|tables, _| {
            is_done = upkeep::remove_expired(tables)?;
            Ok(())
        });
        match done {
            // Another transaction removes the rest, after the waiting operations.
            Ok(_) if !is_done => self.next_upkeep = machine::now(),
            Ok(_) => {}
            Err(error) => log::warn!("the broker could not remove what has expired: {error}"),
        }
    }
}

fn tell(sink: &Arc<dyn BrokerSink>, event: BrokerEvent) {
    if let Some(message) = caught(|| sink.handle(event)) {
        log::error!("the sink of a broker panicked: {message}");
    }
}
