//! The shares of sockets under overload, and the shares of tasks and timers when sockets have too
//! much to read (docs/fairness.md). Counted in turns, bytes, reads and tasks.
//!
//! A client that closes with `deliver` waits until the peer's kernel has all the bytes that it
//! sent, so that the next turn finds them.

#![cfg(target_os = "linux")]

use crate::support::resources::need_descriptors;
use crate::support::{
    journal::Journal,
    loops::{Gate, on, settle, settle_until, single},
    wait::{PATIENCE, ms, wait_until},
};
use bytes::Bytes;
use netwheel::{
    EventLoop, EventLoopGroup, Peer,
    channel::ChannelOptions,
    codec::{Line, RawBytes},
    group::EventLoopGroupBuilder,
    net::ListenerOptions,
    prelude::*,
    testing::ManualClock,
};
use socket2::SockRef;
use std::{
    collections::{HashMap, HashSet},
    io::Write,
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
        mpsc::channel,
    },
    thread,
    time::Duration,
};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

fn turn(event_loop: &EventLoop) -> u64 {
    event_loop.metrics().turns
}

/// One read of one connection.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Seen {
    turn: u64,
    client: u16,
    bytes: usize,
}

/// Called at each read, with the address of the connection's client and the total of bytes read
/// from it.
type AtRead = dyn Fn(SocketAddr, usize) + Send + Sync;

struct Reader {
    event_loop: EventLoop,
    client: SocketAddr,
    bytes: usize,
    seen: Journal<Seen>,
    at_read: Arc<AtRead>,
}

impl Reader {
    fn without_callback(event_loop: &EventLoop) -> Self {
        let (event_loop, client) = (event_loop.clone(), ([127, 0, 0, 1], 0).into());
        Reader { event_loop, client, bytes: 0, seen: Journal::new(), at_read: Arc::new(|_, _| ()) }
    }
}

impl Handler for Reader {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        let (turn, client) = (turn(&self.event_loop), self.client.port());
        self.seen.push(Seen { turn, client, bytes: message.len() });
        self.bytes += message.len();
        (self.at_read)(self.client, self.bytes);
        Ok(())
    }
}

/// A server that never replies, on one loop, and the record of its reads.
struct Sink {
    event_loop: EventLoop,
    server: Server,
    seen: Journal<Seen>,
}

impl Sink {
    fn new(builder: EventLoopGroupBuilder, options: ChannelOptions) -> Self {
        Self::with(builder, options, |_, _| ())
    }

    fn with(
        builder: EventLoopGroupBuilder,
        options: ChannelOptions,
        at_read: impl Fn(SocketAddr, usize) + Send + Sync + 'static,
    ) -> Self {
        need_descriptors(4_000);
        let (group, event_loop) = single(builder);
        let (seen, at_read): (_, Arc<AtRead>) = (Journal::new(), Arc::new(at_read));
        let (me, mine) = (event_loop.clone(), seen.clone());
        let server = ServerBootstrap::new(&group)
            .channel_options(options)
            .listener_options(ListenerOptions::new().receive_buffer(4 * MIB))
            .pipeline(move |peer: &Peer| {
                let (event_loop, client, bytes) = (me.clone(), peer.address().unwrap(), 0);
                let (seen, at_read) = (mine.clone(), at_read.clone());
                Pipeline::codec(RawBytes).handler(Reader { event_loop, client, bytes, seen, at_read })
            })
            .bind("127.0.0.1:0")
            .unwrap();
        Sink { event_loop, server, seen }
    }

    /// Opens `n` connections and waits until the loop has accepted them.
    fn connect(&self, n: usize) -> Vec<TcpStream> {
        let begin = self.event_loop.metrics().channels;
        let connect = |_| {
            let stream = TcpStream::connect(self.server.local_address()).unwrap();
            stream.set_nodelay(true).unwrap();
            stream
        };
        let clients = (0..n).map(connect).collect();
        while self.event_loop.metrics().channels < begin + n as u64 {
            settle(&self.event_loop);
        }
        clients
    }

