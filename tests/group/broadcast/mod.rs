//! Broadcasts to a channel group: their cost, their recipients, and members without room.

mod encoding;
mod fairness;
mod latest;
mod membership;
mod no_room;
mod turns;

use crate::support::{
    journal::Log,
    recorder::{Event, Events, Recorder, silent},
    servers::{Settings, serve_with},
    tcp::connect,
    wait::done,
};
use bytes::Bytes;
use netwheel::{
    ChannelGroup, Codec,
    buffer::OutboundBuffer,
    channel::{Broadcast, BroadcastReport, ChannelOptions},
    codec::Line,
    metrics::LoopMetrics,
    prelude::*,
    testing::EmbeddedChannel,
};
use std::{
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

type Room = ChannelGroup<Bytes>;

/// Starts a server whose connections join the room.
fn room_server<C>(group: &EventLoopGroup, room: &Room, options: ChannelOptions, codec: C) -> (Server, Events)
where
    C: Codec<Read = Bytes, Write = Bytes> + Clone + Send + Sync,
{
    let room = room.clone();
    serve_with(group, Settings::channel(options), codec, move |ctx, event| {
        if matches!(event, Event::Active(_)) {
            room.join(ctx.channel());
        }
        silent(ctx, event)
    })
}

/// Opens `n` connections and waits until all have joined.
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

/// Returns an embedded channel that has joined the room.
fn member<C>(room: &Room, codec: C) -> EmbeddedChannel<Bytes>
where
    C: Codec<Read = Bytes, Write = Bytes>,
{
    let log = Log::new();
    let mut member = EmbeddedChannel::new(Pipeline::codec(codec).handler(Recorder::new(&log)));
    assert!(room.join(member.channel()));
    member
}

fn run(members: &mut [EmbeddedChannel<Bytes>]) {
    for member in members {
        member.run_pending();
    }
}

/// Broadcasts, runs the members, and returns the report.
fn broadcast(
    room: &Room,
    message: impl Into<Bytes>,
    members: &mut [EmbeddedChannel<Bytes>],
) -> BroadcastReport {
    let broadcast = room.broadcast(message.into()).unwrap();
    run(members);
    done(broadcast.report()).unwrap()
}

/// Broadcasts with a key, runs the members, and returns the report.
fn broadcast_latest(
    room: &Room,
    key: u64,
    message: String,
    members: &mut [EmbeddedChannel<Bytes>],
) -> BroadcastReport {
    let broadcast = room.broadcast_latest(key, message.into()).unwrap();
    run(members);
    done(broadcast.report()).unwrap()
}

/// Broadcasts `times` times and returns the last broadcast.
fn broadcast_times(room: &Room, text: &'static str, times: usize) -> Broadcast {
    let send = || room.broadcast(Bytes::from_static(text.as_bytes())).unwrap();
    (1..times).for_each(|_| drop(send()));
    send()
}

/// A line codec that counts its encodings. Its encodings can be shared if `shared` is set.
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
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        self.lines.decode(input)
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        self.encoded.fetch_add(1, SeqCst);
        self.lines.encode(message, output)
    }

    fn encoding_key(&self) -> Option<u64> {
        self.shared.then(|| self.lines.encoding_key())?
    }
}
