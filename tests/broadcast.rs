//! Broadcasts to a channel group: what they cost, who gets them, what becomes of them where there is no room.

#[path = "support/recorder.rs"]
mod recorder;
#[path = "support/tcp.rs"]
mod tcp;

use bytes::Bytes;
use netwheel::{
    Broadcast, BroadcastReport, ChannelGroup, ChannelOptions, Error, LoopMetrics, Overflow,
    buffer::Outbound,
    codec::{LengthField, Line, RawBytes},
    pipeline::{Codec, Stage, StageContext},
    prelude::*,
    stage::Heartbeat,
    testing::{EmbeddedChannel, ManualClock},
};
use recorder::{Fussy, Log, Recorder, quiet_panics};
use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};
use tcp::{
    Event, Events, Random, Settings, assert_same, block, connect, done, end, metrics, on_loop, one_loop,
    read_all, read_n, receive, serve_with, silent, some_turns, the_loop,
};

type Room = ChannelGroup<Bytes>;

/// A server whose connections join the room.
fn rooming<C>(group: &EventLoopGroup, room: &Room, options: ChannelOptions, codec: C) -> (Server, Events)
where
    C: Codec<In = Bytes, Out = Bytes> + Clone + Send + Sync,
{
    let room = room.clone();
    serve_with(group, Settings::channel(options), codec, move |ctx, event| {
        if matches!(event, Event::Active(_)) {
            room.join(ctx.channel());
        }
        silent(ctx, event)
    })
}

/// So many connections, all of which have joined.
fn join(server: &Server, events: &Events, n: usize) -> Vec<TcpStream> {
    (0..n)
        .map(|_| {
            let peer = connect(server.local_address());
            events.channel();
            peer
        })
        .collect()
}

fn sum(group: &EventLoopGroup, of: impl Fn(&LoopMetrics) -> u64) -> u64 {
    group.metrics().iter().map(of).sum()
}

fn report_of(members: usize, set: impl FnOnce(&mut BroadcastReport)) -> BroadcastReport {
    let mut report = BroadcastReport::default();
    report.members = members;
    set(&mut report);
    report
}

fn all_written(members: usize) -> BroadcastReport {
    report_of(members, |report| report.written = members)
}

/// An embedded channel that joins the room.
fn member<C>(room: &Room, codec: C) -> EmbeddedChannel<Bytes>
where
    C: Codec<In = Bytes, Out = Bytes>,
{
    let log = Log::new();
    let mut member = EmbeddedChannel::new(Pipeline::new().codec(codec).handler(Recorder::new(&log)));
    assert!(room.join(member.channel()));
    member
}

fn run(members: &mut [EmbeddedChannel<Bytes>]) {
    for member in members {
        member.run_pending();
    }
}

/// Broadcasts, runs the members, and says what came of it.
fn broadcast(
    room: &Room,
    message: impl Into<Bytes>,
    members: &mut [EmbeddedChannel<Bytes>],
) -> BroadcastReport {
    let broadcast = room.broadcast(message.into()).unwrap();
    run(members);
    done(broadcast.report()).unwrap()
}

/// Broadcasts so often; the last of them.
fn broadcast_often(room: &Room, text: &'static str, times: usize) -> Broadcast {
    let send = || room.broadcast(Bytes::from_static(text.as_bytes())).unwrap();
    (1..times).for_each(|_| drop(send()));
    send()
}

// ---- cost ------------------------------------------------------------------------------------------------

/// Waits until what loops count at the end of a phase or a turn is counted; how many tasks that took. These are counted when it
/// returns, since their mail comes before the timers.
fn settle(group: &EventLoopGroup) -> u64 {
    let mut tasks = 0;
    for event_loop in group.event_loops() {
        let begin = event_loop.metrics().turns;
        while event_loop.metrics().turns < begin + 2 {
            done(event_loop.schedule(Duration::ZERO, || ()).unwrap().completion()).unwrap();
            tasks += 1;
        }
    }
    tasks
}

