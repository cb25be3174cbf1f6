//! `RedisServer`: a `redis-server` in a temporary directory.
//!
//! It listens on a Unix socket in that directory. Another program could take a TCP port while the
//! server is down.

use super::process::Process;
use netwheel::{Error, Result, net::Address};
use std::{fs, io, path::Path, process::Command};
use tempfile::TempDir;

/// Name of the socket in the directory.
const SOCKET: &str = "redis.sock";

/// The data that survives a failure of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// `appendfsync always`: everything that was acknowledged.
    Always,
    /// `appendfsync everysec`: everything but the last second.
    EverySecond,
    /// Nothing.
    None,
}

pub(crate) struct RedisServer {
    directory: TempDir,
    /// The socket, for the proxies.
    address: Address,
    persistence: Persistence,
    process: Process,
}

impl RedisServer {
    /// Starts a server.
    ///
    /// # Errors
    /// If it cannot be started, or the system has no Unix sockets.
    pub(crate) fn start(persistence: Persistence) -> Result<Self> {
        let directory = tempfile::tempdir().map_err(|e| Error::io("creating a directory for Redis", e))?;
        let address = unix(&directory.path().join(SOCKET))?;
        let process = Self::run(directory.path(), persistence)?;
        Ok(RedisServer { directory, address, persistence, process })
    }

    fn run(directory: &Path, persistence: Persistence) -> Result<Process> {
        let (append, sync) = match persistence {
            Persistence::Always => ("yes", "always"),
            Persistence::EverySecond => ("yes", "everysec"),
            Persistence::None => ("no", "no"),
        };
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", ""]);
        command.arg("--unixsocket").arg(directory.join(SOCKET));
        command.args(["--appendonly", append, "--appendfsync", sync]);
        let process = Process::start(command.arg("--dir").arg(directory))?;
        process.wait_for("eady to accept connections")?;
        Ok(process)
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Keeps a copy of the append-only file of now, to which [`restart`](Self::restart) returns.
    ///
    /// The death of a process loses nothing that Redis has written to the kernel. This stands for
    /// the death of a machine.
    ///
    /// # Errors
    /// If the file cannot be copied.
    pub(crate) fn keep_file(&self) -> Result {
        if self.persistence == Persistence::EverySecond {
            copy(&self.file(), &self.copy()).map_err(|e| Error::io("copying the file of Redis", e))?;
        }
        Ok(())
    }

    /// Kills the server as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts a killed server with the data in its directory, or with the copy of its file.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn restart(&mut self) -> Result {
        if self.copy().exists() {
            let replaced =
                fs::remove_dir_all(self.file()).and_then(|()| fs::rename(self.copy(), self.file()));
            replaced.map_err(|e| Error::io("replacing the file of Redis", e))?;
        }
        self.process = Self::run(self.directory.path(), self.persistence)?;
        Ok(())
    }

    fn file(&self) -> std::path::PathBuf {
        self.directory.path().join("appendonlydir")
    }

    fn copy(&self) -> std::path::PathBuf {
        self.directory.path().join("kept")
    }
}

#[cfg(unix)]
fn unix(path: &Path) -> Result<Address> {
    netwheel::net::UnixAddress::path(path).map(Address::Unix)
}

#[cfg(not(unix))]
fn unix(_: &Path) -> Result<Address> {
    Err("redis-server needs Unix sockets".into())
}

/// Copies the files of a directory.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for file in fs::read_dir(from)? {
        let file = file?;
        fs::copy(file.path(), to.join(file.file_name()))?;
    }
    Ok(())
}
