//! Members and loops that are too slow, or that end.

use crate::broadcast::{Counting, Room, all_written, broadcast, join, member, report_of, room_server};
use crate::support::{
    journal::Log,
    loops::{block, end, on_loop, one_loop, the_loop},
    recorder::Recorder,
    tcp::{read_all, read_n},
    wait::{done, receive},
};
use bytes::Bytes;
use netwheel::{
    ChannelGroup, Error,
    channel::{BroadcastReport, ChannelOptions, Overflow},
    codec::{Line, RawBytes},
    prelude::*,
    shutdown::ShutdownOptions,
    testing::EmbeddedChannel,
};
use std::{sync::mpsc, time::Duration};

/// A member without room is handled by its own policy. The other members receive everything.
#[test]
fn the_policy_of_a_slow_member_affects_only_that_member() {
    const LIMIT: usize = 128;
    let policies = [Overflow::Refuse, Overflow::DropNewest, Overflow::DropOldest, Overflow::Close];
    for policy in policies {
        let room: Room = ChannelGroup::new();
        let log = Log::new();
        let options = ChannelOptions::new().max_outbound(LIMIT).overflow(policy);
        let open = Recorder::exactly(&log, |_, _| Ok(()));
        let pipeline = Pipeline::codec(Line::new()).handler(open);
        let slow = EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap();
        let mut members = vec![slow, member(&room, Line::new()), member(&room, Line::new())];
        assert!(room.join(members[0].channel()));
        members[0].set_outbound_room(Some(0));
        log.take();

        let mut total = BroadcastReport::default();
        for n in 0..20 {
            let report = broadcast(&room, format!("{n:07}"), &mut members);
            let others = if report.members == 3 { 2 } else { report.members };
            assert!(report.written >= others, "{policy:?}: the others received it: {report:?}");
            total.written += report.written - others;
            total.dropped += report.dropped;
            total.refused += report.refused;
            total.closed += report.closed;
            total.gone += report.gone;
        }
        let everything: String = (0..20).map(|n| format!("{n:07}\n")).collect();
        for member in &mut members[1..] {
            assert_eq!(member.read_outbound(), everything, "{policy:?}");
        }
        members[0].set_outbound_room(None);
        let got = members[0].read_outbound();
        let line = |line: &str| line.parse::<usize>().unwrap();
        let got: Vec<_> = std::str::from_utf8(&got).unwrap().lines().map(line).collect();
        let told = log.all().iter().filter(|call| call.starts_with("error the limit of")).count();
        let sums = (total.written, total.dropped, total.refused, total.closed, told);
        match policy {
            Overflow::Refuse => {
                assert_eq!(sums, (16, 0, 4, 0, 4), "its handler is called for each message that it misses");
                assert_eq!(got, (0..16).collect::<Vec<_>>());
            }
            Overflow::DropNewest => {
                assert_eq!(sums, (16, 4, 0, 0, 0));
                assert_eq!(got, (0..16).collect::<Vec<_>>());
            }
            Overflow::DropOldest => {
                assert_eq!(sums, (20, 0, 0, 0, 0));
                assert_eq!(got.last(), Some(&19), "{got:?}");
                assert!(got.len() <= 16 && got.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{got:?}");
            }
            _ => {
                assert_eq!(sums, (16, 0, 0, 1, 1));
                assert!(members[0].is_closed() && !room.contains(members[0].channel().id()));
                assert_eq!((total.gone, room.len()), (0, 2), "it had left before the next broadcast");
            }
        }
    }
}

/// A message that is too large for one member is still encoded for the others, once.
#[test]
fn each_member_has_its_own_limit() {
    let room: Room = ChannelGroup::new();
    let (log, codec) = (Log::new(), Counting::new(true));
    let of_limit = |bytes| {
        let options = ChannelOptions::new().max_outbound(bytes);
        let pipeline = Pipeline::codec(codec.clone()).handler(Recorder::exactly(&log, |_, _| Ok(())));
        EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap()
    };
    let mut members = [of_limit(4), of_limit(9), of_limit(10), of_limit(1000)];
    members.iter_mut().for_each(|member| {
        // Five bytes wait. The first channel is at its limit and not writable any more.
        member.set_outbound_room(Some(0));
        member.channel().write("1234".into()).unwrap();
        member.run_pending();
        assert!(room.join(member.channel()));
    });
    let report = broadcast(&room, "123456789", &mut members);
    assert_eq!(report, report_of(4, |report| (report.written, report.refused) = (3, 1)));
    assert_eq!(codec.encoded(), 4 + 1);
    members.iter_mut().for_each(|member| member.set_outbound_room(None));
    let got: Vec<_> = members.iter_mut().map(EmbeddedChannel::read_outbound).collect();
    let (without, with) = ("1234\n", "1234\n123456789\n");
    assert_eq!(got, [without, with, with, with], "one message fits while a channel is writable");
}

/// A peer that reads nothing does not delay the others. Uses sockets.
#[test]
fn a_peer_that_reads_nothing_does_not_delay_the_others() {
    const MESSAGE: usize = 64 * 1024;
    const ROUNDS: usize = 200;
    let group = one_loop();
    let room = ChannelGroup::new();
    let options = ChannelOptions::new().max_outbound(4 * MESSAGE).overflow(Overflow::DropNewest);
    let (server, events) = room_server(&group, &room, options, RawBytes);
    let stuck = join(&server, &events, 1);
    let (got, gets) = mpsc::channel();
    let readers: Vec<_> = join(&server, &events, 3)
        .into_iter()
        .map(|mut peer| {
            let got = got.clone();
            std::thread::spawn(move || {
                (0..ROUNDS).for_each(|_| got.send(read_n(&mut peer, MESSAGE)[MESSAGE - 1]).unwrap());
            })
        })
        .collect();
    let mut missed = 0;
    for n in 0..ROUNDS {
        let report = done(room.broadcast(Bytes::from(vec![n as u8; MESSAGE])).unwrap().report()).unwrap();
        assert_eq!((report.members, report.written + report.dropped), (4, 4));
        missed += report.dropped;
        // The other members receive each message before the next one is sent.
        (0..3).for_each(|_| assert_eq!(receive(&gets), n as u8));
    }
    assert!(missed > 0, "a peer that reads nothing misses some messages");
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    drop(stuck);
    end(&group);
}

/// A member that closes before the broadcast reaches it.
#[test]
fn members_that_close_before_delivery_are_reported_as_gone() {
    let group = one_loop();
    let room = ChannelGroup::new();
    let (server, events) = room_server(&group, &room, ChannelOptions::new(), Line::new());
    let mut peers = join(&server, &events, 5);
    let release = block(&group);
    let channels = room.channels();
    channels[1].close();
    channels[3].shutdown_write();
    let broadcast = room.broadcast("hello".into()).unwrap();
    channels[4].close_now();
    drop(release);
    let report = done(broadcast.report()).unwrap();
    assert_eq!(report, report_of(5, |report| (report.written, report.gone) = (3, 2)));
    done(channels[4].closed()).unwrap();
    done(channels[1].closed()).unwrap();
    assert_eq!(room.len(), 3);
    // It does not matter which peers these are. Two of them receive both messages, the others at
    // most the first.
    room.broadcast("again".into()).unwrap();
    done(room.close()).unwrap();
    let mut got: Vec<_> = peers.iter_mut().map(|peer| read_all(peer).len()).collect();
    got.sort_unstable();
    assert!(got == [0, 0, 0, 12, 12] || got == [0, 0, 6, 12, 12], "{got:?}");
    end(&group);
}

#[test]
fn deliveries_skipped_by_a_loop_that_ends_are_reported() {
    let group = one_loop();
    let room = ChannelGroup::new();
    let (server, events) = room_server(&group, &room, ChannelOptions::new(), Line::new());
    let mut peers = join(&server, &events, 3);
    let release = block(&group);
    let ending =
        group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)));
    let broadcast = room.broadcast("in time".into()).unwrap();
    drop(release);
    done(ending).unwrap();
    let report = done(broadcast.report()).unwrap();
    assert_eq!(report.members, 3);
    assert_eq!(report.written + report.gone, 3, "{report:?}");
    for peer in &mut peers {
        let got = read_all(peer);
        assert!(got.is_empty() || got == b"in time\n");
    }
    assert!(room.is_empty());
}

