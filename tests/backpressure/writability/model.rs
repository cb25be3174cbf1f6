//! Random producers that obey writability, with random message sizes and random stalls of the loop
//! and the peer.
//!
//! No producer is refused, closed or left waiting. The pending weight stays within the high mark
//! plus one message per producer, and every byte arrives once and in order.

use crate::over_each_transport;
use crate::support::{
    streams::{anywhere, connect},
    wait::{PATIENCE, done},
};
use bytes::Bytes;
use netwheel::{
    ChannelGroup, Completion, HandlerRef,
    buffer::WaterMark,
    channel::{ChannelOptions, Overflow},
    codec::LengthField,
    prelude::*,
    testing::EmbeddedChannel,
};
use proptest::prelude::*;
use std::{
    collections::HashMap,
    io::Read,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

const MIB: usize = 1 << 20;

/// The length of a message's header: producer and number.
const HEADER: usize = 5;

/// Returns a message of at least `len` bytes that contains its producer and number.
fn message(producer: u8, number: u32, len: usize) -> Bytes {
    let mut bytes = vec![number as u8 ^ producer; len.max(HEADER)];
    bytes[0] = producer;
    bytes[1..HEADER].copy_from_slice(&number.to_be_bytes());
    bytes.into()
}

/// The received messages: the next expected number of each producer.
#[derive(Default)]
struct Arrived {
    next: HashMap<u8, u32>,
}

impl Arrived {
    /// Checks a frame without its length field.
    fn frame(&mut self, frame: &[u8]) {
        let producer = frame[0];
        let number = u32::from_be_bytes(frame[1..HEADER].try_into().unwrap());
        let next = self.next.entry(producer).or_default();
        assert_eq!(number, *next, "producer {producer}");
        *next += 1;
        assert!(frame[HEADER..].iter().all(|byte| *byte == number as u8 ^ producer), "corrupt message");
    }

    /// Removes and checks complete frames at the front of the received bytes.
    fn take(&mut self, bytes: &mut Vec<u8>) {
        let mut at = 0;
        while let Some(length) = bytes.get(at..at + 4) {
            let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
            let Some(frame) = bytes.get(at + 4..at + 4 + length) else { break };
            self.frame(frame);
            at += 4 + length;
        }
        bytes.drain(..at);
    }
}

fn codec() -> LengthField {
    LengthField::u32().max_len(8 * MIB)
}

/// Sizes from one byte to 4 MiB, most of them small.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 1..200usize, 3 => 200..20_000usize, 2 => 20_000..200_000usize, 1 => 200_000..4 * MIB]
}

// ---- in memory, step by step -------------------------------------------------------------------

#[derive(Debug, Clone)]
enum Step {
    /// A thread writes if the channel is writable.
    Thread(u8, usize),
    /// The handler writes on the loop if the channel is writable.
    Handler(usize),
    /// The handler offloads work and writes after its result, if the channel is writable then.
    Offload(usize),
    /// A broadcast to the writable members.
    Group(usize),
    /// The loop runs pending tasks.
    Run,
    /// The peer accepts this number of bytes.
    Take(usize),
}

const THREADS: u8 = 3;
const HANDLER: u8 = 10;
const OFFLOADED: u8 = 11;
const GROUP: u8 = 12;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..THREADS, size()).prop_map(|(thread, size)| Step::Thread(thread, size)),
        2 => size().prop_map(Step::Handler),
        2 => size().prop_map(Step::Offload),
        2 => size().prop_map(Step::Group),
        3 => Just(Step::Run),
        3 => (1..300_000usize).prop_map(Step::Take),
    ]
}

#[derive(Default)]
struct Seen {
    remote: Option<HandlerRef<Obedient>>,
    /// Number of written messages, by producer.
    written: HashMap<u8, u32>,
    /// The largest message, by producer.
    largest: HashMap<u8, usize>,
    bytes: usize,
    /// The last notification of the handler.
    notified: Option<bool>,
    /// Whether the handler has seen an unwritable channel and has not been notified since.
    waits: bool,
    errors: Vec<String>,
}

