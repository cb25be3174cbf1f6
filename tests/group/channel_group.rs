//! Membership of a channel group, and the ways in which members leave it.

use crate::support::{
    loops::{end, one_loop},
    recorder::{Event, echo, silent},
    servers::{Quiet, Settings, serve, serve_with},
    tcp::{connect, read_all},
    wait::{done, receive, wait_until},
};
use bytes::Bytes;
use netwheel::{
    ChannelGroup, Error, Stage, StageContext, channel::BroadcastReport, codec::Line, prelude::*,
    testing::EmbeddedChannel,
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

fn embedded() -> EmbeddedChannel<Bytes> {
    EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(Quiet))
}

/// Broadcasts `text`, runs the members, and returns the report.
fn report(room: &ChannelGroup<Bytes>, text: &'static str, members: &mut [EmbeddedChannel<Bytes>]) -> Report {
    let broadcast = room.broadcast(Bytes::from_static(text.as_bytes())).unwrap();
    members.iter_mut().for_each(|member| {
        member.run_pending();
    });
    done(broadcast.report()).unwrap()
}

type Report = BroadcastReport;

#[test]
fn members_join_once_and_leave_once() {
    let room = ChannelGroup::new();
    let (mut one, mut other) = (embedded(), embedded());
    let (id, other_id) = (one.channel().id(), other.channel().id());
    assert!(room.is_empty() && !room.contains(id) && !room.leave(id));

    assert!(room.join(one.channel()));
    assert!(!room.join(one.channel()), "it is a member already");
    assert!(room.join(other.channel()));
    assert_eq!(room.len(), 2);
    assert!(room.contains(id) && room.contains(other_id));
    assert!(room.clone().contains(id), "a clone is the same group");

    assert!(room.leave(id));
    assert!(!room.leave(id), "it has left already");
    assert_eq!((room.len(), room.contains(id), room.contains(other_id)), (1, false, true));
    assert!(one.is_open(), "leaving does not close the channel");
    assert!(room.join(one.channel()), "it may join again");
}

/// H-17: a channel that closes leaves all its groups before its `closed` completes.
#[test]
fn h_17_a_channel_leaves_its_groups_before_its_closed_completes() {
    let rooms: [ChannelGroup<Bytes>; 3] = std::array::from_fn(|_| ChannelGroup::new());
    let (mut goes, mut stays) = (embedded(), embedded());
    let told = Arc::new(Mutex::new(None));
    // The callbacks are added before the channel joins, and between joins: their order does not
    // matter.
    for room in &rooms {
        let (rooms, told, id) = (rooms.clone(), told.clone(), goes.channel().id());
        goes.channel().closed().on_complete(move |_| {
            let left: usize = rooms.iter().filter(|room| room.contains(id)).count();
            told.lock().unwrap().get_or_insert(left);
        });
        assert!(room.join(goes.channel()) && room.join(stays.channel()));
    }
    goes.close();
    assert!(goes.is_closed());
    assert_eq!(*told.lock().unwrap(), Some(0), "it had left all groups");
    assert!(rooms.iter().all(|room| room.len() == 1 && room.contains(stays.channel().id())));
    assert!(!rooms[0].join(goes.channel()), "a closed channel cannot join");
    assert_eq!(rooms[0].len(), 1);
}

/// H-17 with sockets, whichever side closes.
#[test]
fn h_17_a_connection_that_has_ended_is_no_member() {
    let group = one_loop();
    let room = ChannelGroup::new();
    let joining = room.clone();
    let (server, events) = serve(&group, Settings::new(), move |ctx, event| {
        if *event == Event::Active(ctx.channel()) {
            assert!(joining.join(ctx.channel()));
        }
        echo(ctx, event)
    });
    let peer = connect(server.local_address());
    let channel = events.channel();
    assert!(room.contains(channel.id()));
    drop(peer);
    done(channel.closed()).unwrap();
    assert!(room.is_empty());

    let mut peer = connect(server.local_address());
    let channel = loop {
        if let Event::Active(channel) = events.next() {
            break channel;
        }
    };
    channel.close_now();
    done(channel.closed()).unwrap();
    assert!(room.is_empty());
    assert!(read_all(&mut peer).is_empty());
    end(&group);
}

