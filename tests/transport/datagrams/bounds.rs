//! Limits of datagram channels, and settings that are refused.

use crate::datagrams::Tell;
use crate::support::{
    datagrams::{Event, open, open_with, receive, silent, socket},
    loops::{block, end, metrics, one_loop, the_loop},
    wait::done,
};
use netwheel::{DatagramBootstrap, Error, error::Resource, net::UdpOptions};
use std::{
    io::ErrorKind,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, mpsc},
};

#[test]
fn a_turn_reads_a_bounded_number_of_datagrams_and_leaves_the_others_for_the_next() {
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
    assert_eq!(most, Some(8), "datagrams in a turn: {turns:?}");
    drop(turns);
    end(&group);
}

#[test]
fn pending_datagrams_have_a_limit_and_the_newest_is_refused() {
    let group = one_loop();
    let (peer, address) = socket();
    let bootstrap = DatagramBootstrap::new(&group).max_outbound(10 * 100);
    let (channel, events) = open_with(bootstrap, silent);
    assert_eq!(events.next(), Event::Active);
    let release = block(&group);
    for i in 0..10 {
        channel.write_to(format!("{i:04}"), address).unwrap();
    }
    let refused = channel.write_to("more", address).unwrap_err();
    assert_eq!(refused.value(), "more");
    assert!(
        matches!(refused.error(), Error::Full { resource: Resource::ChannelOutput, limit: 1000, .. }),
        "{refused}"
    );
    drop(release);
    for i in 0..10 {
        assert_eq!(receive(&peer).0, format!("{i:04}").into_bytes());
    }
    // There is room again.
    done(channel.write_tracked_to("more", address).unwrap()).unwrap();
    assert_eq!(receive(&peer).0, b"more");
    assert_eq!(metrics(&group).datagrams_refused, 1);
    end(&group);
}

#[test]
fn settings_out_of_their_range_are_refused() {
    let group = one_loop();
    let bootstrap = || DatagramBootstrap::new(&group);
    let options = |options| bootstrap().udp_options(options);
    let unicast = IpAddr::from([127, 0, 0, 1]);
    for (setting, bootstrap) in [
        ("datagrams_per_turn", bootstrap().datagrams_per_turn(0)),
        ("max_outbound", bootstrap().max_outbound(0)),
        ("max_scheduled_tasks", bootstrap().max_scheduled_tasks(0)),
        ("time_to_live", options(UdpOptions::new().time_to_live(256))),
        ("time_to_live", options(UdpOptions::new().time_to_live(0))),
        ("multicast_time_to_live", options(UdpOptions::new().multicast_time_to_live(256))),
        ("send_buffer", options(UdpOptions::new().send_buffer(0))),
        ("receive_buffer", options(UdpOptions::new().receive_buffer(usize::MAX))),
        ("group", options(UdpOptions::new().join(unicast.into()))),
    ] {
        let refused = bootstrap.handler(|| Tell(mpsc::channel().0)).bind("127.0.0.1:0").unwrap_err();
        assert!(matches!(&refused, Error::Setting(e) if e.setting() == setting), "{setting}: {refused}");
    }
    end(&group);
}

#[test]
fn an_address_in_use_is_refused_unless_it_is_shared() {
    let group = one_loop();
    let (channel, _events) = open(&group, silent);
    let bind = |options, address| {
        let bootstrap = DatagramBootstrap::new(&group).udp_options(options);
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
fn broadcast_has_to_be_enabled() {
    let to: SocketAddr = "255.255.255.255:9".parse().unwrap();
    let group = one_loop();
    let (channel, _events) = open(&group, silent);
    let refused = done(channel.write_tracked_to("hello", to).unwrap()).unwrap_err();
    assert_eq!(refused.io_kind(), Some(ErrorKind::PermissionDenied), "{refused}");
    let options = UdpOptions::new().broadcast(true).time_to_live(1);
    let (channel, _events) = open_with(DatagramBootstrap::new(&group).udp_options(options), silent);
    // The machine may have no network to broadcast to.
    if let Err(e) = done(channel.write_tracked_to("hello", to).unwrap()) {
        assert_ne!(e.io_kind(), Some(ErrorKind::PermissionDenied), "{e}");
    }
    end(&group);
}