    /// Has each of `n` connections send `bytes` bytes, which the loop finds in one turn. Returns
    /// the reads until all bytes were read.
    fn flood(&self, n: usize, bytes: usize) -> Vec<Seen> {
        let clients = self.connect(n);
        let gate = Gate::shut(&self.event_loop);
        deliver_all(clients, &vec![7; bytes]);
        drop(gate);
        self.read(n * bytes)
    }

    /// Waits until `bytes` bytes have been read. Returns the reads.
    fn read(&self, bytes: usize) -> Vec<Seen> {
        loop {
            let seen = self.seen.all();
            if seen.iter().map(|seen| seen.bytes).sum::<usize>() >= bytes {
                return seen;
            }
            settle(&self.event_loop);
        }
    }

    #[track_caller]
    fn assert_every_turn_polled(&self) {
        let me = self.event_loop.clone();
        let metrics = on(&self.event_loop, move || me.metrics());
        assert_eq!(metrics.turns, metrics.polls);
    }
}

/// Sends `bytes` and closes. When this returns, the next poll finds all of them.
fn deliver(mut client: TcpStream, bytes: &[u8]) {
    client.write_all(bytes).unwrap();
    // With linger set, close returns when the peer has acknowledged the FIN and all bytes before
    // it.
    SockRef::from(&client).set_linger(Some(PATIENCE)).unwrap();
}

/// Delivers `bytes` from each client. The clients run in parallel because every acknowledgement may
/// be delayed.
fn deliver_all(clients: Vec<TcpStream>, bytes: &[u8]) {
    let mut clients = clients.into_iter();
    thread::scope(|scope| {
        while clients.len() > 0 {
            let some: Vec<_> = clients.by_ref().take(16).collect();
            scope.spawn(move || some.into_iter().for_each(|client| deliver(client, bytes)));
        }
    });
}

/// Returns the bytes of each client in one turn.
fn by_client(turn: &[Seen]) -> HashMap<u16, usize> {
    let mut bytes = HashMap::new();
    for seen in turn {
        *bytes.entry(seen.client).or_default() += seen.bytes;
    }
    bytes
}

fn bytes_per_turn(seen: &[Seen]) -> Vec<usize> {
    seen.chunk_by(|a, b| a.turn == b.turn).map(|turn| turn.iter().map(|seen| seen.bytes).sum()).collect()
}

// ---- sockets against each other ----------------------------------------------------------------

#[test]
fn a_channel_is_read_at_most_16_times_a_turn() {
    let defaults = format!("{:?}", ChannelOptions::new());
    let has = |field| defaults.contains(field);
    assert!(has("read_size: 65536,") && has("reads_per_turn: 16,"), "the default is 1 MiB: {defaults}");
    assert!(has("writes_per_turn: 16,"), "{defaults}");
    let new = ChannelOptions::new;
    for (options, expected) in [
        (new().read_size(1000), [16_000, 16_000, 8000]),
        (new().read_size(100).reads_per_turn(150), [15_000, 15_000, 10_000]),
    ] {
        let sink = Sink::new(EventLoopGroup::builder(), options);
        let seen = sink.flood(1, 40_000);
        assert_eq!(bytes_per_turn(&seen), expected);
        assert!(seen.windows(2).all(|pair| pair[1].turn - pair[0].turn <= 1), "in consecutive turns");
        sink.assert_every_turn_polled();
    }
}

/// More bytes arrive in every turn, so a channel that was carried over has an event as well.
#[test]
fn a_channel_that_is_carried_over_gets_no_second_share() {
    const BYTES: usize = 300;
    let client = Arc::new(OnceLock::<TcpStream>::new());
    let (mine, sent) = (client.clone(), AtomicUsize::new(BYTES / 2));
    let options = ChannelOptions::new().read_size(1).reads_per_turn(1);
    let sink = Sink::with(EventLoopGroup::builder(), options, move |_, _| {
        if sent.fetch_add(1, Ordering::Relaxed) < BYTES {
            mine.get().unwrap().write_all(b"x").unwrap();
        }
    });
    let client = client.get_or_init(|| sink.connect(1).remove(0));
    let gate = Gate::shut(&sink.event_loop);
    (&*client).write_all(&[7; BYTES / 2]).unwrap();
    drop(gate);
    assert!(bytes_per_turn(&sink.read(BYTES)).iter().all(|bytes| *bytes == 1));
}