impl Seen {
    fn next(&mut self, producer: u8, size: usize) -> Bytes {
        let number = self.written.entry(producer).or_default();
        let message = message(producer, *number, size);
        *number += 1;
        let largest = self.largest.entry(producer).or_default();
        *largest = message.len().max(*largest);
        self.bytes += message.len() + 4;
        message
    }
}

struct Obedient(Arc<Mutex<Seen>>);

impl Obedient {
    fn write(&mut self, ctx: &mut Context<'_, Self>, producer: u8, size: usize) -> Result {
        let mut seen = self.0.lock().unwrap();
        if ctx.is_writable() {
            ctx.write(seen.next(producer, size)).expect("a writable channel accepts a message");
        } else {
            seen.waits = true;
        }
        Ok(())
    }
}

impl Handler for Obedient {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.0.lock().unwrap().remote = Some(ctx.handler_ref());
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        assert_eq!(ctx.is_writable(), writable);
        let mut seen = self.0.lock().unwrap();
        assert_ne!(seen.notified.replace(writable), Some(writable), "notifications alternate");
        seen.waits &= !writable;
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        self.0.lock().unwrap().errors.push(format!("{error:#}"));
        ctx.close();
        Ok(())
    }
}

fn options(policy: Overflow, low: usize, high: usize, most: usize) -> ChannelOptions {
    ChannelOptions::new().overflow(policy).water_mark(WaterMark::new(low, high).unwrap()).max_outbound(most)
}

fn policy() -> impl Strategy<Value = Overflow> {
    prop_oneof![Just(Overflow::Refuse), Just(Overflow::Close)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn in_memory_producers_that_obey_are_never_refused_closed_or_left_waiting(
        steps in proptest::collection::vec(step(), 1..120),
        policy in policy(),
        low in 1..40_000usize,
        above in 0..40_000usize,
        most in prop_oneof![Just(16 * MIB), 1_000..100_000usize],
    ) {
        let high = low + above;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let pipeline = Pipeline::codec(codec()).handler(Obedient(seen.clone()));
        let options = options(policy, low, high, most);
        let mut channel =
            EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap();
        channel.set_outbound_room(Some(0));
        let threads: Vec<_> = (0..THREADS).map(|_| channel.channel()).collect();
        let remote = seen.lock().unwrap().remote.clone().expect("the handler is active");
        let group: ChannelGroup<Bytes> = ChannelGroup::new();
        prop_assert!(group.join(channel.channel()));
        let mut waiting: Vec<Completion> = Vec::new();
        let (mut bytes, mut taken, mut arrived) = (Vec::new(), 0, Arrived::default());
        for step in steps {
            match step {
                Step::Thread(thread, size) => {
                    let handle = &threads[usize::from(thread)];
                    if handle.is_writable() {
                        let message = seen.lock().unwrap().next(thread, size);
                        handle.write(message).expect("a writable channel accepts a message");
                    } else {
                        waiting.push(handle.writable());
                    }
                }
                Step::Handler(size) => {
                    remote.execute(move |me, ctx| me.write(ctx, HANDLER, size)).unwrap();
                    channel.run_pending();
                }
                Step::Offload(size) => {
                    let task = move |_: &mut Obedient, ctx: &mut Context<'_, Obedient>| {
                        ctx.offload(|| (), move |me, ctx, _| me.write(ctx, OFFLOADED, size))?;
                        Ok(())
                    };
                    remote.execute(task).unwrap();
                    channel.run_pending();
                }
                Step::Group(size) => {
                    let mut is_writable = false;
                    let mut filter = |channel: &Channel<Bytes>| {
                        is_writable = channel.is_writable();
                        is_writable
                    };
                    let mut seen = seen.lock().unwrap();
                    let number = seen.written.get(&GROUP).copied().unwrap_or(0);
                    let broadcast = group.broadcast_where(&mut filter, message(GROUP, number, size)).unwrap();
                    if is_writable {
                        seen.next(GROUP, size);
                    }
                    drop(seen);
                    drop(broadcast);
                }
                Step::Run => drop(channel.run_pending()),
                Step::Take(n) => {
                    channel.set_outbound_room(Some(n));
                    channel.set_outbound_room(Some(0));
                }
            }
            let sent = channel.read_outbound();
            taken += sent.len();
            bytes.extend_from_slice(&sent);
            arrived.take(&mut bytes);
            let seen = seen.lock().unwrap();
            prop_assert!(seen.errors.is_empty() && channel.is_open(), "{:?}", seen.errors);
            let waits = seen.bytes - taken;
            let producers: usize = seen.largest.values().sum::<usize>() + 4 * seen.largest.len();
            prop_assert!(waits <= high.min(most) + producers, "{waits} bytes are pending; the limits are {high} and {producers}");
        }
        channel.set_outbound_room(None);
        channel.run_pending();
        bytes.extend_from_slice(&channel.read_outbound());
        arrived.take(&mut bytes);
        let seen = seen.lock().unwrap();
        prop_assert!(bytes.is_empty() && channel.is_open());
        prop_assert_eq!(&arrived.next, &seen.written);
        prop_assert!(!seen.waits && seen.notified != Some(false));
        prop_assert!(threads.iter().all(Channel::is_writable));
        for completion in waiting {
            prop_assert!(completion.is_done(), "a completion of writable is still pending");
            completion.wait().unwrap();
        }
    }
}

