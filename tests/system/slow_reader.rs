//! Peers that do not read, and a server's memory. The resident size, as the kernel counts it, stays
//! within the limits. The other peers receive everything, and each overflow policy works.
//!
//! The server is a process of its own, which pushes messages on command. Linux only.

#![cfg(target_os = "linux")]

use crate::support::{
    loops::{end, metrics, one_loop, some_turns},
    process::{Process, play, plays},
    random::Random,
    resources::resident,
    servers::Echo,
    tcp::{ANY_PORT, assert_same, connect, ping, read_n},
    wait::receive,
};
use bytes::{BufMut, Bytes, BytesMut};
use netwheel::{
    channel::{ChannelOptions, Overflow},
    codec::{LengthField, RawBytes},
    net::TcpOptions,
    prelude::*,
};
use std::{
    io::{self, BufRead, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::mpsc,
    thread,
};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Outbound limit of a channel.
const MAX_OUTBOUND: usize = 256 * KIB;

/// Further growth that the test allows: buffers are vectors that double, and the allocator rounds
/// up and keeps some memory.
const MARGIN: usize = 3 * MIB;

/// Message sizes: small messages, which are copied together, and one that is kept by reference. A
/// round repeats them four times.
const SIZES: [usize; 5] = [KIB, KIB, KIB, KIB, 12 * KIB];
const ROUND: usize = 4 * SIZES.len();

/// This many rounds are 8 MiB. That is more than the limit and the margin, so unbounded growth
/// would be detected.
const ROUNDS: usize = 128;

/// Rounds before the initial resident size is measured.
const FIRST_ROUNDS: usize = 4;

/// Returns message number `n`: the number in four bytes, then padding with its lowest byte.
fn message(n: usize) -> Bytes {
    let length = SIZES[n % SIZES.len()];
    let mut message = BytesMut::with_capacity(length);
    message.put_u32(n as u32);
    message.put_bytes(n as u8, length - 4);
    message.freeze()
}

/// Reads a line of the child's input.
fn line() -> Option<String> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).unwrap();
    line.ends_with('\n').then(|| line.trim().to_owned())
}

// ---- a server that pushes ----------------------------------------------------------------------

struct Subscriber(mpsc::Sender<Channel<Bytes>>);

impl Handler for Subscriber {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.0.send(ctx.channel()).map_err(|e| Error::other(e.to_string()))
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        // A message that was in flight when the limit was reached. Its error is reported here
        // because its result was not requested.
        if !matches!(error, Error::Full { .. }) {
            ctx.close();
        }
        Ok(())
    }
}

/// The child: pushes a round to all peers for each line of its input. The first line has the
/// policy, the second the number of peers.
#[test]
fn pushing_server() {
    if !plays("pushing_server") {
        return;
    }
    let overflow = match line().unwrap().as_str() {
        "refuse" => Overflow::Refuse,
        "newest" => Overflow::DropNewest,
        "oldest" => Overflow::DropOldest,
        "close" => Overflow::Close,
        other => panic!("{other}"),
    };
    let peers: usize = line().unwrap().parse().unwrap();
    let group = one_loop();
    let (sender, subscribers) = mpsc::channel();
    let server = ServerBootstrap::new(&group)
        .tcp_options(TcpOptions::new().send_buffer(256 * KIB))
        .channel_options(ChannelOptions::new().max_outbound(MAX_OUTBOUND).overflow(overflow))
        .pipeline(move |_| Pipeline::codec(LengthField::u32()).handler(Subscriber(sender.clone())))
        .bind(ANY_PORT)
        .unwrap();
    println!("listening on {}", server.local_address());
    let channels: Vec<_> = (0..peers).map(|_| receive(&subscribers)).collect();
    println!("all are connected");
    let (mut refused, mut begin, mut most) = (0_u64, 0, 0);
    for round in 0.. {
        if line().is_none() {
            break;
        }
        for n in round * ROUND..(round + 1) * ROUND {
            let message = message(n);
            for channel in &channels {
                match channel.write(message.clone()) {
                    Ok(()) => {}
                    Err(refused_one) => {
                        assert_eq!(refused_one.into_inner(), message, "the message is handed back");
                        refused += 1;
                    }
                }
            }
        }
        some_turns(&group);
        most = most.max(resident());
        if round == FIRST_ROUNDS {
            begin = most;
        }
    }
    let counted = metrics(&group);
    println!("refused {}", refused + counted.messages_refused);
    println!("dropped {}", counted.messages_dropped);
    println!("closed {}", counted.closes_overflowed);
    println!("channels {}", counted.channels);
    println!("grown {}", most - begin);
    end(&group);
}

