//! An echo server over UDP: each datagram is sent back to whom it came from.
//!
//! ```text
//! cargo run --release --example udp_echo
//! nc -u 127.0.0.1 7000         # what is typed comes back
//! ```
//!
//! With `--join` it also hears a multicast group. It prints where it listens; Ctrl-C ends it, and it says how many
//! datagrams it has received and sent.
//!
//! A sender can forge the source address of a datagram. A server that answers everything can
//! therefore be turned against others (reflection), and two of them, or one with itself, into a
//! loop without an end. So this server does not answer datagrams from its own port number, on
//! whatever host, nor from a port below 1024, where the services live that answer everything (echo,
//! chargen, DNS, NTP). It answers each address at most `--rate` times per second. Its answers are
//! never longer than the question, so it does not amplify. Do not offer such a service to the
//! Internet.

#[path = "support/output.rs"]
mod output;
#[path = "support/token_bucket.rs"]
mod token_bucket;

use bytes::Bytes;
use clap::Parser;
use netwheel::{DatagramBootstrap, DatagramContext, DatagramHandler, UdpOptions, prelude::*};
use output::{Output, complain, say};
use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    net::{IpAddr, SocketAddr},
    process::ExitCode,
    sync::mpsc,
    time::{Duration, Instant},
};
use token_bucket::TokenBucket;

/// Sends back what comes.
#[derive(Parser)]
struct Options {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:7000")]
    listen: SocketAddr,
    /// A multicast group to hear; listen on 0.0.0.0 or [::] then.
    #[arg(long)]
    join: Option<IpAddr>,
    /// Bytes that the kernel keeps until they are read; 0: as many as it likes.
    #[arg(long, default_value_t = 0)]
    receive_buffer: usize,
    /// Answers per second to one address; twice as many at once. 0: any number.
    #[arg(long, default_value_t = 10_000)]
    rate: u32,
}

/// Number of token buckets that the addresses share.
const BUCKETS: usize = 1024;
/// Ports below are those of the system's services.
const FIRST_USER_PORT: u16 = 1024;

struct Echo {
    /// One for all addresses with the same hash, which bounds the memory. The hash is keyed.
    buckets: Box<[TokenBucket]>,
    hasher: RandomState,
}

impl Echo {
    fn new(rate: u32) -> Self {
        let bucket = TokenBucket::new(rate, rate.saturating_mul(2));
        Echo { buckets: vec![bucket; BUCKETS].into(), hasher: RandomState::new() }
    }

    /// Whether a datagram from there is answered.
    fn answers(&mut self, from: SocketAddr, local: Option<SocketAddr>, now: Instant) -> bool {
        let own_port = local.is_some_and(|local| local.port() == from.port());
        if own_port || from.port() < FIRST_USER_PORT {
            return false;
        }
        let bucket = self.hasher.hash_one(from.ip()) as usize % BUCKETS;
        self.buckets[bucket].take(now)
    }
}

impl DatagramHandler for Echo {
    fn read(&mut self, ctx: &mut DatagramContext<'_, Self>, datagram: Bytes, from: SocketAddr) -> Result {
        if !self.answers(from, ctx.local_address(), ctx.now()) {
            return Ok(());
        }
        // If it cannot be sent, `error` is told, and the next one is another matter.
        ctx.send_to(datagram, from)?;
        Ok(())
    }

    fn error(&mut self, _: &mut DatagramContext<'_, Self>, error: Error) -> Result {
        log::info!("{error:#}");
        Ok(())
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let output = Output::start();
    let result = run(&options);
    if let Err(error) = &result {
        complain!("udp_echo: {error:#}");
    }
    output.finish();
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(options: &Options) -> Result {
    let (stop, stopped) = mpsc::channel();
    // Before it says where it listens, for then it may be stopped. Nobody listens to a second Ctrl-C, and that is no error.
    ctrlc::set_handler(move || stop.send(()).unwrap_or_default()).map_err(Error::other)?;
    let group = EventLoopGroup::builder().threads(1).name("udp").build()?;
    let rate = options.rate;
    let mut udp = UdpOptions::new();
    if options.receive_buffer > 0 {
        udp = udp.receive_buffer(options.receive_buffer);
    }
    if let Some(address) = options.join {
        udp = udp.join(address.into());
    }
    let channel =
        DatagramBootstrap::new(&group).options(udp).handler(move || Echo::new(rate)).bind(options.listen)?;
    say!("listening on {}", channel.local_address());
    stopped.recv().map_err(Error::other)?;
    group.shutdown_gracefully(Duration::ZERO, Duration::from_secs(5)).wait()?;
    let counted = group.event_loops()[0].metrics();
    say!("received {}, sent {}", counted.datagrams_received, counted.datagrams_sent);
    Ok(())
}
