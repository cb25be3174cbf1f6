//! Channels with TLS whose peer reads slowly or not at all.

use super::pair::{End, VERSIONS, client_config, server_config};
use crate::{
    channel::{ChannelOptions, Overflow, Pipeline},
    codec::{Line, RawBytes},
    error::Result,
    pipeline::{Context, Handler},
    testing::EmbeddedChannel,
    tls::{filter::TlsFilter, info::TlsVersion},
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Answers the first message with `bye`, and closes.
struct Goodbye;

impl Handler for Goodbye {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, _: Bytes) -> Result {
        ctx.close_with("bye".into())
    }
}

/// Returns a channel and its peer after the handshake. The transport takes nothing more.
fn blocked(
    version: TlsVersion,
    pipeline: Pipeline<Bytes>,
    options: ChannelOptions,
) -> (EmbeddedChannel<Bytes>, End) {
    let filter = TlsFilter::server(Arc::new(server_config(version)), None, None).expect("a server");
    let builder = EmbeddedChannel::builder(pipeline).filter(filter).channel_options(options);
    let mut channel = builder.build().expect("a channel");
    let mut client = End::client(client_config(version));
    while !client.output.is_empty() {
        channel.write_inbound(&std::mem::take(&mut client.output)).expect("a flight");
        client.receive(&channel.read_outbound()).expect("a flight");
    }
    assert!(client.is_established());
    channel.set_outbound_room(Some(0));
    (channel, client)
}

/// Lets the transport take `room` bytes, which the peer then receives.
fn drain(channel: &mut EmbeddedChannel<Bytes>, client: &mut End, room: Option<usize>) -> usize {
    channel.set_outbound_room(room);
    let wire = channel.read_outbound();
    client.receive(&wire).expect("valid records");
    wire.len()
}

fn goodbye(version: TlsVersion) -> (EmbeddedChannel<Bytes>, End) {
    let options = ChannelOptions::new().close_timeout(Duration::from_secs(3));
    let (mut channel, mut client) = blocked(version, Pipeline::codec(RawBytes).handler(Goodbye), options);
    client.send(b"quit", 4).expect("sealed");
    channel.write_inbound(&std::mem::take(&mut client.output)).expect("opened");
    assert!(!channel.is_open() && !channel.is_closed(), "a close waits for the output");
    (channel, client)
}

/// S-07.
#[test]
fn data_and_close_notify_precede_the_end_of_a_closing_channel() {
    for version in VERSIONS {
        let (mut channel, mut client) = goodbye(version);
        while !client.has_input_ended() {
            let ended = channel.is_output_ended() || channel.is_closed();
            assert!(!ended, "the stream ends before close_notify");
            assert_eq!(drain(&mut channel, &mut client, Some(1)), 1);
        }
        assert_eq!(client.plain[..], b"bye"[..]);
        assert!(channel.is_output_ended() || channel.is_closed());
        assert_eq!(drain(&mut channel, &mut client, None), 0, "nothing follows close_notify");
    }
}

/// S-07.
#[test]
fn a_peer_that_does_not_read_delays_a_close_no_longer_than_close_timeout() {
    for version in VERSIONS {
        let (mut channel, mut client) = goodbye(version);
        channel.advance(Duration::from_millis(2_900));
        assert!(!channel.is_closed(), "the peer has its time");
        // Reading one byte at a time does not prolong it.
        assert_eq!(drain(&mut channel, &mut client, Some(1)), 1);
        channel.advance(Duration::from_millis(100));
        channel.run_pending();
        assert!(channel.is_closed());
        assert_eq!(channel.timers(), 0);
    }
}

/// S-20.
#[test]
fn a_tracked_write_of_one_mebibyte_completes_with_its_last_sealed_byte() {
    for version in VERSIONS {
        let options = ChannelOptions::new().max_outbound(2 * MIB);
        let pipeline = Pipeline::codec(RawBytes).on_read(|_, _: Bytes| Ok(()));
        let (mut channel, mut client) = blocked(version, pipeline, options);
        let data: Bytes = (0..MIB).map(|n| (n / 7) as u8).collect();
        let written = channel.channel().write_tracked(data.clone()).expect("room");
        channel.run_pending();
        assert_eq!(channel.pending_bytes(), MIB, "plaintext counts until it is sent");
        // An odd number, so that the transport blocks within records.
        while drain(&mut channel, &mut client, Some(10_007)) == 10_007 {
            assert_eq!(written.is_done(), client.plain.len() == MIB);
            assert!(channel.pending_bytes() >= MIB - client.plain.len());
        }
        assert!(written.is_done() && client.plain == data);
        assert_eq!(channel.pending_bytes(), 0);
    }
}

/// S-20.
#[test]
fn at_most_64_kib_of_a_mebibyte_are_sealed_and_policies_drop_whole_messages_of_the_rest() {
    const LINE: usize = 1000;
    for version in VERSIONS {
        let options = ChannelOptions::new().max_outbound(256 * KIB).overflow(Overflow::DropOldest);
        let pipeline = Pipeline::codec(Line::new()).on_read(|_, _: Bytes| Ok(()));
        let (mut channel, mut client) = blocked(version, pipeline, options);
        let handle = channel.channel();
        for n in 0..MIB / LINE {
            handle.write(format!("{n:0width$}", width = LINE - 1).into()).expect("others are dropped");
            channel.run_pending();
            assert!(channel.pending_bytes() <= 256 * KIB);
        }
        drain(&mut channel, &mut client, None);
        let text = std::str::from_utf8(&client.plain).expect("digits");
        assert!(text.ends_with('\n') && text.lines().all(|line| line.len() == LINE - 1), "lines are whole");
        let numbers: Vec<usize> = text.lines().map(|line| line.parse().expect("a number")).collect();
        assert!(numbers.is_sorted() && numbers.last() == Some(&(MIB / LINE - 1)));
        // Sealed messages are not dropped, so the first gap shows how much was sealed.
        let kept = numbers.iter().enumerate().take_while(|(at, number)| at == *number).count();
        assert!((1..=64 * KIB / LINE + 1).contains(&kept), "{kept} lines were sealed");
        assert!(numbers.len() > kept);
    }
}
