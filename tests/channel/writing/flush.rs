//! What leaves when, counted in system calls (H-13 to H-15). Ours in form: bytes that are written while a channel is read leave
//! when it has been read, all others at the end of the turn, together; `flush` sends them when the callback returns; there is no write that nobody flushes.

use crate::support::{
    journal::Log,
    loops::{end, one_loop},
    recorder::{Event, Recorder, hand_over},
    tcp::{ask, connect, read_to_end},
    wait::done,
};
use bytes::Bytes;
use netwheel::{
    ChannelOptions,
    buffer::WaterMark,
    codec::{Line, RawBytes},
    prelude::*,
};
use std::{
    io::Write,
    sync::{Mutex, mpsc},
    time::Duration,
};

/// A server of lines on one loop, whose handlers do what `hook` does.
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

/// H-13: whatever a burst of reads has written leaves with one system call.
#[test]
fn h_13_the_writes_of_a_read_burst_leave_in_one_system_call() {
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
    // How many bursts TCP makes of it is not ours to say, but each has its read.
    assert!(metrics.writes <= metrics.reads - metrics.reads_blocked, "{metrics:#?}");
    assert!(metrics.writes < 20, "{metrics:#?}");
}

/// H-13: flushes in one callback are one.
#[test]
fn h_13_flush_again_and_again_in_a_callback_is_once() {
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

/// H-14: a close and an error send what was written; to become unwritable is no reason to send earlier.
#[test]
fn h_14_what_waits_is_sent_at_the_latest_when_the_channel_closes_or_fails() {
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
    assert!(group.next().metrics().writes <= 2, "two only if TCP brought them one by one");
}

/// H-15: outside of a read: all writes of one task leave together, and nobody has to flush.
#[test]
fn h_15_what_a_task_writes_leaves_together() {
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

/// H-15: who is told that a write was sent, and writes again, is sent as well.
#[test]
fn h_15_what_is_written_when_a_write_is_answered_is_not_lost() {
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
    assert_eq!(group.next().metrics().writes, 2, "the second one was written when the first was gone");
    end(&group);
}

/// A write to another channel of the same loop goes through the loop's queue: its handler is not called from this one's.
#[test]
fn write_to_another_channel_calls_nothing_from_within_the_callback() {
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
    log.wait_until("both", |log| log.iter().filter(|entry| *entry == "active").count() == 2);
    log.take();
    peers[0].write_all(b"hello\n").unwrap();
    ask(&mut peers[1], "", "hello\n");
    log.wait_for("writable true");
    let expected = ["read hello", "end of read", "read_complete", "writable false", "writable true"];
    assert_eq!(log.take(), expected, "the other one's is called later");
    others.lock().unwrap().clear();
    end(&group);
}

/// Notes how much the loop has sent when it reads, and then answers with so many bytes.
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

/// An answer does not wait for the others of its turn.
#[test]
fn an_answer_leaves_before_the_next_channel_is_read() {
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
        // Loopback: both are there before the loop looks, and so have one turn.
        by_hand.run_once(Duration::from_secs(10));
        let (first, second) = (read.try_recv().unwrap(), read.try_recv().unwrap());
        assert_eq!((first, second), (0, bytes as u64));
        assert_eq!(by_hand.event_loop().metrics().writes, 2);
    }
}