#[test]
fn after_8_mib_each_ready_channel_gets_one_read() {
    const CHANNELS: usize = 300;
    const READ: usize = 2 * KIB;
    const SHARE: usize = 16 * READ;
    const BYTES: usize = 3 * SHARE;
    // The time limit must not end a turn on a slow machine.
    let builder = EventLoopGroup::builder().max_io_time(Duration::MAX);
    let sink = Sink::new(builder, ChannelOptions::new().read_size(READ));
    let seen = sink.flood(CHANNELS, BYTES);
    let turns: Vec<_> = seen.chunk_by(|a, b| a.turn == b.turn).map(by_client).collect();
    let shares = |turn: &HashMap<u16, usize>| {
        let mut shares: Vec<_> = turn.values().copied().collect();
        shares.sort_unstable();
        shares
    };
    let in_full = 8 * MIB / SHARE;
    let expected = [vec![READ; CHANNELS - in_full], vec![SHARE; in_full]].concat();
    assert_eq!(shares(&turns[0]), expected, "8 MiB, then one read for each other channel");
    assert_eq!(shares(&turns[1]), expected);
    // The channels take turns at getting only one read.
    let short = |turn: &HashMap<u16, usize>| -> HashSet<u16> {
        turn.iter().filter(|(_, bytes)| **bytes < SHARE).map(|(client, _)| *client).collect()
    };
    assert!(short(&turns[0]).is_disjoint(&short(&turns[1])));
    assert!(short(&turns[1]).is_disjoint(&short(&turns[2])));
    // Every channel with unread bytes is read in every turn.
    let mut left: HashMap<_, _> = turns[0].keys().map(|client| (*client, BYTES)).collect();
    for turn in &turns {
        assert_eq!(turn.len(), left.len());
        assert!(turn.values().sum::<usize>() <= 8 * MIB + CHANNELS * READ);
        turn.iter().for_each(|(client, bytes)| *left.get_mut(client).unwrap() -= bytes);
        left.retain(|_, left| *left > 0);
    }
    assert!(left.is_empty());
    sink.assert_every_turn_polled();
}

/// More sources than a turn can carry over.
#[test]
fn carried_over_sources_are_read_in_order() {
    const CHANNELS: usize = 1300;
    const BYTES: usize = 5;
    let options = ChannelOptions::new().read_size(1).reads_per_turn(1);
    // The time limit would change the order on a slow machine.
    let builder = EventLoopGroup::builder().max_io_time(Duration::MAX);
    let sink = Sink::new(builder, options);
    let seen = sink.flood(CHANNELS, BYTES);
    assert_eq!(seen.len(), CHANNELS * BYTES, "one byte per read");
    // The order of the first round is kept in all rounds.
    let rounds: Vec<Vec<u16>> =
        seen.chunks(CHANNELS).map(|round| round.iter().map(|seen| seen.client).collect()).collect();
    assert_eq!(rounds[0].iter().collect::<HashSet<_>>().len(), CHANNELS);
    for round in &rounds[2..] {
        assert!(*round == rounds[1], "each round has the order of the previous one");
    }
    let per_turn: Vec<_> = seen.chunk_by(|a, b| a.turn == b.turn).map(<[_]>::len).collect();
    assert!(per_turn.iter().all(|reads| *reads <= 2048), "{per_turn:?}");
    assert!(per_turn[2..].iter().all(|reads| *reads <= 1024), "reads without an event: {per_turn:?}");
    assert!(per_turn[2..].contains(&1024), "{per_turn:?}");
    // No channel waits longer than one pass over the list takes.
    let mut last = HashMap::new();
    for seen in &seen {
        if let Some(before) = last.insert(seen.client, seen.turn) {
            assert!((1..=2).contains(&(seen.turn - before)), "{before} to {}", seen.turn);
        }
    }
    sink.assert_every_turn_polled();
}

