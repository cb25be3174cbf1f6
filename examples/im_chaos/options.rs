//! The command line.

use crate::{
    cluster::{BrokerKind, NodeProgram},
    play::fault::Fault,
};
use clap::Parser;
use std::{path::PathBuf, time::Duration};

/// Injects faults into rooms on several nodes, and checks every message.
#[derive(Parser)]
pub(crate) struct Options {
    /// Faults, separated by commas; all that suit the broker by default.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) faults: Vec<Fault>,
    /// Broker of the nodes. Nodes with their own memory share nothing, so there can be only one.
    #[arg(long, value_enum, default_value_t = BrokerKind::Redis)]
    pub(crate) broker: BrokerKind,
    /// Number of nodes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) nodes: u32,
    /// Number of rooms.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rooms: u32,
    /// Number of bots, each in one room.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) bots: u32,
    /// Messages per second of all bots together. Each is delivered to all members of a room.
    #[arg(long, default_value_t = 60.0, value_parser = rate)]
    pub(crate) rate: f64,
    /// Time to talk before a fault, and after it.
    #[arg(long, default_value = "4s", value_parser = humantime::parse_duration)]
    pub(crate) duration: Duration,
    /// Time for which a node is stopped (SIGSTOP).
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    pub(crate) pause: Duration,
    /// Time for which the connections between a node and Redis are held, or cut in one direction.
    #[arg(long, default_value = "20s", value_parser = humantime::parse_duration)]
    pub(crate) hold: Duration,
    /// Time for which Redis is down.
    #[arg(long, default_value = "2s", value_parser = humantime::parse_duration)]
    pub(crate) down: Duration,
    /// Time for which a killed node is down. Some of its users stay away as long, to see when they
    /// are not listed any more.
    #[arg(long, default_value = "20s", value_parser = humantime::parse_duration)]
    pub(crate) away: Duration,
    /// Time without a line from a node after which a bot gives its connection up.
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
    pub(crate) patience: Duration,
    /// Time after a fault within which all bots must be back and all messages accepted.
    #[arg(long, default_value = "60s", value_parser = humantime::parse_duration)]
    pub(crate) settle: Duration,
    /// The chat server to test instead of the small node of this program.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) server: Option<PathBuf>,
    /// Test Socket.IO instead: the directory of its programs, `benches/peers/socketio`, in which
    /// `npm ci` has put its packages.
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "server")]
    pub(crate) socketio: Option<PathBuf>,
    /// Do not ask for the members of rooms: for servers that list only their own.
    #[arg(long)]
    pub(crate) without_presence: bool,
    /// Also write the journal of the bots, one file for each fault.
    #[arg(long)]
    pub(crate) journal: bool,
    /// Directory for the table and the timeline.
    #[arg(long, default_value = "target/chaos")]
    pub(crate) out: PathBuf,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|e| format!("{e}"))?;
    if (0.1..=100_000.0).contains(&rate) { Ok(rate) } else { Err("must be 0.1 to 100000".to_owned()) }
}

impl Options {
    /// Returns the program of the nodes.
    pub(crate) fn program(&self, fault: Fault) -> NodeProgram {
        match (&self.server, &self.socketio) {
            (Some(server), _) => NodeProgram::Chat(server.clone()),
            (None, Some(directory)) => {
                NodeProgram::SocketIo { directory: directory.clone(), is_direct: fault.kills_redis() }
            }
            (None, None) => NodeProgram::Small(fault.node_arguments()),
        }
    }

    /// Returns the faults to inject.
    ///
    /// # Errors
    /// If the settings do not suit each other.
    pub(crate) fn faults(&self) -> netwheel::Result<Vec<Fault>> {
        let has_redis = self.broker == BrokerKind::Redis;
        if !has_redis && self.nodes > 1 {
            return Err(format!("nodes is {}; it must be 1 with --broker memory", self.nodes).into());
        }
        if !has_redis && self.socketio.is_some() {
            return Err("--socketio needs --broker redis".into());
        }
        if self.bots < self.rooms {
            return Err(format!("bots is {}; it must be at least the number of rooms", self.bots).into());
        }
        let has_publishers = self.faults.iter().any(|fault| fault.has_publishers());
        if has_publishers && (self.nodes < 2 || self.bots < 2 * self.rooms) {
            return Err("publishers without members need two nodes, and two bots for each room".into());
        }
        if let Some(fault) = self.faults.iter().find(|fault| fault.needs_redis() && !has_redis) {
            return Err(format!("the fault {} needs --broker redis", fault.name()).into());
        }
        if let Some(fault) = self.faults.iter().find(|fault| !self.suits(**fault)) {
            return Err(format!("the fault {} needs other nodes", fault.name()).into());
        }
        if !self.faults.is_empty() {
            return Ok(self.faults.clone());
        }
        let all = <Fault as clap::ValueEnum>::value_variants().iter().copied();
        Ok(all.filter(|fault| self.suits(*fault) && (has_redis || !fault.needs_redis())).collect())
    }

    /// Returns whether the nodes can play a fault.
    fn suits(&self, fault: Fault) -> bool {
        match (&self.server, &self.socketio) {
            (None, None) => true,
            (Some(_), _) => !fault.needs_small_node(),
            // The resumes are those of the protocol of the chat.
            (None, Some(_)) => !fault.needs_small_node() && fault.resume().is_none(),
        }
    }
}
