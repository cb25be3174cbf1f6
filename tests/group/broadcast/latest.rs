//! Broadcasts with a key: each member replaces its own waiting message.

use crate::broadcast::{Counting, Room, all_written, broadcast_latest, join, member, room_server, sum};
use crate::support::{loops::end, tcp::read_all, wait::done};
use bytes::Bytes;
use netwheel::{
    ChannelGroup,
    channel::ChannelOptions,
    codec::{LengthField, Line},
    prelude::*,
    testing::EmbeddedChannel,
};

/// The members accept 0, 1 %, 10 % and 100 % of the bytes. Each gets the newest value of each key
/// in the end, in the order of the keys, and the backlog of none exceeds a message per key.
#[test]
fn members_of_different_speed_get_the_newest_values() {
    const KEYS: u64 = 20;
    const ROUNDS: u64 = 500;
    let room: Room = ChannelGroup::new();
    let mut members: Vec<_> = (0..4).map(|_| member(&room, Line::new())).collect();
    let mut received = vec![Vec::new(); 4];
    members.iter_mut().for_each(|member| member.set_outbound_room(Some(0)));
    for round in 0..ROUNDS {
        for key in 0..KEYS {
            let message = format!("{key:02} {round:05}");
            assert_eq!(broadcast_latest(&room, key, message, &mut members), all_written(4));
        }
        for (at, member) in members.iter_mut().enumerate() {
            let bytes = [0, 180 / 100, 180 / 10, 180][at];
            member.set_outbound_room(Some(bytes));
            received[at].extend_from_slice(&member.read_outbound());
            assert!(member.pending_bytes() as u64 <= 9 * (KEYS + 1), "{}", member.pending_bytes());
        }
    }
    for (at, member) in members.iter_mut().enumerate() {
        member.set_outbound_room(None);
        received[at].extend_from_slice(&member.read_outbound());
        let text = std::str::from_utf8(&received[at]).unwrap();
        let mut newest = vec![None; KEYS as usize];
        for line in text.lines() {
            let (key, round) = line.split_once(' ').unwrap();
            let round = round.parse::<u64>().unwrap();
            let before = newest[key.parse::<usize>().unwrap()].replace(round);
            assert!(before.is_none_or(|before| before < round), "member {at}: {round} after {before:?}");
        }
        assert_eq!(newest, vec![Some(ROUNDS - 1); KEYS as usize], "member {at}");
    }
    assert!(received[0].len() < received[1].len() && received[1].len() < received[2].len());
    assert_eq!(received[3].len() as u64, 9 * KEYS * ROUNDS, "the last one keeps up");
}

/// One encoding serves all members, also the slow ones.
#[test]
fn the_message_is_encoded_once() {
    let room: Room = ChannelGroup::new();
    let codec = Counting::new(true);
    let mut members: Vec<_> = (0..5).map(|_| member(&room, codec.clone())).collect();
    members[..4].iter_mut().for_each(|member| member.set_outbound_room(Some(0)));
    for n in 0..10 {
        broadcast_latest(&room, 1, format!("{n}"), &mut members);
    }
    assert_eq!(codec.encoded(), 10);
    for member in &mut members[..4] {
        member.set_outbound_room(None);
        assert_eq!(member.read_outbound(), "0\n9\n");
    }
}

#[test]
fn some_members_may_be_left_out() {
    let room: Room = ChannelGroup::new();
    let mut members: Vec<_> = (0..3).map(|_| member(&room, Line::new())).collect();
    members.iter_mut().for_each(|member| member.set_outbound_room(Some(0)));
    let first = members[0].channel().id();
    let run = |members: &mut Vec<EmbeddedChannel<Bytes>>| {
        members.iter_mut().for_each(|member| _ = member.run_pending());
    };
    broadcast_latest(&room, 7, "all".into(), &mut members);
    broadcast_latest(&room, 1, "old".into(), &mut members);
    let sent = room.broadcast_latest_except(first, 1, "others".into()).unwrap();
    run(&mut members);
    assert_eq!(done(sent.report()).unwrap(), all_written(2));
    let sent = room.broadcast_latest_where(|member| member.id() == first, 1, "first".into()).unwrap();
    run(&mut members);
    assert_eq!(done(sent.report()).unwrap(), all_written(1));
    for (member, expected) in members.iter_mut().zip(["first", "others", "others"]) {
        member.set_outbound_room(None);
        assert_eq!(member.read_outbound(), format!("all\n{expected}\n"));
    }
}

/// Members with another codec, or with a codec that depends on earlier messages.
#[test]
fn each_kind_of_codec_follows_its_own_rules() {
    let room: Room = ChannelGroup::new();
    let mut members = vec![
        member(&room, Line::new()),
        member(&room, LengthField::u8()),
        member(&room, Counting::new(false)),
    ];
    members.iter_mut().for_each(|member| member.set_outbound_room(Some(0)));
    for n in 0..4 {
        broadcast_latest(&room, 1, format!("{n}"), &mut members);
    }
    members.iter_mut().for_each(|member| member.set_outbound_room(None));
    assert_eq!(members[0].read_outbound(), "0\n3\n");
    assert_eq!(members[1].read_outbound(), "\u{1}0\u{1}3");
    assert_eq!(members[2].read_outbound(), "0\n1\n2\n3\n", "no message may be replaced");
}

/// Over sockets on several loops, with a member that does not read until the end.
#[test]
fn a_member_that_does_not_read_gets_the_newest_value_at_the_end() {
    const VALUES: usize = 2000;
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let room: Room = ChannelGroup::new();
    let (server, events) = room_server(&group, &room, ChannelOptions::new(), Line::new());
    let peers = join(&server, &events, 6);
    let filler = "x".repeat(8 * 1024);
    for n in 0..VALUES {
        let sent = room.broadcast_latest(1, format!("{n:05} {filler}").into()).unwrap();
        assert_eq!(done(sent.report()).unwrap(), all_written(6));
    }
    room.close().detach();
    let longest = (filler.len() + 7) as u64;
    assert!(sum(&group, |metrics| metrics.messages_conflated) > 0);
    for mut peer in peers {
        let text = String::from_utf8(read_all(&mut peer)).unwrap();
        let numbers: Vec<usize> = text.lines().map(|line| line[..5].parse().unwrap()).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
        assert_eq!(numbers.last(), Some(&(VALUES - 1)));
        assert!((text.len() as u64) < longest * VALUES as u64);
    }
    end(&group);
}