/// Counters of such a child.
struct Counts {
    refused: usize,
    dropped: usize,
    closed: usize,
    channels: usize,
    grown: usize,
}

struct Push {
    child: Process,
    slow: TcpStream,
    others: Vec<TcpStream>,
    round: usize,
}

impl Push {
    fn start(policy: &str, others: usize) -> Self {
        let mut child = Process::start(&play("pushing_server"));
        child.say(&format!("{policy}\n{}\n", others + 1));
        let address: SocketAddr = child.stdout.wait_for("listening on ").parse().unwrap();
        let mut push = Push { child, slow: connect(address), others: Vec::with_capacity(others), round: 0 };
        // Otherwise the kernel would buffer megabytes for the peer that does not read.
        socket2::SockRef::from(&push.slow).set_recv_buffer_size(256 * KIB).unwrap();
        push.others.extend((0..others).map(|_| connect(address)));
        push.child.stdout.wait_for("all are connected");
        push
    }

    /// Pushes one more round, and waits until the other peers have received it.
    #[track_caller]
    fn round(&mut self) {
        self.child.say("\n");
        let mut expected = Vec::new();
        for n in self.round * ROUND..(self.round + 1) * ROUND {
            let message = message(n);
            expected.extend_from_slice(&(message.len() as u32).to_be_bytes());
            expected.extend_from_slice(&message);
        }
        let mut got = vec![0; expected.len()];
        for peer in &mut self.others {
            peer.read_exact(&mut got).unwrap();
            assert_same(&got, &expected);
        }
        self.round += 1;
    }

