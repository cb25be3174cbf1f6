//! Redis, the nodes, and the proxies between them and in front of them.

mod eviction;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod redis;
pub(crate) mod socketio;

use netwheel::{
    broker::Position,
    prelude::*,
    redis::{RedisClient, RedisCommand},
};
use process::Process;
use proxy::CuttingProxy;
use redis::{Persistence, RedisServer};
use socketio::SocketIoClients;
use std::{collections::HashSet, net::SocketAddr, path::PathBuf, process::Command, time::Duration};

/// The broker of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BrokerKind {
    /// One node alone: nothing survives it.
    Memory,
    Redis,
}

/// The program of the nodes.
#[derive(Debug, Clone)]
pub(crate) enum NodeProgram {
    /// The small node of this program, with more arguments.
    Small(&'static [&'static str]),
    /// A chat server.
    Chat(PathBuf),
    /// Socket.IO.
    SocketIo {
        /// The directory of its programs.
        directory: PathBuf,
        /// Whether its nodes connect to Redis without the proxies. These accept connections also
        /// while Redis is dead. The client of Redis in Node.js then sends the commands that wait,
        /// and they fail.
        is_direct: bool,
    },
}

pub(crate) struct Cluster {
    group: EventLoopGroup,
    program: NodeProgram,
    pub(crate) redis: Option<RedisServer>,
    pub(crate) nodes: Vec<Node>,
    /// Between the bots and the nodes of Socket.IO.
    clients: Option<SocketIoClients>,
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
        let mut cluster = Cluster { group: group.clone(), program, redis, nodes: Vec::new(), clients: None };
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
        if let NodeProgram::SocketIo { directory, .. } = &cluster.program {
            let nodes: Vec<_> = cluster.nodes.iter().map(|node| node.front.address()).collect();
            cluster.clients = Some(SocketIoClients::start(directory, &nodes)?);
        }
        Ok(cluster)
    }

    /// Returns the addresses of the nodes for clients. They stay when a node starts again.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        match &self.clients {
            Some(clients) => clients.addresses().to_vec(),
            None => self.nodes.iter().map(|node| node.front.address()).collect(),
        }
    }

    /// Starts a node that does not run, and waits until it listens.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start_node(&mut self, number: usize) -> Result {
        let node = &mut self.nodes[number];
        let broker = match (&self.redis, &self.program) {
            (Some(redis), NodeProgram::SocketIo { is_direct: true, .. }) => redis.address().to_string(),
            (Some(_), _) => node.redis(),
            (None, _) => "memory".to_owned(),
        };
        let mut command = match &self.program {
            NodeProgram::Chat(server) => {
                let mut command = Command::new(server);
                command.args(["--http", "none", "--rate", "0"]);
                command
            }
            NodeProgram::SocketIo { directory, .. } => socketio::node(directory),
            NodeProgram::Small(arguments) => {
                let me = std::env::current_exe().map_err(|e| Error::io("looking for this program", e))?;
                let mut command = Command::new(me);
                command.arg("--as-node").args(*arguments);
                command
            }
        };
        command.args(["--listen", "127.0.0.1:0", "--node", &node.name, "--broker", &broker]);
        let process = Process::start(&mut command)?;
        let line = process.wait_for("listening on ")?;
        let address = addresses(&line)?.pop().ok_or("a node without an address")?;
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
        let client = self.redis_client()?;
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

    /// Returns the positions of all messages in the store, for nodes without epochs: Socket.IO.
    ///
    /// # Errors
    /// If Redis cannot be reached.
    pub(crate) fn stored(&self) -> Result<Option<HashSet<Position>>> {
        if self.clients.is_none() {
            return Ok(None);
        }
        let client = self.redis_client()?;
        let stored = socketio::stored(&client)?;
        client.close();
        Ok(Some(stored))
    }

    fn redis_client(&self) -> Result<RedisClient> {
        let node = self.nodes.first().filter(|_| self.redis.is_some()).ok_or("there is no Redis")?;
        RedisClient::builder(&self.group, node.redis()).connect()
    }
}

/// Returns the addresses at the end of `listening on ADDRESS…`.
fn addresses(line: &str) -> Result<Vec<SocketAddr>> {
    let addresses = line.rsplit("listening on ").next().unwrap_or_default().split(' ');
    let parse = |address: &str| address.parse().map_err(|e| Error::other(format!("{line}: {e}")));
    addresses.map(parse).collect()
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
