//! Datagram channels: what is sent arrives or fails by itself, and the channel goes on.

#[path = "support/datagrams.rs"]
mod datagrams;
#[path = "support/tcp.rs"]
mod tcp;

use bytes::Bytes;
use datagrams::{Event, echo, open, open_with, receive, silent, socket};
use netwheel::{
    DatagramBootstrap, DatagramContext, DatagramHandler, Error, MulticastGroup, Result, UdpOptions,
};
use std::{
    io::{ErrorKind, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};
use tcp::{block, done, end, metrics, one_loop, some_turns, the_loop, turn_until};

// ---- sending and receiving -------------------------------------------------------------------------------

/// T-34: as many as are sent come, whole and one by one, with the sender's address; answers find their way back.
fn datagrams_are_echoed(n: usize) {
    let group = one_loop();
    let (channel, events) = open(&group, echo);
    let (peer, address) = socket();
    for i in 0..n {
        peer.send_to(format!("datagram {i}").as_bytes(), channel.local_address()).unwrap();
    }
    for i in 0..n {
        let text = format!("datagram {i}");
        assert_eq!(events.datagram(), (text.clone().into(), address));
        assert_eq!(receive(&peer), (text.into_bytes(), channel.local_address()));
    }
    end(&group);
    assert_eq!(events.rest(), [Event::Shutdown, Event::Inactive]);
}

#[test]
fn t_34_one_datagram() {
    datagrams_are_echoed(1);
}

#[test]
fn t_34_four_datagrams() {
    datagrams_are_echoed(4);
}

/// T-34: both ends have the other one as their peer and need no addresses; nobody else is heard.
#[test]
fn t_34_sending_between_connected_channels() {
    let group = one_loop();
    let (one, at_one) = open(&group, silent);
    let (other, at_other) = open_with(DatagramBootstrap::new(&group).connect(one.local_address()), silent);
    let to = other.local_address();
    one.execute(move |scope| scope.connect(to)).unwrap();
    let (stranger, _) = socket();
    some_turns(&group);
    stranger.send_to(b"not for you", one.local_address()).unwrap();
    for text in ["a", "b", "c", "d"] {
        other.send(text).unwrap();
        assert_eq!(at_one.datagram(), (text.into(), to));
        one.send(text).unwrap();
        assert_eq!(at_other.datagram(), (text.into(), one.local_address()));
    }
    end(&group);
}

/// T-34, C-09: without a peer, what has no address fails with an error of its own; what has one goes on, and everybody is
/// heard, at the port of before. A stream channel has no such call: it closes.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[test]
fn t_34_after_a_disconnect_datagrams_need_an_address() {
    let group = one_loop();
    let (first, first_address) = socket();
    let (second, second_address) = socket();
    let (channel, events) = open_with(DatagramBootstrap::new(&group).connect(first_address), silent);
    channel.send("to the peer").unwrap();
    assert_eq!(receive(&first).0, b"to the peer");
    let (sender, told) = mpsc::channel();
    let task = move |scope: &mut netwheel::DatagramScope<'_>| {
        assert_eq!(scope.peer_address(), Some(first_address));
        scope.disconnect()?;
        scope.disconnect()?;
        let refused = scope.send("to nobody").unwrap_err();
        assert!(matches!(refused.reason, Error::NotConnected), "{refused}");
        assert_eq!(refused.value, "to nobody");
        scope.send_to("to somebody", second_address)?;
        sender.send((scope.peer_address(), scope.local_address())).unwrap();
        Ok(())
    };
    channel.execute(task).unwrap();
    assert_eq!(tcp::receive(&told), (None, Some(channel.local_address())));
    assert_eq!(receive(&second), (b"to somebody".to_vec(), channel.local_address()));
    second.send_to(b"from a stranger", channel.local_address()).unwrap();
    assert_eq!(events.datagram(), ("from a stranger".into(), second_address));
    // Through a handle nobody else can be told.
    channel.send("to nobody").unwrap();
    let text = Error::NotConnected.to_string();
    assert_eq!(events.error(), (text, None));
    let answer = done(channel.send_notify("to nobody", None).unwrap());
    assert!(matches!(answer, Err(Error::NotConnected)), "{answer:?}");
    end(&group);
    assert_eq!(events.rest(), [Event::Shutdown, Event::Inactive]);
}

