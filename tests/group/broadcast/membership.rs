//! The recipients of a broadcast, and the order of messages.

use crate::broadcast::{Room, all_written, join, room_server};
use crate::support::{
    loops::{end, one_loop},
    random::Random,
    recorder::{self, Event},
    servers::{Settings, serve_with},
    tcp::{assert_same, connect, read_all, read_n},
    wait::done,
};
use bytes::Bytes;
use netwheel::{ChannelGroup, Error, channel::ChannelOptions, codec::Line, prelude::*};
use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
};

/// A member that has left receives nothing more, and a new member receives only later messages. All
/// are on one loop, so that old and new members are neighbours.
#[test]
fn a_broadcast_reaches_the_members_at_that_time() {
    const MEMBERS: usize = 5;
    let group = one_loop();
    let room: Room = ChannelGroup::new();
    let (server, events) = room_server(&group, &room, ChannelOptions::new(), Line::new());
    let mut peers: Vec<_> = (0..MEMBERS)
        .map(|_| {
            let peer = connect(server.local_address());
            (events.channel(), peer, String::new())
        })
        .collect();
    let mut random = Random::new(9);
    for n in 0..200 {
        let one = &peers[random.between(0, MEMBERS - 1)].0;
        if !room.leave(one.id()) {
            assert!(room.join(one.clone()));
        }
        let text = format!("{n}");
        let members = room.channels();
        let excepted = members.get(random.between(0, 9)).map(Channel::id);
        let broadcast = match excepted {
            Some(id) => room.broadcast_except(id, text.clone().into()),
            None => room.broadcast(text.clone().into()),
        };
        let count = members.len() - usize::from(excepted.is_some());
        assert_eq!(done(broadcast.unwrap().report()).unwrap(), all_written(count));
        for (channel, _, expected) in &mut peers {
            if members.contains(channel) && excepted != Some(channel.id()) {
                expected.push_str(&format!("{text}\n"));
            }
        }
    }
    peers.iter().for_each(|(channel, ..)| channel.close());
    for (_, peer, expected) in &mut peers {
        assert_same(&read_all(peer), expected.as_bytes());
    }
    end(&group);
}

/// A callback broadcasts to members on its own loop and on others, with and without the sender.
#[test]
fn a_handler_broadcasts_from_its_callback() {
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let room: Room = ChannelGroup::new();
    let of_handlers = room.clone();
    let hook = move |ctx: &mut Context<'_, recorder::Recorder>, event: &Event| match event {
        Event::Active(channel) => {
            of_handlers.join(channel.clone());
            Ok(())
        }
        Event::Read(message) if message.starts_with(b"others") => {
            of_handlers.broadcast_except(ctx.id(), message.clone())?;
            ctx.write("said".into())
        }
        Event::Read(message) => {
            let broadcast = of_handlers.broadcast(message.clone())?;
            let error = broadcast.report().wait().unwrap_err();
            assert!(matches!(error, Error::WouldDeadlock), "{error}");
            Ok(())
        }
        _ => Ok(()),
    };
    let (server, events) = serve_with(&group, Settings::new(), Line::new(), hook);
    let mut peers = join(&server, &events, 8);
    peers[2].write_all(b"others!\nall!\n").unwrap();
    for (n, peer) in peers.iter_mut().enumerate() {
        let expected = if n == 2 { "said\nall!\n" } else { "others!\nall!\n" };
        assert_eq!(read_n(peer, expected.len()), expected.as_bytes(), "{n}");
    }
    end(&group);
}

/// Threads broadcast while others join, leave and close. Members that stay receive every message of
/// each thread, once and in order.
#[test]
fn members_that_stay_receive_every_message_in_order() {
    const THREADS: usize = 3;
    const MESSAGES: usize = 300;
    const STAY: usize = 6;
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let room: Room = ChannelGroup::new();
    let (server, events) = room_server(&group, &room, ChannelOptions::new(), Line::new());
    let stay = join(&server, &events, STAY);
    let reader = |peer: TcpStream| {
        std::thread::spawn(move || {
            let mut next = [0; THREADS];
            let mut lines = BufReader::new(peer).lines();
            while next != [MESSAGES; THREADS] {
                let line = lines.next().unwrap().unwrap();
                let (thread, n) = line.split_once(' ').unwrap();
                let thread: usize = thread.parse().unwrap();
                assert_eq!(n.parse::<usize>().unwrap(), next[thread], "message order of thread {thread}");
                next[thread] += 1;
            }
            lines
        })
    };
    let readers: Vec<_> = stay.into_iter().map(reader).collect();
    let stayers = room.channels();
    let stays = |channel: &Channel<Bytes>| stayers.contains(channel);
    std::thread::scope(|scope| {
        let talkers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let room = &room;
                let stays = &stays;
                scope.spawn(move || {
                    for n in 0..MESSAGES {
                        let message = Bytes::from(format!("{thread} {n}"));
                        // Use each of the three methods.
                        let sent = match n % 3 {
                            0 => room.broadcast(message),
                            1 => room.broadcast_where(stays, message),
                            _ => {
                                let all = room.channels();
                                match all.iter().find(|channel| !stays(channel)) {
                                    Some(other) => room.broadcast_except(other.id(), message),
                                    None => room.broadcast(message),
                                }
                            }
                        };
                        let report = done(sent.unwrap().report()).unwrap();
                        let sum = report.written + report.gone;
                        assert!(report.written >= STAY && sum == report.members, "{report:?}");
                    }
                })
            })
            .collect();
        // Members join, receive some messages, and go: by leaving, by closing, or because the
        // server closes them.
        let mut round = 0;
        while !talkers.iter().all(|talker| talker.is_finished()) {
            round += 1;
            let peer = connect(server.local_address());
            let channel = loop {
                if let Event::Active(channel) = events.next() {
                    break channel;
                }
            };
            match round % 3 {
                0 => drop(peer),
                1 => channel.close(),
                _ => {
                    assert!(room.leave(channel.id()) && room.join(channel.clone()));
                    room.leave(channel.id());
                    channel.close_now();
                }
            }
            done(channel.closed()).unwrap();
            assert!(!room.contains(channel.id()));
        }
    });
    let _open: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
    assert_eq!(room.len(), STAY);
    end(&group);
}
