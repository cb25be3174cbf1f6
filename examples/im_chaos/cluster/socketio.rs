//! Nodes and clients of Socket.IO: the programs in `benches/peers/socketio`.

use super::{addresses, process::Process};
use netwheel::{
    broker::Position,
    codec::RespValue,
    prelude::*,
    redis::{RedisClient, RedisCommand},
};
use std::{collections::HashSet, net::SocketAddr, path::Path, process::Command, time::Duration};

/// The stream of the adapter of Socket.IO. It has the messages of all rooms.
pub(crate) const STREAM: &str = "socket.io";
/// The epoch of all positions, because Socket.IO does not have epochs.
const EPOCH: u64 = 1;
/// Entries that are read at a time.
const PAGE: usize = 1000;

/// The program that has a client of Socket.IO for each bot. It has an address for each node.
pub(super) struct SocketIoClients {
    addresses: Vec<SocketAddr>,
    /// Ends the program when it is dropped.
    _process: Process,
}

impl SocketIoClients {
    /// Starts the program.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn start(directory: &Path, nodes: &[SocketAddr]) -> Result<Self> {
        let mut command = Command::new("node");
        command.arg(directory.join("clients.js")).args(nodes.iter().map(SocketAddr::to_string));
        let process = Process::start(&mut command)?;
        let addresses = addresses(&process.wait_for("listening on ")?)?;
        Ok(SocketIoClients { addresses, _process: process })
    }

    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

/// Returns the command that starts a node.
pub(super) fn node(directory: &Path) -> Command {
    let mut command = Command::new("node");
    command.arg(directory.join("node.js"));
    command
}

/// Returns the positions of the entries of the stream.
///
/// # Errors
/// If Redis does not answer.
pub(super) fn stored(client: &RedisClient) -> Result<HashSet<Position>> {
    let mut stored = HashSet::new();
    let mut from = "-".to_owned();
    loop {
        let command = RedisCommand::new("XRANGE").arg(STREAM).arg(from).arg("+");
        let page = client.call(command.arg("COUNT").arg(PAGE.to_string()));
        let page = page.wait_timeout(Duration::from_secs(10)).map_err(|_| "no answer of Redis")??;
        let RespValue::Array(entries) = page else { return Err("XRANGE has not returned entries".into()) };
        let ids: Vec<String> = entries.iter().filter_map(id).collect();
        stored.extend(ids.iter().filter_map(|id| position(id)));
        let Some(last) = ids.last() else { return Ok(stored) };
        from = format!("({last}");
    }
}

fn id(entry: &RespValue) -> Option<String> {
    let RespValue::Array(parts) = entry else { return None };
    let RespValue::Bulk(id) = parts.first()? else { return None };
    Some(String::from_utf8_lossy(id).into_owned())
}

/// Returns the position of an entry, as `clients.js` does.
fn position(id: &str) -> Option<Position> {
    let (time, sequence) = id.split_once('-')?;
    let (time, sequence): (u64, u64) = (time.parse().ok()?, sequence.parse().ok()?);
    Some(Position::new(EPOCH, time * 1000 + sequence.min(99) * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_in_the_order_of_the_entries() {
        let ids = ["1764186915000-0", "1764186915000-1", "1764186915000-12", "1764186915001-0"];
        let positions: Vec<_> = ids.iter().filter_map(|id| position(id)).collect();
        assert_eq!(positions[0], Position::new(1, 1_764_186_915_000_000));
        assert!(positions.windows(2).all(|pair| pair[0].offset < pair[1].offset), "{positions:?}");
        assert_eq!(position("no entry"), None);
    }
}
