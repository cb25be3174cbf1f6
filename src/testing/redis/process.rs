//! `Process`: one life of the simulated `redis-server`.
//!
//! Invariant: everything here is lost in a crash. What survives is on the disk.

use super::{
    command::CallEffects,
    keyspace::Keyspace,
    pubsub::{ClientId, PubSub},
    refusal::Refusal,
    session::ClientSession,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const READ_ONLY: Refusal = Refusal::of("READONLY You can't write against a read only replica.");
pub(super) const OUT_OF_MEMORY: Refusal =
    Refusal::of("OOM command not allowed when used memory > 'maxmemory'.");

/// A condition that ends after a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ProcessCondition {
    /// The keys are being loaded.
    Loading,
    /// A script has been running for too long.
    Busy,
    /// Nothing is executed.
    Held,
}

/// What keeps the server from its normal work.
#[derive(Debug, Clone, Default)]
pub(super) struct Conditions {
    /// Conditions with the number of the request that ends each.
    pub(super) timed: BTreeMap<ProcessCondition, u64>,
    pub(super) is_read_only: bool,
    pub(super) is_out_of_memory: bool,
}

impl Conditions {
    pub(super) fn has(&self, condition: ProcessCondition) -> bool {
        self.timed.contains_key(&condition)
    }
}

#[derive(Default)]
pub(super) struct Process {
    /// The number that the disk has given to the process. Connections of another one are cut.
    pub(super) number: u64,
    pub(super) keyspace: Keyspace,
    pub(super) pubsub: PubSub,
    pub(super) sessions: BTreeMap<ClientId, ClientSession>,
    /// The clients that watch a key.
    watchers: BTreeMap<(usize, Bytes), BTreeSet<ClientId>>,
    /// The scripts that `EVALSHA` finds.
    pub(super) loaded: BTreeSet<String>,
    pub(super) conditions: Conditions,
    /// 40 hexadecimal digits, which differ in each process.
    pub(super) run_id: String,
    last_client: ClientId,
}

impl Process {
    pub(super) fn new(number: u64, keyspace: Keyspace, run_id: String, conditions: Conditions) -> Self {
        Process { number, keyspace, conditions, run_id, ..Process::default() }
    }

    pub(super) fn connect(&mut self, session: ClientSession) -> ClientId {
        self.last_client += 1;
        self.pubsub.connect(self.last_client);
        self.sessions.insert(self.last_client, session);
        self.last_client
    }

    pub(super) fn disconnect(&mut self, client: ClientId) {
        self.unwatch(client);
        self.pubsub.disconnect(client);
        self.sessions.remove(&client);
    }

    pub(super) fn watch(&mut self, client: ClientId, key: (usize, Bytes)) {
        self.watchers.entry(key.clone()).or_default().insert(client);
        if let Some(session) = self.sessions.get_mut(&client) {
            session.watched.insert(key);
        }
    }

    pub(super) fn unwatch(&mut self, client: ClientId) {
        let Some(session) = self.sessions.get_mut(&client) else { return };
        session.is_dirty = false;
        for key in std::mem::take(&mut session.watched) {
            if let Some(clients) = self.watchers.get_mut(&key) {
                clients.remove(&client);
                if clients.is_empty() {
                    self.watchers.remove(&key);
                }
            }
        }
    }

    /// Makes the transactions of clients fail that watch a changed key.
    pub(super) fn notify_watchers(&mut self, effects: &CallEffects) {
        for key in &effects.touched {
            for client in self.watchers.get(key).into_iter().flatten() {
                if let Some(session) = self.sessions.get_mut(client) {
                    session.is_dirty = true;
                }
            }
        }
    }
}
