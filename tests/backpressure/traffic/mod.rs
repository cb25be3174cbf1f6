//! Traffic shaping of a channel and of a group (H-01 to H-06), on the manual clock.
//!
//! Unlike Netty, bytes are counted at the socket, and none are read or sent beyond the limit. The
//! channel's own buffer is the only queue, and its water marks apply.

mod channel;
mod group;
mod over_tcp;

use crate::support::{journal::Log, recorder::Recorder};
use bytes::Bytes;
use netwheel::{
    channel::ChannelOptions,
    codec::RawBytes,
    prelude::*,
    testing::{EmbeddedChannel, ManualClock},
    traffic::TrafficShaping,
};

/// 1000 bytes per second with a burst of 100, so that a pause lasts 50 ms.
const SLOW: u64 = 1_000;

fn with(
    options: &ChannelOptions,
    clock: &ManualClock,
    traffic: impl Into<TrafficShaping>,
    handler: Recorder,
) -> EmbeddedChannel<Bytes> {
    let pipeline = Pipeline::codec(RawBytes).traffic(traffic).handler(handler);
    EmbeddedChannel::builder(pipeline).channel_options(options.clone()).clock(clock.clone()).build().unwrap()
}

fn shaped(traffic: impl Into<TrafficShaping>, log: &Log) -> EmbeddedChannel<Bytes> {
    with(&ChannelOptions::new(), &ManualClock::new(), traffic, Recorder::new(log))
}

/// Returns `n` varying bytes.
fn bytes(n: usize) -> Bytes {
    (0..n).map(|i| (i * 7 + i / 251) as u8).collect::<Vec<_>>().into()
}

/// Returns the number of bytes that the handler has read since the last call.
fn read(log: &Log) -> usize {
    log.take().iter().filter_map(|entry| entry.strip_prefix("read ")).map(str::len).sum()
}

fn set(channel: &mut EmbeddedChannel<Bytes>, traffic: impl Into<TrafficShaping> + Send + 'static) {
    let set = move |ctx: &mut netwheel::ChannelContext<'_, Bytes>| {
        ctx.set_traffic(traffic);
        Ok(())
    };
    channel.channel().execute(set).unwrap();
    channel.run_pending();
}
