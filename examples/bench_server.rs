//! The server that the load generator of `benches/peers` measures: default settings, and one loop
//! thread unless `--threads` is given.
//!
//! ```text
//! cargo run --release --example bench_server -- 7000 echo-frames
//! ```
//!
//! Modes: `echo-raw` sends back every byte. `echo-frames` splits the stream into frames (a 4-byte
//! length, then the payload) and sends each frame back. `echo-frames-idle` does the same and closes
//! a connection after 60 seconds without input. `broadcast` sends every frame to every connection.
//! The server prints the address it listens on and stops on Ctrl-C.

#[path = "support/output.rs"]
mod output;

use bytes::Bytes;
use clap::{Parser, ValueEnum};
use netwheel::{
    codec::{LengthField, RawBytes},
    net::ListenerOptions,
    prelude::*,
    shutdown::ShutdownOptions,
};
use output::{Output, say};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// Echo and broadcast server for benchmarks.
#[derive(Parser)]
struct Options {
    /// Port on 127.0.0.1; 0 selects a free port.
    port: u16,
    /// Operating mode.
    #[arg(value_enum)]
    mode: Mode,
    /// Number of event loops.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Mode {
    EchoRaw,
    EchoFrames,
    EchoFramesIdle,
    Broadcast,
}

struct Echo;

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        ctx.close();
        Ok(())
    }
}

/// A member of the room: every frame it sends is broadcast to all members.
struct Member {
    room: ChannelGroup<Bytes>,
}

impl Handler for Member {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.room.join(ctx.channel());
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, message: Bytes) -> Result {
        self.room.broadcast(message)?;
        Ok(())
    }
}

fn main() -> Result {
    let Options { port, mode, threads } = Options::parse();
    let output = Output::start();
    let group = EventLoopGroup::builder().threads(threads).build()?;
    let frames = || LengthField::u32().max_len(4 + (1 << 20));
    let server = ServerBootstrap::new(&group).listener_options(ListenerOptions::new().backlog(4096));
    let address = ("127.0.0.1", port);
    let idle = IdleTimeouts::new().reader(Duration::from_secs(60));
    let server = match mode {
        Mode::EchoRaw => server.pipeline(|_| Pipeline::codec(RawBytes).handler(Echo)).bind(address)?,
        Mode::EchoFrames => {
            server.pipeline(move |_| Pipeline::codec(frames()).handler(Echo)).bind(address)?
        }
        Mode::EchoFramesIdle => {
            server.pipeline(move |_| Pipeline::codec(frames()).idle(idle).handler(Echo)).bind(address)?
        }
        Mode::Broadcast => {
            let room = ChannelGroup::new();
            server
                .pipeline(move |_| Pipeline::codec(frames()).handler(Member { room: room.clone() }))
                .bind(address)?
        }
    };
    let group = Arc::new(Mutex::new(Some(group)));
    let stop = move || {
        if let Some(group) = group.lock().ok().and_then(|mut group| group.take()) {
            group
                .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(1)))
                .detach();
        }
    };
    ctrlc::set_handler(stop).map_err(Error::other)?;
    // Print the address last: a script that reads it may stop the server immediately.
    say!("listening on {}", server.local_address());
    let result = server.closed().wait();
    output.finish();
    result
}