/// T-34.
#[test]
fn t_34_a_hundred_empty_datagrams_are_delivered() {
    let group = one_loop();
    let (channel, events) = open(&group, silent);
    let (peer, address) = socket();
    for _ in 0..100 {
        peer.send_to(b"", channel.local_address()).unwrap();
        assert_eq!(events.datagram(), (Bytes::new(), address));
    }
    // And out: what is empty is sent like anything else.
    for _ in 0..100 {
        channel.send_to("", address).unwrap();
        assert_eq!(receive(&peer), (vec![], channel.local_address()));
    }
    // The kernel has a datagram before the loop has counted it.
    some_turns(&group);
    let counted = metrics(&group);
    assert_eq!((counted.datagrams_received, counted.datagrams_sent, counted.bytes_read), (100, 100, 0));
    end(&group);
}

#[test]
fn the_longest_datagram_arrives_whole_and_a_longer_one_comes_back() {
    const LONGEST: usize = 65_507;
    let group = one_loop();
    let options = UdpOptions::new().send_buffer(1 << 20).receive_buffer(1 << 20);
    let (channel, events) = open_with(DatagramBootstrap::new(&group).options(options), echo);
    let sent = tcp::Random::new(7).bytes(LONGEST);
    let (peer, address) = socket();
    peer.send_to(&sent, channel.local_address()).unwrap();
    let (got, _) = receive(&peer);
    tcp::assert_same(&got, &sent);
    tcp::assert_same(&events.datagram().0, &sent);
    let (sender, told) = mpsc::channel();
    let task = move |scope: &mut netwheel::DatagramScope<'_>| {
        sender.send(scope.send_to(vec![1; LONGEST + 1], address)).unwrap();
        Ok(())
    };
    channel.execute(task).unwrap();
    let refused = tcp::receive(&told).unwrap_err();
    assert_eq!((refused.value.len(), refused.reason.to_string().contains("too long")), (LONGEST + 1, true));
    end(&group);
}

// ---- failures --------------------------------------------------------------------------------------------

/// T-35: port 0 is nobody's.
#[test]
fn t_35_a_bad_destination_fails_that_write_only() {
    let nowhere: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let group = one_loop();
    let (peer, address) = socket();
    let (channel, events) = open(&group, move |ctx, event| {
        if let Event::Read(datagram, from) = event {
            let refused = ctx.send_to(datagram.clone(), nowhere).unwrap_err();
            assert_eq!(&refused.value, datagram);
            assert!(matches!(refused.reason, Error::Io { during: "sending a datagram", .. }));
            ctx.send_to(datagram.clone(), *from)?;
        }
        Ok(())
    });
    peer.send_to(b"one", channel.local_address()).unwrap();
    assert_eq!(receive(&peer).0, b"one");
    assert_eq!(events.datagram().0, "one");
    // From another thread: between two that arrive.
    channel.send_to("two", address).unwrap();
    channel.send_to("lost", nowhere).unwrap();
    channel.send_to("three", address).unwrap();
    assert_eq!((receive(&peer).0, receive(&peer).0), (b"two".to_vec(), b"three".to_vec()));
    assert!(events.error().0.starts_with("sending a datagram: "), "the handler is told");
    let refused = done(channel.send_notify("lost", Some(nowhere)).unwrap()).unwrap_err();
    assert!(matches!(refused, Error::Io { during: "sending a datagram", .. }), "{refused}");
    done(channel.send_notify("four", Some(address)).unwrap()).unwrap();
    assert_eq!(receive(&peer).0, b"four");
    assert!(channel.is_open());
    end(&group);
    assert_eq!(events.rest(), [Event::Shutdown, Event::Inactive], "who asked is told, and nobody else");
}

/// An address at which nobody listens. Linux has a whole network of loopback addresses, and other tests use one of them.
fn nobodys_address() -> SocketAddr {
    let address = if cfg!(target_os = "linux") { "127.0.35.1:0" } else { "127.0.0.1:0" };
    UdpSocket::bind(address).unwrap().local_addr().unwrap()
}

/// T-35: that nobody listens is told, and when somebody does, what is sent arrives.
#[test]
fn t_35_an_unreachable_port_is_an_error_and_the_channel_stays_open() {
    let group = one_loop();
    let address = nobodys_address();
    let (channel, events) = open_with(DatagramBootstrap::new(&group).connect(address), silent);
    assert_eq!(events.next(), Event::Active);
    for _ in 0..3 {
        channel.send("is anybody there?").unwrap();
        assert_eq!(events.error().1, Some(ErrorKind::ConnectionRefused));
    }
    assert!(channel.is_open());
    let peer = UdpSocket::bind(address).unwrap();
    peer.set_read_timeout(Some(tcp::PATIENCE)).unwrap();
    peer.connect(channel.local_address()).unwrap();
    channel.send("hello").unwrap();
    assert_eq!(receive(&peer).0, b"hello");
    peer.send(b"here I am").unwrap();
    assert_eq!(events.datagram(), ("here I am".into(), address));
    end(&group);
}

