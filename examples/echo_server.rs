//! An echo server: what comes is sent back. The program to read first.
//!
//! ```text
//! cargo run --release --example echo_server
//! nc 127.0.0.1 7000            # what is typed comes back
//! ```
//!
//! With `--frames` the stream is split into frames (4 bytes of length, most significant first, then the payload),
//! and each whole frame is sent back. A connection that sends nothing for `--idle-timeout` is closed. With `--unix` it
//! listens on a Unix socket (`nc -U PATH`). It prints where it listens; Ctrl-C ends it after what was received has been
//! sent back.

#[path = "support/output.rs"]
mod output;

use bytes::Bytes;
use clap::Parser;
#[cfg(unix)]
use netwheel::UnixAddress;
use netwheel::{
    Address,
    codec::{LengthField, RawBytes},
    prelude::*,
};
use output::{Output, complain, say};
use std::{net::SocketAddr, process::ExitCode, sync::mpsc, time::Duration};

/// The longest frame that is read.
const MAX_FRAME: usize = 1024 * 1024;

/// Sends back what comes.
#[derive(Parser)]
struct Options {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:7000")]
    listen: SocketAddr,
    /// Listens on a Unix socket instead; one that nobody listens on any more is replaced.
    #[cfg(unix)]
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    unix: Option<std::path::PathBuf>,
    /// Splits the stream into frames: 4 bytes of length, then the payload.
    #[arg(long)]
    frames: bool,
    /// Closes a connection that sends nothing for so long; 0s: never.
    #[arg(long, default_value = "60s", value_parser = humantime::parse_duration)]
    idle_timeout: Duration,
    /// Number of event loops, each with a thread of its own; 0: two for every processor.
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

impl Options {
    fn address(&self) -> Result<Address> {
        #[cfg(unix)]
        if let Some(path) = &self.unix {
            return Ok(UnixAddress::path(path)?.into());
        }
        Ok(self.listen.into())
    }
}

struct Echo;

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        // A peer that sends and does not read must not fill our memory: no more is read until it has caught up.
        ctx.set_auto_read(writable);
        Ok(())
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, event: IdleEvent) -> Result {
        log::info!("{:?}: {event}, closing", ctx.peer_address());
        ctx.close();
        Ok(())
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    // An unread or broken output pipe stops neither a loop nor the shutdown.
    let output = Output::start();
    let result = run(&options);
    if let Err(error) = &result {
        complain!("echo_server: {error:#}");
    }
    output.finish();
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(options: &Options) -> Result {
    let (stop, stopped) = mpsc::channel();
    // Before it says where it listens, for then it may be stopped. Nobody listens to a second Ctrl-C, and that is no error.
    ctrlc::set_handler(move || stop.send(()).unwrap_or_default()).map_err(Error::other)?;
    let group = EventLoopGroup::builder().threads(options.threads).name("echo").build()?;
    let server = ServerBootstrap::new(&group).backlog(1024).remove_stale_socket(true);
    let idle = IdleTimeouts::new().reader(options.idle_timeout);
    let server = if options.frames {
        let frames = || LengthField::u32().max_len(MAX_FRAME);
        server
            .pipeline(move |_peer| Pipeline::codec(frames()).idle(idle).handler(Echo))
            .bind(options.address()?)?
    } else {
        server
            .pipeline(move |_peer| Pipeline::codec(RawBytes).idle(idle).handler(Echo))
            .bind(options.address()?)?
    };
    say!("listening on {}", server.local_address());
    stopped.recv().map_err(Error::other)?;
    group.shutdown_gracefully(Duration::ZERO, Duration::from_secs(5)).wait()
}
