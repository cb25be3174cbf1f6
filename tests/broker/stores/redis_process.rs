//! `RedisProcess`: a `redis-server` that is killed and started again.

use crate::support::process::{Process, are_installed};
use netwheel::{
    EventLoopGroup,
    broker::RedisBroker,
    codec::RespValue,
    reconnect::Backoff,
    redis::{RedisClient, RedisClientBuilder},
};
use std::time::Duration;
use tempfile::TempDir;

use crate::support::wait::done;

/// A server on a Unix socket in a temporary directory, with its own keys.
pub(super) struct RedisProcess {
    directory: TempDir,
    process: Option<Process>,
    /// The arguments of the next start.
    pub(super) arguments: Vec<String>,
    pub(super) group: EventLoopGroup,
}

impl RedisProcess {
    /// Starts a server. `None` if it is not installed.
    pub(super) fn start(arguments: &[&str]) -> Option<Self> {
        if !are_installed(&["redis-server"]) {
            return None;
        }
        let mut server = RedisProcess {
            directory: tempfile::tempdir().unwrap(),
            process: None,
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            group: EventLoopGroup::builder().threads(2).build().unwrap(),
        };
        server.restart();
        Some(server)
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    /// Starts the server again, with what is in its directory.
    pub(super) fn restart(&mut self) {
        let (socket, path) = (self.path("redis"), self.path(""));
        let own = ["redis-server", "--port", "0", "--unixsocket", &socket, "--dir", &path, "--save", ""];
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let mut process = Process::start(&[&own, &arguments[..]].concat());
        process.stdout.wait_for("eady to accept connections");
        self.process = Some(process);
    }

    /// Kills the server with SIGKILL.
    pub(super) fn kill(&mut self) {
        self.process = None;
    }

    pub(super) fn builder(&self) -> RedisClientBuilder {
        let backoff = Backoff::new().initial(Duration::from_millis(5)).max_delay(Duration::from_millis(20));
        RedisClient::builder(&self.group, format!("unix://{}", self.path("redis"))).backoff(backoff)
    }

    pub(super) fn client(&self) -> RedisClient {
        self.builder().connect().unwrap()
    }

    pub(super) fn broker(&self) -> RedisBroker {
        RedisBroker::new(self.client())
    }

    /// Runs a command of an operator.
    pub(super) fn ask(&self, command: &str) -> RespValue {
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        done(self.client().call(words)).unwrap()
    }

    /// Moves the times at which leases end.
    pub(super) fn end_leases_earlier(&self, time: Duration) {
        let script = "for _, node in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do \
                      redis.call('ZINCRBY', KEYS[1], -ARGV[1], node) end";
        let millis = time.as_millis().to_string();
        done(self.client().call(["EVAL", script, "1", "{netwheel}:leases", &millis].map(str::to_owned)))
            .unwrap();
    }

    /// Keeps the append-only file of now aside.
    pub(super) fn save_file(&self) {
        copy(&self.path("appendonlydir"), &self.path("aside"));
    }

    /// Replaces the append-only file of a killed server by that which was kept aside, as if the
    /// rest had not reached the disk.
    pub(super) fn lose_writes(&self) {
        std::fs::remove_dir_all(self.path("appendonlydir")).unwrap();
        copy(&self.path("aside"), &self.path("appendonlydir"));
    }
}

fn copy(from: &str, to: &str) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), std::path::Path::new(to).join(file.file_name())).unwrap();
    }
}
