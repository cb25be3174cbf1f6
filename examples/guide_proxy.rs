//! A TCP proxy with backpressure in both directions: the program of the guide's chapter about
//! backpressure and limits.
//!
//! ```text
//! cargo run --example guide_echo
//! cargo run --example guide_proxy -- 127.0.0.1:7000 127.0.0.1:7001   # in a second terminal
//! nc 127.0.0.1 7001                                                 # in a third terminal
//! ```

use bytes::Bytes;
use netwheel::{
    channel::{ChannelOptions, TimeLimits},
    codec::RawBytes,
    prelude::*,
    relay::Relay,
    shutdown::ShutdownOptions,
};
use std::{net::SocketAddr, time::Duration};

/// The pipeline of either side: bytes as they come, forwarded to the other side.
fn side(relay: Relay<Bytes>) -> Pipeline<Bytes> {
    Pipeline::codec(RawBytes).time_limits(TimeLimits::new().write(Duration::from_secs(60))).handler(relay)
}

fn main() -> Result {
    let mut arguments = std::env::args().skip(1);
    let target = arguments.next().unwrap_or("127.0.0.1:7000".to_owned());
    let target: SocketAddr = target.parse().map_err(Error::other)?;
    let address = arguments.next().unwrap_or("127.0.0.1:7001".to_owned());

    let group = EventLoopGroup::new()?;
    let options = ChannelOptions::new().half_close(true);
    let client =
        ClientBootstrap::new(&group).channel_options(options.clone()).connect_timeout(Duration::from_secs(5));
    let server = ServerBootstrap::new(&group)
        .channel_options(options)
        .pipeline(move |_peer| {
            let client = client.clone();
            side(Relay::dial(move |front| {
                client.pipeline(move |_peer| side(Relay::to(front.clone()))).connect(target)
            }))
        })
        .bind(&*address)?;

    let stop = server.clone();
    ctrlc::set_handler(move || stop.close().detach()).map_err(Error::other)?;
    println!("listening on {}", server.local_address());
    server.closed().wait()?;
    let report = group.shutdown(ShutdownOptions::new().timeout(Duration::from_secs(5))).wait()?;
    println!("{report}");
    Ok(())
}