    /// Reads the next complete message for the slow peer and returns its number, or `None` at the
    /// end of the stream or after a reset.
    #[track_caller]
    fn read_slow(&mut self) -> Option<usize> {
        let mut length = [0; 4];
        let ended = |e: io::Error| {
            assert!(matches!(e.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{e}");
        };
        self.slow.read_exact(&mut length).map_err(ended).ok()?;
        let mut got = vec![0; u32::from_be_bytes(length) as usize];
        self.slow.read_exact(&mut got).map_err(ended).ok()?;
        let n = u32::from_be_bytes(got[..4].try_into().unwrap()) as usize;
        assert_same(&got, &message(n));
        Some(n)
    }

    fn last_pushed(&self) -> usize {
        self.round * ROUND - 1
    }

    #[track_caller]
    fn end(mut self) -> Counts {
        drop(self.child.take_stdin());
        let mut count = |what: &str| self.child.stdout.wait_for(what).trim().parse().unwrap();
        let [refused, dropped, closed, channels, grown] =
            ["refused ", "dropped ", "closed ", "channels ", "grown "].map(&mut count);
        // The messages that are pending for the slow peer are discarded.
        drop((self.slow, self.others));
        self.child.succeed();
        assert!(grown <= 2 * MAX_OUTBOUND + MARGIN, "the server has grown by {} KiB", grown / KIB);
        Counts { refused, dropped, closed, channels, grown }
    }
}

/// Checks that messages sent before the limit was reached arrive complete and in order, followed by
/// messages pushed when there was room again.
#[track_caller]
fn assert_resumes(push: &mut Push) {
    let mut n = 0;
    // Push rounds until the first message after the gap arrives. The slow peer reads at the same
    // time.
    let behind = loop {
        let message = push.read_slow().expect("the channel is open");
        if message != n {
            break message;
        }
        n += 1;
        if n % ROUND == 0 {
            assert!(push.round < 2 * ROUNDS, "no message is missing: the limit has no effect");
            push.round();
        }
    };
    assert!(n * 3 * KIB > MAX_OUTBOUND && behind > n, "{n}, then {behind}");
}

/// Without such a limit, a peer that does not read makes Netty run out of memory.
#[test]
fn slow_reader_refused_messages_are_bounded_in_memory() {
    let mut push = Push::start("refuse", 100);
    (0..ROUNDS).for_each(|_| push.round());
    assert_resumes(&mut push);
    let counts = push.end();
    assert!(counts.refused > ROUNDS * ROUND / 2, "{} refused", counts.refused);
    assert_eq!((counts.dropped, counts.closed, counts.channels), (0, 0, 101));
    println!("grown by {} KiB", counts.grown / KIB);
}

#[test]
fn slow_reader_the_newest_are_dropped() {
    let mut push = Push::start("newest", 10);
    (0..ROUNDS).for_each(|_| push.round());
    assert_resumes(&mut push);
    let counts = push.end();
    assert!(counts.dropped > ROUNDS * ROUND / 2, "{} dropped", counts.dropped);
    assert_eq!((counts.refused, counts.closed, counts.channels), (0, 0, 11));
}

#[test]
fn slow_reader_the_oldest_are_dropped() {
    let mut push = Push::start("oldest", 10);
    (0..ROUNDS).for_each(|_| push.round());
    let last = push.last_pushed();
    let mut got = Vec::new();
    while got.last() != Some(&last) {
        got.push(push.read_slow().expect("the channel is open"));
    }
    assert!(got.is_sorted(), "in order");
    // The messages in the kernel's buffer, with gaps, then the messages that were pending at the
    // end, without gaps.
    let behind = got.iter().rev().zip((0..=last).rev()).take_while(|(got, n)| **got == *n).count();
    assert!(behind < got.len(), "some messages are missing");
    let waited: usize = got[got.len() - behind..].iter().map(|n| SIZES[n % SIZES.len()]).sum();
    assert!(waited > MAX_OUTBOUND / 2, "{waited} bytes behind the last gap");
    let bytes: usize = got.iter().map(|n| SIZES[n % SIZES.len()]).sum();
    assert!(bytes < 2 * MIB, "{bytes} bytes");
    let counts = push.end();
    assert_eq!(counts.dropped, last + 1 - got.len(), "each missing message is counted");
    assert_eq!((counts.refused, counts.closed, counts.channels), (0, 0, 11));
}

#[test]
fn slow_reader_is_closed() {
    let mut push = Push::start("close", 10);
    (0..ROUNDS).for_each(|_| push.round());
    let mut n = 0;
    while let Some(message) = push.read_slow() {
        assert_eq!(message, n, "the messages before the close are complete and in order");
        n += 1;
    }
    let counts = push.end();
    assert_eq!((counts.dropped, counts.closed, counts.channels), (0, 1, 10));
    assert!(counts.refused > ROUNDS * ROUND / 2, "{} refused", counts.refused);
}

// ---- a server that echoes ----------------------------------------------------------------------

/// The child: an echo server that reads only while its channel is writable. For each line of its
/// input it prints the number of bytes read, and its size.
#[test]
fn throttled_echo_server() {
    if !plays("throttled_echo_server") {
        return;
    }
    let group = one_loop();
    let server = ServerBootstrap::new(&group)
        .tcp_options(TcpOptions::new().send_buffer(256 * KIB).receive_buffer(256 * KIB))
        .channel_options(ChannelOptions::new().max_outbound(MAX_OUTBOUND).read_while_writable(true))
        .pipeline(|_| Pipeline::codec(RawBytes).handler(Echo))
        .bind(ANY_PORT)
        .unwrap();
    println!("listening on {}", server.local_address());
    while line().is_some() {
        some_turns(&group);
        println!("read {} resident {}", metrics(&group).bytes_read, resident());
    }
    end(&group);
}

#[test]
fn slow_reader_that_sends_without_reading_is_not_read() {
    const ALL: usize = 16 * MIB;
    let mut child = Process::start(&play("throttled_echo_server"));
    let address: SocketAddr = child.stdout.wait_for("listening on ").parse().unwrap();
    let mut look = || -> (usize, usize) {
        child.say("\n");
        let said = child.stdout.wait_for("read ");
        let (read, resident) = said.split_once(" resident ").unwrap();
        (read.parse().unwrap(), resident.parse().unwrap())
    };
    let mut other = connect(address);
    ping(&mut other, &[7; 10_000]);
    let (_, begin) = look();

    let mut slow = connect(address);
    socket2::SockRef::from(&slow).set_recv_buffer_size(256 * KIB).unwrap();
    let sent = Random::new(81).bytes(ALL);
    let (mut writer, bytes) = (slow.try_clone().unwrap(), sent.clone());
    let writing = thread::spawn(move || writer.write_all(&bytes).unwrap());
    // Wait until nothing more is read in repeated checks.
    let (mut last, mut same) = (0, 0);
    while same < 200 {
        let (read, resident) = look();
        assert!(resident <= begin + MARGIN, "the server has grown by {} KiB", (resident - begin) / KIB);
        same = if read == last && read > 100_000 { same + 1 } else { 0 };
        last = read;
    }
    assert!(last < ALL / 2, "the server read {last} bytes");
    // The bytes of the other peer are not included in `last`.
    ping(&mut other, &[8; 10_000]);
    assert_eq!(look().0, last + 10_000);
    // When the slow peer reads at last, nothing is lost.
    assert_same(&read_n(&mut slow, ALL), &sent);
    writing.join().unwrap();
    drop((slow, other));
    child.succeed();
}
