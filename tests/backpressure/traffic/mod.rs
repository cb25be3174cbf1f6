//! Traffic shaping, of a channel and of a group (H-01 to H-06), on the manual clock.
//!
//! Ours differs in the form: bytes are counted at the socket and nothing is read or sent beyond the limit, there is no queue
//! besides the channel's own buffer, and its own marks hold.

mod channel;
mod group;
mod over_tcp;

use crate::support::{journal::Log, recorder::Recorder, wait::ms};
use bytes::Bytes;
use netwheel::{
    ChannelOptions, TrafficShaping,
    codec::RawBytes,
    prelude::*,
    testing::{EmbeddedChannel, ManualClock},
};

/// A thousand bytes a second, a hundred at once: a pause is 50 ms.
const SLOW: u64 = 1_000;

fn with(
    options: &ChannelOptions,
    clock: &ManualClock,
    traffic: impl Into<TrafficShaping>,
    handler: Recorder,
) -> EmbeddedChannel<Bytes> {
    let pipeline = Pipeline::codec(RawBytes).traffic(traffic).handler(handler);
    EmbeddedChannel::with(pipeline, options, clock.clone(), ms(1)).unwrap()
}

fn shaped(traffic: impl Into<TrafficShaping>, log: &Log) -> EmbeddedChannel<Bytes> {
    with(&ChannelOptions::new(), &ManualClock::new(), traffic, Recorder::new(log))
}

/// So many different bytes.
fn bytes(n: usize) -> Bytes {
    (0..n).map(|i| (i * 7 + i / 251) as u8).collect::<Vec<_>>().into()
}

/// Bytes that the handler has been given since the last call.
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
