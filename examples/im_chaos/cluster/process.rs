//! `Process`: a child process, which is killed when its owner drops it.
//!
//! If this program is killed itself, the nodes of `--as-node` end, because their standard input
//! ends. `redis-server` and the chat server go on.

use crate::output::complain;
use netwheel::{Error, Result};
use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

/// Time for a process to become ready, and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A child process. Killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    /// Starts a program. Its standard input stays open until this value is dropped.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| Error::other(format!("starting {name}: {e}")))?;
        let stdout = child.stdout.take().ok_or("a child without standard output")?;
        let stderr = child.stderr.take().ok_or("a child without standard error")?;
        // A program that inherits standard error keeps it open after the end of this one, and then
        // a reader waits for an end that does not come.
        thread::spawn(move || {
            for line in lines_of(stderr) {
                complain!("{line}");
            }
        });
        let (send, lines) = mpsc::channel();
        // Reads to the end, also if nothing is waited for: a full pipe would stop the program.
        thread::spawn(move || {
            for line in lines_of(stdout) {
                let _ = send.send(line);
            }
        });
        Ok(Process { child, lines })
    }

    /// Waits for a line that contains `text`, and returns it.
    ///
    /// # Errors
    /// If the program ends before, or takes too long.
    pub(crate) fn wait_for(&self, text: &str) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.map_err(|e| Error::other(format!("waiting for {text:?} of a program: {e}")))?;
            if line.contains(text) {
                return Ok(line);
            }
        }
    }

    /// Kills the process as `kill -9` does, and waits for its end.
    pub(crate) fn kill(&mut self) {
        // Either fails if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal, by the name that `kill` knows.
    ///
    /// # Errors
    /// If the program `kill` cannot be started, or fails.
    pub(crate) fn signal(&self, name: &str) -> Result {
        let (option, process) = (format!("-{name}"), self.child.id().to_string());
        let status = Command::new("kill").args([option, process]).status();
        let status = status.map_err(|e| Error::io("starting kill", e))?;
        if status.success() { Ok(()) } else { Err(format!("kill -{name}: {status}").into()) }
    }

    /// Waits for the end of a process that was asked to end, and kills it if it takes too long.
    ///
    /// # Errors
    /// If the state of the process cannot be read.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().map_err(|e| Error::io("waiting for a process", e))? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                self.kill();
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn lines_of(output: impl Read) -> impl Iterator<Item = String> {
    let lines = BufReader::new(output).split(b'\n').map_while(std::io::Result::ok);
    lines.map(|line| String::from_utf8_lossy(&line).into_owned())
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
