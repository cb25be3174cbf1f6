//! Backpressure: one definition of writability for handlers, handles, groups and async code. A
//! producer that obeys it is never refused, closed or left waiting, and memory stays bounded.

mod async_send;
mod between_messages;
mod holes;
mod model;
mod notification;
mod queued;
mod quick_loop;
mod relay;

use crate::support::{journal::Log, recorder::Recorder};
use bytes::Bytes;
use netwheel::{channel::ChannelOptions, codec::Line, prelude::*, testing::EmbeddedChannel};

/// An embedded line channel whose peer accepts nothing yet.
fn blocked(options: &ChannelOptions, handler: Recorder) -> EmbeddedChannel<Bytes> {
    let pipeline = Pipeline::codec(Line::new().max_len(64 << 20)).handler(handler);
    let mut channel = EmbeddedChannel::builder(pipeline).channel_options(options.clone()).build().unwrap();
    channel.set_outbound_room(Some(0));
    channel
}

fn zeros(n: usize) -> Bytes {
    Bytes::from(vec![b'0'; n])
}

/// Returns the changes of writability of which the handler was notified.
fn changes(log: &Log) -> Vec<String> {
    log.take().into_iter().filter(|entry| entry.starts_with("writable")).collect()
}