/// Whatever the number of members: one piece of mail and at most one wake for each loop.
#[test]
fn broadcast_wakes_le_loops() {
    const MEMBERS: usize = 100;
    const ROUNDS: usize = 20;
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let room = ChannelGroup::new();
    let (server, events) = rooming(&group, &room, ChannelOptions::new(), Line::new());
    let mut peers = join(&server, &events, MEMBERS);
    assert!(group.metrics().iter().all(|of| of.channels > 10), "both loops have members");
    let counts = || {
        let wakes = sum(&group, |of| of.wakes_written);
        (
            wakes,
            sum(&group, |of| of.tasks_run),
            sum(&group, |of| of.broadcasts),
            sum(&group, |of| of.deliveries),
        )
    };

    settle(&group);
    let before = counts();
    for _ in 0..ROUNDS {
        let broadcast = room.broadcast("to all".into()).unwrap();
        assert_eq!((broadcast.members(), broadcast.loops()), (MEMBERS, 2));
        assert_eq!(done(broadcast.report()).unwrap(), all_written(MEMBERS));
    }
    for peer in &mut peers {
        assert_eq!(read_n(peer, 7 * ROUNDS), "to all\n".repeat(ROUNDS).as_bytes());
    }
    let by_hand = settle(&group);
    let after = counts();
    let rounds = ROUNDS as u64;
    assert!(
        after.0 - before.0 <= 2 * rounds + by_hand,
        "{} wakes for {ROUNDS} broadcasts",
        after.0 - before.0
    );
    assert_eq!(after.1 - before.1, 2 * rounds + by_hand, "one piece of mail for each loop");
    assert_eq!(after.2 - before.2, 2 * rounds);
    assert_eq!(after.3 - before.3, rounds * MEMBERS as u64);
    end(&group);
}

/// Lines; counts how often it encodes, and says that its encodings can be shared, or does not.
#[derive(Clone)]
struct Counting {
    lines: Line,
    encoded: Arc<AtomicUsize>,
    shared: bool,
}

impl Counting {
    fn new(shared: bool) -> Self {
        Counting { lines: Line::new(), encoded: Arc::default(), shared }
    }

    fn encoded(&self) -> usize {
        self.encoded.load(SeqCst)
    }
}

impl Codec for Counting {
    type In = Bytes;
    type Out = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        self.lines.decode(input)
    }

    fn encode(&mut self, message: Bytes, output: &mut Outbound) -> Result {
        self.encoded.fetch_add(1, SeqCst);
        self.lines.encode(message, output)
    }

    fn shared_encoding(&self) -> Option<u64> {
        self.shared.then(|| self.lines.shared_encoding())?
    }
}

#[test]
fn broadcast_encode_once() {
    const MEMBERS: usize = 60;
    for shared in [true, false] {
        let group = EventLoopGroup::builder().threads(2).build().unwrap();
        let room = ChannelGroup::new();
        let codec = Counting::new(shared);
        let (server, events) = rooming(&group, &room, ChannelOptions::new(), codec.clone());
        let mut peers = join(&server, &events, MEMBERS);
        assert!(group.metrics().iter().all(|of| of.channels > 10), "both loops have members");
        // One that is copied, and one that is kept.
        let large = "x".repeat(5000);
        for (n, text) in ["hello", &large, "bye"].into_iter().enumerate() {
            let broadcast = room.broadcast(Bytes::from(text.to_owned())).unwrap();
            assert_eq!(done(broadcast.report()).unwrap(), all_written(MEMBERS));
            assert_eq!(codec.encoded(), (n + 1) * if shared { 1 } else { MEMBERS });
        }
        for peer in &mut peers {
            assert_eq!(read_n(peer, 6 + 5001 + 4), format!("hello\n{large}\nbye\n").as_bytes());
        }
        end(&group);
        let encodings = sum(&group, |of| of.broadcast_encodings);
        assert_eq!(encodings, codec.encoded() as u64, "the loops have counted it");
        assert_eq!(sum(&group, |of| of.messages_written), 3 * MEMBERS as u64);
    }
}

/// What is shared is shared by those who encode alike, and by nobody else.
#[test]
fn members_that_encode_otherwise_get_their_own() {
    let room = ChannelGroup::new();
    let mut members = [
        member(&room, LengthField::u16()),
        member(&room, LengthField::u32()),
        member(&room, LengthField::u16().little_endian()),
        member(&room, LengthField::u16()),
        member(&room, Line::new()),
        member(&room, Line::new().crlf()),
        member(&room, Line::new().max_len(1)),
        member(&room, RawBytes),
        member(&room, LengthField::builder().width(2).adjustment(-2).build().unwrap()),
        member(&room, LengthField::builder().width(2).strip(0).build().unwrap()),
        member(&room, LengthField::u8().max_len(2)),
        // Another type, of the same key as raw bytes.
        member(&room, Panics),
    ];
    let n = members.len();
    let report = broadcast(&room, "hi", &mut members);
    assert_eq!(report, report_of(n, |report| (report.written, report.failed) = (n - 3, 3)));
    let got: Vec<_> = members.iter_mut().map(EmbeddedChannel::read_outbound).collect();
    let expected: [&[u8]; 12] = [
        b"\0\x02hi",
        b"\0\0\0\x02hi",
        b"\x02\0hi",
        b"\0\x02hi",
        b"hi\n",
        b"hi\r\n",
        b"",
        b"hi",
        b"\0\x04hi",
        b"",
        b"",
        b"half of ithi",
    ];
    assert_eq!(got, expected);
}

