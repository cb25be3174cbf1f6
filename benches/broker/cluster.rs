//! `Cluster`: nodes on one broker.

use crate::{Settings, redis::RedisServer};
use bytes::Bytes;
use netwheel::{
    Error,
    broker::{MemoryBroker, Position, RedisBroker, SqliteBroker, TopicFormat, Topics},
    prelude::*,
    redis::RedisClient,
    shutdown::ShutdownOptions,
};
use rustix::time::{ClockId, clock_gettime};
use std::{fs, path::PathBuf};

/// Messages as they are.
pub(crate) struct Plain;

impl TopicFormat<Bytes> for Plain {
    fn encode(&self, message: &Bytes) -> Result<Bytes> {
        Ok(message.clone())
    }

    fn decode(&self, payload: Bytes, _: Option<Position>) -> Result<Bytes> {
        Ok(payload)
    }
}

/// Where topics are stored, and the number of nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    Sqlite,
    Redis(usize),
}

impl Store {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Store::Memory => "memory, one node",
            Store::Sqlite => "SQLite, one node",
            Store::Redis(1) => "Redis, one node",
            Store::Redis(_) => "Redis, three nodes",
        }
    }
}

pub(crate) struct Node {
    pub(crate) topics: Topics,
    pub(crate) group: EventLoopGroup,
}

pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    /// After the nodes, which use it.
    redis: Option<RedisServer>,
    file: Option<PathBuf>,
}

impl Cluster {
    /// Starts nodes, and the server of their store.
    ///
    /// # Errors
    /// If one of them cannot be started.
    pub(crate) fn start(store: Store, settings: &Settings) -> Result<Self> {
        let mut cluster = Cluster { nodes: Vec::new(), redis: None, file: None };
        match store {
            Store::Memory => cluster.nodes.push(node("a", |_| Ok(MemoryBroker::new()))?),
            Store::Sqlite => {
                let failed = |e| Error::io("creating a directory for the store", e);
                fs::create_dir_all(&settings.dir).map_err(failed)?;
                let file = settings.dir.join(format!("topics-{}.db", std::process::id()));
                cluster.file = Some(file.clone());
                cluster.nodes.push(node("a", |_| SqliteBroker::open(&file).map_err(Error::other))?);
            }
            Store::Redis(number) => {
                cluster.redis = Some(RedisServer::start()?);
                for name in ["a", "b", "c"].into_iter().take(number) {
                    let node = cluster.another(name)?;
                    cluster.nodes.push(node);
                }
            }
        }
        Ok(cluster)
    }

    /// Starts another node on Redis.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn another(&self, name: &str) -> Result<Node> {
        let url = self.redis().url();
        node(name, |group| Ok(RedisBroker::new(RedisClient::builder(group, url).connect()?)))
    }

    /// The server of a cluster on Redis.
    pub(crate) fn redis(&self) -> &RedisServer {
        self.redis.as_ref().expect("the cluster was started on Redis")
    }

    pub(crate) fn has_redis(&self) -> bool {
        self.redis.is_some()
    }

    /// Ends the nodes.
    ///
    /// # Errors
    /// If a node cannot be closed.
    pub(crate) fn end(mut self) -> Result {
        self.nodes.drain(..).try_for_each(Node::end)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.clear();
        for suffix in ["", "-wal", "-shm", "-lock"] {
            let Some(file) = &self.file else { break };
            // Not all of them exist at each time.
            let _ = fs::remove_file(format!("{}{suffix}", file.display()));
        }
    }
}

impl Node {
    /// Ends the node in order.
    ///
    /// # Errors
    /// If it cannot be closed.
    pub(crate) fn end(self) -> Result {
        self.topics.close().wait()?;
        self.group.shutdown(ShutdownOptions::new()).wait()?;
        Ok(())
    }
}

fn node<B: netwheel::broker::Broker>(
    name: &str,
    broker: impl FnOnce(&EventLoopGroup) -> Result<B>,
) -> Result<Node> {
    let group = EventLoopGroup::builder().threads(1).build()?;
    let broker = broker(&group)?;
    let topics = Topics::builder(&group, broker).node(name).build()?;
    Ok(Node { topics, group })
}

/// Returns the CPU seconds of all nodes.
pub(crate) fn own_cpu() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}