// ---- over sockets, with threads ----------------------------------------------------------------

/// State shared by the producers of one connection.
struct Run {
    errors: Mutex<Vec<String>>,
    /// Producers that have not finished.
    left: AtomicUsize,
    channel: Mutex<Option<mpsc::Sender<Channel<Bytes>>>>,
}

/// Writes its messages whenever the channel is writable, some of them after offloaded work.
struct Writer {
    run: Arc<Run>,
    sizes: Vec<usize>,
    next: u32,
    offloaded: bool,
}

impl Writer {
    fn proceed(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        while ctx.is_writable() && !self.offloaded {
            let Some(size) = self.sizes.get(self.next as usize).copied() else { return Ok(()) };
            if size.is_multiple_of(3) {
                self.offloaded = true;
                ctx.offload(
                    || (),
                    |me, ctx, _| {
                        me.offloaded = false;
                        // If the channel is not writable now, `writability_changed` continues.
                        if ctx.is_writable() {
                            me.write(ctx)?;
                        }
                        me.proceed(ctx)
                    },
                )?;
                return Ok(());
            }
            self.write(ctx)?;
        }
        Ok(())
    }

    fn write(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let size = self.sizes[self.next as usize];
        ctx.write(message(HANDLER, self.next, size))?;
        self.next += 1;
        if self.next as usize == self.sizes.len() {
            self.run.left.fetch_sub(1, Ordering::SeqCst);
        }
        Ok(())
    }
}

impl Handler for Writer {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if let Some(sender) = self.run.channel.lock().unwrap().take() {
            sender.send(ctx.channel()).unwrap();
        }
        self.proceed(ctx)
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        if writable { self.proceed(ctx) } else { Ok(()) }
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        self.run.errors.lock().unwrap().push(format!("{error:#}"));
        ctx.close_now();
        Ok(())
    }
}

/// Returns sizes that depend only on the seed, so that a case can be repeated.
fn sizes(seed: u64, count: usize) -> Vec<usize> {
    let mut x = seed | 1;
    let mut draw = move |n: usize| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) as usize % n
    };
    (0..count)
        .map(|_| match draw(40) {
            0 => 200_000 + draw(4 * MIB - 200_000),
            1..8 => 10_000 + draw(100_000),
            _ => 1 + draw(300),
        })
        .collect()
}

fn over_sockets_producers_that_obey_are_never_refused_closed_or_left_waiting() {
    for seed in 0..3 {
        one_connection(seed);
    }
}

