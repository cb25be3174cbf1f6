//! Reading: bursts and how they end, errors, reading on demand, limits, and codecs that misbehave.

mod bursts;
mod complete;
mod decoding;
mod flow_control;
mod kept_bytes;
mod on_demand;
mod several;
mod stuck;

use crate::support::{journal::Log, recorder::Recorder, streams::anywhere};
use bytes::Bytes;
use netwheel::{
    Codec, channel::ChannelOptions, codec::RawBytes, net::Address, prelude::*, testing::EmbeddedChannel,
};

fn raw(options: &ChannelOptions, handler: Recorder) -> EmbeddedChannel<Bytes> {
    with_codec(options, RawBytes, handler)
}

fn with_codec<C: Codec<Read = Bytes, Write = Bytes>>(
    options: &ChannelOptions,
    codec: C,
    handler: Recorder,
) -> EmbeddedChannel<Bytes> {
    let pipeline = Pipeline::codec(codec).handler(handler);
    EmbeddedChannel::builder(pipeline).channel_options(options.clone()).build().unwrap()
}

/// Starts a server whose channels use `options` and log their calls.
fn serve<C: Codec<Read = Bytes, Write = Bytes> + Clone + Send + Sync>(
    group: &EventLoopGroup,
    options: ChannelOptions,
    codec: C,
    log: &Log,
    handler: impl Fn(&Log) -> Recorder + Send + Sync + 'static,
) -> Server<Address> {
    let log = log.clone();
    ServerBootstrap::new(group)
        .channel_options(options)
        .pipeline(move |_| Pipeline::codec(codec.clone()).handler(handler(&log)))
        .bind(anywhere())
        .unwrap()
}