/// Numbers its messages: its encoding depends on the channel.
struct Numbered(u32);

impl Stage for Numbered {
    type In = Bytes;
    type Out = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, _: &mut StageContext<'_, Bytes>, message: Bytes) -> Result<Option<Bytes>> {
        Ok(Some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Bytes>, message: Bytes) -> Result {
        self.0 += 1;
        ctx.write([format!("{} ", self.0).as_bytes(), &message].concat().into())
    }
}

/// All links have to say so: a stage that does not makes the chain one that depends on the channel.
#[test]
fn a_chain_is_shared_if_all_its_links_are() {
    let room: Room = ChannelGroup::new();
    let log = Log::new();
    let codec = Counting::new(true);
    let beats = || Heartbeat::new(Duration::from_secs(1), || Bytes::from_static(b"ping"));
    let beating = || Pipeline::new().codec(codec.clone()).stage(beats()).handler(Recorder::new(&log));
    let numbered = || Pipeline::new().codec(codec.clone()).stage(Numbered(0)).handler(Recorder::new(&log));
    let mut members: Vec<_> =
        (0..4).map(|n| EmbeddedChannel::new(if n < 2 { beating() } else { numbered() })).collect();
    members.iter_mut().for_each(|member| assert!(room.join(member.channel())));
    members[3].channel().write("own".into()).unwrap();
    assert_eq!(broadcast(&room, "all", &mut members), all_written(4));
    let got: Vec<_> = members.iter_mut().map(EmbeddedChannel::read_outbound).collect();
    assert_eq!(got, ["all\n", "all\n", "1 all\n", "1 own\n2 all\n"]);
    assert_eq!(codec.encoded(), 1 + 2 + 1);
}

/// From a KiB on what waits for a member that lags is a reference to bytes that are there once; one of less is a copy.
#[test]
fn large_bytes_are_kept_once_for_all() {
    let room = ChannelGroup::new();
    let mut members: Vec<_> = (0..3).map(|_| member(&room, LengthField::u32())).collect();
    members.iter_mut().for_each(|member| member.set_outbound_room(Some(0)));
    let message = Bytes::from(vec![b'x'; 64 * 1024]);
    assert_eq!(broadcast(&room, message.clone(), &mut members), all_written(3));
    assert!(message.is_unique(), "the message was encoded once, into bytes of their own");
    for member in &mut members {
        member.set_outbound_room(None);
        assert_eq!(member.read_outbound().len(), 4 + message.len());
    }
    // Without a header there is nothing to put together: the message itself is what is kept.
    let room = ChannelGroup::new();
    let mut members: Vec<_> = (0..3).map(|_| member(&room, RawBytes)).collect();
    members.iter_mut().for_each(|member| member.set_outbound_room(Some(0)));
    assert_eq!(broadcast(&room, message.clone(), &mut members), all_written(3));
    assert!(!message.is_unique(), "members refer to it");
    members.iter_mut().for_each(|member| member.set_outbound_room(None));
    assert!(message.is_unique());
}

// ---- members that do not keep up -------------------------------------------------------------------------