fn one_connection(seed: u64) {
    const EACH: usize = 60;
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (sender, channels) = mpsc::channel();
    let run = Arc::new(Run {
        errors: Mutex::default(),
        left: AtomicUsize::new(usize::from(THREADS) + 2),
        channel: Mutex::new(Some(sender)),
    });
    let all: Vec<Vec<usize>> = (0..u64::from(THREADS) + 2).map(|n| sizes(seed * 100 + n, EACH)).collect();
    let (inner, of_handler) = (run.clone(), all[usize::from(THREADS)].clone());
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let (run, sizes) = (inner.clone(), of_handler.clone());
            Pipeline::codec(codec()).handler(Writer { run, sizes, next: 0, offloaded: false })
        })
        .bind(anywhere())
        .unwrap();
    let mut peer = connect(&server);
    let channel = channels.recv_timeout(PATIENCE).unwrap();
    let largest: usize = all.iter().map(|sizes| sizes.iter().max().unwrap()).sum();
    thread::scope(|scope| {
        for producer in 0..THREADS {
            let (channel, run, sizes) = (channel.clone(), &run, &all[usize::from(producer)]);
            scope.spawn(move || {
                for (number, size) in (0..).zip(sizes) {
                    while !channel.is_writable() {
                        done(channel.writable()).expect("the channel stays open");
                    }
                    channel
                        .write(message(producer, number, *size))
                        .expect("a writable channel accepts a message");
                }
                run.left.fetch_sub(1, Ordering::SeqCst);
            });
        }
        scope.spawn(|| {
            let members: ChannelGroup<Bytes> = ChannelGroup::new();
            assert!(members.join(channel.clone()));
            for (number, size) in (0..).zip(&all[usize::from(THREADS) + 1]) {
                let mut members_left = 1;
                while members_left > 0 {
                    done(channel.writable()).expect("the channel stays open");
                    let message = message(GROUP, number, *size);
                    let broadcast = members.broadcast_where(|member| member.is_writable(), message).unwrap();
                    let report = done(broadcast.report()).unwrap();
                    assert_eq!(report.written, report.members, "{report:?}");
                    members_left -= report.written;
                }
            }
            run.left.fetch_sub(1, Ordering::SeqCst);
        });
        // Block the loop repeatedly, for random times.
        let stalls = sizes(seed + 7, 40);
        for stall in stalls {
            let _ = group.next().execute(move || {
                thread::park_timeout(Duration::from_micros(stall as u64 % 5_000));
            });
        }
        let (mut arrived, mut rest) = (Arrived::default(), Vec::new());
        let mut buffer = vec![0; MIB];
        let pauses = sizes(seed + 9, 500);
        for at in 0.. {
            // Pause the peer as well.
            let pause = pauses[at % pauses.len()];
            if pause.is_multiple_of(7) {
                thread::park_timeout(Duration::from_micros(pause as u64 % 3_000));
            }
            let room = 1 + pause.min(MIB - 1);
            let n = peer.read(&mut buffer[..room]).expect("the server keeps sending");
            assert!(n > 0, "the channel was closed: {:?}", run.errors.lock().unwrap());
            rest.extend_from_slice(&buffer[..n]);
            arrived.take(&mut rest);
            let waits = group.metrics()[0].outbound_bytes as usize;
            assert!(waits <= 65_536 + largest, "{waits} encoded bytes are pending");
            if arrived.next.values().sum::<u32>() as usize == (usize::from(THREADS) + 2) * EACH {
                break;
            }
        }
        assert!(rest.is_empty());
        assert!(arrived.next.values().all(|next| *next as usize == EACH));
    });
    assert_eq!(run.left.load(Ordering::SeqCst), 0);
    assert!(run.errors.lock().unwrap().is_empty() && channel.is_open());
    let metrics = &group.metrics()[0];
    assert_eq!(metrics.messages_refused + metrics.messages_dropped + metrics.closes_overflowed, 0);
}

over_each_transport! {
    over_sockets_producers_that_obey_are_never_refused_closed_or_left_waiting,
}
