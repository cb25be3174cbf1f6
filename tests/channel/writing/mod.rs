//! Writing: when bytes are sent, accounting, refusals, and effects of failures.

mod buffer_model;
mod encoding;
mod flush;
mod leaving;
mod marks;
mod notify;
mod refusals;

use crate::support::recorder::Recorder;
use bytes::Bytes;
use netwheel::{
    buffer::WaterMark, channel::ChannelOptions, codec::RawBytes, prelude::*, testing::EmbeddedChannel,
};

/// The overhead of an entry that counts towards the water marks in addition to its bytes.
const OVERHEAD: usize = 96;

/// An embedded channel without framing, for tests that count bytes.
fn raw(options: &ChannelOptions, handler: Recorder) -> EmbeddedChannel<Bytes> {
    let pipeline = Pipeline::codec(RawBytes).handler(handler);
    EmbeddedChannel::builder(pipeline).channel_options(options.clone()).build().unwrap()
}

fn marks(low: usize, high: usize) -> ChannelOptions {
    ChannelOptions::new().water_mark(WaterMark::new(low, high).unwrap())
}

fn zeros(n: usize) -> Bytes {
    Bytes::from(vec![0; n])
}

/// Writes `n` bytes to the channel in a separate task.
fn write(channel: &mut EmbeddedChannel<Bytes>, n: usize) {
    channel.channel().execute(move |ctx| ctx.write(zeros(n))).unwrap();
    channel.run_pending();
}

/// Lets the peer accept `n` bytes.
fn take(channel: &mut EmbeddedChannel<Bytes>, n: usize) {
    channel.set_outbound_room(Some(n));
    assert_eq!(channel.read_outbound().len(), n);
}
