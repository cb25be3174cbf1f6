//! Faulty or hostile peers: resets in the middle of a frame, one byte per second, ten thousand
//! silent connections. Each affects only its own connection. Linux only, because the tests count
//! descriptors.

#![cfg(target_os = "linux")]

use crate::own_process;
use crate::support::{
    loops::{end, metrics, one_loop, some_turns, turn_until},
    process::{Process, play, plays},
    recorder::{Event, echo, read_bytes},
    resources::{descriptors, raise_descriptor_limit},
    servers::{Settings, serve_with},
    tcp::{ANY_PORT, connect, patient, ping, read_n},
    wait::{PATIENCE, SECOND},
};
use bytes::Bytes;
use netwheel::{
    channel::TimeLimits, codec::LengthField, error::PeerError, net::ListenerOptions, prelude::*,
    testing::ManualClock,
};
use std::{
    io::{self, BufRead, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{Mutex, mpsc},
    time::Duration,
};

/// The wheel's tick, by which a time limit may be late.
const TICK: Duration = Duration::from_millis(10);

fn frame(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text].concat()
}

/// Closes the stream with a reset.
fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}

#[test]
fn a_reset_in_mid_frame_affects_only_that_peer() {
    own_process!();
    const TIMES: usize = 50;
    let group = one_loop();
    let (server, events) = serve_with(&group, Settings::new(), LengthField::u32(), echo);
    let mut others = [(); 3].map(|()| connect(server.local_address()));
    for other in &mut others {
        ping(other, &frame(b"before"));
        assert_eq!(events.message(), "before");
    }
    turn_until(&group, |metrics| metrics.messages_written == 3);
    events.so_far();
    let before = descriptors();
    for n in 0..TIMES {
        let mut peer = connect(server.local_address());
        let begun = frame(&vec![b'x'; 100_000]);
        // Reset within the length, after it, within the body, or after a complete frame whose echo
        // the peer does not read.
        let (whole, part) =
            if n % 4 == 3 { (frame(b"whole"), 10) } else { (Vec::new(), [2, 4, 50_000][n % 4]) };
        peer.write_all(&whole).unwrap();
        peer.write_all(&begun[..part]).unwrap();
        let read = metrics(&group).bytes_read;
        turn_until(&group, |metrics| metrics.bytes_read >= read.max(1));
        reset(peer);
        let told = events.until_inactive();
        let errors: Vec<_> = told
            .iter()
            .filter_map(|event| if let Event::Error(e) = event { Some(e) } else { None })
            .collect();
        assert_eq!(errors.len(), 1, "{told:?}");
        assert!(errors[0].contains("reset by peer") || errors[0].contains("Broken pipe"), "{errors:?}");
        assert_eq!(
            read_bytes(&told),
            if n % 4 == 3 { &b"whole"[..] } else { b"" },
            "a part of a frame is never delivered"
        );
        for other in &mut others {
            ping(other, &frame(b"meanwhile"));
        }
        turn_until(&group, |metrics| metrics.channels == 3);
        events.so_far();
    }
    assert_eq!(descriptors(), before, "no descriptor is left open");
    let metrics = metrics(&group);
    assert_eq!((metrics.channels_closed, metrics.channel_errors), (TIMES as u64, TIMES as u64));
    drop(others);
    end(&group);
}

// ---- one byte per second -----------------------------------------------------------------------

/// Sends each message to the test, or the error.
struct Dripped(mpsc::Sender<Result<Bytes>>);

impl Handler for Dripped {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        self.0.send(Ok(message.clone())).map_err(|e| Error::other(e.to_string()))?;
        ctx.write(message)
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        ctx.close();
        self.0.send(Err(error)).map_err(|e| Error::other(e.to_string()))
    }
}

/// Sends a frame of 56 bytes at one byte per second, beside a peer that is active. Returns the
/// first result and its time.
fn drip(limits: TimeLimits) -> (Result<Bytes>, Duration) {
    let clock = ManualClock::new();
    let mut by_hand = EventLoopGroup::builder().clock(clock.clone()).wheel_tick(TICK).build_manual().unwrap();
    let (sender, told) = mpsc::channel();
    let sender = Mutex::new(sender);
    let server = ServerBootstrap::new(by_hand.group())
        .pipeline(move |_| {
            let dripped = Dripped(sender.lock().unwrap().clone());
            Pipeline::codec(LengthField::u32()).time_limits(limits).handler(dripped)
        })
        .bind(ANY_PORT)
        .unwrap();
    let mut read = 0;
    let mut send = |by_hand: &mut netwheel::group::ManualEventLoop, to: &mut TcpStream, bytes: &[u8]| {
        to.write_all(bytes).unwrap();
        read += bytes.len() as u64;
        let begun = std::time::Instant::now();
        while by_hand.event_loop().metrics().bytes_read < read {
            assert!(begun.elapsed() < PATIENCE, "{read} bytes were not read");
            by_hand.run_once(Duration::from_millis(10));
        }
    };
    while by_hand.run_once(Duration::ZERO) > 0 {}
    let (mut talks, mut drips) = (connect(server.local_address()), connect(server.local_address()));
    for byte in frame(&[b'd'; 52]) {
        send(&mut by_hand, &mut drips, &[byte]);
        if let Ok(told) = told.try_recv() {
            return (told, clock.elapsed());
        }
        send(&mut by_hand, &mut talks, &frame(b"hello"));
        assert_eq!(told.try_recv().unwrap().unwrap(), "hello");
        assert_eq!(read_n(&mut talks, 9), frame(b"hello"));
        for _ in 0..100 {
            clock.advance(TICK);
            while by_hand.run_once(Duration::ZERO) > 0 {}
            if let Ok(told) = told.try_recv() {
                return (told, clock.elapsed());
            }
        }
    }
    panic!("neither served nor closed")
}

