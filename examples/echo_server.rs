//! An echo server: sends back every byte it receives. Read this program first.
//!
//! ```text
//! cargo run --release --example echo_server
//! nc 127.0.0.1 7000            # each line typed is echoed
//! ```
//!
//! With `--frames` the stream is split into frames: a 4-byte big-endian length, then the payload.
//! Each complete frame is sent back. A connection that sends nothing for `--idle-timeout` is
//! closed. With `--unix` the server listens on a Unix socket (`nc -U PATH`). It prints the address
//! it listens on. Ctrl-C stops it after the bytes received so far have been sent back.

#[path = "support/output.rs"]
mod output;

use bytes::Bytes;
use clap::Parser;
#[cfg(unix)]
use netwheel::net::{ListenerOptions, UnixAddress};
use netwheel::{
    codec::{LengthField, RawBytes},
    net::Address,
    prelude::*,
    shutdown::ShutdownOptions,
};
use output::{Output, complain, say};
use std::{net::SocketAddr, process::ExitCode, sync::mpsc, time::Duration};

/// Maximum frame length in bytes.
const MAX_FRAME: usize = 1024 * 1024;

/// Sends back every byte it receives.
#[derive(Parser)]
struct Options {
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:7000")]
    listen: SocketAddr,
    /// Listen on a Unix socket instead; a stale socket file is replaced.
    #[cfg(unix)]
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    unix: Option<std::path::PathBuf>,
    /// Split the stream into frames: a 4-byte length, then the payload.
    #[arg(long)]
    frames: bool,
    /// Close a connection after this time without input; 0s disables the timeout.
    #[arg(long, default_value = "60s", value_parser = humantime::parse_duration)]
    idle_timeout: Duration,
    /// Number of event loops, each on its own thread; 0 selects two per processor.
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
        // Backpressure: stop reading while the outbound buffer is full. Otherwise a peer that sends
        // but does not read would fill our memory.
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
    // Install the handler before the address is printed, because a script may then send the signal
    // immediately. A second Ctrl-C finds no receiver, which is not an error.
    ctrlc::set_handler(move || stop.send(()).unwrap_or_default()).map_err(Error::other)?;
    let group = EventLoopGroup::builder().threads(options.threads).name("echo").build()?;
    let server = ServerBootstrap::new(&group)
        .listener_options(ListenerOptions::new().backlog(1024).remove_stale_socket(true));
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
    group
        .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)))
        .wait()?;
    Ok(())
}
