//! A `redis-server`, and a simulated Redis on a socket of the system.

use crate::support::{
    process::{Process, are_installed},
    wait::{SECOND, done},
};
use netwheel::{
    EventLoopGroup,
    redis::{RedisClient, RedisScript},
    shutdown::ShutdownOptions,
    testing::redis::{Persistence, RedisDisk, RedisServer},
};
use std::time::Duration;
use tempfile::TempDir;

/// Adds a number, and returns the sum and an argument.
pub(super) const ADD: &str = "return {redis.call('INCRBY', KEYS[1], ARGV[1]), ARGV[2]}";

pub(super) fn add() -> RedisScript {
    RedisScript::new(ADD)
}

/// A server, real or simulated.
pub(super) struct TestServer {
    pub(super) name: &'static str,
    pub(super) url: String,
    pub(super) group: EventLoopGroup,
    process: Option<(Process, TempDir)>,
}

impl TestServer {
    /// Starts `redis-server` on a Unix socket, so that it does not need a port.
    pub(super) fn real(arguments: &[&str]) -> Option<Self> {
        if !are_installed(&["redis-server"]) {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let url = format!("unix://{}/redis", directory.path().to_str().unwrap());
        let process = Some((start(&directory, arguments), directory));
        Some(TestServer { name: "Redis", url, group: group(), process })
    }

    /// Kills the `redis-server`, calls a function, and starts the server again.
    pub(super) fn replace(&mut self, meanwhile: impl FnOnce()) {
        let (process, directory) = self.process.take().expect("a process");
        drop(process);
        meanwhile();
        self.process = Some((start(&directory, &[]), directory));
    }

    /// Starts a simulated Redis.
    pub(super) fn simulated(server: &RedisServer) -> Self {
        let group = group();
        let address = server.bind(&group, "127.0.0.1:0").unwrap().local_address();
        TestServer { name: "the simulated Redis", url: format!("redis://{address}"), group, process: None }
    }

    pub(super) fn client(&self) -> RedisClient {
        RedisClient::builder(&self.group, &self.url).connect().unwrap()
    }
}

/// Starts `redis-server` with a Unix socket in a directory.
fn start(directory: &TempDir, arguments: &[&str]) -> Process {
    let path = directory.path().to_str().unwrap();
    let socket = format!("{path}/redis");
    let own = ["redis-server", "--port", "0", "--unixsocket", &socket, "--dir", path, "--save", ""];
    let mut process = Process::start(&[&own, arguments].concat());
    process.stdout.wait_for("eady to accept connections");
    process
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let options = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(5 * SECOND);
        let _ = done(self.group.shutdown(options));
    }
}

/// Returns a simulated server that knows the script.
pub(super) fn redis() -> RedisServer {
    RedisServer::new(RedisDisk::new()).persistence(Persistence::Never).script(ADD, |script| {
        let [key, by, token] =
            [&script.keys()[0], &script.arguments()[0], &script.arguments()[1]].map(Clone::clone);
        let sum = script.call([bytes::Bytes::from_static(b"INCRBY"), key, by])?;
        Ok(netwheel::codec::RespValue::Array(vec![sum, netwheel::codec::RespValue::Bulk(token)]))
    })
}

/// Runs a test with each kind of server.
pub(super) fn with_each(test: impl Fn(&TestServer)) {
    let servers = [Some(TestServer::simulated(&redis())), TestServer::real(&[])];
    for server in servers.iter().flatten() {
        test(server);
    }
}

pub(super) fn group() -> EventLoopGroup {
    EventLoopGroup::builder().threads(2).build().unwrap()
}
