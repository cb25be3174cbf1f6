//! Sends the output of a command to all clients: an event source next to channels.
//!
//! ```text
//! cargo run --release --example command_output -- vmstat 1
//! nc 127.0.0.1 7000            # prints each line of the command
//! ```
//!
//! The command writes to one end of a socket pair. The event loop watches the other end in addition
//! to the connections of its clients (`EventLoop::register`), so no thread blocks in a read. A
//! client that does not read misses lines. Without a command, the time is sent once per second.
//!
//! The program prints the address it listens on. It stops when the command has closed its output,
//! and on Ctrl-C, which also kills the command. At the end it prints the number of lines. Unix
//! only.

#![cfg_attr(not(unix), allow(unused))]

#[path = "support/output.rs"]
mod output;

use bytes::Bytes;
use clap::Parser;
use netwheel::{codec::RawBytes, prelude::*, shutdown::ShutdownOptions};
use output::{Output, complain, say};
use std::{
    net::SocketAddr,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};
#[cfg(unix)]
use {
    netwheel::event_source::{Interest, SourceAction, SourceHandle},
    std::{
        io::{ErrorKind, Read},
        os::{fd::OwnedFd, unix::net::UnixStream},
        process::{Child, Command, Stdio},
    },
};

/// Length of the longest line in bytes that is sent as a whole.
const MAX_LINE: usize = 64 * 1024;

/// Sends the output of a command to all clients.
#[derive(Parser)]
struct Options {
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:7000")]
    listen: SocketAddr,
    /// Command and its arguments.
    #[arg(trailing_var_arg = true, default_values = ["sh", "-c", "while date; do sleep 1; done"])]
    command: Vec<String>,
}

/// A client, which receives lines while it is a member of the group.
struct Client(ChannelGroup<Bytes>);

impl Handler for Client {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.0.join(ctx.channel());
        Ok(())
    }

    /// Ignores input.
    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}

/// The output of the command, in lines.
struct Lines {
    clients: ChannelGroup<Bytes>,
    /// The beginning of a line.
    unfinished: Vec<u8>,
    count: Arc<AtomicU64>,
}

impl Lines {
    /// Adds a part of the output, and sends all complete lines.
    fn add(&mut self, part: &[u8]) {
        self.unfinished.extend_from_slice(part);
        let end = match self.unfinished.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => last + 1,
            None if self.unfinished.len() >= MAX_LINE => self.unfinished.len(),
            None => return,
        };
        let rest = self.unfinished.split_off(end);
        self.send_all();
        self.unfinished = rest;
    }

    /// Sends everything that has not been sent.
    fn send_all(&mut self) {
        let lines = std::mem::take(&mut self.unfinished);
        let ends = lines.iter().filter(|byte| **byte == b'\n').count();
        self.count.fetch_add(ends as u64, Ordering::Relaxed);
        match self.clients.broadcast_where(|client| client.is_writable(), lines.into()) {
            Ok(broadcast) => broadcast.report().detach(),
            Err(refused) => log::warn!("the clients miss {ends} lines: {:#}", refused.error()),
        }
    }
}

#[cfg(unix)]
impl Lines {
    /// Reads once. Called by the loop when there is output.
    fn read(&mut self, output: &mut UnixStream) -> Result<SourceAction> {
        let mut buffer = [0; 16 * 1024];
        match output.read(&mut buffer) {
            Ok(0) => {
                self.send_all();
                return Ok(SourceAction::Deregister);
            }
            Ok(n) => self.add(&buffer[..n]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(SourceAction::Continue),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io("reading the output of the command", e)),
        }
        // The loop reports readiness only once, so the callback reads until a read would block. It
        // reads once per turn: a command that writes without a pause must not delay the clients.
        Ok(SourceAction::Again)
    }
}

/// Starts the command, and registers its output on a loop.
#[cfg(unix)]
fn start(
    command: &[String],
    event_loop: &EventLoop,
    mut lines: Lines,
) -> Result<(Child, SourceHandle<UnixStream>)> {
    let (ours, theirs) = UnixStream::pair().map_err(|e| Error::io("making a socket pair", e))?;
    // Only the end of the loop: the command expects an output that blocks.
    ours.set_nonblocking(true).map_err(|e| Error::io("making a socket pair", e))?;
    let (program, arguments) = command.split_first().ok_or_else(|| Error::other("the command is missing"))?;
    // The command must have the only copy of its end, or the output would not end with it.
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(OwnedFd::from(theirs))
        .spawn()
        .map_err(|e| Error::io("starting the command", e))?;
    let registered = event_loop
        .register(ours, Interest::READABLE, move |_, output: &mut UnixStream| lines.read(output))?;
    Ok((child, registered.wait()?))
}

fn main() -> ExitCode {
    let options = Options::parse();
    let output = Output::start();
    let result = run(&options);
    if let Err(error) = &result {
        complain!("command_output: {error:#}");
    }
    output.finish();
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(not(unix))]
fn run(_: &Options) -> Result {
    Err(Error::other("this program needs a Unix system"))
}

#[cfg(unix)]
fn run(options: &Options) -> Result {
    let (stop, stopped) = mpsc::channel();
    let at_end = stop.clone();
    // Install the handler before the address is printed, because a script may then send the signal
    // immediately. A second Ctrl-C finds no receiver, which is not an error.
    ctrlc::set_handler(move || stop.send(()).unwrap_or_default()).map_err(Error::other)?;
    let group = EventLoopGroup::builder().threads(1).name("output").build()?;
    let clients = ChannelGroup::new();
    let members = clients.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| Pipeline::codec(RawBytes).handler(Client(members.clone())))
        .bind(options.listen)?;
    say!("listening on {}", server.local_address());
    let count = Arc::new(AtomicU64::new(0));
    let lines = Lines { clients, unfinished: Vec::new(), count: count.clone() };
    let (mut child, source) = start(&options.command, group.next(), lines)?;
    source.closed().on_complete(move |_| at_end.send(()).unwrap_or_default());
    stopped.recv().map_err(Error::other)?;
    if source.is_registered() {
        // A command that has ended by itself is not an error.
        let _ = child.kill();
    }
    let status = child.wait().map_err(|e| Error::io("waiting for the command", e))?;
    group
        .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)))
        .wait()?;
    say!("{} lines; the command ended with {status}", count.load(Ordering::Relaxed));
    Ok(())
}
