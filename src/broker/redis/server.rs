//! `StoreServer`: one of the servers, and whether it is suitable.

use super::{errors::broker_error, gate::CheckGate, keys::Keys, reply, scripts};
use crate::{
    broker::store::BrokerError,
    machine::Mutex,
    redis::{RedisClient, RedisCommand, ServerInfo},
};
use std::{sync::Arc, time::Duration};

/// The version of the keys and scripts.
const VERSION: u64 = 1;

/// The oldest version of Redis that the scripts are tested with.
const OLDEST_REDIS: (u64, u64) = (7, 0);

/// What a server of a store must be.
#[derive(Debug, Clone)]
pub(super) struct ServerDemands {
    pub(super) partitions: u16,
    pub(super) servers: usize,
    /// The place of the server in the list, from 0.
    pub(super) place: usize,
    pub(super) allows_eviction: bool,
}

pub(super) struct StoreServer {
    pub(super) client: RedisClient,
    pub(super) gate: CheckGate,
    demands: ServerDemands,
    keys: Keys,
    timeout: Duration,
    /// The process that was checked last.
    checked: Mutex<Option<String>>,
}

impl StoreServer {
    pub(super) fn new(client: RedisClient, demands: ServerDemands, keys: Keys, timeout: Duration) -> Self {
        StoreServer { client, gate: CheckGate::default(), demands, keys, timeout, checked: Mutex::default() }
    }

    /// Begins a check, unless one is running.
    pub(super) fn check(self: &Arc<Self>) {
        if self.gate.begin() {
            self.run_check();
        }
    }

    /// Begins a check if the server process has changed since the last check.
    pub(super) fn check_new_process(self: &Arc<Self>) {
        let Some(server) = self.client.server_info() else { return };
        let is_checked = match &*self.checked.lock() {
            // The first check has not ended.
            None => true,
            Some(checked) => server.run_id() == Some(checked),
        };
        if !is_checked {
            self.check();
        }
    }

    /// Calls `operation` once the server is known to be suitable. Until then, `weight` bytes wait.
    pub(super) fn when_suitable(
        self: &Arc<Self>,
        weight: usize,
        operation: impl FnOnce(Result<(), BrokerError>) + Send + 'static,
    ) {
        self.check_new_process();
        if self.gate.pass(weight, operation) {
            self.run_check();
        }
    }

    fn run_check(self: &Arc<Self>) {
        let (server, found) = (self.clone(), Arc::new(Mutex::new(None)));
        let (demands, key, noted) = (self.demands.clone(), self.keys.shared("store"), found.clone());
        let command = RedisCommand::built_with(move |info| {
            let verdict = suitable(info, &demands);
            let run_id = info.run_id().map(str::to_owned);
            *noted.lock() = Some((run_id, verdict));
            let fields = [
                ("version", VERSION),
                ("partitions", demands.partitions.into()),
                ("servers", demands.servers as u64),
                ("server", demands.place as u64),
            ];
            let set = fields.map(|(name, number)| {
                RedisCommand::new("HSETNX").arg(key.clone()).arg(name).arg(number.to_string())
            });
            let get =
                fields.into_iter().fold(RedisCommand::new("HMGET").arg(key), |get, (name, _)| get.arg(name));
            RedisCommand::transaction(set.into_iter().chain([get]))
        });
        self.client.call(command.timeout(self.timeout)).on_complete(move |replied| {
            let found = found.lock().take();
            let result = replied.map_err(|error| broker_error(&error)).and_then(|replied| {
                let (run_id, verdict) = found.unwrap_or((None, Ok(())));
                *server.checked.lock() = run_id;
                verdict?;
                server.compare(reply::array(replied)?)
            });
            if result.is_ok() {
                server.load_scripts();
            }
            if let Err(error) = &result {
                log::warn!("the server {} of a broker cannot be used: {error}", server.demands.place);
            }
            server.gate.finish(result);
        });
    }

    /// Loads the scripts. Redis 7.4 drops scripts that it knows from `EVAL` only, when there are
    /// many. Without the permission, operations load them.
    fn load_scripts(&self) {
        for script in scripts::ALL {
            let load = RedisCommand::from(["SCRIPT", "LOAD", script]);
            self.client.call(load.timeout(self.timeout)).detach();
        }
    }

    /// Compares the settings of the store with those of this node.
    fn compare(&self, mut replies: Vec<crate::codec::RespValue>) -> Result<(), BrokerError> {
        let fields = reply::array(replies.pop().unwrap_or(crate::codec::RespValue::Null))?;
        let numbers = fields.iter().map(reply::number).collect::<Result<Vec<_>, _>>()?;
        let ServerDemands { partitions, servers, place, .. } = self.demands;
        match numbers[..] {
            [version, ..] if version > VERSION => {
                Err(BrokerError::Version { found: version, known: VERSION })
            }
            [_, found, ..] if found != u64::from(partitions) => {
                let found = u16::try_from(found).unwrap_or(u16::MAX);
                Err(BrokerError::Partitions { found, asked: partitions })
            }
            [_, _, found_servers, found_place]
                if (found_servers, found_place) != (servers as u64, place as u64) =>
            {
                let what = format!(
                    "it is server {found_place} of {found_servers} of the store, and server {place} of {servers} of \
                     this node, counted from 0"
                );
                Err(BrokerError::Unsuitable(what.into()))
            }
            [_, _, _, _] => Ok(()),
            _ => Err(BrokerError::failed("the settings of the store cannot be read")),
        }
    }
}

/// Checks the version and the settings of a server.
fn suitable(server: &ServerInfo, demands: &ServerDemands) -> Result<(), BrokerError> {
    let unsuitable = |why: String| Err(BrokerError::Unsuitable(why.into()));
    let version = server.version().unwrap_or("unknown");
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < OLDEST_REDIS {
        let (major, minor) = OLDEST_REDIS;
        return unsuitable(format!("Redis has version {version}; it must be {major}.{minor} or newer"));
    }
    if server.run_id().is_none() {
        return unsuitable(
            "the user of Redis needs the permission for INFO, which tells whether it has restarted".into(),
        );
    }
    match server.maxmemory_policy() {
        Some("noeviction") => Ok(()),
        _ if demands.allows_eviction => Ok(()),
        policy => unsuitable(format!(
            "maxmemory-policy is {}; it must be noeviction, or `allow_eviction` be set",
            policy.unwrap_or("unknown")
        )),
    }
}