/// Each member's own policy decides; the others get everything.
#[test]
fn a_slow_member_meets_its_own_policy_and_delays_nobody() {
    const LIMIT: usize = 128;
    let policies = [Overflow::Refuse, Overflow::DropNewest, Overflow::DropOldest, Overflow::Close];
    for policy in policies {
        let room: Room = ChannelGroup::new();
        let log = Log::new();
        let options = ChannelOptions::new().max_outbound(LIMIT).overflow(policy);
        let open = Recorder::exactly(&log, |_, _| Ok(()));
        let pipeline = Pipeline::new().codec(Line::new()).handler(open);
        let slow =
            EmbeddedChannel::with(pipeline, &options, ManualClock::new(), Duration::from_millis(1)).unwrap();
        let mut members = vec![slow, member(&room, Line::new()), member(&room, Line::new())];
        assert!(room.join(members[0].channel()));
        members[0].set_outbound_room(Some(0));
        log.take();

        let mut total = BroadcastReport::default();
        for n in 0..20 {
            let report = broadcast(&room, format!("{n:07}"), &mut members);
            let others = if report.members == 3 { 2 } else { report.members };
            assert!(report.written >= others, "{policy:?}: the others got it: {report:?}");
            total.written += report.written - others;
            total.dropped += report.dropped;
            total.refused += report.refused;
            total.closed += report.closed;
            total.gone += report.gone;
        }
        let everything: String = (0..20).map(|n| format!("{n:07}\n")).collect();
        for member in &mut members[1..] {
            assert_eq!(member.read_outbound(), everything, "{policy:?}");
        }
        members[0].set_outbound_room(None);
        let got = members[0].read_outbound();
        let line = |line: &str| line.parse::<usize>().unwrap();
        let got: Vec<_> = std::str::from_utf8(&got).unwrap().lines().map(line).collect();
        let told = log.all().iter().filter(|call| call.starts_with("error full")).count();
        let sums = (total.written, total.dropped, total.refused, total.closed, told);
        match policy {
            Overflow::Refuse => {
                assert_eq!(sums, (16, 0, 4, 0, 4), "its handler is told of each that it misses");
                assert_eq!(got, (0..16).collect::<Vec<_>>());
            }
            Overflow::DropNewest => {
                assert_eq!(sums, (16, 4, 0, 0, 0));
                assert_eq!(got, (0..16).collect::<Vec<_>>());
            }
            Overflow::DropOldest => {
                assert_eq!(sums, (20, 0, 0, 0, 0));
                assert_eq!(got.last(), Some(&19), "{got:?}");
                assert!(got.len() <= 16 && got.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{got:?}");
            }
            _ => {
                assert_eq!(sums, (16, 0, 0, 1, 1));
                assert!(members[0].is_closed() && !room.contains(members[0].channel().id()));
                assert_eq!((total.gone, room.len()), (0, 2), "it had left by the next one");
            }
        }
    }
}

/// A message that one member has no room for at all is encoded for the others all the same, and once.
#[test]
fn a_limit_is_the_members_own() {
    let room: Room = ChannelGroup::new();
    let (log, codec) = (Log::new(), Counting::new(true));
    let of_limit = |bytes| {
        let options = ChannelOptions::new().max_outbound(bytes);
        let pipeline = Pipeline::new().codec(codec.clone()).handler(Recorder::exactly(&log, |_, _| Ok(())));
        EmbeddedChannel::with(pipeline, &options, ManualClock::new(), Duration::from_millis(1)).unwrap()
    };
    let mut members = [of_limit(4), of_limit(9), of_limit(10), of_limit(1000)];
    members.iter_mut().for_each(|member| assert!(room.join(member.channel())));
    let report = broadcast(&room, "123456789", &mut members);
    assert_eq!(report, report_of(4, |report| (report.written, report.refused) = (2, 2)));
    assert_eq!(codec.encoded(), 1);
    let got: Vec<_> = members.iter_mut().map(EmbeddedChannel::read_outbound).collect();
    assert_eq!(got, ["", "", "123456789\n", "123456789\n"]);
}

/// A peer that reads nothing holds up nobody, over sockets too.
#[test]
fn a_peer_that_reads_nothing_holds_up_nobody() {
    const MESSAGE: usize = 64 * 1024;
    const ROUNDS: usize = 200;
    let group = one_loop();
    let room = ChannelGroup::new();
    let options = ChannelOptions::new().max_outbound(4 * MESSAGE).overflow(Overflow::DropNewest);
    let (server, events) = rooming(&group, &room, options, RawBytes);
    let stuck = join(&server, &events, 1);
    let (got, gets) = mpsc::channel();
    let readers: Vec<_> = join(&server, &events, 3)
        .into_iter()
        .map(|mut peer| {
            let got = got.clone();
            std::thread::spawn(move || {
                (0..ROUNDS).for_each(|_| got.send(read_n(&mut peer, MESSAGE)[MESSAGE - 1]).unwrap());
            })
        })
        .collect();
    let mut missed = 0;
    for n in 0..ROUNDS {
        let report = done(room.broadcast(Bytes::from(vec![n as u8; MESSAGE])).unwrap().report()).unwrap();
        assert_eq!((report.members, report.written + report.dropped), (4, 4));
        missed += report.dropped;
        // The others have it before the next one.
        (0..3).for_each(|_| assert_eq!(receive(&gets), n as u8));
    }
    assert!(missed > 0, "a peer that reads nothing misses some");
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    drop(stuck);
    end(&group);
}

// ---- what goes wrong -------------------------------------------------------------------------------------

/// A message that cannot be encoded is not the members' fault: they stay, and hear nothing of it.
#[test]
fn a_message_that_cannot_be_encoded_is_in_the_report() {
    quiet_panics();
    let room: Room = ChannelGroup::new();
    let log = Log::new();
    let lines = || Pipeline::new().codec(Counting::new(true)).handler(Recorder::new(&log));
    let mut members: Vec<_> = (0..3).map(|_| EmbeddedChannel::new(lines())).collect();
    // Its own encoding, half of which is written when it fails.
    members.push(EmbeddedChannel::new(Pipeline::new().codec(Fussy::new()).handler(Recorder::new(&log))));
    members.iter_mut().for_each(|member| assert!(room.join(member.channel())));
    log.take();
    let report = broadcast(&room, "two\nlines", &mut members);
    assert_eq!(report, report_of(4, |report| report.failed = 4));
    let report = broadcast(&room, "fail", &mut members);
    assert_eq!(report, report_of(4, |report| (report.written, report.failed) = (3, 1)));
    assert!(log.take().is_empty(), "no handler is told");
    assert!(members.iter().all(EmbeddedChannel::is_open));
    assert_eq!(broadcast(&room, "well", &mut members), all_written(4));
    let got: Vec<_> = members.iter_mut().map(EmbeddedChannel::read_outbound).collect();
    assert_eq!(got, ["fail\nwell\n", "fail\nwell\n", "fail\nwell\n", "well\n"]);

    // A panic costs the channel in which it happens.
    let report = broadcast(&room, "panic", &mut members);
    assert_eq!(report, report_of(4, |report| (report.written, report.failed) = (3, 1)));
    assert!(members[3].is_closed() && members[..3].iter().all(EmbeddedChannel::is_open));
}

/// Panics when it encodes, for all channels that are alike.
#[derive(Clone)]
struct Panics;

impl Codec for Panics {
    type In = Bytes;
    type Out = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        RawBytes.decode(input)
    }

    fn encode(&mut self, message: Bytes, output: &mut Outbound) -> Result {
        output.put_slice(b"half of it");
        assert!(message != "panic", "on purpose");
        output.put(message);
        Ok(())
    }

    fn shared_encoding(&self) -> Option<u64> {
        RawBytes.shared_encoding()
    }
}

