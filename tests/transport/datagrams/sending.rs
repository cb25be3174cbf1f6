//! Sending and receiving datagrams.

use crate::support::{
    datagrams::{Event, echo, open, open_with, receive, silent, socket},
    loops::{end, metrics, one_loop, some_turns},
    random, tcp, wait,
};
use bytes::Bytes;
use netwheel::{
    DatagramBootstrap,
    datagram::{AnyDatagramHandler, DatagramContext},
    net::UdpOptions,
};
use std::sync::mpsc;

/// T-34: every datagram arrives, complete and separate, with the sender's address. Replies find
/// their way back.
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

/// T-34: both ends are connected to each other and need no addresses. Datagrams from other senders
/// are not received.
#[test]
fn t_34_sending_between_connected_channels() {
    let group = one_loop();
    let (one, at_one) = open(&group, silent);
    let (other, at_other) = open_with(DatagramBootstrap::new(&group).connect(one.local_address()), silent);
    let to = other.local_address();
    one.execute(move |ctx| ctx.connect(to)).unwrap();
    let (stranger, _) = socket();
    some_turns(&group);
    stranger.send_to(b"not for you", one.local_address()).unwrap();
    for text in ["a", "b", "c", "d"] {
        other.write(text).unwrap();
        assert_eq!(at_one.datagram(), (text.into(), to));
        one.write(text).unwrap();
        assert_eq!(at_other.datagram(), (text.into(), one.local_address()));
    }
    end(&group);
}

/// T-34, C-09: after a disconnect, a send without an address fails with its own error. A send with
/// an address succeeds, and datagrams from all senders are received at the same port. A stream
/// channel cannot disconnect, only close.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[test]
fn t_34_after_a_disconnect_datagrams_need_an_address() {
    use netwheel::Error;

    let group = one_loop();
    let (first, first_address) = socket();
    let (second, second_address) = socket();
    let (channel, events) = open_with(DatagramBootstrap::new(&group).connect(first_address), silent);
    channel.write("to the peer").unwrap();
    assert_eq!(receive(&first).0, b"to the peer");
    let (sender, told) = mpsc::channel();
    let task = move |ctx: &mut DatagramContext<'_, AnyDatagramHandler>| {
        assert_eq!(ctx.peer_address(), Some(first_address));
        ctx.disconnect()?;
        ctx.disconnect()?;
        let refused = ctx.write("without address").unwrap_err();
        assert!(matches!(refused.error(), Error::NotConnected), "{refused}");
        assert_eq!(refused.value(), "without address");
        ctx.write_to("with address", second_address)?;
        sender.send((ctx.peer_address(), ctx.local_address())).unwrap();
        Ok(())
    };
    channel.execute(task).unwrap();
    assert_eq!(wait::receive(&told), (None, Some(channel.local_address())));
    assert_eq!(receive(&second), (b"with address".to_vec(), channel.local_address()));
    second.send_to(b"from a stranger", channel.local_address()).unwrap();
    assert_eq!(events.datagram(), ("from a stranger".into(), second_address));
    // A send through a handle without a completion reports its error to the handler.
    channel.write("without address").unwrap();
    let text = Error::NotConnected.to_string();
    assert_eq!(events.error(), (text, None));
    let answer = wait::done(channel.write_tracked("without address").unwrap());
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
    // In the other direction, empty datagrams are sent like any others.
    for _ in 0..100 {
        channel.write_to("", address).unwrap();
        assert_eq!(receive(&peer), (vec![], channel.local_address()));
    }
    // The kernel has the datagram before the loop counts it.
    some_turns(&group);
    let counted = metrics(&group);
    assert_eq!((counted.datagrams_received, counted.datagrams_sent, counted.bytes_read), (100, 100, 0));
    end(&group);
}

#[test]
fn the_longest_datagram_arrives_complete_and_a_longer_one_is_refused() {
    const LONGEST: usize = 65_507;
    let group = one_loop();
    let options = UdpOptions::new().send_buffer(1 << 20).receive_buffer(1 << 20);
    let (channel, events) = open_with(DatagramBootstrap::new(&group).udp_options(options), echo);
    let sent = random::Random::new(7).bytes(LONGEST);
    let (peer, address) = socket();
    peer.send_to(&sent, channel.local_address()).unwrap();
    let (got, _) = receive(&peer);
    tcp::assert_same(&got, &sent);
    tcp::assert_same(&events.datagram().0, &sent);
    let (sender, told) = mpsc::channel();
    let task = move |ctx: &mut DatagramContext<'_, AnyDatagramHandler>| {
        sender.send(ctx.write_to(vec![1; LONGEST + 1], address)).unwrap();
        Ok(())
    };
    channel.execute(task).unwrap();
    let refused = wait::receive(&told).unwrap_err();
    assert_eq!((refused.value().len(), format!("{refused:#}").contains("too long")), (LONGEST + 1, true));
    end(&group);
}
