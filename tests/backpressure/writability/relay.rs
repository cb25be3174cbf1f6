//! Relays: two connections that act as one and pass on backpressure, half-close, closes and resets.

use crate::support::{
    loops::{end, single},
    wait::{PATIENCE, wait_until},
};
use bytes::Bytes;
use netwheel::{
    ClientBootstrap, Server, channel::ChannelOptions, codec::RawBytes, metrics::LoopMetrics, prelude::*,
    relay::Relay,
};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    thread,
};

/// Starts a proxy to an address, whose two sides run on different loops.
fn proxy(to: SocketAddr, half_close: bool) -> (EventLoopGroup, Server) {
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let options = ChannelOptions::new().half_close(half_close);
    let (connector, back) = (group.clone(), options.clone());
    let server = ServerBootstrap::new(&group)
        .channel_options(options)
        .pipeline(move |_| {
            let client = ClientBootstrap::new(&connector).channel_options(back.clone());
            Pipeline::codec(RawBytes).handler(Relay::dial(move |front: Channel<Bytes>| {
                client
                    .pipeline(move |_| Pipeline::codec(RawBytes).handler(Relay::to(front.clone())))
                    .connect(to)
            }))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    (group, server)
}

fn client(server: &Server) -> TcpStream {
    patient(TcpStream::connect(server.local_address()).unwrap())
}

fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Returns both ends of a connection through a proxy.
fn connected(half_close: bool) -> (EventLoopGroup, Server, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (group, server) = proxy(listener.local_addr().unwrap(), half_close);
    let front = client(&server);
    let back = patient(listener.accept().unwrap().0);
    (group, server, front, back)
}

fn sum<T: std::iter::Sum>(group: &EventLoopGroup, of: impl Fn(&LoopMetrics) -> T) -> T {
    group.metrics().iter().map(of).sum()
}

/// Returns pseudo-random bytes, in which a missing byte is detectable.
fn stream_of(len: usize, seed: u32) -> Vec<u8> {
    let mut x = seed;
    (0..len)
        .map(|_| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 24) as u8
        })
        .collect()
}

/// The reader starts when the writer is blocked, so that the proxy and the kernel hold all bytes in
/// between.
#[test]
fn a_relay_pauses_its_source_and_loses_nothing() {
    const BYTES: usize = 24 << 20;
    let (group, _server, front, mut back) = connected(true);
    let sent = stream_of(BYTES, 1);
    let got = thread::scope(|scope| {
        scope.spawn(|| {
            (&front).write_all(&sent).unwrap();
            front.shutdown(Shutdown::Write).unwrap();
        });
        // The relay has stopped reading when 20 checks in a row see the same count.
        let read = || sum(&group, |metrics| metrics.bytes_read);
        let mut before = 0;
        let mut quiet = 0;
        while quiet < 20 {
            let now = read();
            quiet = if now == before && now > 0 { quiet + 1 } else { 0 };
            before = now;
            thread::park_timeout(std::time::Duration::from_millis(5));
        }
        let held = sum(&group, |metrics| metrics.outbound_bytes);
        assert!(held <= 2 * 65_536 + 4096, "{held} bytes in the proxy");
        let mut got = Vec::new();
        back.read_to_end(&mut got).unwrap();
        got
    });
    assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
    assert_eq!(sum(&group, |metrics| metrics.closes_overflowed + metrics.messages_refused), 0);
}

#[test]
fn the_end_of_a_stream_is_relayed_and_the_other_direction_stays_open() {
    let (group, _server, mut front, mut back) = connected(true);
    front.write_all(b"request").unwrap();
    front.shutdown(Shutdown::Write).unwrap();
    let mut request = Vec::new();
    back.read_to_end(&mut request).unwrap();
    assert_eq!(request, b"request");
    back.write_all(b"answer").unwrap();
    drop(back);
    let mut answer = Vec::new();
    front.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"answer");
    end(&group);
    assert_eq!(sum(&group, |metrics| metrics.channels), 0);
}

#[test]
fn without_half_close_the_end_of_a_stream_closes_both() {
    let (group, _server, mut front, mut back) = connected(false);
    front.write_all(b"last words").unwrap();
    front.shutdown(Shutdown::Write).unwrap();
    let mut request = Vec::new();
    back.read_to_end(&mut request).unwrap();
    assert_eq!(request, b"last words");
    let mut rest = Vec::new();
    front.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
    end(&group);
}

/// Closes with a reset, which discards bytes that were sent and not read.
fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
}

#[test]
fn a_reset_is_relayed_in_both_directions() {
    for from_front in [true, false] {
        let (group, _server, mut front, mut back) = connected(true);
        // Make sure that both sides are connected to each other.
        front.write_all(b"x").unwrap();
        back.read_exact(&mut [0]).unwrap();
        let mut other = if from_front {
            reset(front);
            back
        } else {
            reset(back);
            front
        };
        let error = other.read(&mut [0]).expect_err("not the end of the stream");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        end(&group);
    }
}

#[test]
fn a_failed_connect_resets_the_client() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (group, server) = proxy(unused, true);
    let mut front = client(&server);
    let error = front.read(&mut [0]).expect_err("not the end of the stream");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    end(&group);
}

#[test]
fn bytes_received_before_the_other_side_is_connected_are_not_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (group, server) = proxy(listener.local_addr().unwrap(), true);
    let mut front = client(&server);
    front.write_all(b"early").unwrap();
    front.shutdown(Shutdown::Write).unwrap();
    let mut back = patient(listener.accept().unwrap().0);
    let mut got = Vec::new();
    back.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"early");
    end(&group);
}

#[test]
fn a_relay_whose_loop_refuses_the_dialed_channel_resets_both_sides() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let (group, event_loop) = single(EventLoopGroup::builder().max_pending_tasks(16));
    let (others, _) = single(EventLoopGroup::builder());
    let connector = others.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let (event_loop, client) = (event_loop.clone(), ClientBootstrap::new(&connector));
            Pipeline::codec(RawBytes).handler(Relay::dial(move |front: Channel<Bytes>| {
                let dialed = client
                    .pipeline(move |_| Pipeline::codec(RawBytes).handler(Relay::to(front.clone())))
                    .connect(to);
                wait_until("the connection", || dialed.is_done());
                wait_until("the queue is full", || event_loop.execute(|| ()).is_err());
                dialed
            }))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut front = client(&server);
    let mut back = patient(listener.accept().unwrap().0);
    for peer in [&mut front, &mut back] {
        assert_eq!(peer.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    end(&group);
    end(&others);
}
