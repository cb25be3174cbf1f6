//! Conflation: a message that waits is replaced by the newest one with the same key.

mod limits;
mod model;
mod slow_reader;
mod stays;
mod tracked;

use crate::support::{journal::Log, recorder::Recorder};
use bytes::Bytes;
use netwheel::{
    ChannelContext,
    channel::{ChannelOptions, TimeLimits},
    codec::Line,
    prelude::*,
    testing::EmbeddedChannel,
};
use std::{sync::mpsc, time::Duration};

/// A channel whose peer accepts nothing, with one pending line, so that it has a backlog.
fn blocked(options: ChannelOptions) -> (EmbeddedChannel<Bytes>, Log) {
    let log = Log::new();
    let limits = TimeLimits::new().write(Duration::from_secs(60));
    let pipeline = Pipeline::codec(Line::new()).time_limits(limits).handler(Recorder::new(&log));
    let mut channel = EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap();
    channel.set_outbound_room(Some(0));
    channel.channel().write("first".into()).unwrap();
    channel.run_pending();
    log.take();
    (channel, log)
}

/// Lets the peer accept everything, and returns the lines that were not sent before.
fn sent(channel: &mut EmbeddedChannel<Bytes>) -> Vec<String> {
    channel.set_outbound_room(None);
    let bytes = channel.read_outbound();
    std::str::from_utf8(&bytes).unwrap().lines().map(str::to_owned).collect()
}

/// Runs `call` in a callback of the handler, and returns its result.
fn in_handler(
    channel: &mut EmbeddedChannel<Bytes>,
    call: impl FnOnce(&mut ChannelContext<'_, Bytes>) -> Result + Send + 'static,
) -> Result {
    let (tell, told) = mpsc::channel();
    let called = channel.channel().execute(move |ctx| {
        tell.send(call(ctx)).unwrap();
        Ok(())
    });
    called.unwrap();
    channel.run_pending();
    told.recv().unwrap()
}
