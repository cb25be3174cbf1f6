//! `Servers`: a real Redis and a simulated one with the same settings.

use super::{client::Client, scripts};
use crate::support::{
    process::{Process, are_installed},
    wait::done,
};
use netwheel::{
    EventLoopGroup,
    shutdown::ShutdownOptions,
    testing::redis::{Persistence, RedisDisk, RedisServer, RedisUser},
};
use std::{net::SocketAddr, time::Duration};
use tempfile::TempDir;

/// A `redis-server` that listens on a Unix socket, so that it needs no free port.
pub(super) struct Real {
    _process: Process,
    directory: TempDir,
}

impl Real {
    fn start(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_str().unwrap();
        let socket = format!("{path}/redis");
        let own = ["redis-server", "--port", "0", "--unixsocket", &socket, "--dir", path, "--save", ""];
        let mut process = Process::start(&[&own, arguments].concat());
        process.stdout.wait_for("eady to accept connections");
        Real { _process: process, directory }
    }

    pub(super) fn connect(&self) -> Client {
        Client::unix(self.directory.path().join("redis").to_str().unwrap())
    }
}

/// A simulated Redis on a socket of the system.
pub(super) struct Double {
    pub(super) server: RedisServer,
    group: EventLoopGroup,
    address: SocketAddr,
}

impl Double {
    pub(super) fn start(server: RedisServer) -> Self {
        let group = EventLoopGroup::builder().threads(2).build().unwrap();
        let address = server.bind(&group, "127.0.0.1:0").unwrap().local_address();
        Double { server, group, address }
    }

    pub(super) fn connect(&self) -> Client {
        Client::tcp(self.address)
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        let options = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5));
        let _ = done(self.group.shutdown(options));
    }
}

pub(super) struct Servers {
    pub(super) real: Real,
    pub(super) double: Double,
}

impl Servers {
    /// Starts both. `None` if `redis-server` is not installed.
    pub(super) fn start() -> Option<Self> {
        Self::start_with(&[], |server| server)
    }

    /// Starts both. The double has the scripts of `RedisBroker`.
    #[cfg(feature = "broker-redis")]
    pub(super) fn with_broker_scripts() -> Option<Self> {
        Self::start_with(&[], RedisServer::broker_scripts)
    }

    /// Starts both with a password and two users.
    pub(super) fn with_users() -> Option<Self> {
        let users = [
            ["--requirepass", "secret"].map(str::to_owned).to_vec(),
            "--user bob on >pw ~a:* &c:* +@all -flushall -client|no-evict"
                .split(' ')
                .map(str::to_owned)
                .collect(),
            "--user eve on >pw ~* &* +@all -eval -pubsub -subscribe".split(' ').map(str::to_owned).collect(),
        ]
        .concat();
        Self::start_with(&users.iter().map(String::as_str).collect::<Vec<_>>(), |server| {
            let bob = RedisUser::new("bob", "pw").keys("a:*").channels("c:*");
            let eve = RedisUser::new("eve", "pw").deny("eval").deny("PUBSUB").deny("subscribe");
            server.password("secret").user(bob.deny("FLUSHALL").deny("client|no-evict")).user(eve)
        })
    }

    fn start_with(arguments: &[&str], settings: impl FnOnce(RedisServer) -> RedisServer) -> Option<Self> {
        if !are_installed(&["redis-server"]) {
            return None;
        }
        let server = scripts::register(RedisServer::new(RedisDisk::new()));
        let server = server.persistence(Persistence::Never);
        Some(Servers { real: Real::start(arguments), double: Double::start(settings(server)) })
    }
}
