//! Measures how fast the simulation runs: events per second, and simulated seconds per second. With
//! faults and many events it is also the long run that `docs/simulation.md` describes.
//!
//! Half of the nodes are servers, which send each frame back. The others are clients. Each keeps
//! connections to the servers, sends one frame at a time on each, and connects again when a
//! connection has ended.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a program, not a library")]

use bytes::Bytes;
use clap::{CommandFactory, Parser, builder::TypedValueParser, error::ErrorKind};
use netwheel::{
    codec::LengthField,
    prelude::*,
    testing::simulation::{Faults, Simulation, sleep},
};
use std::{
    fs,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Measures how fast the simulation of netwheel runs.
#[derive(Parser, Clone)]
struct Arguments {
    /// The number of nodes. Each has a thread.
    #[arg(long, default_value_t = 2, value_parser = in_range(2, 10_000))]
    nodes: usize,
    /// The number of connections of each client.
    #[arg(long, default_value_t = 10, value_parser = in_range(0, 10_000))]
    connections: usize,
    /// The pause before the next frame of a connection, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pause: u64,
    /// The number of bytes in a frame.
    #[arg(long, default_value_t = 64, value_parser = in_range(0, 1_000_000))]
    bytes: usize,
    /// Ends after this number of events.
    #[arg(long, default_value_t = 5_000_000)]
    events: u64,
    /// Lets all faults happen, with rates that the seed draws again and again.
    #[arg(long)]
    faults: bool,
    /// The seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The most connections of all clients. A simulation has room for a million sockets, two of each.
const MOST_CONNECTIONS: usize = 400_000;

/// Returns a parser of numbers that refuses others than those from `least` to `most`.
fn in_range(least: u64, most: u64) -> impl TypedValueParser<Value = usize> {
    clap::value_parser!(u64).range(least..=most).map(|number| number as usize)
}

/// Sends a frame, and another one after each answer.
struct Client {
    frame: Bytes,
    pause: Duration,
}

impl Handler for Client {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write(self.frame.clone())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, frame: Bytes) -> Result {
        if self.pause.is_zero() {
            return ctx.write(frame);
        }
        ctx.schedule(self.pause, |client, ctx| ctx.write(client.frame.clone()));
        Ok(())
    }
}

fn server() -> Result {
    let group = EventLoopGroup::builder().threads(1).build()?;
    loop {
        let bound = ServerBootstrap::new(&group)
            .pipeline(|_peer| {
                Pipeline::codec(LengthField::u32())
                    .idle(IdleTimeouts::new().reader(Duration::from_secs(60)))
                    .on_read(|ctx, frame: Bytes| ctx.write(frame))
            })
            .bind("0.0.0.0:7000");
        match bound {
            Ok(server) => return server.closed().wait(),
            // The node has run out of descriptors.
            Err(_) => sleep(Duration::from_secs(1)),
        }
    }
}

fn client(arguments: &Arguments, number: usize) -> Result {
    let group = EventLoopGroup::builder().threads(1).build()?;
    let frame = Bytes::from(vec![b'x'; arguments.bytes]);
    let pause = Duration::from_millis(arguments.pause);
    let servers = arguments.nodes / 2;
    let connect = |n: usize| {
        let frame = frame.clone();
        let client = ClientBootstrap::new(&group).pipeline(move |_peer| {
            Pipeline::codec(LengthField::u32())
                .idle(IdleTimeouts::new().reader(Duration::from_secs(90)))
                .handler(Client { frame: frame.clone(), pause })
        });
        client.connect(format!("server-{}:7000", (number + n) % servers)).wait().ok()
    };
    let mut connections: Vec<Option<Channel<Bytes>>> = (0..arguments.connections).map(connect).collect();
    loop {
        sleep(Duration::from_secs(1));
        for (n, connection) in connections.iter_mut().enumerate() {
            if !connection.as_ref().is_some_and(Channel::is_open) {
                *connection = connect(n);
            }
        }
    }
}

/// Returns the resident memory in MiB.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let connections = arguments.nodes.div_ceil(2) * arguments.connections;
    if connections > MOST_CONNECTIONS {
        let message = format!("the clients have {connections} connections; at most {MOST_CONNECTIONS} fit");
        Arguments::command().error(ErrorKind::ValueValidation, message).exit();
    }
    let mut simulation = Simulation::new(arguments.seed);
    let servers = arguments.nodes / 2;
    for n in 0..servers {
        simulation.node(&format!("server-{n}"), &format!("10.0.{}.{}", n / 250, n % 250 + 1), server);
    }
    for n in 0..arguments.nodes - servers {
        let arguments = arguments.clone();
        let address = format!("10.1.{}.{}", n / 250, n % 250 + 1);
        simulation.node(&format!("client-{n}"), &address, move || client(&arguments, n));
    }
    let (began, mut reported) = (Instant::now(), Instant::now());
    let mut round = arguments.seed;
    while simulation.events() < arguments.events {
        if arguments.faults {
            round += 1;
            simulation.set_faults(&Faults::all().subset(round));
        }
        if let Err(failure) = simulation.run_for(Duration::from_secs(1)) {
            eprintln!("{failure}");
            return ExitCode::FAILURE;
        }
        if reported.elapsed() > Duration::from_secs(10) {
            reported = Instant::now();
            report(&simulation, began);
        }
    }
    report(&simulation, began);
    println!("hash {:016x}", simulation.trace_hash());
    ExitCode::SUCCESS
}

fn report(simulation: &Simulation, began: Instant) {
    let (events, seconds) = (simulation.events() as f64, began.elapsed().as_secs_f64());
    println!(
        "{events:.2e} events, {:.0} events/s, {:.1} simulated seconds/s, {} MiB",
        events / seconds,
        simulation.elapsed().as_secs_f64() / seconds,
        memory()
    );
}