#[test]
fn a_listener_accepts_64_connections_a_turn() {
    let (group, event_loop) = single(EventLoopGroup::builder());
    let accepted: Journal<(usize, u64)> = Journal::new();
    let servers: Vec<_> = (0..2)
        .map(|server| {
            let (me, accepted) = (event_loop.clone(), accepted.clone());
            ServerBootstrap::new(&group)
                .pipeline(move |_peer| {
                    accepted.push((server, turn(&me)));
                    Pipeline::codec(RawBytes).handler(Reader::without_callback(&me))
                })
                .bind("127.0.0.1:0")
                .unwrap()
        })
        .collect();
    let gate = Gate::shut(&event_loop);
    need_descriptors(4_000);
    let connect = |server: &Server| TcpStream::connect(server.local_address()).unwrap();
    deliver_all(servers.iter().flat_map(|server| (0..150).map(|_| connect(server))).collect(), b"");
    drop(gate);
    while accepted.len() < 300 {
        settle(&event_loop);
    }
    for n in 0..servers.len() {
        let turns: Vec<_> =
            accepted.all().into_iter().filter(|(server, _)| *server == n).map(|(_, turn)| turn).collect();
        let per_turn: Vec<_> = turns.chunk_by(|a, b| a == b).map(<[_]>::len).collect();
        assert_eq!(per_turn, [64, 64, 22]);
        assert_eq!(turns[149] - turns[0], 2, "in consecutive turns");
    }
}

/// More connections arrive in every turn, so a listener that was carried over has an event as well.
#[test]
fn a_listener_that_is_carried_over_gets_no_second_share() {
    need_descriptors(4_000);
    let (group, event_loop) = single(EventLoopGroup::builder());
    let (turns, clients): (Journal<u64>, Journal<Arc<TcpStream>>) = (Journal::new(), Journal::new());
    let (me, mine, kept) = (event_loop.clone(), turns.clone(), clients.clone());
    let address = Arc::new(OnceLock::<SocketAddr>::new());
    let connect = {
        let address = address.clone();
        move || kept.push(Arc::new(TcpStream::connect(address.get().unwrap()).unwrap()))
    };
    let again = connect.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| {
            mine.push(turn(&me));
            if mine.len() <= 300 {
                again();
            }
            Pipeline::codec(RawBytes).handler(Reader::without_callback(&me))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    address.set(server.local_address()).unwrap();
    let gate = Gate::shut(&event_loop);
    (0..200).for_each(|_| connect());
    drop(gate);
    while turns.len() < 500 {
        settle(&event_loop);
    }
    let per_turn: Vec<_> = turns.all().chunk_by(|a, b| a == b).map(<[_]>::len).collect();
    assert!(per_turn.iter().all(|accepted| *accepted <= 64), "{per_turn:?}");
}

// ---- the time of a turn's I/O ------------------------------------------------------------------

/// A hundred connections send at once, and the handler takes 5 ms for each read. A turn starts
/// reads until its time limit, and the connections take turns.
#[test]
fn slow_requests_of_many_peers_end_a_turn_at_its_time_limit() {
    const CHANNELS: usize = 100;
    for (limit, expected) in [(None, 20), (Some(ms(12)), 3), (Some(ms(1)), 1)] {
        let clock = ManualClock::new();
        let builder = EventLoopGroup::builder().clock(clock.clone());
        let builder = match limit {
            Some(limit) => builder.max_io_time(limit),
            None => builder,
        };
        let options = ChannelOptions::new().read_size(1).reads_per_turn(2);
        let sink = Sink::with(builder, options, move |_, _| clock.advance(ms(5)));
        let seen = sink.flood(CHANNELS, 4);
        let turns = bytes_per_turn(&seen);
        let (last, others) = turns.split_last().unwrap();
        assert!(others.iter().all(|bytes| *bytes == expected), "{limit:?}: {turns:?}");
        assert!(*last <= expected);
        assert!(seen.windows(2).all(|pair| pair[1].turn - pair[0].turn <= 1), "in consecutive turns");
        // A share is two reads, so no connection is ahead of another by more than a share and the
        // read in progress.
        let mut read: HashMap<u16, usize> = HashMap::new();
        for seen in &seen {
            *read.entry(seen.client).or_default() += 1;
            let ahead = read[&seen.client];
            let behind = if read.len() < CHANNELS { 0 } else { *read.values().min().unwrap() };
            assert!(ahead <= behind + 3, "{ahead} reads of one, {behind} of another");
        }
        sink.assert_every_turn_polled();
    }
}

/// Reads lines and takes 5 ms for each.
struct SlowLines {
    event_loop: EventLoop,
    clock: ManualClock,
    seen: Journal<(u64, Option<Bytes>)>,
}

impl Handler for SlowLines {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        self.seen.push((turn(&self.event_loop), Some(line)));
        self.clock.advance(ms(5));
        Ok(())
    }

    fn read_complete(&mut self, _ctx: &mut Context<'_, Self>) -> Result {
        self.seen.push((turn(&self.event_loop), None));
        Ok(())
    }
}

