//! The server under attack: a child process on a free loopback port.

use crate::attacks::Attack;
use netwheel::{Error, Result};
use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Time limit for the server to exit after SIGTERM; it is killed afterwards.
const STOP: Duration = Duration::from_secs(20);

pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    /// Kept open, and not read after the address.
    _output: BufReader<ChildStdout>,
}

/// Exit of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The server exited with status 0 after SIGTERM.
    Drained,
    Failed,
    /// The server did not exit in time and was killed.
    Killed,
}

impl Server {
    /// Starts a server with the settings for `attack`.
    ///
    /// Options that the server does not support are omitted, so that an older build can be
    /// compared.
    ///
    /// # Errors
    /// Fails if the server cannot be started or does not listen on a loopback address.
    pub(crate) fn start(program: &Path, threads: usize, attack: Attack) -> Result<Self> {
        let failed = |e| Error::io("starting the server", e);
        let help = Command::new(program).arg("--help").output().map_err(failed)?;
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        let mut command = Command::new(program);
        command.args(["--listen", "127.0.0.1:0", "--threads", &threads.to_string()]);
        for (option, value) in attack.server_options() {
            if help.contains(option) {
                command.args([option, value]);
            }
        }
        let unread_log = attack == Attack::UnreadLog;
        command.env("RUST_LOG", if unread_log { "debug" } else { "error" });
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(if unread_log { Stdio::piped() } else { Stdio::null() });
        let mut child = command.spawn().map_err(failed)?;
        let stdout = child.stdout.take().ok_or("the server has no standard output")?;
        let mut output = BufReader::new(stdout);
        let address = loop {
            let mut line = String::new();
            if output.read_line(&mut line).map_err(failed)? == 0 {
                return Err("the server exited before it listened".into());
            }
            if let Some(address) = line.trim().strip_prefix("listening on ") {
                break address.parse::<SocketAddr>().map_err(Error::other)?;
            }
        };
        if !address.ip().is_loopback() {
            return Err(format!("{address} is not a loopback address").into());
        }
        Ok(Server { child, address, _output: output })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a signal to the server, given its name without `SIG`.
    ///
    /// # Errors
    /// Fails if the `kill` program is missing or fails.
    pub(crate) fn signal(&self, name: &str) -> Result {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        match status.map_err(|e| Error::io("sending a signal", e))? {
            status if status.success() => Ok(()),
            status => Err(format!("kill -{name}: {status}").into()),
        }
    }

    /// Returns the peak resident memory in MB; 0 on systems without `/proc`.
    pub(crate) fn peak_rss_mb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|peak| peak.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0) * 1024 / 1_000_000
    }

    /// Stops the server with SIGTERM, and kills it if it does not exit in time.
    pub(crate) fn stop(mut self) -> Ending {
        let until = Instant::now() + STOP;
        if self.signal("TERM").is_err() {
            return Ending::Killed;
        }
        while Instant::now() < until {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ending::Drained,
                Ok(Some(_)) => return Ending::Failed,
                Ok(None) => thread::sleep(Duration::from_millis(10)),
                Err(_) => break,
            }
        }
        Ending::Killed
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // No-op for a server that has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