#[test]
fn a_shared_encoding_that_panics_costs_one_channel() {
    quiet_panics();
    let room = ChannelGroup::new();
    let mut members: Vec<_> = (0..3).map(|_| member(&room, Panics)).collect();
    members.iter_mut().for_each(|member| member.set_outbound_room(Some(0)));
    members.iter_mut().for_each(|member| {
        member.channel().write("before".into()).unwrap();
    });
    let report = broadcast(&room, "panic", &mut members);
    assert_eq!(report, report_of(3, |report| report.failed = 3));
    assert_eq!(members.iter().filter(|member| member.is_closed()).count(), 1);
    assert_eq!(broadcast(&room, "after", &mut members), all_written(2));
    for member in members.iter_mut().filter(|member| !member.is_closed()) {
        member.set_outbound_room(None);
        assert_eq!(
            member.read_outbound(),
            "half of itbeforehalf of itafter",
            "and of the others, nothing is lost"
        );
    }
}

/// One whose loop ends, or that closes, before it comes to it.
#[test]
fn members_that_close_meanwhile_are_gone() {
    let group = one_loop();
    let room = ChannelGroup::new();
    let (server, events) = rooming(&group, &room, ChannelOptions::new(), Line::new());
    let mut peers = join(&server, &events, 5);
    let release = block(&group);
    let channels = room.channels();
    channels[1].close();
    channels[3].shutdown_write();
    let broadcast = room.broadcast("hello".into()).unwrap();
    channels[4].close_now();
    drop(release);
    let report = done(broadcast.report()).unwrap();
    assert_eq!(report, report_of(5, |report| (report.written, report.gone) = (3, 2)));
    done(channels[4].closed()).unwrap();
    done(channels[1].closed()).unwrap();
    assert_eq!(room.len(), 3);
    // Which of the peers these are is nobody's business: two of them see both, the others at most what was sent in time.
    room.broadcast("again".into()).unwrap();
    done(room.close()).unwrap();
    let mut got: Vec<_> = peers.iter_mut().map(|peer| read_all(peer).len()).collect();
    got.sort_unstable();
    assert!(got == [0, 0, 0, 12, 12] || got == [0, 0, 6, 12, 12], "{got:?}");
    end(&group);
}

