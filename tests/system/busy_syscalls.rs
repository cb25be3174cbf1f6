//! System calls of a busy loop, counted instead of timed. The tests check the exact calls that an
//! echo, a burst of frames, a broadcast and a short connection make on the loop's thread.
//!
//! Linux only. Where strace is missing or may not attach, the tests say so and pass, except where
//! `CI=true`.

#![cfg(target_os = "linux")]

use crate::support::{
    loops::end,
    process::{Process, play, plays, strace_works, thread_of},
    tcp::{ANY_PORT, assert_same, connect, ping, read_n},
};
use bytes::Bytes;
use netwheel::{ChannelGroup, codec::LengthField, prelude::*};
use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

const ROUNDS: usize = 100;

/// Bytes that mark the start and the end of the measured part. They occur in no other message.
const MARK: &[u8] = b"\0\0\0\x04mark";

/// The system call in which a loop sleeps.
const SLEEP: &str = "epoll_wait";

/// The `epoll_wait` calls with a timeout of zero, because the loop has work to do.
const NO_SLEEP: &str = "epoll_wait without a sleep";

struct Echo;

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, frame: Bytes) -> Result {
        ctx.write(frame)
    }
}

/// A member of a room, to which it relays its input. Sends a frame when it has joined.
struct Member {
    room: ChannelGroup<Bytes>,
}

impl Handler for Member {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        assert!(self.room.join(ctx.channel()));
        ctx.write(Bytes::from_static(b"in"))
    }

    fn read(&mut self, _: &mut Context<'_, Self>, frame: Bytes) -> Result {
        self.room.broadcast(frame).map(drop).map_err(Error::from)
    }
}

/// The child: servers on one loop. Runs until the end of its input.
#[test]
fn busy_server() {
    if !plays("busy_server") {
        return;
    }
    let group = EventLoopGroup::builder().threads(1).name("busy").build().unwrap();
    let minute = Duration::from_secs(60);
    let idle = IdleTimeouts::new().reader(minute).writer(minute).all(minute);
    let server = || ServerBootstrap::new(&group);
    let room = ChannelGroup::new();
    let servers = [
        server().pipeline(|_| Pipeline::codec(LengthField::u32()).handler(Echo)).bind(ANY_PORT),
        server()
            .pipeline(move |_| Pipeline::codec(LengthField::u32()).idle(idle).handler(Echo))
            .bind(ANY_PORT),
        server()
            .pipeline(move |_| Pipeline::codec(LengthField::u32()).handler(Member { room: room.clone() }))
            .bind(ANY_PORT),
    ]
    .map(Result::unwrap);
    for (name, server) in ["plain", "watched", "room"].iter().zip(&servers) {
        println!("{name} on {}", server.local_address());
    }
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
    end(&group);
}

/// The child, and strace attached to its loop.
struct Traced {
    server: Process,
    strace: Process,
    plain: SocketAddr,
    watched: SocketAddr,
    room: SocketAddr,
    /// Connection that echoes the marks.
    marker: TcpStream,
}

impl Traced {
    /// Returns `None` where strace does not work.
    fn start() -> Option<Self> {
        if !strace_works(&[]) {
            return None;
        }
        let mut server = Process::start(&play("busy_server"));
        let mut address = |name: &str| server.stdout.wait_for(name).parse().unwrap();
        let (plain, watched, room) = (address("plain on "), address("watched on "), address("room on "));
        let mut marker = connect(plain);
        ping(&mut marker, MARK);
        // `env` has become the server, so the process id is right.
        let its_loop = thread_of(server.id(), "busy-0");
        let strace = Process::attach(&["-s", "16"], &its_loop)?;
        Some(Traced { server, strace, plain, watched, room, marker })
    }

    /// Returns the loop's system calls during `act`, counted by name. The loop is asleep when `act`
    /// starts and when all its work is done.
    fn calls(&mut self, act: impl FnOnce()) -> Calls {
        self.mark();
        act();
        let mut calls = Calls { trace: self.mark(), ..Calls::default() };
        for line in calls.trace.lines() {
            // The first line is the end of the call in which the loop slept.
            let name = if line.starts_with('[') { SLEEP } else { line.split('(').next().unwrap_or_default() };
            let name = if name == SLEEP && line.contains(", 0) = ") { NO_SLEEP } else { name };
            *calls.by_name.entry(name.to_owned()).or_default() += 1;
        }
        calls
    }

    /// Returns the trace up to a mark. Leaves out the calls of the mark itself and the sleep that
    /// the mark ends.
    fn mark(&mut self) -> String {
        ping(&mut self.marker, MARK);
        self.strace.stderr.wait_until("a mark", |text| {
            let read = text.find("mark\"")?;
            let sent = read + 5 + text[read + 5..].find("mark\"")?;
            let asleep = sent + text[sent..].find("epoll_wait(")?;
            // A call that blocks is shown without its results.
            let upto = asleep + text[asleep..].find(", ")? + 2;
            let line = text[..read].rfind('\n')?;
            let before = text[..line].rfind('\n').map_or(0, |at| at + 1);
            Some((text[..before].to_owned(), upto))
        })
    }

    fn end(mut self) {
        drop(self.strace);
        drop(self.marker);
        drop(self.server.take_stdin());
        self.server.succeed();
    }
}

/// The number of calls by name, and the trace.
#[derive(Default)]
struct Calls {
    by_name: BTreeMap<String, usize>,
    trace: String,
}

