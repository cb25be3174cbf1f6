//! Queued messages count with their estimated size. A producer that obeys writability is never
//! refused or closed, and memory is bounded, however long the loop is busy.

use crate::over_each_transport;
use crate::support::{
    journal::Log,
    recorder::{Recorder, hand_over},
    streams::{anywhere, connect},
    wait::{PATIENCE, done},
};
use crate::writability::{blocked, zeros};
use bytes::Bytes;
use netwheel::{
    Codec, Error, Result,
    buffer::OutboundBuffer,
    channel::{ChannelOptions, Overflow},
    codec::RawBytes,
    prelude::*,
    testing::EmbeddedChannel,
};
use std::{
    io::Read,
    sync::{Barrier, mpsc},
    thread,
};

const MIB: usize = 1 << 20;

/// The loop does not run during the writes.
#[test]
fn one_message_larger_than_the_high_mark_pauses_its_producer() {
    let mut channel = blocked(&ChannelOptions::new(), Recorder::new(&Log::new()));
    let handle = channel.channel();
    assert!(handle.is_writable());
    handle.write(zeros(MIB)).unwrap();
    assert!(!handle.is_writable());
    channel.run_pending();
    assert!(!handle.is_writable());
    channel.set_outbound_room(None);
    assert!(handle.is_writable());
}

#[test]
fn pending_bytes_stay_within_the_high_mark_plus_one_message() {
    for size in [1, 100, 10_000, 100_000] {
        let mut channel = blocked(&ChannelOptions::new(), Recorder::new(&Log::new()));
        let handle = channel.channel();
        let mut written = 0;
        while handle.is_writable() {
            handle.write(zeros(size)).unwrap();
            written += size;
        }
        assert!(written <= 65_536 + size, "{written} bytes in messages of {size}");
        channel.run_pending();
        assert!(channel.pending_bytes() >= written);
    }
}

/// Sixteen threads see a writable channel at the same moment. Together they write four times the
/// limit of the channel.
#[test]
fn each_producer_that_saw_a_writable_channel_may_write_one_message() {
    for policy in [Overflow::Refuse, Overflow::DropNewest, Overflow::Close] {
        const PRODUCERS: usize = 16;
        let options = ChannelOptions::new().overflow(policy);
        let mut channel = blocked(&options, Recorder::new(&Log::new()));
        let handle = channel.channel();
        let barrier = Barrier::new(PRODUCERS);
        thread::scope(|scope| {
            for _ in 0..PRODUCERS {
                let (handle, barrier) = (handle.clone(), &barrier);
                scope.spawn(move || {
                    assert!(handle.is_writable());
                    barrier.wait();
                    handle.write(zeros(4 * MIB)).expect("a writable channel accepts a message");
                });
            }
        });
        let late = handle.write(zeros(4 * MIB));
        assert_eq!(
            late.is_err(),
            policy == Overflow::Refuse,
            "a write without permission is subject to the limit"
        );
        channel.run_pending();
        assert_eq!(channel.is_open(), policy != Overflow::Close, "{policy:?}: the late write");
        if channel.is_open() {
            channel.set_outbound_room(None);
            assert_eq!(channel.read_outbound().len(), PRODUCERS * (4 * MIB + 1));
        }
    }
}

#[test]
fn writable_allows_one_write_like_is_writable() {
    let mut channel = blocked(&ChannelOptions::new().max_outbound(100), Recorder::new(&Log::new()));
    let (one, two) = (channel.channel(), channel.channel());
    let (first, second) = (one.writable(), two.writable());
    assert!(first.is_done() && second.is_done());
    one.write(zeros(1000)).unwrap();
    two.write(zeros(1000)).unwrap();
    assert!(matches!(two.write(zeros(1000)).unwrap_err().error(), Error::Full { .. }));
    channel.run_pending();
    assert!(channel.is_open());
}

/// Encodes every byte as 30,000 bytes. Provides no size estimate.
struct Expanding;

impl Codec for Expanding {
    type Read = Bytes;
    type Write = u8;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        RawBytes.decode(input)
    }

    fn encode(&mut self, byte: u8, output: &mut OutboundBuffer) -> Result {
        output.put_slice(&[byte; 30_000]);
        Ok(())
    }
}

