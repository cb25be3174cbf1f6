//! A reader at a hundredth of the rate of its writer.

use crate::support::{
    loops::{end, metrics, one_loop},
    recorder::Event,
    servers::{Settings, serve_with},
    tcp::connect,
    wait::done,
};
use bytes::Bytes;
use netwheel::{
    channel::ChannelOptions, codec::LengthField, net::TcpOptions, prelude::*, testing::EmbeddedChannel,
};
use std::io::Read;

const KEYS: usize = 10;

/// The length of a message and its length field.
const LEN: usize = 100;

/// Returns the value of a key at a time.
fn message(key: usize, time: u32) -> Bytes {
    let mut bytes = vec![0; LEN - 4];
    bytes[0] = key as u8;
    bytes[1..5].copy_from_slice(&time.to_be_bytes());
    bytes.into()
}

/// Returns the key and the time of a received message.
fn value(frame: &[u8]) -> (usize, u32) {
    (usize::from(frame[4]), u32::from_be_bytes(frame[5..9].try_into().unwrap()))
}

/// Each value is the newest one at the moment at which its first byte leaves. A value that was
/// written after that is at most one round of all keys behind.
#[test]
fn each_value_is_the_newest_when_it_is_sent() {
    const ROUNDS: u32 = 4000;
    let pipeline = Pipeline::codec(LengthField::u32()).on_read(|_, _: Bytes| Ok(()));
    let mut channel: EmbeddedChannel<Bytes> = EmbeddedChannel::new(pipeline);
    channel.set_outbound_room(Some(0));
    let handle = channel.channel();
    let (mut received, mut values) = (Vec::new(), [0; KEYS]);
    // The writer produces KEYS messages of LEN bytes in each round, and the peer takes a hundredth.
    for time in 1..=ROUNDS {
        for key in 0..KEYS {
            handle.write_latest(key as u64, message(key, time)).unwrap();
        }
        channel.run_pending();
        assert!(channel.pending_bytes() <= 2 * KEYS * LEN, "the first round, and one per key");
        channel.set_outbound_room(Some(KEYS * LEN / 100));
        received.extend_from_slice(&channel.read_outbound());
        while received.len() >= LEN {
            let (key, sent) = value(&received[..LEN]);
            received.drain(..LEN);
            values[key] = sent;
            // A message takes LEN / 10 rounds to be sent.
            let begun = time - (LEN / 10) as u32;
            assert!(sent >= begun || time < 300, "key {key}: {sent} of {time}");
        }
        // The whole of the keys takes 100 rounds.
        assert!(time < 300 || values.iter().all(|sent| time - sent <= 120), "{time}: {values:?}");
    }
    channel.set_outbound_room(None);
    received.extend_from_slice(&channel.read_outbound());
    for frame in received.chunks(LEN) {
        let (key, time) = value(frame);
        values[key] = time;
    }
    assert_eq!(values, [ROUNDS; KEYS]);
}

/// Over TCP the buffers of the kernel hold old values too. Behind them the reader gets the newest.
#[test]
fn a_slow_reader_over_tcp_converges() {
    const VALUES: u32 = 20_000;
    let group = one_loop();
    let tcp = TcpOptions::new().send_buffer(16 * 1024).not_sent_low_water(4096);
    let settings = Settings { tcp, channel: ChannelOptions::new() };
    let codec = LengthField::u32();
    let (server, events) = serve_with(&group, settings, codec, |_, _: &Event| Ok(()));
    let mut reader = connect(server.local_address());
    let channel = events.channel();
    let (mut frame, mut received, mut last) = ([0; LEN], 0, 0);
    for time in 1..=VALUES {
        channel.write_latest(0, message(0, time)).unwrap();
        if time % 100 == 0 {
            // All messages before it are handled, so the queue of the loop is never full.
            done(channel.stats()).unwrap();
            reader.read_exact(&mut frame).unwrap();
            let (_, sent) = value(&frame);
            assert!(sent > last, "{sent} after {last}");
            (received, last) = (received + 1, sent);
        }
    }
    while last < VALUES {
        reader.read_exact(&mut frame).unwrap();
        let (_, sent) = value(&frame);
        assert!(sent > last, "{sent} after {last}");
        (received, last) = (received + 1, sent);
    }
    let stats = done(channel.stats()).unwrap();
    assert!(stats.messages_conflated > 10_000, "{stats:?}");
    assert_eq!(received + stats.messages_conflated, u64::from(VALUES));
    assert_eq!(metrics(&group).messages_conflated, stats.messages_conflated);
    assert_eq!(stats.messages_written, u64::from(VALUES));
    drop(server);
    end(&group);
}
