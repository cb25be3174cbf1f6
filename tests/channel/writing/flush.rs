//! When bytes are sent, counted in system calls (H-13 to H-15).
//!
//! Unlike in Netty, every write is flushed. Bytes written while a channel is read are sent after
//! the read; all others are sent together at the end of the turn. `flush` sends them when the
//! callback returns.

use crate::support::{
    journal::Log,
    loops::{end, one_loop},
    recorder::{Event, Recorder, hand_over},
    tcp::{ask, connect, read_to_end},
    wait::done,
};
use bytes::Bytes;
use netwheel::{
    buffer::WaterMark,
    channel::ChannelOptions,
    codec::{Line, RawBytes},
    prelude::*,
};
use std::{
    io::Write,
    sync::{Mutex, mpsc},
    time::Duration,
};

/// Starts a server with a line codec on one loop, whose handlers run `hook`.
fn serve<F>(group: &EventLoopGroup, log: &Log, hook: F) -> Server
where
    F: Fn(&mut Context<'_, Recorder>, &Event) -> Result + Clone + Send + Sync + 'static,
{
    let log = Mutex::new(log.clone());
    ServerBootstrap::new(group)
        .pipeline(move |_| {
            Pipeline::codec(Line::new()).handler(Recorder::with(&log.lock().unwrap(), hook.clone()))
        })
        .bind("127.0.0.1:0")
        .unwrap()
}

/// H-13: all writes of a burst of reads are sent with one system call.
#[test]
fn h_13_the_writes_of_a_read_burst_are_sent_in_one_system_call() {
    const LINES: usize = 300;
    let group = one_loop();
    let server = serve(&group, &Log::new(), |ctx, call| match call {
        Event::Read(message) => ctx.write(message.clone()),
        _ => Ok(()),
    });
    let text = "line\n".repeat(LINES);
    ask(&mut connect(server.local_address()), &text, &text);
    end(&group);
    let metrics = group.next().metrics();
    assert_eq!(metrics.messages_written, LINES as u64);
    // TCP decides how many bursts arrive, but each burst has its own read.
    assert!(metrics.writes <= metrics.reads - metrics.reads_blocked, "{metrics:#?}");
    assert!(metrics.writes < 20, "{metrics:#?}");
}

/// H-13: repeated flushes in one callback make one system call.
#[test]
fn h_13_repeated_flushes_in_a_callback_are_combined() {
    let group = one_loop();
    let server = serve(&group, &Log::new(), |ctx, call| {
        if let Event::Read(message) = call {
            for _ in 0..10 {
                ctx.write(message.clone())?;
                ctx.flush();
            }
        }
        Ok(())
    });
    ask(&mut connect(server.local_address()), "x\n", &"x\n".repeat(10));
    end(&group);
    assert_eq!(group.next().metrics().writes, 1);
}

/// H-14: a close and an error send earlier writes. Becoming unwritable does not flush early.
#[test]
fn h_14_pending_bytes_are_sent_when_the_channel_closes_or_fails() {
    for end_of in ["close", "fail"] {
        let group = one_loop();
        let log = Log::new();
        let server = serve(&group, &log, move |ctx, call| match call {
            Event::Read(_) => {
                ctx.write("last".into())?;
                ctx.write("words".into())?;
                if end_of == "close" {
                    ctx.close();
                    return Ok(());
                }
                Err("on purpose".into())
            }
            _ => Ok(()),
        });
        let mut peer = connect(server.local_address());
        peer.write_all(b"go\n").unwrap();
        assert_eq!(read_to_end(&mut peer), b"last\nwords\n", "{end_of}");
        end(&group);
        assert_eq!(group.next().metrics().writes, 1);
    }
    let group = one_loop();
    let options = ChannelOptions::new().water_mark(WaterMark::new(2, 3).unwrap());
    let server = ServerBootstrap::new(&group)
        .channel_options(options)
        .pipeline(|_| {
            Pipeline::codec(Line::new()).handler(Recorder::with(&Log::new(), |ctx, call| match call {
                Event::Read(message) => ctx.write(message.clone()),
                _ => Ok(()),
            }))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    ask(&mut connect(server.local_address()), "aaaa\nbbbb\n", "aaaa\nbbbb\n");
    end(&group);
    assert!(group.next().metrics().writes <= 2, "two writes only if TCP delivered the lines separately");
}

/// H-15: outside of a read, all writes of one task are sent together without an explicit flush.
#[test]
fn h_15_the_writes_of_a_task_are_sent_together() {
    let group = one_loop();
    let (hand_over, channels) = hand_over();
    let server = serve(&group, &Log::new(), hand_over);
    let mut peer = connect(server.local_address());
    let channel = channels.recv().unwrap();
    let task = |ctx: &mut netwheel::ChannelContext<'_, Bytes>| {
        (0..50).try_for_each(|n| ctx.write(format!("{n:02}").into()))
    };
    channel.execute(task).unwrap();
    let expected: String = (0..50).map(|n| format!("{n:02}\n")).collect();
    ask(&mut peer, "", &expected);
    end(&group);
    assert_eq!(group.next().metrics().writes, 1);
}

/// H-15: a write in the completion of another write is sent as well.
#[test]
fn h_15_a_write_in_the_completion_of_a_write_is_sent() {
    let group = one_loop();
    let (hand_over, channels) = hand_over();
    let server = serve(&group, &Log::new(), hand_over);
    let mut peer = connect(server.local_address());
    let channel: Channel<Bytes> = channels.recv().unwrap();
    let (again, (told, answered)) = (channel.clone(), mpsc::channel());
    channel.write_tracked("first".into()).unwrap().on_complete(move |sent| {
        sent.unwrap();
        let second = again.write_tracked("second".into()).unwrap();
        told.send(second).unwrap();
    });
    ask(&mut peer, "", "first\nsecond\n");
    done(answered.recv().unwrap()).unwrap();
    assert_eq!(group.next().metrics().writes, 2, "the second write was made after the first was sent");
    end(&group);
}

/// A write to another channel of the same loop goes through the loop's queue. The other handler is
/// not called within this callback.
#[test]
fn a_write_to_another_channel_calls_no_handler_within_the_callback() {
    let group = one_loop();
    let log = Log::new();
    let others: &'static Mutex<Vec<Channel<Bytes>>> = Box::leak(Box::default());
    let inner = log.clone();
    let server = ServerBootstrap::new(&group)
        .channel_options(ChannelOptions::new().water_mark(WaterMark::new(2, 3).unwrap()))
        .pipeline(move |_| {
            let log = inner.clone();
            Pipeline::codec(Line::new()).handler(Recorder::with(&inner, move |ctx, call| {
                match call {
                    Event::Active(_) => others.lock().unwrap().push(ctx.channel()),
                    Event::Read(message) => {
                        let others = others.lock().unwrap();
                        let own = ctx.id();
                        for other in others.iter().filter(|other| other.id() != own) {
                            other.write(message.clone())?;
                        }
                        log.push("end of read");
                    }
                    _ => {}
                }
                Ok(())
            }))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut peers = [connect(server.local_address()), connect(server.local_address())];
    log.wait_until("both channels", |log| log.iter().filter(|entry| *entry == "active").count() == 2);
    log.take();
    peers[0].write_all(b"hello\n").unwrap();
    ask(&mut peers[1], "", "hello\n");
    log.wait_for("writable true");
    let expected = ["read hello", "end of read", "read_complete", "writable false", "writable true"];
    assert_eq!(log.take(), expected, "the other handler is called later");
    others.lock().unwrap().clear();
    end(&group);
}

/// Reports how many bytes the loop has sent before each read, and then answers with `bytes` bytes.
struct Answers {
    bytes: usize,
    event_loop: EventLoop,
    seen: mpsc::Sender<u64>,
}

impl Handler for Answers {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, _: Bytes) -> Result {
        self.seen.send(self.event_loop.metrics().bytes_written).map_err(Error::other)?;
        ctx.write(vec![b'x'; self.bytes].into())
    }
}

/// A reply is sent without waiting for the other replies of its turn.
#[test]
fn a_reply_is_sent_before_the_next_channel_is_read() {
    for bytes in [16 * 1024, 64] {
        let mut by_hand = EventLoopGroup::builder().build_manual().unwrap();
        let (seen, read) = mpsc::channel();
        let made = (Mutex::new(seen), by_hand.event_loop().clone());
        let server = ServerBootstrap::new(by_hand.group())
            .pipeline(move |_| {
                let (seen, event_loop) = (made.0.lock().unwrap().clone(), made.1.clone());
                Pipeline::codec(RawBytes).handler(Answers { bytes, event_loop, seen })
            })
            .bind("127.0.0.1:0")
            .unwrap();
        let mut peers = [connect(server.local_address()), connect(server.local_address())];
        while by_hand.event_loop().metrics().channels < 2 {
            by_hand.run_once(Duration::from_millis(10));
        }
        peers.iter_mut().for_each(|peer| peer.write_all(b"go").unwrap());
        // On loopback both requests have arrived before the loop polls, so one turn handles both.
        by_hand.run_once(Duration::from_secs(10));
        let (first, second) = (read.try_recv().unwrap(), read.try_recv().unwrap());
        assert_eq!((first, second), (0, bytes as u64));
        assert_eq!(by_hand.event_loop().metrics().writes, 2);
    }
}
