//! An echo server over UDP: sends each datagram back to its sender.
//!
//! ```text
//! cargo run --release --example udp_echo
//! nc -u 127.0.0.1 7000         # each line typed is echoed
//! ```
//!
//! With `--join` it also joins a multicast group. It prints the address it listens on. Ctrl-C stops
//! it, and it prints the number of datagrams received and sent.
//!
//! A sender can forge the source address of a datagram. A server that answers every datagram can
//! therefore be used to attack others (reflection). Two such servers, or one server and itself, can
//! be made to answer each other endlessly. This server therefore does not answer a datagram from
//! its own port number, on any host. It does not answer ports below 1024 either: services that
//! answer everything (echo, chargen, DNS, NTP) use those ports. It answers each address at most
//! `--rate` times per second. An answer is never longer than the request, so the server does not
//! amplify. Do not expose such a service to the Internet.

#[path = "support/output.rs"]
mod output;
#[path = "support/token_bucket.rs"]
mod token_bucket;

use bytes::Bytes;
use clap::Parser;
use netwheel::{
    DatagramBootstrap,
    datagram::{DatagramContext, DatagramHandler},
    net::UdpOptions,
    prelude::*,
    shutdown::ShutdownOptions,
};
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

/// Sends each datagram back to its sender.
#[derive(Parser)]
struct Options {
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:7000")]
    listen: SocketAddr,
    /// Multicast group to join; requires listening on 0.0.0.0 or [::].
    #[arg(long)]
    join: Option<IpAddr>,
    /// Size of the kernel's receive buffer in bytes; 0 keeps the system default.
    #[arg(long, default_value_t = 0)]
    receive_buffer: usize,
    /// Maximum answers per second to one address, with bursts of twice as many; 0 disables the
    /// limit.
    #[arg(long, default_value_t = 10_000)]
    rate: u32,
}

/// Number of token buckets, shared by all addresses.
const BUCKETS: usize = 1024;
/// Lower ports belong to system services.
const FIRST_USER_PORT: u16 = 1024;

struct Echo {
    /// Addresses with the same hash share a bucket, which bounds the memory. The hash is keyed.
    buckets: Box<[TokenBucket]>,
    hasher: RandomState,
}

impl Echo {
    fn new(rate: u32) -> Self {
        let bucket = TokenBucket::new(rate, rate.saturating_mul(2));
        Echo { buckets: vec![bucket; BUCKETS].into(), hasher: RandomState::new() }
    }

    /// Returns whether a datagram from `from` is answered.
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
        // If sending fails later, `error` is called and the server continues with the next
        // datagram.
        ctx.write_to(datagram, from)?;
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
    // Install the handler before the address is printed, because a script may then send the signal
    // immediately. A second Ctrl-C finds no receiver, which is not an error.
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
    let channel = DatagramBootstrap::new(&group)
        .udp_options(udp)
        .handler(move || Echo::new(rate))
        .bind(options.listen)?;
    say!("listening on {}", channel.local_address());
    stopped.recv().map_err(Error::other)?;
    group
        .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)))
        .wait()?;
    let counted = group.event_loops()[0].metrics();
    say!("received {}, sent {}", counted.datagrams_received, counted.datagrams_sent);
    Ok(())
}
