//! Datagrams that fail, and handlers that fail.

use crate::support::{
    datagrams::{Event, echo, open, open_with, receive, silent, socket},
    logs,
    loops::{end, metrics, one_loop},
    wait::{self, done},
};
use bytes::Bytes;
use netwheel::{
    DatagramBootstrap, Error, Result,
    datagram::{AnyDatagramHandler, DatagramContext, DatagramHandler},
};
use std::{
    io::ErrorKind,
    net::{SocketAddr, UdpSocket},
};

/// T-35: no socket has port 0.
#[test]
fn t_35_a_bad_destination_fails_that_write_only() {
    let nowhere: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let group = one_loop();
    let (peer, address) = socket();
    let (channel, events) = open(&group, move |ctx, event| {
        if let Event::Read(datagram, from) = event {
            let refused = ctx.write_to(datagram.clone(), nowhere).unwrap_err();
            assert_eq!(refused.value(), datagram);
            assert!(matches!(refused.error(), Error::Io { operation: "sending a datagram", .. }));
            ctx.write_to(datagram.clone(), *from)?;
        }
        Ok(())
    });
    peer.send_to(b"one", channel.local_address()).unwrap();
    assert_eq!(receive(&peer).0, b"one");
    assert_eq!(events.datagram().0, "one");
    // From another thread, between two datagrams that arrive.
    channel.write_to("two", address).unwrap();
    channel.write_to("lost", nowhere).unwrap();
    channel.write_to("three", address).unwrap();
    assert_eq!((receive(&peer).0, receive(&peer).0), (b"two".to_vec(), b"three".to_vec()));
    assert!(events.error().0.starts_with("sending a datagram failed"), "the handler receives the error");
    let refused = done(channel.write_tracked_to("lost", nowhere).unwrap()).unwrap_err();
    assert!(matches!(refused, Error::Io { operation: "sending a datagram", .. }), "{refused}");
    done(channel.write_tracked_to("four", address).unwrap()).unwrap();
    assert_eq!(receive(&peer).0, b"four");
    assert!(channel.is_open());
    end(&group);
    assert_eq!(events.rest(), [Event::Shutdown, Event::Inactive], "only the caller receives the error");
}

/// Returns an address without a socket. Linux has a whole network of loopback addresses, and other
/// tests use a different one.
fn unused_address() -> SocketAddr {
    let address = if cfg!(target_os = "linux") { "127.0.35.1:0" } else { "127.0.0.1:0" };
    UdpSocket::bind(address).unwrap().local_addr().unwrap()
}

/// T-35: a send to a port without a socket is an error. Once there is a socket, datagrams arrive.
#[test]
fn t_35_an_unreachable_port_is_an_error_and_the_channel_stays_open() {
    let group = one_loop();
    let address = unused_address();
    let (channel, events) = open_with(DatagramBootstrap::new(&group).connect(address), silent);
    assert_eq!(events.next(), Event::Active);
    for _ in 0..3 {
        channel.write("are you there?").unwrap();
        assert_eq!(events.error().1, Some(ErrorKind::ConnectionRefused));
    }
    assert!(channel.is_open());
    let peer = UdpSocket::bind(address).unwrap();
    peer.set_read_timeout(Some(wait::PATIENCE)).unwrap();
    peer.connect(channel.local_address()).unwrap();
    channel.write("hello").unwrap();
    assert_eq!(receive(&peer).0, b"hello");
    peer.send(b"here I am").unwrap();
    assert_eq!(events.datagram(), ("here I am".into(), address));
    end(&group);
}

/// A kernel error about an earlier datagram is reported, and the next datagram is still sent.
#[cfg(target_os = "linux")]
#[test]
fn t_35_an_error_report_does_not_cost_the_next_datagram() {
    let group = one_loop();
    let address = unused_address();
    let (channel, events) = open_with(DatagramBootstrap::new(&group).connect(address), silent);
    assert_eq!(events.next(), Event::Active);
    let (sender, told) = std::sync::mpsc::channel();
    let task = move |ctx: &mut DatagramContext<'_, AnyDatagramHandler>| {
        // On the loopback interface, the error is available when the call returns.
        ctx.write("unreachable")?;
        let peer = UdpSocket::bind(address).unwrap();
        let sent = ctx.write("reachable");
        sender.send((peer, sent)).unwrap();
        Ok(())
    };
    channel.execute(task).unwrap();
    let (peer, sent) = wait::receive(&told);
    sent.unwrap();
    peer.set_read_timeout(Some(wait::PATIENCE)).unwrap();
    assert_eq!(receive(&peer).0, b"reachable");
    let (text, kind) = events.error();
    assert_eq!(kind, Some(ErrorKind::ConnectionRefused));
    assert!(text.starts_with("sending an earlier datagram failed"), "{text}");
    end(&group);
    assert_eq!(events.rest(), [Event::Shutdown, Event::Inactive], "the error is reported once");
}

#[test]
fn a_handler_error_is_reported_and_a_panic_closes_only_its_channel() {
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
fn a_handler_that_returns_the_panic_of_other_code_keeps_its_channel() {
    let group = one_loop();
    let (channel, events) = open(&group, |_, event| match event {
        Event::Read(datagram, _) if datagram == "fail" => Err(Error::Panicked("elsewhere".into())),
        _ => Ok(()),
    });
    let (peer, _) = socket();
    for _ in 0..2 {
        peer.send_to(b"fail", channel.local_address()).unwrap();
        assert_eq!(events.datagram().0, "fail");
        assert_eq!(events.next(), Event::Error("panicked: elsewhere".into(), None));
    }
    assert!(channel.is_open());
    end(&group);
    assert_eq!(events.rest(), [Event::Shutdown, Event::Inactive]);
}

/// A handler that leaves its panic to the default `error`.
struct Panics;

impl DatagramHandler for Panics {
    fn read(&mut self, _: &mut DatagramContext<'_, Self>, _: Bytes, _: SocketAddr) -> Result {
        panic!("a datagram, logged once on purpose");
    }
}

#[test]
fn a_panic_is_logged_once() {
    logs::collect();
    let group = one_loop();
    let channel = DatagramBootstrap::new(&group).handler(|| Panics).bind("127.0.0.1:0").unwrap();
    socket().0.send_to(b"panic", channel.local_address()).unwrap();
    done(channel.closed()).unwrap();
    end(&group);
    let records = logs::records();
    let lines = records.iter().filter(|record| record.text.contains("a datagram, logged once"));
    let levels: Vec<_> = lines.map(|record| record.level).collect();
    assert_eq!(levels, [log::Level::Error]);
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
