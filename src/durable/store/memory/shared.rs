//! A memory store that is one of several nodes: its requests, partitions and leases.
//!
//! Invariants: a partition has one owner, an epoch that grows with each new owner, and the end of
//! the owner's lease by the clock of the database. What this node knows of its partitions changes
//! only with an answer. After a lost answer, the next requests belong to a new session, so changes
//! that were made nevertheless are found as those of others.

use super::{
    MemoryStore,
    changes::Sharing,
    disk::{MemoryDisk, OperationKind},
    reads,
    tables::{PartitionRow, View, Write},
    transaction::MemoryTransaction,
};
use crate::{
    durable::{
        store::{
            change::Loaded,
            error::StoreError,
            lease::{ClockReading, Lease},
            ownership::Ownership,
            server_clock::ServerClock,
            sharing_settings::SharingSettings,
        },
        unix_millis::duration_millis,
    },
    machine::{self, Route, RouteError},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// The settings of a store, which are checked when it is opened.
#[derive(Debug, Clone, Default)]
pub(super) struct MemorySettings {
    pub(super) sharing: SharingSettings,
    pub(super) host: Option<Arc<str>>,
}

/// How the requests of a node reach the database.
#[derive(Debug)]
pub(super) struct MemorySession {
    settings: SharingSettings,
    route: Route,
    /// How often the server had been killed, and its disk had crashed, when this session began.
    server: (u64, u64),
    /// Whether the server was replaced since the last renewal.
    is_other_server: bool,
    pub(super) member: Member,
}

/// What a node knows of its partitions.
#[derive(Debug, Default)]
pub(super) struct Member {
    /// This node in the tables.
    node: u64,
    pub(super) ownership: Ownership,
    /// The change up to which those of others are known.
    seen: Option<u64>,
    recheck: BTreeSet<i64>,
    clock: Option<ServerClock>,
}

impl Member {
    /// Returns what changes of timers need to know, at a time of the database.
    pub(super) fn sharing(&mut self, now: SystemTime) -> Sharing<'_> {
        Sharing {
            node: self.node,
            ownership: &mut self.ownership,
            recheck: &mut self.recheck,
            now: micros(now),
        }
    }
}

impl MemorySession {
    pub(super) fn open(
        disk: MemoryDisk,
        settings: MemorySettings,
        route: Route,
    ) -> Result<MemoryStore, StoreError> {
        let settings = settings.sharing;
        let server = server(&route, &disk);
        let mut session =
            MemorySession { settings, route, server, is_other_server: false, member: Member::default() };
        let (timeout, partitions) = (session.settings.request_timeout(), session.settings.partitions);
        let asked = machine::now();
        let route = session.route();
        let connected = session.route.call(timeout, || (disk.connect(partitions), micros(route.wall_time())));
        let (number, now) = connected.map_err(no_answer)?;
        session.member.node = number;
        session.member.clock = Some(ServerClock::read(None, now, asked, machine::now()));
        let mut store = MemoryStore::new(disk, number, machine::Disk::default());
        store.session = Some(Box::new(session));
        Ok(store)
    }

    pub(super) fn route(&self) -> Route {
        self.route.clone()
    }
}

impl MemoryStore {
    /// Calls `serve` at the database, with the number of the session.
    pub(super) fn request<T>(
        &mut self,
        serve: impl FnOnce(&MemoryDisk, u64) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let Some(session) = &mut self.session else { return serve(&self.disk, self.number) };
        let server = server(&session.route, &self.disk);
        let is_other = session.server != server;
        if is_other || !self.disk.is_open(self.number) {
            self.disk.close(self.number);
            self.number = self.disk.connect(session.settings.partitions);
            session.server = server;
            session.is_other_server |= is_other;
        }
        let serve = || {
            if self.disk.is_open(self.number) {
                serve(&self.disk, self.number)
            } else {
                // The disk has crashed while the request was on its way.
                Err(StoreError::Busy("the connection to the server is closed".into()))
            }
        };
        match session.route.call(session.settings.request_timeout(), serve) {
            Ok(answer) => answer,
            Err(error) => {
                if error != RouteError::Refused {
                    self.disk.close(self.number);
                }
                Err(no_answer(error))
            }
        }
    }

    /// Renews the leases, gives surplus back, and takes over partitions without an owner.
    pub(super) fn renew_lease(&mut self, busy: &BTreeSet<u32>) -> Result<Option<Lease>, StoreError> {
        let Some(session) = &self.session else { return Ok(None) };
        let (settings, route) = (session.settings.clone(), session.route());
        let node = session.member.node;
        let mut ownership = session.member.ownership.clone();
        let asked = machine::now();
        let now = self.transact(OperationKind::Note, |transaction| {
            let now = micros(route.wall_time());
            renew(transaction, node, &mut ownership, busy, &settings, now);
            Ok(now)
        })?;
        let answered = machine::now();
        let Some(session) = &mut self.session else { return Ok(None) };
        let needs_reload = std::mem::take(&mut session.is_other_server);
        let member = &mut session.member;
        if needs_reload {
            member.seen = None;
        }
        member.ownership = ownership;
        member.clock = Some(ServerClock::read(member.clock, now, asked, answered));
        Ok(Some(member.ownership.lease(settings.lease, needs_reload)))
    }

