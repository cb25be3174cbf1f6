//! Ends one side of a relay in every way that docs/endings.md lists, from each of its two sides.

use super::{
    rows::{Check, rows},
    table::{Words, name},
};
use crate::support::{
    loops::{end, manual_group},
    tcp::{patient, read_n},
    wait::{SECOND, done, wait_until},
};
use netwheel::{channel::ChannelOptions, prelude::*, relay::Relay, shutdown::ShutdownOptions};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    time::Duration,
};

/// Returns the end of a peer's stream.
fn sees(peer: &mut TcpStream) -> &'static str {
    match peer.read_to_end(&mut Vec::new()) {
        Ok(_) => "end",
        Err(e) if e.kind() == ErrorKind::ConnectionReset => "reset",
        Err(e) => panic!("{e}"),
    }
}

/// Returns the end of the stream at the peer of the other side, and how the first channel of the
/// relay ends. The row is about the side of the peer at the `front`, or at the back.
fn play(row: &str, front: bool) -> (&'static str, &'static str) {
    let (group, clock) = manual_group();
    let options = ChannelOptions::new().half_close(row.ends_with("with `half_close`"));
    let (inward, outward) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let to = outward.local_addr().unwrap();
    let connector = ClientBootstrap::new(&group).channel_options(options.clone());
    let client = ClientBootstrap::new(&group).channel_options(options).pipeline(move |_| {
        let connector = connector.clone();
        Pipeline::codec(Words).handler(Relay::dial(move |front| {
            connector.pipeline(move |_| Pipeline::codec(Words).handler(Relay::to(front.clone()))).connect(to)
        }))
    });
    let channel = done(client.connect(inward.local_addr().unwrap())).unwrap();
    let (mut first, mut other) = (inward.accept().unwrap().0, outward.accept().unwrap().0);
    for peer in [&first, &other] {
        patient(peer);
    }
    first.write_all(b"ping").unwrap();
    assert_eq!(read_n(&mut other, 4), b"ping");
    if !front {
        std::mem::swap(&mut first, &mut other);
    }
    let mut shutdown = None;
    match row {
        "the peer resets the connection" => {
            socket2::SockRef::from(&first).set_linger(Some(Duration::ZERO)).unwrap();
            drop(first);
        }
        "the peer ends its stream" => first.shutdown(Shutdown::Write).unwrap(),
        "the peer ends its stream, and the other peer does so later, with `half_close`" => {
            first.shutdown(Shutdown::Write).unwrap();
            assert_eq!(other.read(&mut [0]).unwrap(), 0);
            other.write_all(b"pong").unwrap();
            assert_eq!(read_n(&mut first, 4), b"pong", "this direction stays open");
            other.shutdown(Shutdown::Write).unwrap();
        }
        "the codec refuses the input" => first.write_all(b"bad").unwrap(),
        "the loop shuts down, and the timeout expires" => {
            let options = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(SECOND);
            shutdown = Some(group.shutdown(options));
            wait_until("the end", || {
                clock.advance(SECOND);
                channel.close_cause().is_some()
            });
        }
        _ => panic!("nothing tests the row {row:?}"),
    }
    let seen = sees(&mut other);
    let cause = name(done(channel.closed()).unwrap());
    match shutdown {
        Some(ended) => drop(done(ended).unwrap()),
        None => end(&group),
    }
    (seen, cause)
}

#[test]
fn a_relay_passes_on_an_end_as_the_table_in_the_docs_says() {
    let mut check = Check::default();
    for [row, seen, here, there] in rows("one side of a relay") {
        for (front, cause) in [(true, here), (false, there)] {
            let (sees, ends) = play(row, front);
            check.row(row, &[(&[sees], seen), (&[ends], cause)]);
        }
    }
    check.end();
}