/// H-17: a filter selects the members, and each member has its own view of the message.
#[test]
fn h_17_selected_members_each_get_their_own_view_of_the_message() {
    let room = ChannelGroup::new();
    let mut members: Vec<_> = (0..5).map(|_| embedded()).collect();
    let ids: Vec<_> = members.iter_mut().map(|member| member.channel().id()).collect();
    members.iter_mut().for_each(|member| assert!(room.join(member.channel())));

    let broadcast = room.broadcast_where(|channel| ids[1..3].contains(&channel.id()), "some".into()).unwrap();
    assert_eq!((broadcast.members(), broadcast.loops(), broadcast.unreached()), (2, 2, 0));
    let except = room.broadcast_except(ids[4], "not the last".into()).unwrap();
    assert_eq!((except.members(), except.loops()), (4, 5), "its loop is asked, and finds no other member");
    let nobody = room.broadcast_where(|_| false, "none".into()).unwrap();
    assert_eq!((nobody.members(), nobody.loops()), (0, 0));
    assert_eq!(done(nobody.report()).unwrap(), Report::default());
    // A member that sends its bytes in pieces does not affect the others.
    members[1].set_outbound_room(Some(3));
    let got: Vec<_> = members
        .iter_mut()
        .map(|member| {
            member.run_pending();
            member.read_outbound()
        })
        .collect();
    assert_eq!(got, ["not the last\n", "som", "some\nnot the last\n", "not the last\n", ""]);
    members[1].set_outbound_room(None);
    assert_eq!(members[1].read_outbound(), "e\nnot the last\n");
    let report = done(except.report()).unwrap();
    assert_eq!((report.members, report.written), (4, 4));
}

/// H-18: `close` closes all members. Waiting for it on one of their loops is an error instead of a
/// deadlock.
#[test]
fn h_18_close_completes_when_the_last_socket_is_closed() {
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let room = ChannelGroup::new();
    let joining = room.clone();
    let (server, events) = serve_with(&group, Settings::new(), Line::new(), move |ctx, event| match event {
        Event::Active(channel) => {
            joining.join(channel.clone());
            Ok(())
        }
        Event::Read(_) => {
            let error = joining.close().wait().unwrap_err();
            assert!(matches!(error, Error::WouldDeadlock), "{error}");
            Ok(())
        }
        _ => silent(ctx, event),
    });
    let mut peers: Vec<_> = (0..6).map(|_| connect(server.local_address())).collect();
    for _ in &peers {
        events.channel();
    }
    assert_eq!(room.len(), 6);
    // Called from a callback. Messages written before are flushed.
    room.broadcast("last words".into()).unwrap();
    std::io::Write::write_all(&mut peers[0], b"close all\n").unwrap();
    for peer in &mut peers {
        assert_eq!(read_all(peer), b"last words\n");
    }
    done(room.close()).unwrap();
    assert!(room.is_empty());

    // The group can be used again, because `stay_closed` is not set.
    let peer = connect(server.local_address());
    let channel = loop {
        if let Event::Active(channel) = events.next() {
            break channel;
        }
    };
    assert!(room.contains(channel.id()));
    done(room.close()).unwrap();
    assert!(!channel.is_open() && room.is_empty());
    drop(peer);
    done(room.close()).expect("there is no member to wait for");
    end(&group);
}

/// H-18: with `stay_closed`, a channel that joins later is closed at once.
#[test]
fn h_18_a_group_that_stays_closed_closes_channels_that_join_later() {
    let room = ChannelGroup::<Bytes>::builder().stay_closed(true).build().unwrap();
    let (mut early, mut late) = (embedded(), embedded());
    assert!(room.join(early.channel()), "not closed yet");
    let closed = room.close();
    early.run_pending();
    done(closed).unwrap();
    assert!(early.is_closed() && room.is_empty());

    assert!(!room.join(late.channel()));
    late.run_pending();
    assert!(late.is_closed() && room.is_empty());
}