/// What the kernel reports of one datagram does not swallow the next one: it is told, and the next one goes.
#[cfg(target_os = "linux")]
#[test]
fn t_35_a_report_does_not_cost_the_datagram_after_it() {
    let group = one_loop();
    let address = nobodys_address();
    let (channel, events) = open_with(DatagramBootstrap::new(&group).connect(address), silent);
    assert_eq!(events.next(), Event::Active);
    let (sender, told) = mpsc::channel();
    let task = move |scope: &mut netwheel::DatagramScope<'_>| {
        // On the loopback interface the report is there when the call returns.
        scope.send("to nobody")?;
        let peer = UdpSocket::bind(address).unwrap();
        let sent = scope.send("to somebody");
        sender.send((peer, sent)).unwrap();
        Ok(())
    };
    channel.execute(task).unwrap();
    let (peer, sent) = tcp::receive(&told);
    sent.unwrap();
    peer.set_read_timeout(Some(tcp::PATIENCE)).unwrap();
    assert_eq!(receive(&peer).0, b"to somebody");
    let (text, kind) = events.error();
    assert_eq!(kind, Some(ErrorKind::ConnectionRefused));
    assert!(text.starts_with("sending an earlier datagram: "), "{text}");
    end(&group);
    assert_eq!(events.rest(), [Event::Shutdown, Event::Inactive], "told once");
}

#[test]
fn an_error_of_the_handler_is_told_and_a_panic_closes_this_channel_only() {
    let group = one_loop();
    let (other, at_other) = open(&group, echo);
    let (channel, events) = open(&group, |_, event| match event {
        Event::Read(datagram, _) if datagram == "fail" => Err("on purpose".into()),
        Event::Read(datagram, _) if datagram == "panic" => panic!("on purpose"),
        _ => Ok(()),
    });
    let (peer, _) = socket();
    peer.send_to(b"fail", channel.local_address()).unwrap();
    events.datagram();
    assert_eq!(events.next(), Event::Error("on purpose".into(), None));
    peer.send_to(b"still there", channel.local_address()).unwrap();
    assert_eq!(events.datagram().0, "still there");
    peer.send_to(b"panic", channel.local_address()).unwrap();
    assert_eq!(events.next(), Event::Error("panicked: on purpose".into(), None));
    assert_eq!(events.rest(), [Event::Inactive]);
    done(channel.closed()).unwrap();
    peer.send_to(b"hello", other.local_address()).unwrap();
    assert_eq!(receive(&peer).0, b"hello");
    drop(at_other);
    assert_eq!(metrics(&group).channel_errors, 2);
    end(&group);
}

#[test]
fn an_error_in_error_closes_the_channel() {
    let group = one_loop();
    let (channel, events) = open(&group, |_, event| match event {
        Event::Read(..) | Event::Error(..) => Err("on purpose".into()),
        _ => Ok(()),
    });
    let (peer, _) = socket();
    peer.send_to(b"fail", channel.local_address()).unwrap();
    done(channel.closed()).unwrap();
    events.datagram();
    assert_eq!(events.rest(), [Event::Error("on purpose".into(), None), Event::Inactive]);
    end(&group);
}

// ---- groups ----------------------------------------------------------------------------------------------

/// T-35: on the loopback interface.
#[test]
fn t_35_a_group_is_heard_from_join_to_leave() {
    let (address, lo) = (Ipv4Addr::new(239, 255, 77, 1), Ipv4Addr::LOCALHOST);
    multicast(
        "0.0.0.0:0",
        UdpOptions::new().multicast_interface_v4(lo).multicast_loop(true).multicast_ttl(0),
        MulticastGroup::V4 { group: address, interface: lo },
        address.into(),
    );
}

/// T-35: likewise with IPv6; the loopback interface is number 1 on Linux.
#[cfg(target_os = "linux")]
#[test]
fn t_35_a_group_of_ipv6_is_heard_from_join_to_leave() {
    let address = Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0x77, 0x1);
    multicast(
        "[::]:0",
        UdpOptions::new().multicast_interface_v6(1).multicast_loop(true).multicast_ttl(0),
        MulticastGroup::V6 { group: address, interface: 1 },
        address.into(),
    );
}

