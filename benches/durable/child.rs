//! Processes of their own, whose memory is measured and which are killed.

use crate::{TEXT, TOPIC, bare::far, burst, figures::say, reopen};
use clap::Subcommand;
use netwheel::{
    Error, EventLoopGroup, Result,
    durable::{Due, DurableTimers, Late, Retry, SqliteStore, Topic},
};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::channel,
    time::Duration,
};

#[derive(Subcommand)]
pub(crate) enum Role {
    /// Stores timers until it is killed, and leaves fired timers unanswered.
    #[command(hide = true)]
    Traffic { path: PathBuf },
    /// Opens a store and reports when the first timer fires, and the memory after a while.
    #[command(hide = true)]
    Reopen {
        path: PathBuf,
        settle_millis: u64,
        /// Timers are due: wait for the first of them.
        #[arg(long)]
        is_due: bool,
    },
    /// Fires many timers that are due in the same second.
    #[command(hide = true)]
    Burst { path: PathBuf, timers: usize },
}

impl Role {
    pub(crate) fn play(&self) -> Result {
        match self {
            Role::Traffic { path } => traffic(path),
            Role::Reopen { path, settle_millis, is_due } => {
                reopen::play(path, Duration::from_millis(*settle_millis), *is_due)
            }
            Role::Burst { path, timers } => burst::play(path, *timers),
        }
    }
}

fn traffic(path: &Path) -> Result {
    let group = EventLoopGroup::builder().threads(1).build()?;
    let mut fired = Vec::new();
    // Runs that do not end are fired again by the next process.
    let handler = move |due: Due<String>| fired.push(due);
    let timers = DurableTimers::builder(SqliteStore::open(path)?)
        .topic(Topic::new(TOPIC, Late::RunOnce, Retry::never(), handler))
        .start(&group)?;
    let (sender, stored) = channel();
    let mut count = 0u64;
    let mut start = || {
        count += 1;
        let delay = if count.is_multiple_of(2) { Duration::from_millis(100) } else { far() };
        let sender = sender.clone();
        let completion = timers.at(TOPIC, delay, TEXT).start();
        completion.on_complete(move |result| drop(sender.send(result)));
    };
    (0..100).for_each(|_| start());
    let mut is_first = true;
    loop {
        stored.recv().expect("this thread has a sender")?;
        if std::mem::take(&mut is_first) {
            say("stored", 1.0);
        }
        start();
    }
}

/// Starts this program again.
pub(crate) fn spawn(arguments: &[&str]) -> Result<Child> {
    let program = std::env::current_exe().map_err(|e| Error::io("finding this program", e))?;
    let child = Command::new(program).args(arguments).stdout(Stdio::piped()).spawn();
    child.map_err(|e| Error::io("starting a child process", e))
}

/// Waits until the child says something, and kills it some time later.
pub(crate) fn kill_after(mut child: Child, time: Duration) -> Result {
    let output = child.stdout.take().ok_or_else(|| Error::other("the child has no output"))?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).map_err(|e| Error::io("reading from a child process", e))?;
    std::thread::sleep(time);
    child.kill().and_then(|()| child.wait()).map_err(|e| Error::io("killing a child process", e))?;
    if line.is_empty() { Err(Error::other("the child ended too early")) } else { Ok(()) }
}

/// Runs a child to its end, and returns its report.
pub(crate) fn run(arguments: &[&str]) -> Result<BTreeMap<String, f64>> {
    let output = spawn(arguments)?.wait_with_output();
    let output = output.map_err(|e| Error::io("waiting for a child process", e))?;
    if !output.status.success() {
        return Err(Error::other(format!("a child process failed: {}", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let figures = text.lines().filter_map(|line| line.split_once('='));
    Ok(figures.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect())
}
