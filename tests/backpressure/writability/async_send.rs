//! Writes that wait for room: `Channel::send`, and the permit of `Channel::writable`.

use crate::{
    support::{journal::Log, recorder::Recorder},
    writability::{blocked, zeros},
};
use bytes::Bytes;
use netwheel::{Error, channel::ChannelOptions, prelude::*, testing::EmbeddedChannel};
use std::{
    pin::pin,
    task::{Context as Task, Poll, Waker},
};

const MIB: usize = 1 << 20;

/// A channel that is not writable, and its handle.
fn full() -> (EmbeddedChannel<Bytes>, Channel<Bytes>) {
    let mut channel = blocked(&ChannelOptions::new(), Recorder::new(&Log::new()));
    let handle = channel.channel();
    handle.write(zeros(MIB)).unwrap();
    channel.run_pending();
    assert!(!handle.is_writable());
    (channel, handle)
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Task::from_waker(Waker::noop()))
}

/// A message that only a permit makes fit.
fn too_much() -> Bytes {
    zeros(32 * MIB)
}

#[test]
fn sends_wait_for_room_and_each_gets_a_permit() {
    let (mut channel, handle) = full();
    let (mut one, mut other) = (pin!(handle.send(too_much())), pin!(handle.send(too_much())));
    assert!(poll(one.as_mut()).is_pending() && poll(other.as_mut()).is_pending());
    channel.set_outbound_room(None);
    channel.set_outbound_room(Some(0));
    assert!(matches!(poll(one.as_mut()), Poll::Ready(Ok(()))));
    assert!(!handle.is_writable());
    assert!(
        matches!(poll(other.as_mut()), Poll::Ready(Ok(()))),
        "it was writable when this one was notified"
    );
    channel.run_pending();
    assert!(channel.is_open());
    assert_eq!(channel.pending_bytes(), 2 * (32 * MIB + 1));
}

#[test]
fn a_send_on_a_writable_channel_is_ready_at_once() {
    let mut channel = blocked(&ChannelOptions::new(), Recorder::new(&Log::new()));
    let handle = channel.channel();
    assert!(matches!(poll(pin!(handle.send(zeros(4)))), Poll::Ready(Ok(()))));
    channel.set_outbound_room(None);
    assert_eq!(channel.read_outbound(), "0000\n");
}

#[test]
fn a_dropped_send_writes_nothing() {
    let (mut channel, handle) = full();
    {
        let mut given_up = pin!(handle.send(zeros(7)));
        assert!(poll(given_up.as_mut()).is_pending());
    }
    channel.set_outbound_room(None);
    assert_eq!(channel.read_outbound().len(), MIB + 1);
    assert_eq!(channel.run_pending(), 0);
}

#[test]
fn a_send_to_a_closing_channel_returns_its_message() {
    let (mut channel, handle) = full();
    let mut waiting = pin!(handle.send(zeros(7)));
    assert!(poll(waiting.as_mut()).is_pending());
    handle.close();
    channel.run_pending();
    for sent in [poll(waiting), poll(pin!(handle.send(zeros(7))))] {
        let Poll::Ready(Err(refused)) = sent else { panic!("it is closing") };
        assert!(matches!(refused.error(), Error::Closed) && *refused.value() == zeros(7));
    }
}

#[test]
fn giving_up_leaves_no_permit_and_a_completed_wait_leaves_one() {
    let (mut channel, handle) = full();
    drop(handle.writable());
    let pending = handle.writable();
    assert!(handle.write(too_much()).is_err(), "granted on completion, not on request");
    drop(pending);
    let other = handle.clone();
    let awaited = other.writable();
    channel.set_outbound_room(None);
    channel.set_outbound_room(Some(0));
    channel.channel().write(zeros(MIB)).unwrap();
    channel.run_pending();
    assert!(awaited.is_done());
    assert!(handle.write(too_much()).is_err(), "nobody waited any more");
    assert!(other.write(too_much()).is_ok(), "a permit is for one message");
    assert!(other.write(too_much()).is_err());
}