/// Says why a test proves nothing on this machine.
fn skip(why: &str) {
    // Not `eprintln`, which the test harness would swallow.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

fn multicast(any: &str, options: UdpOptions, group: MulticastGroup, address: IpAddr) {
    let loops = one_loop();
    let (events, told) = mpsc::channel();
    let events = Mutex::new(events);
    let receiver = DatagramBootstrap::new(&loops).handler(move || Tell(events.lock().unwrap().clone()));
    let Ok(receiver) = receiver.bind(any) else { return skip("no such addresses here") };
    let sender =
        DatagramBootstrap::new(&loops).options(options).handler(|| Tell(mpsc::channel().0)).bind(any);
    let Ok(sender) = sender else { return skip("no multicast here") };
    let to = SocketAddr::new(address, receiver.local_address().port());
    let own = SocketAddr::new(
        if any.starts_with('[') { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() },
        receiver.local_address().port(),
    );
    let on_receiver = |join: bool| {
        let (answer, answered) = mpsc::channel();
        receiver
            .execute(move |scope| {
                let result = if join { scope.join(group) } else { scope.leave(group) };
                answer.send(result).unwrap();
                Ok(())
            })
            .unwrap();
        tcp::receive(&answered)
    };
    let send = |text: &'static str, to| done(sender.send_notify(text, Some(to)).unwrap());
    if let Err(e) = on_receiver(true).and_then(|()| send("probe", to)) {
        return skip(&format!("no multicast on the loopback interface ({e})"));
    }
    let Ok(heard) = told.recv_timeout(Duration::from_secs(5)) else {
        return skip("the loopback interface does not deliver multicast");
    };
    assert_eq!(heard, "probe");
    send("to the group", to).unwrap();
    assert_eq!(tcp::receive(&told), "to the group");
    on_receiver(false).unwrap();
    send("after the leave", to).unwrap();
    // It would have come before this one.
    send("to the receiver", own).unwrap();
    assert_eq!(tcp::receive(&told), "to the receiver");
    assert!(on_receiver(false).is_err(), "it was left");
    end(&loops);
}

struct Tell(mpsc::Sender<Bytes>);

impl DatagramHandler for Tell {
    fn read(&mut self, _: &mut DatagramContext<'_, Self>, datagram: Bytes, _: SocketAddr) -> Result {
        let _ = self.0.send(datagram);
        Ok(())
    }
}

// ---- bounds ----------------------------------------------------------------------------------------------

#[test]
fn a_turn_reads_so_many_datagrams_and_leaves_the_others_for_the_next_one() {
    const WAITING: usize = 50;
    let group = one_loop();
    let event_loop = the_loop(&group).clone();
    let turns = Arc::new(Mutex::new(Vec::new()));
    let noted = turns.clone();
    let bootstrap = DatagramBootstrap::new(&group).datagrams_per_turn(8);
    let (channel, events) = open_with(bootstrap, move |_, event| {
        if matches!(event, Event::Read(..)) {
            noted.lock().unwrap().push(event_loop.metrics().turns);
        }
        Ok(())
    });
    assert_eq!(events.next(), Event::Active);
    let release = block(&group);
    let (peer, _) = socket();
    for _ in 0..WAITING {
        peer.send_to(b"datagram", channel.local_address()).unwrap();
    }
    drop(release);
    (0..WAITING).for_each(|_| drop(events.datagram()));
    let turns = turns.lock().unwrap();
    let most = turns.chunk_by(|a, b| a == b).map(<[u64]>::len).max();
    assert_eq!(most, Some(8), "in a turn: {turns:?}");
    drop(turns);
    end(&group);
}

#[test]
fn what_waits_in_the_loops_queue_is_bounded_and_the_newest_comes_back() {
    let group = one_loop();
    let (peer, address) = socket();
    let bootstrap = DatagramBootstrap::new(&group).max_outbound(10 * 100);
    let (channel, events) = open_with(bootstrap, silent);
    assert_eq!(events.next(), Event::Active);
    let release = block(&group);
    for i in 0..10 {
        channel.send_to(format!("{i:04}"), address).unwrap();
    }
    let refused = channel.send_to("more", address).unwrap_err();
    assert_eq!(refused.value, "more");
    assert!(matches!(refused.reason, Error::Full { what: "outbound bytes", limit: 1000 }), "{refused}");
    drop(release);
    for i in 0..10 {
        assert_eq!(receive(&peer).0, format!("{i:04}").into_bytes());
    }
    // There is room again.
    done(channel.send_notify("more", Some(address)).unwrap()).unwrap();
    assert_eq!(receive(&peer).0, b"more");
    assert_eq!(metrics(&group).datagrams_refused, 1);
    end(&group);
}

#[test]
fn settings_out_of_their_range_are_refused() {
    let group = one_loop();
    let bootstrap = || DatagramBootstrap::new(&group);
    let options = |options| bootstrap().options(options);
    let unicast = IpAddr::from([127, 0, 0, 1]);
    for (setting, bootstrap) in [
        ("datagrams_per_turn", bootstrap().datagrams_per_turn(0)),
        ("max_outbound", bootstrap().max_outbound(0)),
        ("max_scheduled_tasks", bootstrap().max_scheduled_tasks(0)),
        ("ttl", options(UdpOptions::new().ttl(256))),
        ("ttl", options(UdpOptions::new().ttl(0))),
        ("multicast_ttl", options(UdpOptions::new().multicast_ttl(256))),
        ("send_buffer", options(UdpOptions::new().send_buffer(0))),
        ("receive_buffer", options(UdpOptions::new().receive_buffer(usize::MAX))),
        ("group", options(UdpOptions::new().join(unicast.into()))),
    ] {
        let refused = bootstrap.handler(|| Tell(mpsc::channel().0)).bind("127.0.0.1:0").unwrap_err();
        assert!(matches!(&refused, Error::Setting(e) if e.setting == setting), "{setting}: {refused}");
    }
    end(&group);
}

#[test]
fn an_address_that_is_taken_is_refused_unless_it_is_shared() {
    let group = one_loop();
    let (channel, _events) = open(&group, silent);
    let bind = |options, address| {
        let bootstrap = DatagramBootstrap::new(&group).options(options);
        bootstrap.handler(|| Tell(mpsc::channel().0)).bind(address)
    };
    let taken = bind(UdpOptions::new(), channel.local_address()).unwrap_err();
    assert_eq!(taken.io_kind(), Some(ErrorKind::AddrInUse), "{taken}");
    if cfg!(unix) {
        let shared = || UdpOptions::new().reuse_port(true);
        let first = bind(shared(), "127.0.0.1:0".parse().unwrap()).unwrap();
        bind(shared(), first.local_address()).unwrap();
    }
    end(&group);
}

#[test]
fn broadcast_has_to_be_switched_on() {
    let to: SocketAddr = "255.255.255.255:9".parse().unwrap();
    let group = one_loop();
    let (channel, _events) = open(&group, silent);
    let refused = done(channel.send_notify("hello", Some(to)).unwrap()).unwrap_err();
    assert_eq!(refused.io_kind(), Some(ErrorKind::PermissionDenied), "{refused}");
    let options = UdpOptions::new().broadcast(true).ttl(1);
    let (channel, _events) = open_with(DatagramBootstrap::new(&group).options(options), silent);
    // Whether there is a network to broadcast to is another question.
    if let Err(e) = done(channel.send_notify("hello", Some(to)).unwrap()) {
        assert_ne!(e.io_kind(), Some(ErrorKind::PermissionDenied), "{e}");
    }
    end(&group);
}

// ---- life and end ----------------------------------------------------------------------------------------

#[test]
fn a_channel_that_is_closed_takes_nothing_more_and_tells_once() {
    let group = one_loop();
    let (peer, address) = socket();
    let (channel, events) = open(&group, move |ctx, event| {
        if matches!(event, Event::Read(..)) {
            ctx.send_to("last words", address)?;
            ctx.close();
            let refused = ctx.send_to("more", address).unwrap_err();
            assert!(matches!(refused.reason, Error::Closed), "{refused}");
        }
        Ok(())
    });
    assert_eq!(events.next(), Event::Active);
    let release = block(&group);
    peer.send_to(b"one", channel.local_address()).unwrap();
    peer.send_to(b"two", channel.local_address()).unwrap();
    drop(release);
    assert_eq!(receive(&peer).0, b"last words");
    done(channel.closed()).unwrap();
    assert!(!channel.is_open());
    let refused = channel.send_to("more", address).unwrap_err();
    assert_eq!((refused.value, refused.reason.to_string()), ("more".into(), Error::Closed.to_string()));
    assert!(matches!(channel.execute(|_| Ok(())), Err(Error::Closed)));
    channel.close();
    let told = events.rest();
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[1], Event::Inactive);
    turn_until(&group, |metrics| metrics.datagram_channels == 0);
    // Its port is free again.
    UdpSocket::bind(channel.local_address()).unwrap();
    end(&group);
}

