//! The server that the peers' load generator measures: one loop thread (or more, if asked), default settings.
//!
//! ```text
//! cargo run --release --example bench_server -- 7000 echo-frames
//! ```
//!
//! Modes: `echo-raw` sends back every byte; `echo-frames` splits the stream into frames (4 bytes of length, then
//! the payload) and sends each back; `echo-frames-idle` does that and closes a connection that was silent for 60
//! seconds; `broadcast` sends every frame to every connection. It prints where it listens and stops on Ctrl-C.

#[path = "support/output.rs"]
mod output;

use bytes::Bytes;
use clap::{Parser, ValueEnum};
use netwheel::{
    codec::{LengthField, RawBytes},
    prelude::*,
};
use output::{Output, say};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// Echo and broadcast for benchmarks.
#[derive(Parser)]
struct Options {
    /// Port on 127.0.0.1; 0 takes a free one.
    port: u16,
    /// What the server does.
    #[arg(value_enum)]
    mode: Mode,
    /// Loops that serve.
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

/// One of those who get what any of them sends.
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
    let server = ServerBootstrap::new(&group).backlog(4096);
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
            group.shutdown_gracefully(Duration::ZERO, Duration::from_secs(1)).detach();
        }
    };
    ctrlc::set_handler(stop).map_err(Error::other)?;
    // Who reads this may stop it at once.
    say!("listening on {}", server.local_address());
    let result = server.closed().wait();
    output.finish();
    result
}
