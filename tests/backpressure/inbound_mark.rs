//! Input held by a program, and the pauses of reading that follow.

use crate::support::{
    channels::read,
    loops::{settle, single, watch},
    tcp,
    wait::{PATIENCE, wait_until},
};
use bytes::Bytes;
use netwheel::{
    Error,
    buffer::WaterMark,
    channel::{ChannelOptions, InputGuard, TimeLimits},
    codec::Line,
    prelude::*,
    testing::EmbeddedChannel,
};
use std::{
    collections::VecDeque,
    io::Write,
    sync::{Arc, Mutex, mpsc::channel},
    time::Duration,
};

type Queue = Arc<Mutex<VecDeque<(Bytes, InputGuard)>>>;

/// Hands its messages to a slower consumer.
struct Slow {
    queue: Queue,
    read_completes: Arc<Mutex<usize>>,
}

impl Handler for Slow {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        let held = ctx.hold_input(message.len());
        self.queue.lock().unwrap().push_back((message, held));
        Ok(())
    }

    fn read_complete(&mut self, _: &mut Context<'_, Self>) -> Result {
        *self.read_completes.lock().unwrap() += 1;
        Ok(())
    }
}

/// A channel that pauses reading above four bytes and resumes below two, and the queue of its
/// consumer.
fn embedded(options: ChannelOptions) -> (EmbeddedChannel<Bytes>, Queue) {
    let queue = Queue::default();
    let handler = Slow { queue: queue.clone(), read_completes: Arc::default() };
    let limits = TimeLimits::new().read(Duration::from_secs(10));
    let pipeline = Pipeline::codec(Line::new()).time_limits(limits).handler(handler);
    let options = options.inbound_mark(WaterMark::new(2, 4).unwrap());
    (EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap(), queue)
}

fn taken(queue: &Queue) -> Vec<Bytes> {
    queue.lock().unwrap().iter().map(|(message, _)| message.clone()).collect()
}

#[test]
fn reading_pauses_and_resumes_at_the_marks() {
    let (mut channel, queue) = embedded(ChannelOptions::new());
    channel.write_inbound(b"a\nb\nc\nd\ne\nf\ng\nh\ni\n").unwrap();
    assert_eq!(
        taken(&queue),
        ["a", "b", "c", "d", "e"],
        "the first message above four bytes pauses the read"
    );
    for held in [4, 3, 2] {
        queue.lock().unwrap().pop_front();
        channel.run_pending();
        assert_eq!(taken(&queue).len(), held, "not below two yet");
    }
    queue.lock().unwrap().pop_front();
    channel.run_pending();
    assert_eq!(taken(&queue), ["e", "f", "g", "h", "i"]);
    queue.lock().unwrap().clear();
    channel.write_inbound(b"j\n").unwrap();
    assert_eq!(taken(&queue), ["j"]);
}

#[test]
fn auto_read_of_the_program_is_respected() {
    let (mut channel, queue) = embedded(ChannelOptions::new());
    channel.write_inbound(b"a\nb\nc\nd\ne\nf\n").unwrap();
    channel
        .channel()
        .execute(|ctx| {
            assert!(ctx.auto_read());
            ctx.set_auto_read(false);
            Ok(())
        })
        .unwrap();
    queue.lock().unwrap().clear();
    channel.run_pending();
    assert_eq!(taken(&queue).len(), 0, "auto-read is off");
    read(&channel.channel());
    channel.run_pending();
    assert_eq!(taken(&queue), ["f"]);
}

#[test]
fn a_requested_read_happens_above_the_high_mark() {
    let (mut channel, queue) = embedded(ChannelOptions::new());
    channel.write_inbound(b"a\nb\nc\nd\ne\nf\n").unwrap();
    assert_eq!(taken(&queue).len(), 5);
    read(&channel.channel());
    channel.run_pending();
    assert_eq!(taken(&queue).len(), 6);
}

#[test]
fn read_limits_do_not_apply_while_reading_is_paused() {
    let (mut channel, queue) = embedded(ChannelOptions::new());
    channel.write_inbound(b"a\nb\nc\nd\ne\n").unwrap();
    channel.advance(Duration::from_secs(60));
    assert!(channel.is_open(), "reading is paused");
    queue.lock().unwrap().clear();
    channel.run_pending();
    channel.advance(Duration::from_secs(21));
    assert!(!channel.is_open(), "the read limit applies again");
}