#[test]
fn waiting_broadcasts_have_a_limit() {
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let room = ChannelGroup::builder().max_waiting(3).build().unwrap();
    let (server, events) = room_server(&group, &room, ChannelOptions::new(), Line::new());
    let _peers = join(&server, &events, 4);
    assert_eq!(
        room.broadcast("none".into()).unwrap().loops(),
        2,
        "a broadcast that its loop has handled does not wait"
    );
    let everybody_has_it = done(room.broadcast("free".into()).unwrap().report()).unwrap();
    assert_eq!(everybody_has_it, all_written(4));

    // One blocked loop of two is enough to make broadcasts wait.
    let release = block(&group);
    let waiting: Vec<_> = (0..3).map(|_| room.broadcast("waits".into()).unwrap()).collect();
    let refused = room.broadcast("too many".into()).unwrap_err();
    assert_eq!(refused.value(), "too many");
    let expected = "the limit of 3 waiting broadcasts of a channel group is reached";
    assert_eq!(refused.error().to_string(), expected);
    assert!(room.broadcast_except(room.channels()[0].id(), "too".into()).is_err());
    assert!(room.broadcast_where(|_| true, "too".into()).is_err());
    drop(release);
    for broadcast in waiting {
        assert_eq!(done(broadcast.report()).unwrap(), all_written(4));
    }
    assert_eq!(done(room.broadcast("again".into()).unwrap().report()).unwrap(), all_written(4));
    end(&group);
}