#[test]
fn scheduled_tasks_run_on_the_handler_and_end_with_the_channel() {
    let group = one_loop();
    let ran = Arc::new(AtomicUsize::new(0));
    let count = ran.clone();
    let bootstrap = DatagramBootstrap::new(&group).max_scheduled_tasks(3);
    let (channel, events) = open_with(bootstrap, move |ctx, event| {
        if !matches!(event, Event::Active) {
            return Ok(());
        }
        let (one, two, never) = (count.clone(), count.clone(), count.clone());
        ctx.schedule(Duration::ZERO, move |_, ctx| {
            one.fetch_add(1, SeqCst);
            ctx.timeout(Duration::ZERO, move |_, ctx| {
                two.fetch_add(10, SeqCst);
                ctx.close();
                Ok(())
            });
            Ok(())
        });
        let cancelled = ctx.timeout(Duration::ZERO, move |_, _| Err("cancelled ones do not run".into()));
        assert!(ctx.cancel(cancelled) && !ctx.cancel(cancelled));
        ctx.schedule(Duration::from_secs(3600), move |_, _| {
            never.fetch_add(100, SeqCst);
            Ok(())
        });
        ctx.schedule(Duration::from_secs(3600), |_, _| Ok(()));
        ctx.schedule(Duration::from_secs(3600), |_, _| Err("this one is too many".into()));
        Ok(())
    });
    done(channel.closed()).unwrap();
    let told = events.rest();
    let full = Event::Error("full: at most 3 scheduled tasks of a channel".into(), None);
    assert_eq!(told, [Event::Active, full, Event::Inactive]);
    end(&group);
    assert_eq!((ran.load(SeqCst), Arc::strong_count(&ran)), (11, 1), "what did not run is dropped");
}