#[test]
fn a_channel_that_is_closing_cannot_join() {
    let room = ChannelGroup::new();
    let mut closing = embedded();
    closing.set_outbound_room(Some(0));
    closing.channel().write("it has bytes to send".into()).unwrap();
    closing.run_pending();
    closing.close();
    assert!(!closing.is_open() && !closing.is_closed());
    assert!(!room.join(closing.channel()));

    // A member that starts to close remains a member until it is closed.
    let mut member = embedded();
    member.set_outbound_room(Some(0));
    assert!(room.join(member.channel()));
    member.channel().write("this one too".into()).unwrap();
    member.run_pending();
    member.close();
    assert_eq!(room.len(), 1);
    let report = report(&room, "too late", std::slice::from_mut(&mut member));
    assert_eq!((report.members, report.gone), (1, 1));
    member.set_outbound_room(None);
    assert!(member.is_closed() && room.is_empty());
    assert_eq!(member.read_outbound(), "this one too\n");
}

#[test]
fn members_can_be_listed_while_they_join_and_leave() {
    let room = ChannelGroup::new();
    let mut members: Vec<_> = (0..10).map(|_| embedded()).collect();
    members.iter_mut().for_each(|member| assert!(room.join(member.channel())));
    let ids: Vec<_> = members.iter_mut().map(|member| member.channel().id()).collect();

    let snapshot = room.channels();
    assert_eq!(snapshot.len(), 10);
    assert!(Arc::ptr_eq(&snapshot, &room.channels()), "without a change, nothing is copied");
    // No lock is held, so the closure may call any method.
    let mut seen = 0;
    room.for_each(|channel| {
        seen += 1;
        assert!(room.leave(channel.id()) && room.join(channel.clone()));
    });
    assert_eq!((seen, room.len()), (10, 10));
    room.retain(|channel| {
        assert!(room.contains(channel.id()));
        ids.iter().position(|id| *id == channel.id()).unwrap() % 2 == 0
    });
    assert_eq!((room.len(), snapshot.len()), (5, 10), "the earlier snapshot is unchanged");
    assert!(ids.iter().enumerate().all(|(n, id)| room.contains(*id) == (n % 2 == 0)));
    let report = report(&room, "even", &mut members);
    assert_eq!((report.members, report.written), (5, 5));
    for (n, member) in members.iter_mut().enumerate() {
        assert_eq!(member.read_outbound(), if n % 2 == 0 { "even\n" } else { "" });
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    let refused = ChannelGroup::<Bytes>::builder().max_waiting(0).build().unwrap_err();
    assert_eq!(refused.to_string(), "max_waiting is 0; it must be 1 broadcast or more");
}

/// A dropped group leaves nothing behind, and does not affect its channels.
#[test]
fn a_group_may_be_dropped_before_its_channels_and_after() {
    let mut member = embedded();
    for _ in 0..3 {
        let room = ChannelGroup::new();
        assert!(room.join(member.channel()));
    }
    let survivor = ChannelGroup::new();
    assert!(survivor.join(member.channel()));
    member.close();
    drop(member);
    assert!(survivor.is_empty());
}

/// Joins, leaves and closes race on several threads and on the loops. A closed channel is never a
/// member.
#[test]
fn joining_races_with_closing() {
    const ROUNDS: usize = 300;
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let (server, _events) = serve(&group, Settings::new(), silent);
    let client = ClientBootstrap::new(&group)
        .pipeline(|_peer| Pipeline::codec(netwheel::codec::RawBytes).handler(Quiet));
    let rooms: [ChannelGroup<Bytes>; 2] = std::array::from_fn(|_| ChannelGroup::new());
    let (to_join, joining) = mpsc::channel::<Channel<Bytes>>();
    let (to_leave, leaving) = mpsc::channel::<Channel<Bytes>>();
    let taken = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (rooms, taken) = (&rooms, &taken);
        scope.spawn(move || {
            for channel in joining {
                taken.fetch_add(usize::from(rooms[0].join(channel.clone())), SeqCst);
                rooms[1].join(channel.clone());
                rooms[0].leave(channel.id());
                rooms[0].join(channel);
            }
        });
        scope.spawn(move || {
            for channel in leaving {
                rooms[1].leave(channel.id());
            }
        });
        for _ in 0..ROUNDS {
            let channel = done(client.connect(server.local_address())).unwrap();
            to_join.send(channel.clone()).unwrap();
            to_leave.send(channel.clone()).unwrap();
            channel.close_now();
            done(channel.closed()).unwrap();
            // After its close, the channel cannot join any more.
            let id = channel.id();
            assert!(rooms.iter().all(|room| !room.contains(id)));
        }
        drop((to_join, to_leave));
    });
    assert!(
        rooms.iter().all(ChannelGroup::is_empty),
        "closed channels remain in a group; {taken:?} had joined"
    );
    end(&group);
}