/// One peer sends many requests in one packet. The turn ends between two of them, timers run, and
/// the remaining bytes stay complete and in order.
#[test]
fn slow_requests_of_one_read_are_interrupted_between_two_messages() {
    const LINES: usize = 50;
    let clock = ManualClock::new();
    let builder = EventLoopGroup::builder().clock(clock.clone()).max_io_time(ms(20));
    let (group, event_loop) = single(builder);
    let seen = Journal::new();
    let (me, time, mine) = (event_loop.clone(), clock.clone(), seen.clone());
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer: &Peer| {
            let (event_loop, clock, seen) = (me.clone(), time.clone(), mine.clone());
            Pipeline::codec(Line::new()).handler(SlowLines { event_loop, clock, seen })
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let ticks = Journal::new();
    let (mine, time) = (ticks.clone(), clock);
    let tick = move || {
        mine.push(time.elapsed());
        Ok(())
    };
    event_loop.schedule_periodic(ms(33), tick).unwrap();
    let client = TcpStream::connect(server.local_address()).unwrap();
    while event_loop.metrics().channels < 1 {
        settle(&event_loop);
    }
    let lines: String = (0..LINES).map(|n| format!("{n}\n")).collect();
    let gate = Gate::shut(&event_loop);
    // The end of the stream has also arrived when the first line is read.
    deliver(client, lines.as_bytes());
    drop(gate);
    while event_loop.metrics().channels > 0 {
        settle(&event_loop);
    }
    let seen = seen.all();
    let read: Vec<_> = seen.iter().filter_map(|(_, line)| line.clone()).collect();
    assert!(read.iter().eq((0..LINES).map(|n| Bytes::from(n.to_string())).collect::<Vec<_>>().iter()));
    let per_turn: Vec<_> = seen
        .chunk_by(|a, b| a.0 == b.0)
        .map(|turn| turn.iter().filter(|(_, line)| line.is_some()).count())
        .filter(|lines| *lines > 0)
        .collect();
    assert_eq!(per_turn, [vec![4; 12], vec![2]].concat(), "20 ms");
    // 250 ms at 30 Hz: no tick is missed, and no tick is late by more than a turn's I/O.
    let ticks = ticks.all();
    for (n, at) in (1..).zip(ticks.iter().take(7)) {
        assert!((ms(33 * n)..ms(33 * n + 20)).contains(at), "tick {n} at {at:?}");
    }
    assert!(ticks.len() >= 7, "{ticks:?}");
}

/// A slow pipeline factory ends the I/O of a turn between two accepted connections.
#[test]
fn slow_pipelines_interrupt_a_listener() {
    need_descriptors(4_000);
    let clock = ManualClock::new();
    let builder = EventLoopGroup::builder().clock(clock.clone()).max_io_time(ms(20));
    let (group, event_loop) = single(builder);
    let turns: Journal<u64> = Journal::new();
    let (me, mine) = (event_loop.clone(), turns.clone());
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| {
            mine.push(turn(&me));
            clock.advance(ms(8));
            Pipeline::codec(RawBytes).handler(Reader::without_callback(&me))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let gate = Gate::shut(&event_loop);
    let clients: Vec<_> = (0..40).map(|_| TcpStream::connect(server.local_address()).unwrap()).collect();
    drop(gate);
    settle_until(&event_loop, |_| turns.len() >= clients.len());
    let turns = turns.all();
    let per_turn: Vec<_> = turns.chunk_by(|a, b| a == b).map(<[_]>::len).collect();
    assert_eq!(per_turn, [vec![3; 13], vec![1]].concat(), "20 ms");
}

/// A turn with up to 64 quick requests reads the clock twice, like a turn with one.
#[test]
fn quick_requests_of_many_peers_need_no_extra_clock_reading() {
    const CHANNELS: usize = 60;
    let sink = Sink::new(EventLoopGroup::builder(), ChannelOptions::new());
    let mut clients = sink.connect(CHANNELS);
    for _ in 0..100 {
        settle(&sink.event_loop);
    }
    let before = sink.event_loop.metrics();
    for round in 1..=50 {
        clients.iter_mut().for_each(|client| client.write_all(b"x").unwrap());
        // Waits without a task, because a task would make the loop read the clock.
        wait_until("the reads", || sink.seen.len() >= round * CHANNELS);
    }
    let after = sink.event_loop.metrics();
    let (turns, reads) = (after.turns - before.turns, after.clock_reads - before.clock_reads);
    assert!(reads <= 2 * turns + 4, "{reads} readings in {turns} turns");
}

// ---- sockets against tasks and timers ----------------------------------------------------------

/// Connections to a [`Sink`]. Tasks and timers on the loop write one byte into each, to see when
/// the byte is read.
#[derive(Clone)]
struct Probe {
    event_loop: EventLoop,
    clients: Arc<Mutex<Vec<TcpStream>>>,
    sent: Journal<u64>,
}

impl Probe {
    fn new(sink: &Sink, n: usize) -> Self {
        let clients = Arc::new(Mutex::new(sink.connect(n)));
        Probe { event_loop: sink.event_loop.clone(), clients, sent: Journal::new() }
    }

    /// Call on the loop. When this returns, the next poll finds the byte.
    fn send(&self) {
        let client = self.clients.lock().unwrap().pop().unwrap();
        deliver(client, b"x");
        self.sent.push(turn(&self.event_loop));
    }

    /// Every byte was read in the turn after the one in which it was sent.
    #[track_caller]
    fn assert_read_in_the_next_turn(&self, seen: &[Seen]) {
        let sent: Vec<_> = self.sent.all().iter().map(|turn| turn + 1).collect();
        assert_eq!(seen.iter().map(|seen| seen.turn).collect::<Vec<_>>(), sent);
    }
}

/// Bytes that arrive during a flood of slow tasks are read after one task, or after the budget.
#[test]
fn task_flood_io_alive() {
    const TASKS: usize = 20_000;
    const PROBES: usize = 10;
    for (ratio, io, most) in [(50, ms(0), 1), (1, ms(0), 1), (1, ms(1000), 100), (80, ms(40), 10)] {
        let clock = ManualClock::new();
        let builder = EventLoopGroup::builder().io_ratio(ratio).clock(clock.clone());
        let (run, time) = (Arc::new(AtomicUsize::new(0)), clock.clone());
        let (at_reads, counted): (Journal<usize>, _) = (Journal::new(), run.clone());
        let mine = at_reads.clone();
        let sink = Sink::with(builder, ChannelOptions::new(), move |_, _| {
            mine.push(counted.load(Ordering::Relaxed));
            time.advance(io);
        });
        let probe = Probe::new(&sink, PROBES);
        for n in 0..TASKS {
            let (clock, run, probe) = (clock.clone(), run.clone(), probe.clone());
            let task = move || {
                clock.advance(ms(1));
                run.fetch_add(1, Ordering::Relaxed);
                if n % (TASKS / PROBES) == 0 {
                    probe.send();
                }
            };
            sink.event_loop.execute(task).unwrap();
        }
        let seen = sink.read(PROBES);
        probe.assert_read_in_the_next_turn(&seen);
        for (n, run) in at_reads.all().iter().enumerate() {
            let between = run - n * (TASKS / PROBES);
            assert!((1..=most).contains(&between), "{between} tasks at a ratio of {ratio} before a read");
        }
        while run.load(Ordering::Relaxed) < TASKS {
            settle(&sink.event_loop);
        }
        sink.assert_every_turn_polled();
    }
}

/// A hundred thousand timers expire at once. Every turn does I/O, and each timer fires exactly
/// once.
#[test]
fn timer_storm_io_alive() {
    const TIMERS: usize = 100_000;
    const PROBES: usize = 10;
    for (unlimited, a_turn) in [(false, 64), (true, 1024)] {
        let clock = ManualClock::new();
        let builder = EventLoopGroup::builder().clock(clock.clone());
        let builder = if unlimited { builder.unlimited_tasks() } else { builder };
        let sink = Sink::new(builder, ChannelOptions::new());
        let probe = Probe::new(&sink, PROBES);
        let run: Journal<usize> = Journal::new();
        for n in 0..TIMERS {
            let (run, probe) = (run.clone(), probe.clone());
            let timer = move || {
                run.push(n);
                if n % (TIMERS / PROBES) == 0 {
                    probe.send();
                }
            };
            sink.event_loop.schedule(ms(1000), timer).unwrap();
        }
        while sink.event_loop.metrics().timers_pending < TIMERS as u64 {
            settle(&sink.event_loop);
        }
        let before = turn(&sink.event_loop);
        clock.advance(ms(1000));
        while run.len() < TIMERS {
            settle(&sink.event_loop);
        }
        assert!(run.all().into_iter().eq(0..TIMERS), "each fires once, the oldest first");
        probe.assert_read_in_the_next_turn(&sink.read(PROBES));
        let turns = on(&sink.event_loop, {
            let me = sink.event_loop.clone();
            move || turn(&me)
        }) - before;
        assert!(turns >= TIMERS.div_ceil(a_turn) as u64, "{turns} turns");
        sink.assert_every_turn_polled();
    }
}

/// With a socket that always has more bytes, a timer is late by at most the I/O of two turns. Later
/// timers are late by the turns that they need themselves.
#[test]
fn io_flood_timer_lateness() {
    const READ: Duration = ms(1);
    const BYTES: usize = 128 * KIB;
    const ALONE: u64 = 5;
    let clock = ManualClock::new();
    let late: Journal<Duration> = Journal::new();
    let event_loop = Arc::new(OnceLock::<EventLoop>::new());
    let schedule = {
        let (event_loop, clock, late) = (event_loop.clone(), clock.clone(), late.clone());
        move |delay: Duration, takes: Duration| {
            let (time, late, due) = (clock.clone(), late.clone(), clock.elapsed() + delay);
            let body = move || {
                late.push(time.elapsed() - due);
                time.advance(takes);
            };
            event_loop.get().unwrap().schedule(delay, body).unwrap();
        }
    };
    let time = clock.clone();
    let (all_read, done) = channel();
    // 16 reads a turn, of 256 bytes and 1 ms each.
    let options = ChannelOptions::new().read_size(256);
    let sink = Sink::with(EventLoopGroup::builder().clock(clock.clone()), options, move |_, so_far| {
        if so_far == 256 {
            // Single timers with a turn between them that need not read the clock, then 300 with
            // one deadline.
            (1..=ALONE).for_each(|n| schedule(ms(33 * n), ms(0)));
            (1..=300).for_each(|_| schedule(ms(200), ms(1)));
        }
        time.advance(READ);
        if so_far == BYTES {
            all_read.send(()).unwrap();
        }
    });
    event_loop.set(sink.event_loop.clone()).unwrap();
    let client = sink.connect(1).remove(0);
    let gate = Gate::shut(&sink.event_loop);
    deliver(client, &vec![7; BYTES]);
    drop(gate);
    // Waits without a task, because a task would make the loop read the clock.
    done.recv_timeout(PATIENCE).unwrap();
    let per_turn = bytes_per_turn(&sink.read(BYTES));
    assert!(per_turn.iter().all(|bytes| *bytes == 16 * 256), "each turn reads its full share: {per_turn:?}");
    let io = 16 * READ;
    while late.len() < ALONE as usize + 300 {
        settle(&sink.event_loop);
    }
    let late = late.all();
    let (alone, storm) = late.split_at(ALONE as usize);
    assert!(alone.iter().all(|late| *late <= 2 * io), "{alone:?}");
    assert!(alone.iter().any(|late| *late > io), "no timer reached the bound: {alone:?}");
    assert_eq!(storm.len(), 300);
    // A turn: its I/O, and timers for as long.
    let a_turn = io + 16 * READ;
    for (k, late) in (1..).zip(storm) {
        let bound = a_turn * (1 + u32::div_ceil(k, 16));
        assert!(*late <= bound, "the {k}th is {late:?} late, of {bound:?}");
    }
}