#[test]
fn what_a_loop_that_ends_has_not_done_is_reported() {
    let group = one_loop();
    let room = ChannelGroup::new();
    let (server, events) = rooming(&group, &room, ChannelOptions::new(), Line::new());
    let mut peers = join(&server, &events, 3);
    let release = block(&group);
    let ending = group.shutdown_gracefully(Duration::ZERO, Duration::from_secs(5));
    let broadcast = room.broadcast("in time".into()).unwrap();
    drop(release);
    done(ending).unwrap();
    let report = done(broadcast.report()).unwrap();
    assert_eq!(report.members, 3);
    assert_eq!(report.written + report.gone, 3, "{report:?}");
    for peer in &mut peers {
        let got = read_all(peer);
        assert!(got.is_empty() || got == b"in time\n");
    }
    assert!(room.is_empty());
}

// ---- bounds ----------------------------------------------------------------------------------------------

/// A turn writes to 4096 members; the rest comes in the next one, and what was asked for behind it after that.
#[test]
fn a_turn_comes_to_a_bounded_number_of_members() {
    const MEMBERS: usize = 200;
    const ROUNDS: usize = 100;
    let group = one_loop();
    let room = ChannelGroup::new();
    let (server, events) = rooming(&group, &room, ChannelOptions::new(), Line::new());
    let mut peers = join(&server, &events, MEMBERS);
    let release = block(&group);
    let broadcasts: Vec<_> = (0..ROUNDS).map(|n| room.broadcast(format!("{n:03}").into()).unwrap()).collect();
    // What this thread asks for later comes later, also for a single member.
    room.channels().iter().for_each(|channel| channel.write("end".into()).unwrap());
    drop(release);
    for broadcast in broadcasts {
        assert_eq!(done(broadcast.report()).unwrap(), all_written(MEMBERS));
    }
    let everything: String = (0..ROUNDS).map(|n| format!("{n:03}\n")).chain(["end\n".to_owned()]).collect();
    for peer in &mut peers {
        assert_eq!(read_n(peer, everything.len()), everything.as_bytes());
    }
    // 20,000 deliveries are five turns: four of them end in the middle.
    assert_eq!(metrics(&group).broadcasts_deferred, 4);

    // With nothing else to do, the loop does not go to sleep over it: the last of these is cut off.
    let release = block(&group);
    let last = broadcast_often(&room, "more", 21);
    drop(release);
    assert_eq!(done(last.report()).unwrap(), all_written(MEMBERS));
    assert_eq!(metrics(&group).broadcasts_deferred, 5);
    end(&group);
}

/// Two broadcasts of a turn are sent to a member in one go.
#[test]
fn members_are_flushed_once_a_turn() {
    const MEMBERS: usize = 20;
    let group = one_loop();
    let room = ChannelGroup::new();
    let (server, events) = rooming(&group, &room, ChannelOptions::new(), Line::new());
    let mut peers = join(&server, &events, MEMBERS);
    let release = block(&group);
    let before = metrics(&group).writes;
    let last = broadcast_often(&room, "ten", 10);
    drop(release);
    done(last.report()).unwrap();
    peers.iter_mut().for_each(|peer| drop(read_n(peer, 40)));
    some_turns(&group);
    assert_eq!(metrics(&group).writes - before, MEMBERS as u64);
    end(&group);
}

/// What several members say at once is heard in one turn, and sent to each member in one go.
#[test]
fn what_comes_from_several_members_in_a_turn_shares_a_write() {
    const MEMBERS: usize = 100;
    const SENDERS: usize = 4;
    let mut by_hand = EventLoopGroup::builder().build_manual().unwrap();
    let room = Room::new();
    let joining = room.clone();
    let factory =
        move |_: &netwheel::Peer| Pipeline::new().codec(Line::new()).handler(Repeats(joining.clone()));
    let server = ServerBootstrap::new(by_hand.group()).pipeline(factory).bind("127.0.0.1:0").unwrap();
    let mut peers: Vec<_> = (0..MEMBERS).map(|_| connect(server.local_address())).collect();
    while room.len() < MEMBERS {
        by_hand.run_once(Duration::from_millis(10));
    }
    let before = by_hand.event_loop().metrics();
    // Over the loopback interface what is written is there to be read.
    peers[..SENDERS].iter_mut().for_each(|peer| peer.write_all(b"hi\n").unwrap());
    while by_hand.run_once(Duration::ZERO) > 0 {}
    let after = by_hand.event_loop().metrics();
    assert_eq!(after.deliveries - before.deliveries, (SENDERS * MEMBERS) as u64);
    assert_eq!(after.writes - before.writes, MEMBERS as u64);
    peers.iter_mut().for_each(|peer| assert_eq!(read_n(peer, 3 * SENDERS), b"hi\nhi\nhi\nhi\n"));
}

/// Repeats to the room, which it has joined, what it hears.
struct Repeats(Room);

