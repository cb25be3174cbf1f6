//! An echo server over UDP: each datagram is sent back to whom it came from.
//!
//! ```text
//! cargo run --release --example udp_echo
//! nc -u 127.0.0.1 7000         # what is typed comes back
//! ```
//!
//! With `--join` it also hears a multicast group. It prints where it listens; Ctrl-C ends it, and it says how many
//! datagrams it has received and sent.

use bytes::Bytes;
use clap::Parser;
use netwheel::{DatagramBootstrap, DatagramContext, DatagramHandler, UdpOptions, prelude::*};
use std::{
    net::{IpAddr, SocketAddr},
    sync::mpsc,
    time::Duration,
};

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
}

struct Echo;

impl DatagramHandler for Echo {
    fn read(&mut self, ctx: &mut DatagramContext<'_, Self>, datagram: Bytes, from: SocketAddr) -> Result {
        // If it cannot be sent, `error` is told, and the next one is another matter.
        ctx.send_to(datagram, from)?;
        Ok(())
    }

    fn error(&mut self, _: &mut DatagramContext<'_, Self>, error: Error) -> Result {
        log::info!("{error}");
        Ok(())
    }
}

fn main() -> Result {
    env_logger::init();
    let options = Options::parse();
    let (stop, stopped) = mpsc::channel();
    // Before it says where it listens, for then it may be stopped. Nobody listens to a second Ctrl-C, and that is no error.
    ctrlc::set_handler(move || stop.send(()).unwrap_or_default()).map_err(Error::other)?;
    let group = EventLoopGroup::builder().threads(1).name("udp").build()?;
    let mut udp = UdpOptions::new();
    if options.receive_buffer > 0 {
        udp = udp.receive_buffer(options.receive_buffer);
    }
    if let Some(address) = options.join {
        udp = udp.join(address.into());
    }
    let channel = DatagramBootstrap::new(&group).options(udp).handler(|| Echo).bind(options.listen)?;
    println!("listening on {}", channel.local_address());
    stopped.recv().map_err(Error::other)?;
    group.shutdown_gracefully(Duration::ZERO, Duration::from_secs(5)).wait()?;
    let counted = group.event_loops()[0].metrics();
    println!("received {}, sent {}", counted.datagrams_received, counted.datagrams_sent);
    Ok(())
}