#[test]
fn a_shutdown_tells_the_handler_and_reports_the_channel() {
    let group = one_loop();
    let (_peer, address) = socket();
    let (channel, events) = open(&group, move |ctx, event| {
        if *event == Event::Shutdown {
            // It was closed just before.
            ctx.send_to("goodbye", address).unwrap_err();
        }
        Ok(())
    });
    assert_eq!(events.next(), Event::Active);
    end(&group);
    done(channel.closed()).unwrap();
    assert_eq!(events.rest(), [Event::Shutdown, Event::Inactive]);
    let refused = channel.send_to("more", address).unwrap_err();
    assert!(matches!(refused.reason, Error::Closed), "{refused}");
    let bind = DatagramBootstrap::new(&group).handler(|| Tell(mpsc::channel().0)).bind("127.0.0.1:0");
    assert!(matches!(bind, Err(Error::ShutDown)), "{bind:?}");
}

#[test]
fn a_rebuilt_poll_still_watches_it() {
    let group = one_loop();
    let (channel, events) = open(&group, echo);
    let (peer, _) = socket();
    assert_eq!(events.next(), Event::Active);
    let report = done(the_loop(&group).rebuild_poll().unwrap());
    if cfg!(windows) {
        return;
    }
    assert_eq!(report.unwrap().moved, 1);
    peer.send_to(b"hello", channel.local_address()).unwrap();
    assert_eq!(receive(&peer).0, b"hello");
    end(&group);
}

#[test]
fn a_handler_that_cannot_be_made_costs_its_channel_only() {
    struct Never;
    impl DatagramHandler for Never {
        fn read(&mut self, _: &mut DatagramContext<'_, Self>, _: Bytes, _: SocketAddr) -> Result {
            Ok(())
        }
    }
    let group = one_loop();
    let make = || -> Never { panic!("on purpose") };
    let channel = DatagramBootstrap::new(&group).handler(make).bind("127.0.0.1:0").unwrap();
    done(channel.closed()).unwrap();
    assert!(!channel.is_open());
    let (alive, _events) = open(&group, echo);
    let (peer, _) = socket();
    peer.send_to(b"hello", alive.local_address()).unwrap();
    assert_eq!(receive(&peer).0, b"hello");
    end(&group);
}