impl Handler for Repeats {
    type In = Bytes;
    type Out = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.0.join(ctx.channel());
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, message: Bytes) -> Result {
        self.0.broadcast(message)?;
        Ok(())
    }
}

#[test]
fn broadcasts_that_wait_are_bounded() {
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let room = ChannelGroup::builder().max_waiting(3).build().unwrap();
    let (server, events) = rooming(&group, &room, ChannelOptions::new(), Line::new());
    let _peers = join(&server, &events, 4);
    assert_eq!(
        room.broadcast("nobody".into()).unwrap().loops(),
        2,
        "one that a loop can get to does not wait"
    );
    let everybody_has_it = done(room.broadcast("free".into()).unwrap().report()).unwrap();
    assert_eq!(everybody_has_it, all_written(4));

    // One of two loops stands: that is enough for them to wait.
    let release = block(&group);
    let waiting: Vec<_> = (0..3).map(|_| room.broadcast("waits".into()).unwrap()).collect();
    let refused = room.broadcast("too many".into()).unwrap_err();
    assert_eq!(refused.value, "too many");
    let expected = "full: at most 3 waiting broadcasts of a channel group";
    assert_eq!(refused.reason.to_string(), expected);
    assert!(room.broadcast_except(room.channels()[0].id(), "too".into()).is_err());
    assert!(room.broadcast_where(|_| true, "too".into()).is_err());
    drop(release);
    for broadcast in waiting {
        assert_eq!(done(broadcast.report()).unwrap(), all_written(4));
    }
    assert_eq!(done(room.broadcast("again".into()).unwrap().report()).unwrap(), all_written(4));
    end(&group);
}

/// A loop whose queue is full does not keep the message from the members of the others.
#[test]
fn members_of_a_loop_whose_queue_is_full_are_not_reached() {
    const QUEUE: usize = 16;
    let group = EventLoopGroup::builder().threads(2).max_pending_tasks(QUEUE).build().unwrap();
    let room: Room = ChannelGroup::new();
    let (server, events) = rooming(&group, &room, ChannelOptions::new(), Line::new());
    let peers = join(&server, &events, 10);
    let stuck = the_loop(&group).clone();
    let channels = room.channels();
    let on_stuck: Vec<_> = on_loop(&group, move || {
        channels.iter().filter(|channel| channel.in_event_loop()).map(Channel::id).collect()
    });
    let of_stuck = on_stuck.len();
    assert!((1..10).contains(&of_stuck));
    let release = block(&group);
    while stuck.try_execute(Box::new(|| ())).is_ok() {}
    let broadcast = room.broadcast("hello".into()).unwrap();
    assert_eq!((broadcast.members(), broadcast.loops(), broadcast.unreached()), (10, 2, of_stuck));
    // It is over for those who are reached, whatever the other loop does.
    let report = done(broadcast.report()).unwrap();
    let expected = report_of(10, |report| (report.written, report.unreached) = (10 - of_stuck, of_stuck));
    assert_eq!(report, expected);
    // If nobody can have it, it comes back.
    let refused =
        room.broadcast_where(|channel| on_stuck.contains(&channel.id()), "nobody".into()).unwrap_err();
    assert_eq!(refused.value, "nobody");
    assert!(matches!(refused.reason, Error::Full { limit: QUEUE, .. }), "{}", refused.reason);
    drop(release);
    drop(peers);
    end(&group);
}

// ---- membership ------------------------------------------------------------------------------------------

/// Who has left gets nothing more, and who comes gets what comes after; on one loop, so that they stand side by side.
#[test]
fn a_broadcast_is_for_those_who_are_members_then() {
    const MEMBERS: usize = 5;
    let group = one_loop();
    let room: Room = ChannelGroup::new();
    let (server, events) = rooming(&group, &room, ChannelOptions::new(), Line::new());
    let mut peers: Vec<_> = (0..MEMBERS)
        .map(|_| {
            let peer = connect(server.local_address());
            (events.channel(), peer, String::new())
        })
        .collect();
    let mut random = Random::new(9);
    for n in 0..200 {
        let one = &peers[random.between(0, MEMBERS - 1)].0;
        if !room.leave(one.id()) {
            assert!(room.join(one.clone()));
        }
        let text = format!("{n}");
        let members = room.channels();
        let excepted = members.get(random.between(0, 9)).map(Channel::id);
        let broadcast = match excepted {
            Some(id) => room.broadcast_except(id, text.clone().into()),
            None => room.broadcast(text.clone().into()),
        };
        let count = members.len() - usize::from(excepted.is_some());
        assert_eq!(done(broadcast.unwrap().report()).unwrap(), all_written(count));
        for (channel, _, expected) in &mut peers {
            if members.contains(channel) && excepted != Some(channel.id()) {
                expected.push_str(&format!("{text}\n"));
            }
        }
    }
    peers.iter().for_each(|(channel, ..)| channel.close());
    for (_, peer, expected) in &mut peers {
        assert_same(&read_all(peer), expected.as_bytes());
    }
    end(&group);
}

