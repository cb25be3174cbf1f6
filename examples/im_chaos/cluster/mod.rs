//! Redis, the nodes, and the proxies between them and in front of them.

mod eviction;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod redis;

use netwheel::{
    prelude::*,
    redis::{RedisClient, RedisCommand},
};
use process::Process;
use proxy::CuttingProxy;
use redis::{Persistence, RedisServer};
use std::{net::SocketAddr, path::PathBuf, process::Command, time::Duration};

/// The broker of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BrokerKind {
    /// One node alone: nothing survives it.
    Memory,
    Redis,
}

/// How nodes are started.
#[derive(Debug, Clone)]
pub(crate) struct NodeProgram {
    /// The chat server; the small node of this program if it is `None`.
    pub(crate) server: Option<PathBuf>,
    /// More arguments of the small node.
    pub(crate) arguments: &'static [&'static str],
}

pub(crate) struct Cluster {
    group: EventLoopGroup,
    program: NodeProgram,
    pub(crate) redis: Option<RedisServer>,
    pub(crate) nodes: Vec<Node>,
}

pub(crate) struct Node {
    name: String,
    process: Option<Process>,
    /// Between the clients and the node.
    pub(crate) front: CuttingProxy,
    /// Between the node and Redis.
    pub(crate) back: CuttingProxy,
}

impl Node {
    /// Returns the URL of Redis, behind the proxy of this node.
    fn redis(&self) -> String {
        format!("redis://{}", self.back.address())
    }
}

impl Cluster {
    /// Starts Redis, if the nodes need it, and the nodes.
    ///
    /// # Errors
    /// If a program cannot be started.
    pub(crate) fn start(
        group: &EventLoopGroup,
        program: NodeProgram,
        broker: BrokerKind,
        persistence: Persistence,
        nodes: u32,
    ) -> Result<Self> {
        let redis = match broker {
            BrokerKind::Memory => None,
            BrokerKind::Redis => Some(RedisServer::start(persistence)?),
        };
        let mut cluster = Cluster { group: group.clone(), program, redis, nodes: Vec::new() };
        for number in 0..nodes {
            let node = Node {
                name: format!("node-{number}"),
                process: None,
                front: CuttingProxy::start(group)?,
                back: CuttingProxy::start(group)?,
            };
            if let Some(redis) = &cluster.redis {
                node.back.set_target(redis.address().clone());
            }
            cluster.nodes.push(node);
            cluster.start_node(number as usize)?;
        }
        Ok(cluster)
    }

    /// Returns the addresses of the nodes for clients. They stay when a node starts again.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.front.address()).collect()
    }

    /// Starts a node that does not run, and waits until it listens.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start_node(&mut self, number: usize) -> Result {
        let node = &mut self.nodes[number];
        let broker = match self.redis {
            Some(_) => node.redis(),
            None => "memory".to_owned(),
        };
        let mut command = match &self.program.server {
            Some(server) => {
                let mut command = Command::new(server);
                command.args(["--http", "none", "--rate", "0"]);
                command
            }
            None => {
                let me = std::env::current_exe().map_err(|e| Error::io("looking for this program", e))?;
                let mut command = Command::new(me);
                command.arg("--as-node").args(self.program.arguments);
                command
            }
        };
        command.args(["--listen", "127.0.0.1:0", "--node", &node.name, "--broker", &broker]);
        let process = Process::start(&mut command)?;
        let line = process.wait_for("listening on ")?;
        let address = line.rsplit(' ').next().unwrap_or_default();
        let address: SocketAddr = address.parse().map_err(|e| Error::other(format!("{line}: {e}")))?;
        node.front.set_target(address);
        node.process = Some(process);
        Ok(())
    }

    /// Kills a node as `kill -9` does.
    pub(crate) fn kill_node(&mut self, number: usize) {
        self.nodes[number].process = None;
    }

    /// Sends a signal to a node.
    ///
    /// # Errors
    /// If it does not run.
    pub(crate) fn signal_node(&self, number: usize, signal: &str) -> Result {
        self.nodes[number].process.as_ref().ok_or("the node does not run")?.signal(signal)
    }

    /// Asks a node to end, and waits until it has.
    ///
    /// # Errors
    /// If it does not run.
    pub(crate) fn stop_node(&mut self, number: usize) -> Result {
        self.signal_node(number, "TERM")?;
        if let Some(mut process) = self.nodes[number].process.take() {
            process.wait()?;
        }
        Ok(())
    }

    /// Deletes keys of Redis: all with the text of a name. Returns how many.
    ///
    /// # Errors
    /// If Redis cannot be reached.
    pub(crate) fn delete_keys(&self, of: impl Fn(&str) -> bool) -> Result<usize> {
        let node = self.nodes.first().filter(|_| self.redis.is_some()).ok_or("there is no Redis")?;
        let client = RedisClient::builder(&self.group, node.redis()).connect()?;
        let call = |command: RedisCommand| {
            client.call(command).wait_timeout(Duration::from_secs(10)).map_err(|_| "no answer of Redis")?
        };
        let found = call(RedisCommand::new("KEYS").arg("*"))?;
        let mut deleted = 0;
        for key in keys(found) {
            if of(&String::from_utf8_lossy(&key)) {
                call(RedisCommand::new("UNLINK").arg(key))?;
                deleted += 1;
            }
        }
        client.close();
        Ok(deleted)
    }
}

fn keys(found: netwheel::codec::RespValue) -> Vec<netwheel::bytes::Bytes> {
    use netwheel::codec::RespValue;
    let RespValue::Array(keys) = found else { return Vec::new() };
    let key = |key| match key {
        RespValue::Bulk(key) => Some(key),
        _ => None,
    };
    keys.into_iter().filter_map(key).collect()
}