/// A loop whose queue is full does not keep the message from members on other loops.
#[test]
fn members_of_a_loop_whose_queue_is_full_are_not_reached() {
    const QUEUE: usize = 16;
    let group = EventLoopGroup::builder().threads(2).max_pending_tasks(QUEUE).build().unwrap();
    let room: Room = ChannelGroup::new();
    let (server, events) = room_server(&group, &room, ChannelOptions::new(), Line::new());
    let peers = join(&server, &events, 10);
    let stuck = the_loop(&group).clone();
    let channels = room.channels();
    let on_stuck: Vec<_> = on_loop(&group, move || {
        channels.iter().filter(|channel| channel.in_event_loop()).map(Channel::id).collect()
    });
    let of_stuck = on_stuck.len();
    assert!((1..10).contains(&of_stuck));
    let release = block(&group);
    while stuck.execute(Box::new(|| ())).is_ok() {}
    let broadcast = room.broadcast("hello".into()).unwrap();
    assert_eq!((broadcast.members(), broadcast.loops(), broadcast.unreached()), (10, 2, of_stuck));
    // The report is complete for the members that were reached, independently of the other loop.
    let report = done(broadcast.report()).unwrap();
    let expected = report_of(10, |report| (report.written, report.unreached) = (10 - of_stuck, of_stuck));
    assert_eq!(report, expected);
    // If no member can be reached, the message is handed back.
    let refused =
        room.broadcast_where(|channel| on_stuck.contains(&channel.id()), "none".into()).unwrap_err();
    assert_eq!(refused.value(), "none");
    assert!(matches!(refused.error(), Error::Full { limit: QUEUE, .. }), "{}", refused.error());
    drop(release);
    drop(peers);
    end(&group);
}