// ---- order -----------------------------------------------------------------------------------------------

/// From a handler's callback, to members on its own loop and on others, the sender among them or not.
#[test]
fn a_handler_broadcasts_from_its_callback() {
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let room: Room = ChannelGroup::new();
    let of_handlers = room.clone();
    let hook = move |ctx: &mut Context<'_, tcp::Probe>, event: &Event| match event {
        Event::Active(channel) => {
            of_handlers.join(channel.clone());
            Ok(())
        }
        Event::Read(message) if message.starts_with(b"others") => {
            of_handlers.broadcast_except(ctx.id(), message.clone())?;
            ctx.write("said".into())
        }
        Event::Read(message) => {
            let broadcast = of_handlers.broadcast(message.clone())?;
            let error = broadcast.report().wait().unwrap_err();
            assert!(matches!(error, Error::WouldDeadlock), "{error}");
            Ok(())
        }
        _ => Ok(()),
    };
    let (server, events) = serve_with(&group, Settings::new(), Line::new(), hook);
    let mut peers = join(&server, &events, 8);
    peers[2].write_all(b"others!\nall!\n").unwrap();
    for (n, peer) in peers.iter_mut().enumerate() {
        let expected = if n == 2 { "said\nall!\n" } else { "others!\nall!\n" };
        assert_eq!(read_n(peer, expected.len()), expected.as_bytes(), "{n}");
    }
    end(&group);
}

/// Threads broadcast while others join, leave and close: whoever stays gets everything of each thread, once and in order.
#[test]
fn those_who_stay_get_everything_in_order_whoever_comes_and_goes() {
    const THREADS: usize = 3;
    const MESSAGES: usize = 300;
    const STAY: usize = 6;
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let room: Room = ChannelGroup::new();
    let (server, events) = rooming(&group, &room, ChannelOptions::new(), Line::new());
    let stay = join(&server, &events, STAY);
    let reader = |peer: TcpStream| {
        std::thread::spawn(move || {
            let mut next = [0; THREADS];
            let mut lines = BufReader::new(peer).lines();
            while next != [MESSAGES; THREADS] {
                let line = lines.next().unwrap().unwrap();
                let (thread, n) = line.split_once(' ').unwrap();
                let thread: usize = thread.parse().unwrap();
                assert_eq!(n.parse::<usize>().unwrap(), next[thread], "of thread {thread}");
                next[thread] += 1;
            }
            lines
        })
    };
    let readers: Vec<_> = stay.into_iter().map(reader).collect();
    let stayers = room.channels();
    let stays = |channel: &Channel<Bytes>| stayers.contains(channel);
    std::thread::scope(|scope| {
        let talkers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let room = &room;
                let stays = &stays;
                scope.spawn(move || {
                    for n in 0..MESSAGES {
                        let message = Bytes::from(format!("{thread} {n}"));
                        // In all three ways.
                        let sent = match n % 3 {
                            0 => room.broadcast(message),
                            1 => room.broadcast_where(stays, message),
                            _ => {
                                let all = room.channels();
                                match all.iter().find(|channel| !stays(channel)) {
                                    Some(other) => room.broadcast_except(other.id(), message),
                                    None => room.broadcast(message),
                                }
                            }
                        };
                        let report = done(sent.unwrap().report()).unwrap();
                        let sum = report.written + report.gone;
                        assert!(report.written >= STAY && sum == report.members, "{report:?}");
                    }
                })
            })
            .collect();
        // Come, hear some, and go: by leaving, by closing, by being closed.
        let mut round = 0;
        while !talkers.iter().all(|talker| talker.is_finished()) {
            round += 1;
            let peer = connect(server.local_address());
            let channel = loop {
                if let Event::Active(channel) = events.next() {
                    break channel;
                }
            };
            match round % 3 {
                0 => drop(peer),
                1 => channel.close(),
                _ => {
                    assert!(room.leave(channel.id()) && room.join(channel.clone()));
                    room.leave(channel.id());
                    channel.close_now();
                }
            }
            done(channel.closed()).unwrap();
            assert!(!room.contains(channel.id()));
        }
    });
    let _open: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
    assert_eq!(room.len(), STAY);
    end(&group);
}