    /// Returns near timers that other nodes and sessions have changed.
    pub(super) fn changed(&mut self, until: i64, max_bytes: usize) -> Result<Loaded, StoreError> {
        let topics = self.topics.clone();
        let Some(session) = &self.session else { return Ok(Loaded { rows: Vec::new(), is_complete: true }) };
        let Some(seen) = session.member.seen else {
            // The engine loads everything after its first lease.
            let last = self.request(|disk, number| disk.read(number, |tables| tables.last_change))?;
            self.member(|member| member.seen = Some(last));
            return Ok(Loaded { rows: Vec::new(), is_complete: true });
        };
        let (ownership, recheck) = (session.member.ownership.clone(), session.member.recheck.clone());
        let (loaded, last) = self.request(|disk, number| {
            let view = View { topics: &topics, ownership: Some(&ownership) };
            disk.read(number, |tables| {
                reads::changed(tables, view, (seen, number), &recheck, until, max_bytes)
            })
        })?;
        self.member(|member| {
            member.seen = Some(last);
            member.recheck.clear();
        });
        Ok(loaded)
    }

    /// Returns a reading of the database's clock, as of the last renewal or the opening.
    pub(super) fn read_clock(&self) -> Option<ClockReading> {
        let clock = self.session.as_ref()?.member.clock?;
        Some(clock.reading(machine::now()))
    }

    /// Gives all partitions back.
    pub(super) fn give_back(&mut self) -> Result<(), StoreError> {
        let Some(session) = &self.session else { return Ok(()) };
        let node = session.member.node;
        self.transact(OperationKind::Note, |transaction| {
            transaction.write(Write::Node(node, None));
            let owned: Vec<u32> = partitions(transaction, |partition| partition.owner == Some(node));
            owned.into_iter().for_each(|partition| free(transaction, partition));
            Ok(())
        })?;
        self.member(|member| member.ownership = Ownership::default());
        Ok(())
    }

    fn member(&mut self, change: impl FnOnce(&mut Member)) {
        if let Some(session) = &mut self.session {
            change(&mut session.member);
        }
    }
}

/// Makes the changes of a renewal, at a time of the database.
fn renew(
    transaction: &mut MemoryTransaction,
    node: u64,
    ownership: &mut Ownership,
    busy: &BTreeSet<u32>,
    settings: &SharingSettings,
    now: i64,
) {
    let lease_until = now.saturating_add(duration_millis(settings.lease).saturating_mul(1000));
    // Others do not leave a share to a node that is about to stop.
    let alive_until = if ownership.is_closing() { now } else { lease_until };
    transaction.write(Write::Node(node, Some(alive_until)));
    let mut owned = BTreeMap::new();
    for number in partitions(transaction, |partition| partition.owner == Some(node)) {
        let partition = transaction.tables().partitions[number as usize];
        transaction.write(Write::Partition(number, PartitionRow { lease_until, ..partition }));
        owned.insert(number, partition.epoch);
    }
    let nodes = &transaction.tables().nodes;
    let others = nodes.iter().filter(|(id, alive_until)| **id != node && **alive_until > now).count();
    let share = ownership.share(transaction.tables().partitions.len() as u32, others);
    let instant = machine::now();
    let drain_until = instant + settings.drain_timeout();
    for surplus in ownership.update(owned, share, busy, drain_until, instant) {
        free(transaction, surplus);
    }
    let is_free = |partition: &PartitionRow| {
        partition.owner.is_none() || (partition.owner != Some(node) && partition.lease_until <= now)
    };
    let wanted = ownership.wanted(share);
    for number in partitions(transaction, is_free).into_iter().take(wanted) {
        let before = transaction.tables().partitions[number as usize];
        let epoch = before.epoch + 1;
        transaction.write(Write::Partition(number, PartitionRow { owner: Some(node), epoch, lease_until }));
        ownership.take_over(number, epoch, before.owner.is_some());
    }
}

/// Returns the numbers of some partitions.
fn partitions(transaction: &MemoryTransaction, is_wanted: impl Fn(&PartitionRow) -> bool) -> Vec<u32> {
    let all = (0..).zip(&transaction.tables().partitions);
    all.filter(|(_, partition)| is_wanted(partition)).map(|(number, _)| number).collect()
}

/// Takes the owner from a partition.
fn free(transaction: &mut MemoryTransaction, number: u32) {
    let epoch = transaction.tables().partitions[number as usize].epoch;
    transaction.write(Write::Partition(number, PartitionRow { owner: None, epoch, lease_until: i64::MIN }));
}

/// Returns what identifies the server, and that is another one after it was killed and after its
/// disk has crashed: it may lack transactions then. A loss of power that has not been detected yet
/// is such a crash.
fn server(route: &Route, disk: &MemoryDisk) -> (u64, u64) {
    (route.restarts(), disk.crashes(route))
}

/// Returns the error of a request that the database has not answered.
fn no_answer(error: RouteError) -> StoreError {
    let text = error.to_string().into();
    if error == RouteError::Refused { StoreError::Server(text) } else { StoreError::Busy(text) }
}

fn micros(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
