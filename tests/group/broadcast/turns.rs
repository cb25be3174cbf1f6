//! Wakes per broadcast, work per turn, and flushes per member.

use crate::broadcast::{Room, all_written, broadcast_times, join, room_server, sum};
use crate::support::{
    loops::{block, end, metrics, one_loop, single, some_turns},
    tcp::{connect, read_n},
    wait::done,
};
use bytes::Bytes;
use netwheel::{ChannelGroup, channel::ChannelOptions, codec::Line, prelude::*, testing::ManualClock};
use std::{io::Write, time::Duration};

/// Waits until the counters that loops update at the end of a phase or turn are current. Returns
/// the number of tasks that this took. These tasks are counted as well, because their mail is
/// handled before the timers.
fn settle(group: &EventLoopGroup) -> u64 {
    let mut tasks = 0;
    for event_loop in group.event_loops() {
        let begin = event_loop.metrics().turns;
        while event_loop.metrics().turns < begin + 2 {
            done(event_loop.schedule(Duration::ZERO, || ()).unwrap().completion()).unwrap();
            tasks += 1;
        }
    }
    tasks
}

/// Each loop gets one piece of mail and at most one wake for any number of members.
#[test]
fn a_broadcast_wakes_each_loop_at_most_once() {
    const MEMBERS: usize = 100;
    const ROUNDS: usize = 20;
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let room = ChannelGroup::new();
    let (server, events) = room_server(&group, &room, ChannelOptions::new(), Line::new());
    let mut peers = join(&server, &events, MEMBERS);
    assert!(group.metrics().iter().all(|of| of.channels > 10), "both loops have members");
    let counts = || {
        let wakes = sum(&group, |of| of.wakes_written);
        (
            wakes,
            sum(&group, |of| of.tasks_run),
            sum(&group, |of| of.broadcasts),
            sum(&group, |of| of.deliveries),
        )
    };

    settle(&group);
    let before = counts();
    for _ in 0..ROUNDS {
        let broadcast = room.broadcast("to all".into()).unwrap();
        assert_eq!((broadcast.members(), broadcast.loops()), (MEMBERS, 2));
        assert_eq!(done(broadcast.report()).unwrap(), all_written(MEMBERS));
    }
    for peer in &mut peers {
        assert_eq!(read_n(peer, 7 * ROUNDS), "to all\n".repeat(ROUNDS).as_bytes());
    }
    let by_hand = settle(&group);
    let after = counts();
    let rounds = ROUNDS as u64;
    assert!(
        after.0 - before.0 <= 2 * rounds + by_hand,
        "{} wakes for {ROUNDS} broadcasts",
        after.0 - before.0
    );
    assert_eq!(after.1 - before.1, 2 * rounds + by_hand, "one piece of mail for each loop");
    assert_eq!(after.2 - before.2, 2 * rounds);
    assert_eq!(after.3 - before.3, rounds * MEMBERS as u64);
    end(&group);
}

/// A turn writes to 4096 members. The remaining members follow in the next turn, and later requests
/// after that.
#[test]
fn a_turn_delivers_to_a_bounded_number_of_members() {
    const MEMBERS: usize = 200;
    const ROUNDS: usize = 100;
    // No time passes, so only the number of deliveries ends a turn.
    let (group, _) = single(EventLoopGroup::builder().clock(ManualClock::new()));
    let room = ChannelGroup::new();
    let (server, events) = room_server(&group, &room, ChannelOptions::new(), Line::new());
    let mut peers = join(&server, &events, MEMBERS);
    let release = block(&group);
    let broadcasts: Vec<_> = (0..ROUNDS).map(|n| room.broadcast(format!("{n:03}").into()).unwrap()).collect();
    // Later requests of this thread are handled later, also for a single member.
    room.channels().iter().for_each(|channel| channel.write("end".into()).unwrap());
    drop(release);
    for broadcast in broadcasts {
        assert_eq!(done(broadcast.report()).unwrap(), all_written(MEMBERS));
    }
    let everything: String = (0..ROUNDS).map(|n| format!("{n:03}\n")).chain(["end\n".to_owned()]).collect();
    for peer in &mut peers {
        assert_eq!(read_n(peer, everything.len()), everything.as_bytes());
    }
    // 20,000 deliveries take five turns. Four of them end before the deliveries do.
    assert_eq!(metrics(&group).broadcasts_deferred, 4);

    // The loop does not fall asleep with deliveries left: the last broadcast is split between
    // turns.
    let release = block(&group);
    let last = broadcast_times(&room, "more", 21);
    drop(release);
    assert_eq!(done(last.report()).unwrap(), all_written(MEMBERS));
    assert_eq!(metrics(&group).broadcasts_deferred, 5);
    end(&group);
}

/// Two broadcasts of a turn are sent to a member with one write.
#[test]
fn members_are_flushed_once_a_turn() {
    const MEMBERS: usize = 20;
    let group = one_loop();
    let room = ChannelGroup::new();
    let (server, events) = room_server(&group, &room, ChannelOptions::new(), Line::new());
    let mut peers = join(&server, &events, MEMBERS);
    let release = block(&group);
    let before = metrics(&group).writes;
    let last = broadcast_times(&room, "ten", 10);
    drop(release);
    done(last.report()).unwrap();
    peers.iter_mut().for_each(|peer| drop(read_n(peer, 40)));
    some_turns(&group);
    assert_eq!(metrics(&group).writes - before, MEMBERS as u64);
    end(&group);
}

/// Messages that several members send are relayed in one turn, and sent to each member with one
/// write.
#[test]
fn messages_from_several_members_in_a_turn_share_a_write() {
    const MEMBERS: usize = 100;
    const SENDERS: usize = 4;
    let mut by_hand = EventLoopGroup::builder().build_manual().unwrap();
    let room = Room::new();
    let joining = room.clone();
    let factory = move |_: &netwheel::Peer| Pipeline::codec(Line::new()).handler(Repeats(joining.clone()));
    let server = ServerBootstrap::new(by_hand.group()).pipeline(factory).bind("127.0.0.1:0").unwrap();
    let mut peers: Vec<_> = (0..MEMBERS).map(|_| connect(server.local_address())).collect();
    while room.len() < MEMBERS {
        by_hand.run_once(Duration::from_millis(10));
    }
    let before = by_hand.event_loop().metrics();
    // Over the loopback interface, written bytes can be read at once.
    peers[..SENDERS].iter_mut().for_each(|peer| peer.write_all(b"hi\n").unwrap());
    while by_hand.run_once(Duration::ZERO) > 0 {}
    let after = by_hand.event_loop().metrics();
    assert_eq!(after.deliveries - before.deliveries, (SENDERS * MEMBERS) as u64);
    assert_eq!(after.writes - before.writes, MEMBERS as u64);
    peers.iter_mut().for_each(|peer| assert_eq!(read_n(peer, 3 * SENDERS), b"hi\nhi\nhi\nhi\n"));
}

/// Relays its input to the room, which it has joined.
struct Repeats(Room);

impl Handler for Repeats {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.0.join(ctx.channel());
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, message: Bytes) -> Result {
        self.0.broadcast(message)?;
        Ok(())
    }
}