/// Without a progress limit, such a peer holds a connection as long as it likes.
#[test]
fn a_byte_a_second_is_too_slow_with_a_progress_limit() {
    let (told, at) = drip(TimeLimits::new().progress(10, 5 * SECOND));
    let error = told.unwrap_err();
    let Error::Peer(PeerError::TooSlow { bytes, required: 10, within, .. }) = error else {
        panic!("{error}")
    };
    assert!((4..=5).contains(&bytes) && within == 5 * SECOND, "{bytes} in {within:?}");
    assert!((5 * SECOND..=5 * SECOND + 2 * TICK).contains(&at), "{at:?}");
}

#[test]
fn a_byte_a_second_is_served_without_a_progress_limit() {
    let (told, at) = drip(TimeLimits::new());
    assert_eq!((told.unwrap(), at), (Bytes::from(vec![b'd'; 52]), 55 * SECOND));
}

// ---- ten thousand silent connections -----------------------------------------------------------

/// The child: limits the time to the first byte to five seconds, on a clock that stands still. Each
/// line of its input has a number of connections to wait for and a number of milliseconds to
/// advance. It prints how many connections remain.
#[test]
fn impatient_server() {
    if !plays("impatient_server") {
        return;
    }
    raise_descriptor_limit();
    let clock = ManualClock::new();
    let builder = EventLoopGroup::builder().threads(1).clock(clock.clone()).wheel_tick(TICK);
    let group = builder.build().unwrap();
    let (sender, errors) = mpsc::channel();
    let server = ServerBootstrap::new(&group)
        .listener_options(ListenerOptions::new().backlog(4096))
        .pipeline(move |_| {
            let limits = TimeLimits::new().first_byte(5 * SECOND);
            Pipeline::codec(LengthField::u32()).time_limits(limits).handler(Dripped(sender.clone()))
        })
        .bind(ANY_PORT)
        .unwrap();
    println!("listening on {}", server.local_address());
    for line in io::stdin().lock().lines() {
        let (connections, pass) = line.as_ref().unwrap().split_once(' ').unwrap();
        let connections: u64 = connections.parse().unwrap();
        turn_until(&group, |metrics| metrics.channels == connections);
        clock.advance(Duration::from_millis(pass.parse().unwrap()));
        some_turns(&group);
        // There are more expired connections than fit into a turn, so this takes several turns.
        turn_until(&group, |metrics| metrics.channels == connections || metrics.channels <= 1);
        println!("left {}", metrics(&group).channels);
    }
    let is_mute =
        |told: &Result<Bytes>| matches!(told, Err(Error::TimedOut { operation: "the first byte", .. }));
    let told: Vec<_> = errors.try_iter().filter(|told| told.is_err()).collect();
    println!("timed out {}", told.iter().filter(|told| is_mute(told)).count());
    println!("of {}", told.len());
    println!("watched {}", metrics(&group).wheel_pending);
    end(&group);
}

#[test]
fn ten_thousand_silent_connections_are_closed_in_time() {
    own_process!();
    let may_open = raise_descriptor_limit();
    let mute = may_open.saturating_sub(200).min(10_000);
    assert!(mute >= 1_000, "only {may_open} descriptors: raise `ulimit -n`");
    let mut child = Process::start(&play("impatient_server"));
    let address: SocketAddr = child.stdout.wait_for("listening on ").parse().unwrap();
    let mut talks = connect(address);
    ping(&mut talks, &frame(b"hello"));
    let peers: Vec<_> = (0..mute).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut let_pass = |connections: usize, milliseconds: u64| -> usize {
        child.say(&format!("{connections} {milliseconds}\n"));
        child.stdout.wait_for("left ").trim().parse().unwrap()
    };
    assert_eq!(let_pass(mute + 1, 4_990), mute + 1, "no connection is closed early");
    assert_eq!(let_pass(mute + 1, 30), 1);
    for mut peer in peers {
        patient(&peer);
        assert_eq!(peer.read(&mut [0]).unwrap(), 0, "the end of the stream, and no reset");
    }
    ping(&mut talks, &frame(b"still here"));
    drop(child.take_stdin());
    let mut count = |what: &str| -> usize { child.stdout.wait_for(what).trim().parse().unwrap() };
    assert_eq!((count("timed out "), count("of ")), (mute, mute), "each expiry is reported once");
    assert_eq!(count("watched "), 0);
    drop(talks);
    child.succeed();
}