impl Calls {
    /// Fails unless the number of each call is within its bounds, and no other calls occur.
    #[track_caller]
    fn are_within(&self, bounds: &[(&str, std::ops::RangeInclusive<usize>)]) {
        let begin = || self.trace.lines().take(60).collect::<Vec<_>>().join("\n");
        for (name, bound) in bounds {
            let times = self.by_name.get(*name).copied().unwrap_or(0);
            assert!(
                bound.contains(&times),
                "{times} calls of {name}, not {bound:?}; the trace begins with:\n{}",
                begin()
            );
        }
        for name in self.by_name.keys() {
            assert!(bounds.iter().any(|(bound, _)| bound == name), "a call of {name}:\n{}", begin());
        }
    }
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(payload);
    frame
}

/// Checks that each round is one read, one write and one sleep.
fn is_one_call_of_each_kind(server: fn(&Traced) -> SocketAddr, request: &[u8]) {
    let Some(mut traced) = Traced::start() else { return };
    let mut stream = connect(server(&traced));
    ping(&mut stream, request);
    let calls = traced.calls(|| (0..ROUNDS).for_each(|_| ping(&mut stream, request)));
    calls.are_within(&[("recvfrom", ROUNDS..=ROUNDS), ("sendto", ROUNDS..=ROUNDS), (SLEEP, ROUNDS..=ROUNDS)]);
    drop(stream);
    traced.end();
}

#[test]
fn an_echo_is_one_read_one_write_and_one_wait() {
    is_one_call_of_each_kind(|traced| traced.plain, &frame(b"hello"));
}

/// An idle timeout that is postponed by reads and writes makes no system calls: no timer, no clock.
#[test]
fn postponing_an_idle_timeout_makes_no_system_call() {
    is_one_call_of_each_kind(|traced| traced.watched, &frame(b"hello"));
}

#[test]
fn frames_that_arrive_together_are_one_read_and_one_write() {
    is_one_call_of_each_kind(|traced| traced.plain, &frame(&[b'x'; 32]).repeat(64));
}

/// A frame that is not copied is sent together with its header. Neither kind of write raises
/// `SIGPIPE` after the peer has closed, even if the program does not ignore that signal.
#[test]
fn a_vectored_write_is_one_call_and_no_write_raises_a_signal() {
    let Some(mut traced) = Traced::start() else { return };
    let mut stream = connect(traced.plain);
    let (small, large) = (frame(b"hello"), frame(&[b'x'; 8 * 1024]));
    ping(&mut stream, &large);
    let calls = traced.calls(|| {
        for _ in 0..ROUNDS {
            ping(&mut stream, &small);
            ping(&mut stream, &large);
        }
    });
    assert_eq!(calls.trace.matches("sendmsg(").count(), ROUNDS, "{}", calls.trace);
    let writes = calls.trace.lines().filter(|line| line.starts_with("send") || line.starts_with("write"));
    assert!(writes.clone().count() >= 2 * ROUNDS);
    for write in writes {
        assert!(write.contains("MSG_NOSIGNAL"), "{write}");
    }
    drop(stream);
    traced.end();
}

/// Each member gets one write, however many broadcasts a turn has. The loop that they come from is
/// not woken.
#[test]
fn a_broadcast_is_one_write_for_each_member_and_turn() {
    const MEMBERS: usize = 20;
    const FRAMES: usize = 8;
    let Some(mut traced) = Traced::start() else { return };
    let mut members: Vec<TcpStream> = (0..MEMBERS)
        .map(|_| {
            let mut member = connect(traced.room);
            assert_eq!(read_n(&mut member, 6), frame(b"in"));
            member
        })
        .collect();
    let burst = frame(&[b'x'; 32]).repeat(FRAMES);
    let calls = traced.calls(|| {
        for _ in 0..ROUNDS {
            members[0].write_all(&burst).unwrap();
            for member in &mut members {
                assert_same(&read_n(member, burst.len()), &burst);
            }
        }
    });
    calls.are_within(&[
        ("recvfrom", ROUNDS..=ROUNDS),
        ("sendto", ROUNDS * MEMBERS..=ROUNDS * MEMBERS),
        (SLEEP, ROUNDS..=ROUNDS),
        // The broadcasts are queued work, so this poll does not sleep.
        (NO_SLEEP, 0..=ROUNDS),
    ]);
    drop(members);
    traced.end();
}

/// The system calls of a connection that is accepted, echoes once and is closed by its peer.
#[test]
fn a_short_connection_makes_a_fixed_number_of_calls() {
    let Some(mut traced) = Traced::start() else { return };
    let plain = traced.plain;
    let come_and_go = || {
        let mut stream = connect(plain);
        ping(&mut stream, &frame(b"hello"));
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0, "the end of the stream");
    };
    come_and_go();
    let calls = traced.calls(|| (0..ROUNDS).for_each(|_| come_and_go()));
    calls.are_within(&[
        // One call that accepts the connection, and one that finds no further one.
        ("accept4", ROUNDS..=2 * ROUNDS),
        // TCP_NODELAY.
        ("setsockopt", 0..=ROUNDS),
        // Registration and deregistration.
        ("epoll_ctl", ROUNDS..=2 * ROUNDS),
        // The message, and the end of the stream.
        ("recvfrom", 2 * ROUNDS..=2 * ROUNDS),
        ("sendto", ROUNDS..=ROUNDS),
        // In builds with debug assertions, the standard library checks that a descriptor is open.
        ("fcntl", 0..=if cfg!(debug_assertions) { ROUNDS } else { 0 }),
        ("close", ROUNDS..=ROUNDS),
        // Events for the connection, its writability (mostly together with the message), the
        // message, and the end. Each ends a sleep.
        (SLEEP, ROUNDS..=4 * ROUNDS),
    ]);
    traced.end();
}
