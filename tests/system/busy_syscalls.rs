//! What a busy loop asks of the kernel, counted and not timed: which system calls an echo, a burst of frames, a broadcast and a
//! connection that comes and goes make on the loop's thread, and no other.
//!
//! Linux only. Where strace is missing or may not attach, the tests say so and pass, except where `CI=true`.

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

/// Bytes that mark the beginning and the end of what is counted; in nothing else that is sent.
const MARK: &[u8] = b"\0\0\0\x04mark";

/// The call in which a loop sleeps.
const SLEEP: &str = "epoll_wait";

/// The same call where it only asks what is there, since the loop has something to do.
const NO_SLEEP: &str = "epoll_wait without a sleep";

struct Echo;

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, frame: Bytes) -> Result {
        ctx.write(frame)
    }
}

/// One of those who get what any of them sends. Says that it is one by a frame.
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

/// The child: servers on one loop, until the end of its input.
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

/// The child, and strace on its loop.
struct Traced {
    server: Process,
    strace: Process,
    plain: SocketAddr,
    watched: SocketAddr,
    room: SocketAddr,
    /// Echoes the marks.
    marker: TcpStream,
}

impl Traced {
    /// `None` where strace does not work.
    fn start() -> Option<Self> {
        if !strace_works(&[]) {
            return None;
        }
        let mut server = Process::start(&play("busy_server"));
        let mut address = |name: &str| server.stdout.wait_for(name).parse().unwrap();
        let (plain, watched, room) = (address("plain on "), address("watched on "), address("room on "));
        let mut marker = connect(plain);
        ping(&mut marker, MARK);
        // `env` has become the server, so the number is right.
        let its_loop = thread_of(server.id(), "busy-0");
        let strace = Process::attach(&["-s", "16"], &its_loop)?;
        Some(Traced { server, strace, plain, watched, room, marker })
    }

    /// The calls that the loop makes while `act` goes on, by name, and how often each. It is asleep when that begins, and
    /// when all of it is done.
    fn calls(&mut self, act: impl FnOnce()) -> Calls {
        self.mark();
        act();
        let mut calls = Calls { trace: self.mark(), ..Calls::default() };
        for line in calls.trace.lines() {
            // The first line is the rest of the call that slept.
            let name = if line.starts_with('[') { SLEEP } else { line.split('(').next().unwrap_or_default() };
            let name = if name == SLEEP && line.contains(", 0) = ") { NO_SLEEP } else { name };
            *calls.by_name.entry(name.to_owned()).or_default() += 1;
        }
        calls
    }

    /// What the trace says up to a mark, which is left out, and so is the sleep that the mark ends.
    fn mark(&mut self) -> String {
        ping(&mut self.marker, MARK);
        self.strace.stderr.wait_until("a mark", |text| {
            let read = text.find("mark\"")?;
            let sent = read + 5 + text[read + 5..].find("mark\"")?;
            let asleep = sent + text[sent..].find("epoll_wait(")?;
            // A call that sleeps is shown up to what it has still to bring.
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

/// How often each call was made, and the trace.
#[derive(Default)]
struct Calls {
    by_name: BTreeMap<String, usize>,
    trace: String,
}

impl Calls {
    /// Fails unless each call was made as often as it may be, and no other.
    #[track_caller]
    fn are_within(&self, bounds: &[(&str, std::ops::RangeInclusive<usize>)]) {
        let begin = || self.trace.lines().take(60).collect::<Vec<_>>().join("\n");
        for (name, bound) in bounds {
            let times = self.by_name.get(*name).copied().unwrap_or(0);
            assert!(
                bound.contains(&times),
                "{times} calls of {name}, not {bound:?}; it begins so:\n{}",
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

/// What comes is one read, what goes one write, and in between the loop sleeps once, for each round.
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

/// Reads and writes that keep an idle timeout from coming due ask the kernel for nothing: no timer, no clock.
#[test]
fn an_idle_timeout_that_reads_and_writes_put_off_is_no_call() {
    is_one_call_of_each_kind(|traced| traced.watched, &frame(b"hello"));
}

#[test]
fn frames_that_come_together_are_one_read_and_one_write() {
    is_one_call_of_each_kind(|traced| traced.plain, &frame(&[b'x'; 32]).repeat(64));
}

/// A frame that is kept and not copied goes out together with its header. Neither kind of write kills a program that has not
/// ignored `SIGPIPE` when its peer has gone.
#[test]
fn a_write_of_several_pieces_is_one_call_and_no_write_raises_a_signal() {
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

/// One write for each member, however many broadcasts a turn brings; the loop that they come from is not woken.
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
        // There is work to do: the broadcasts.
        (NO_SLEEP, 0..=ROUNDS),
    ]);
    drop(members);
    traced.end();
}

/// What a connection costs that is accepted, echoes once and is closed by its peer.
#[test]
fn a_connection_that_comes_and_goes_makes_so_many_calls() {
    let Some(mut traced) = Traced::start() else { return };
    let plain = traced.plain;
    let come_and_go = || {
        let mut stream = connect(plain);
        ping(&mut stream, &frame(b"hello"));
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0, "the end");
    };
    come_and_go();
    let calls = traced.calls(|| (0..ROUNDS).for_each(|_| come_and_go()));
    calls.are_within(&[
        // One that takes it, and one that finds no other.
        ("accept4", ROUNDS..=2 * ROUNDS),
        // That small messages are sent at once.
        ("setsockopt", 0..=ROUNDS),
        // Into the poll and out of it.
        ("epoll_ctl", ROUNDS..=2 * ROUNDS),
        // The message, and the end of the stream.
        ("recvfrom", 2 * ROUNDS..=2 * ROUNDS),
        ("sendto", ROUNDS..=ROUNDS),
        // The standard library looks whether a descriptor is open, in builds that are checked.
        ("fcntl", 0..=if cfg!(debug_assertions) { ROUNDS } else { 0 }),
        ("close", ROUNDS..=ROUNDS),
        // The connection, that it can be written to (mostly together with the message), the message, the end. Each is a sleep.
        (SLEEP, ROUNDS..=4 * ROUNDS),
    ]);
    traced.end();
}
