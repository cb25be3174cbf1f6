//! Pings, Pongs and dead peers.

use super::support::{
    BINARY, CONTINUATION, FIN, PING, PONG, TEXT, client, frame, sent, server_channel, server_channel_with,
    settings,
};
use crate::{
    channel::{ChannelOptions, Overflow},
    error::Error,
    websocket::message::Message,
};
use std::time::Duration;

#[test]
fn a_ping_between_fragments_is_answered_before_more_data() {
    let (mut channel, _) = server_channel(settings());
    let bytes = [frame(TEXT, true, b"one "), client(PING, "p"), frame(FIN | CONTINUATION, true, b"two")];
    channel.write_inbound(&bytes[..2].concat()).unwrap();
    assert_eq!(sent(&mut channel, true), [Message::Pong("p".into())]);
    channel.write_inbound(&bytes[2]).unwrap();
    assert_eq!(sent(&mut channel, true), [Message::text("one two")]);
    // Likewise in one read.
    channel.write_inbound(&bytes.concat()).unwrap();
    assert_eq!(sent(&mut channel, true), [Message::Pong("p".into()), Message::text("one two")]);
}

#[test]
fn every_ping_is_answered_while_the_peer_reads() {
    let (mut channel, seen) = server_channel(settings());
    let pings: Vec<u8> = (0..10).flat_map(|n| client(PING, [n])).collect();
    channel.write_inbound(&pings).unwrap();
    let pongs: Vec<Message> = (0..10).map(|n| Message::Pong(vec![n].into())).collect();
    assert_eq!(sent(&mut channel, true), pongs);
    assert!(seen.borrow().messages.is_empty());
}

#[test]
fn pongs_do_not_pile_up_for_a_peer_that_does_not_read() {
    let (mut channel, _) = server_channel(settings());
    channel.set_outbound_room(Some(0));
    for n in 0..10_000_u32 {
        channel.write_inbound(&client(PING, [n.to_be_bytes(), [0; 4]].concat())).unwrap();
    }
    // The default high water mark is 64 KiB.
    let most = 64 * 1024 + 10;
    assert!(channel.pending_bytes() <= most, "{} bytes are pending", channel.pending_bytes());
    channel.set_outbound_room(None);
    channel.run_pending();
    let pongs = sent(&mut channel, true);
    assert!(pongs.len() < 10_000);
    let last = [9_999_u32.to_be_bytes(), [0; 4]].concat();
    assert_eq!(pongs.last(), Some(&Message::Pong(last.into())), "the last ping is answered");
    channel.write_inbound(&client(PING, "again")).unwrap();
    assert_eq!(sent(&mut channel, true), [Message::Pong("again".into())]);
}

#[test]
fn a_pong_that_waits_precedes_the_next_message() {
    let (mut channel, _) = server_channel(settings());
    channel.set_outbound_room(Some(0));
    channel.channel().write(Message::binary(vec![0; 70_000])).unwrap();
    channel.run_pending();
    channel.write_inbound(&[client(PING, "1"), client(PING, "2"), client(TEXT, "x")].concat()).unwrap();
    channel.set_outbound_room(None);
    channel.run_pending();
    let messages = sent(&mut channel, true);
    assert_eq!(messages[1..], [Message::Pong("2".into()), Message::text("x")]);
}

#[test]
fn a_pong_that_waits_is_kept_if_the_message_behind_it_is_dropped() {
    let options = ChannelOptions::new().max_outbound(100_000).overflow(Overflow::DropNewest);
    let (mut channel, seen) = server_channel_with(settings(), options);
    channel.set_outbound_room(Some(0));
    channel.channel().write(Message::binary(vec![0; 70_000])).unwrap();
    channel.run_pending();
    channel.write_inbound(&client(PING, "1")).unwrap();
    // The echo does not fit.
    channel.write_inbound(&client(BINARY, [0; 40_000])).unwrap();
    assert_eq!(seen.borrow().messages.len(), 1);
    channel.set_outbound_room(None);
    channel.run_pending();
    let messages = sent(&mut channel, true);
    assert_eq!(messages[1..], [Message::Pong("1".into())]);
}

#[test]
fn a_quiet_peer_is_pinged_and_a_dead_one_disconnected() {
    let (mut channel, seen) =
        server_channel(settings().ping_interval(Duration::from_secs(10)).max_ping_misses(1));
    channel.advance(Duration::from_millis(10_200));
    assert_eq!(sent(&mut channel, true), [Message::Ping("".into())]);
    channel.write_inbound(&client(PONG, "")).unwrap();
    assert!(seen.borrow().messages.is_empty(), "a Pong is not for the handler");
    channel.advance(Duration::from_millis(10_200));
    assert_eq!(sent(&mut channel, true).len(), 1);
    channel.advance(Duration::from_secs(25));
    assert!(channel.is_closed());
    assert!(matches!(seen.borrow().errors[..], [Error::TimedOut { .. }]));
}

#[test]
fn an_unsolicited_pong_is_ignored() {
    let (mut channel, seen) = server_channel(settings());
    channel.write_inbound(&client(PONG, "nobody asked")).unwrap();
    assert!(channel.is_open() && channel.read_outbound().is_empty());
    assert!(seen.borrow().messages.is_empty() && seen.borrow().errors.is_empty());
}

#[test]
fn a_silent_peer_is_pinged_and_disconnected_also_while_the_program_sends() {
    let (mut channel, seen) =
        server_channel(settings().ping_interval(Duration::from_secs(10)).max_ping_misses(1));
    let mut pings = 0;
    for second in 0..45 {
        if channel.is_closed() {
            break;
        }
        channel.channel().write(Message::text("tick")).unwrap();
        channel.run_pending();
        let messages = sent(&mut channel, true);
        pings += messages.iter().filter(|message| matches!(message, Message::Ping(_))).count();
        if second == 12 {
            assert_eq!(pings, 1);
            channel.write_inbound(&client(PONG, "")).unwrap();
        }
        channel.advance(Duration::from_secs(1));
    }
    assert_eq!(pings, 3, "two more after the answer");
    assert!(channel.is_closed());
    assert!(matches!(seen.borrow().errors[..], [Error::TimedOut { .. }]));
}
