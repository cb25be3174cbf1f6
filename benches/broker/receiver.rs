//! `Receiver`: a process that receives the messages of members and counts their bytes.

use bytes::Bytes;
use netwheel::{Error, codec::RawBytes, prelude::*};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// How often the process reports.
const PERIOD: Duration = Duration::from_millis(2);

/// The longest time without a report while messages are awaited.
const PATIENCE: Duration = Duration::from_secs(20);

struct Count(Arc<AtomicU64>);

impl Handler for Count {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, bytes: Bytes) -> Result {
        self.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// Connects, and prints the number of bytes whenever it has grown, until the input ends.
///
/// # Errors
/// If a connection fails.
pub(crate) fn play(connections: usize, addresses: &[SocketAddr]) -> Result {
    let group = EventLoopGroup::builder().threads(1).build()?;
    let received = Arc::new(AtomicU64::new(0));
    let count = received.clone();
    let client = ClientBootstrap::new(&group)
        .pipeline(move |_peer| Pipeline::codec(RawBytes).handler(Count(count.clone())));
    for address in addresses {
        for _ in 0..connections {
            client.connect(*address).wait()?;
        }
    }
    let ended = thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let mut reported = u64::MAX;
    while !ended.is_finished() {
        let now = received.load(Ordering::Relaxed);
        if now != reported {
            reported = now;
            let written = writeln!(std::io::stdout(), "{now}");
            written.map_err(|e| Error::io("reporting", e))?;
        }
        thread::sleep(PERIOD);
    }
    Ok(())
}

/// The number of bytes, and whether the process still reports.
struct Report {
    state: Mutex<(u64, bool)>,
    changed: Condvar,
}

pub(crate) struct Receiver {
    process: Child,
    report: Arc<Report>,
}

impl Receiver {
    /// Starts the process, and waits until it has connected.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start(connections: usize, addresses: &[SocketAddr]) -> Result<Self> {
        let failed = |e| Error::io("starting a child process", e);
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("receive").arg(connections.to_string());
        command.args(addresses.iter().map(SocketAddr::to_string));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let output = process.stdout.take().ok_or_else(|| Error::other("the child has no output"))?;
        let mut lines = BufReader::new(output).lines();
        let first = lines.next().and_then(|line| line.ok()?.parse().ok());
        let first = first.ok_or_else(|| Error::other("the child could not connect"))?;
        let report = Arc::new(Report { state: Mutex::new((first, true)), changed: Condvar::new() });
        let reported = report.clone();
        thread::spawn(move || {
            let set = |bytes: Option<u64>| {
                let mut state = reported.state.lock().expect("nothing panics with it");
                *state = bytes.map_or((state.0, false), |bytes| (bytes, true));
                reported.changed.notify_all();
            };
            for line in lines.map_while(Result::ok) {
                set(line.parse().ok());
            }
            set(None);
        });
        Ok(Receiver { process, report })
    }

    /// Waits until that many bytes have arrived since the start.
    ///
    /// # Errors
    /// If the process has ended, or nothing arrives for a while.
    pub(crate) fn wait_for(&self, bytes: u64) -> Result {
        let mut state = self.report.state.lock().expect("nothing panics with it");
        while state.0 < bytes {
            let before = state.0;
            let waited = self.report.changed.wait_timeout(state, PATIENCE);
            let (after, timeout) = waited.expect("nothing panics with it");
            if !after.1 || (timeout.timed_out() && after.0 == before) {
                return Err(Error::other(format!("only {} of {bytes} bytes have arrived", after.0)));
            }
            state = after;
        }
        Ok(())
    }

    /// Returns the number of bytes that have arrived.
    pub(crate) fn bytes(&self) -> u64 {
        self.report.state.lock().expect("nothing panics with it").0
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // The end of its input ends the process.
        drop(self.process.stdin.take());
        if let Err(error) = self.process.wait() {
            eprintln!("a child process stays: {error}");
        }
    }
}