/// A channel also leaves its groups if its loop ends.
#[test]
fn members_of_a_loop_that_ends_leave_their_groups() {
    let group = one_loop();
    let room = ChannelGroup::new();
    let (joined, joins) = mpsc::channel();
    let joining = room.clone();
    let (server, _events) = serve(&group, Settings::new(), move |ctx, event| {
        if matches!(event, Event::Active(_)) {
            joined.send(joining.join(ctx.channel())).unwrap();
        }
        Ok(())
    });
    let _peer = connect(server.local_address());
    assert!(receive(&joins));
    end(&group);
    assert!(room.is_empty());
    let broadcast = room.broadcast("no members".into()).unwrap();
    assert_eq!(broadcast.members(), 0);
}

/// A join races with a replacement of the pipeline by one with another message type. Whichever
/// comes first, the channel is not a member afterwards.
#[test]
fn a_join_that_races_with_a_replacement_of_the_pipeline_leaves_no_member() {
    struct First;
    impl Handler for First {
        type Read = Bytes;
        type Write = Bytes;
        fn read(&mut self, ctx: &mut Context<'_, Self>, _: Bytes) -> Result {
            ctx.replace_pipeline(Pipeline::codec(Line::new()).stage(Text).handler(Second))
        }
    }
    struct Second;
    impl Handler for Second {
        type Read = Bytes;
        type Write = String;
        fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
            Ok(())
        }
    }
    struct Text;
    impl Stage for Text {
        type ReadIn = Bytes;
        type ReadOut = Bytes;
        type WriteIn = String;
        type WriteOut = Bytes;
        fn read(&mut self, _: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
            Ok(Some(message))
        }
        fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: String) -> Result {
            ctx.write(message.into())
        }
    }
    let room = ChannelGroup::new();
    let (joiners, to_join) = mpsc::channel::<Channel<Bytes>>();
    let (joined, joins) = mpsc::channel();
    let (joining, ready) = (room.clone(), Arc::new(AtomicUsize::new(0)));
    let at_line = ready.clone();
    let other = thread::spawn(move || {
        for channel in to_join {
            let round = at_line.fetch_add(1, SeqCst);
            // Vary the delay, so that either thread may be first.
            (0..round * 37 % 2048).for_each(|_| std::hint::spin_loop());
            joining.join(channel);
            joined.send(()).unwrap();
        }
    });
    for round in 1..=1000 {
        let mut member = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(First));
        joiners.send(member.channel()).unwrap();
        wait_until("the joiner", || ready.load(SeqCst) >= round);
        member.write_inbound(b"switch\n").unwrap();
        receive(&joins);
        assert!(room.is_empty());
    }
    drop(joiners);
    other.join().unwrap();
}