struct Quiet;

impl Handler for Quiet {
    type Read = Bytes;
    type Write = u8;

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}

#[test]
fn a_message_of_unknown_size_counts_as_the_longest_recent_one() {
    let pipeline = Pipeline::codec(Expanding).handler(Quiet);
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.set_outbound_room(Some(0));
    let handle = channel.channel();
    handle.write(0).unwrap();
    assert!(!handle.is_writable(), "the size is unknown");
    channel.run_pending();
    assert!(handle.is_writable(), "30,000 bytes are below the low mark");
    handle.write(1).unwrap();
    assert!(handle.is_writable(), "60,000 bytes are not above the high mark");
    handle.write(2).unwrap();
    assert!(!handle.is_writable(), "90,000 bytes are above the high mark");
    channel.run_pending();
    channel.set_outbound_room(None);
    assert_eq!(channel.read_outbound().len(), 90_000);
}

/// `Json` counts the encoded size. A stage that passes messages on asks the next link for its
/// estimate.
#[cfg(feature = "json")]
#[test]
fn messages_of_stages_count_their_encoded_size() {
    use netwheel::stage::{Heartbeat, Json};
    struct Texts;
    impl Handler for Texts {
        type Read = String;
        type Write = String;

        fn read(&mut self, _: &mut Context<'_, Self>, _: String) -> Result {
            Ok(())
        }
    }
    let pipeline = Pipeline::codec(netwheel::codec::LengthField::u32())
        .stage(Json::<String, String>::new())
        .stage(Heartbeat::new(std::time::Duration::from_secs(1), String::new))
        .handler(Texts);
    let mut channel = EmbeddedChannel::new(pipeline);
    let handle = channel.channel();
    handle.write("x".repeat(60_000)).unwrap();
    assert!(handle.is_writable());
    handle.write("x".repeat(6_000)).unwrap();
    assert!(!handle.is_writable());
}

/// The producer waits no longer than the loop is blocked. Its peer reads as fast as it can.
fn a_producer_that_obeys_is_not_refused_by_a_blocked_loop() {
    const MESSAGES: usize = 64;
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (hand_over, channels) = hand_over();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| Pipeline::codec(RawBytes).handler(Recorder::with(&Log::new(), hand_over.clone())))
        .bind(anywhere())
        .unwrap();
    let mut peer = connect(&server);
    let channel = channels.recv().unwrap();
    let (open, opened) = mpsc::channel::<()>();
    let stands = move || {
        let _ = opened.recv_timeout(PATIENCE);
    };
    group.next().execute(stands).unwrap();
    let reader = thread::spawn(move || {
        let (mut buffer, mut left) = (vec![0; MIB], MESSAGES * MIB);
        while left > 0 {
            let n = peer.read(&mut buffer).unwrap();
            assert!(n > 0, "closed {left} bytes before the end");
            left -= n;
        }
        peer
    });
    let mut ahead = 0;
    while channel.is_writable() {
        channel.write(zeros(MIB)).unwrap();
        ahead += 1;
    }
    assert_eq!(ahead, 1, "one message while the loop is blocked");
    drop(open);
    for _ in ahead..MESSAGES {
        done(channel.writable()).unwrap();
        channel.write(zeros(MIB)).unwrap();
    }
    let _peer = reader.join().unwrap();
    assert!(channel.is_open());
}

#[test]
fn a_closed_channel_refuses_writes_without_counting_them() {
    let pipeline = Pipeline::codec(RawBytes).handler(Recorder::new(&Log::new()));
    let mut channel = EmbeddedChannel::builder(pipeline).build().unwrap();
    let handle = channel.channel();
    handle.write(zeros(MIB)).unwrap();
    channel.close();
    assert!(!handle.is_writable());
    assert!(matches!(handle.write(zeros(1)).unwrap_err().error(), Error::Closed));
}

over_each_transport! {
    a_producer_that_obeys_is_not_refused_by_a_blocked_loop,
}