#[test]
fn guards_of_a_closed_channel_can_be_dropped() {
    let (mut channel, queue) = embedded(ChannelOptions::new());
    channel.write_inbound(b"a\nb\nc\nd\ne\n").unwrap();
    channel.close();
    assert!(channel.is_closed());
    queue.lock().unwrap().clear();
    channel.run_pending();
    let (channel, queue) = embedded(ChannelOptions::new());
    drop(channel);
    queue.lock().unwrap().clear();
}

#[test]
fn a_socket_is_not_read_above_the_high_mark_and_the_loop_does_not_spin() {
    const MESSAGES: usize = 20_000;
    const HIGH: usize = 64 * 1024;
    let (group, event_loop) = single(EventLoopGroup::builder());
    let queue = Queue::default();
    let (sender, connected) = channel();
    let made = (queue.clone(), Mutex::new(sender));
    let server = ServerBootstrap::new(&group)
        .channel_options(ChannelOptions::new().inbound_mark(WaterMark::new(HIGH / 2, HIGH).unwrap()))
        .pipeline(move |_| {
            made.1.lock().unwrap().send(()).unwrap();
            Pipeline::codec(Line::new())
                .handler(Slow { queue: made.0.clone(), read_completes: Arc::default() })
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut client = tcp::connect(server.local_address());
    connected.recv_timeout(PATIENCE).unwrap();
    let writer = std::thread::spawn(move || {
        for n in 0..MESSAGES {
            client.write_all(format!("{n:0200}\n").as_bytes()).unwrap();
        }
        client
    });
    // The consumer starts when the limit is reached.
    watch(&event_loop, |metrics| metrics.reads_held > 0);
    let mut next = 0;
    let mut most = 0;
    while next < MESSAGES {
        wait_until("the next message", || !queue.lock().unwrap().is_empty());
        let mut queue = queue.lock().unwrap();
        most = most.max(queue.iter().map(|(_, held)| held.bytes()).sum());
        let (message, _held) = queue.pop_front().unwrap();
        assert_eq!(std::str::from_utf8(&message).unwrap().parse::<usize>().unwrap(), next);
        next += 1;
    }
    assert!(most <= HIGH + 200, "{most} bytes were held at once");
    drop(writer.join().unwrap());
    // Pausing ends a turn, and waiting for the consumer causes no turns.
    settle(&event_loop);
    assert!(event_loop.metrics().turns < 20 * MESSAGES as u64);
    assert!(matches!(WaterMark::new(2, 1).unwrap_err(), Error::Setting(_)));
}

#[test]
fn a_mark_without_limit_still_lets_a_program_pause_reading() {
    let queue = Arc::new(Mutex::new(Vec::new()));
    let inner = queue.clone();
    let pipeline = Pipeline::codec(Line::new()).on_read(move |ctx, message: Bytes| {
        inner.lock().unwrap().push((message, ctx.pause_reading()));
        Ok(())
    });
    let options = ChannelOptions::new().inbound_mark(WaterMark::new(1, usize::MAX).unwrap());
    let mut channel = EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap();
    channel.write_inbound(b"a\nb\n").unwrap();
    assert_eq!(queue.lock().unwrap().len(), 1);
    channel.write_inbound(b"c\n").unwrap();
    assert_eq!(queue.lock().unwrap().len(), 1, "reading is paused");
    drop(queue.lock().unwrap().remove(0));
    channel.run_pending();
    assert_eq!(queue.lock().unwrap()[0].0, "b");
}

/// The pause and the other bytes add up to more than `usize::MAX`.
#[test]
fn a_mark_without_limit_still_lets_a_program_pause_reading_while_it_holds_input() {
    let held = Arc::new(Mutex::new(Vec::new()));
    let inner = held.clone();
    let pipeline = Pipeline::codec(Line::new()).on_read(move |ctx, message: Bytes| {
        let guards = [ctx.hold_input(10), ctx.pause_reading(), ctx.pause_reading()];
        inner.lock().unwrap().push((message, guards));
        Ok(())
    });
    let options = ChannelOptions::new().inbound_mark(WaterMark::new(1024, usize::MAX).unwrap());
    let mut channel = EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap();
    channel.write_inbound(b"a\nb\n").unwrap();
    assert_eq!(held.lock().unwrap().len(), 1);
    held.lock().unwrap().clear();
    channel.run_pending();
    assert_eq!(held.lock().unwrap()[0].0, "b");
}
