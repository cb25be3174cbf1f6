//! When and in which order bytes are sent: C-40, C-41, C-43, C-47, C-53, C-54.

use crate::over_each_transport;
use crate::support::{
    channels::embedded,
    journal::Log,
    loops::{end, one_loop},
    recorder::{Event, Recorder, hand_over},
    streams::{anywhere, connect},
    tcp::read_to_end,
    wait::done,
};
use crate::writing::{marks, raw, zeros};
use bytes::Bytes;
use netwheel::{
    buffer::KEEP_FROM,
    channel::ChannelOptions,
    codec::{Line, RawBytes},
    prelude::*,
};
use std::{
    cell::Cell,
    io::Read,
    rc::Rc,
    sync::{Arc, Barrier, Mutex, mpsc},
    time::Duration,
};

// A write needs no explicit flush: it is sent by the end of the turn, together with the others of
// the turn.
#[test]
fn c_40_a_write_without_flush_is_sent_at_the_end_of_the_turn() {
    let log = Log::new();
    let pending = Rc::new(Cell::new(0));
    let seen = pending.clone();
    let mut channel = embedded(Recorder::with(&log, move |ctx, call| match call {
        Event::Read(message) => ctx.write(message.clone()),
        Event::ReadComplete => {
            seen.set(ctx.pending_bytes());
            Ok(())
        }
        _ => Ok(()),
    }));
    channel.write_inbound(b"a\nb\n").unwrap();
    assert_eq!(pending.get(), 4, "both are pending within the turn");
    assert_eq!(channel.read_outbound(), "a\nb\n", "both are sent after the turn");
    assert_eq!(channel.pending_bytes(), 0);
}

fn c_40_over_tcp_the_writes_of_a_turn_are_sent_in_one_system_call() {
    let group = one_loop();
    let server = ServerBootstrap::new(&group)
        .pipeline(|_| {
            Pipeline::codec(Line::new()).handler(Recorder::with(&Log::new(), |ctx, call| match call {
                Event::Active(_) => {
                    for n in 0..100 {
                        ctx.write(format!("{n:02}").into())?;
                    }
                    ctx.close();
                    Ok(())
                }
                _ => Ok(()),
            }))
        })
        .bind(anywhere())
        .unwrap();
    let got = read_to_end(&mut connect(&server));
    assert_eq!(got.len(), 300);
    end(&group);
    assert_eq!(group.next().metrics().writes, 1);
}

#[test]
fn c_40_flush_sends_only_earlier_writes() {
    let log = Log::new();
    let pending = Rc::new(Cell::new(0));
    let seen = pending.clone();
    let mut channel = embedded(Recorder::with(&log, move |ctx, call| match call {
        Event::Read(message) if message == "flush" => {
            ctx.write("before".into())?;
            ctx.flush();
            Ok(())
        }
        Event::Read(_) => {
            seen.set(ctx.pending_bytes());
            ctx.write("after".into())
        }
        _ => Ok(()),
    }));
    channel.write_inbound(b"flush\nnext\n").unwrap();
    assert_eq!(pending.get(), 0, "flushed between the two messages of one read");
    assert_eq!(channel.read_outbound(), "before\nafter\n");
}

#[test]
fn c_41_partial_writes_lose_and_repeat_nothing() {
    let log = Log::new();
    let mut channel = embedded(Recorder::new(&log));
    channel.set_outbound_room(Some(0));
    let big = "k".repeat(KEEP_FROM);
    for text in ["one", &big, "two", "three", &big, ""] {
        channel.channel().write(text.to_owned().into()).unwrap();
    }
    channel.run_pending();
    let expected = format!("one\n{big}\ntwo\nthree\n{big}\n\n");
    assert_eq!(channel.pending_bytes(), expected.len());
    let mut got = Vec::new();
    // Steps that end before, at and after every boundary between chunks.
    for step in [1, 2, 1, KEEP_FROM - 1, 1, 1, 3, 1, 6, KEEP_FROM, 1].into_iter().chain([usize::MAX]) {
        channel.set_outbound_room(Some(step));
        let part = channel.read_outbound();
        assert!(step == usize::MAX || part.len() == step);
        got.extend_from_slice(&part);
        assert_eq!(channel.pending_bytes(), expected.len() - got.len());
    }
    assert_eq!(String::from_utf8(got).unwrap(), expected);
}

// A plain write has no completion, so the test checks the order of the bytes.
#[test]
fn c_41_writes_of_handler_and_handles_are_sent_in_order() {
    let log = Log::new();
    let mut channel = embedded(Recorder::new(&log));
    for n in 0..4 {
        channel.channel().write(format!("{n}").into()).unwrap();
        channel.channel().execute(move |ctx| ctx.write(format!("{n}x").into())).unwrap();
    }
    channel.run_pending();
    assert_eq!(channel.read_outbound(), "0\n0x\n1\n1x\n2\n2x\n3\n3x\n");
}

// One system call takes 64 slices. Unit tests of `buffer::outbound` check that each slice is a
// whole write or the rest of one. This test checks that more slices than one call takes, mixed with
// small writes, arrive complete.
fn c_43_more_slices_than_one_system_call_takes_arrive_in_order() {
    let group = one_loop();
    let expected: Vec<u8> = (0..500u32)
        .flat_map(|n| {
            let size = if n % 3 == 0 { 7 } else { KEEP_FROM + n as usize };
            vec![n as u8; size]
        })
        .collect();
    let server = ServerBootstrap::new(&group)
        .pipeline(|_| {
            Pipeline::codec(RawBytes).handler(Recorder::with(&Log::new(), |ctx, call| {
                if call.is_active() {
                    for n in 0..500u32 {
                        let size = if n % 3 == 0 { 7 } else { KEEP_FROM + n as usize };
                        ctx.write(Bytes::from(vec![n as u8; size]))?;
                        // An empty write must neither end the gathering of slices nor stall it.
                        ctx.write(Bytes::new())?;
                    }
                    ctx.close();
                }
                Ok(())
            }))
        })
        .bind(anywhere())
        .unwrap();
    let got = read_to_end(&mut connect(&server));
    assert_eq!(got.len(), expected.len());
    assert!(got == expected, "the bytes are out of order");
    end(&group);
}

#[test]
fn c_47_a_flush_within_a_flush_does_not_recurse_and_its_data_is_sent() {
    let log = Log::new();
    let inner = log.clone();
    let more = Cell::new(5);
    // `writability_changed` is the only callback that a flush calls, so it takes the place of a
    // write's completion.
    let mut channel = raw(
        &marks(2, 3),
        Recorder::with(&log, move |ctx, call| {
            if *call == Event::Writable(true) && more.get() > 0 {
                more.set(more.get() - 1);
                ctx.write("cdef".into())?;
                ctx.flush();
                inner.push("end of writable");
            }
            Ok(())
        }),
    );
    channel.channel().write("abcd".into()).unwrap();
    channel.run_pending();
    assert_eq!(
        channel.read_outbound(),
        format!("abcd{}", "cdef".repeat(5)),
        "all is sent without another trigger"
    );
    let told = log.take();
    for pair in told.windows(2) {
        let nested = pair[0] == "writable true" && pair[1] != "end of writable";
        assert!(!nested, "nested call: {told:?}");
    }
    assert_eq!(told.iter().filter(|entry| *entry == "end of writable").count(), 5);
}

fn c_47_over_tcp_writes_during_a_flush_are_sent_without_another_trigger() {
    let group = one_loop();
    let server = ServerBootstrap::new(&group)
        .channel_options(marks(2, 3))
        .pipeline(|_| {
            let more = Cell::new(1000);
            Pipeline::codec(RawBytes).handler(Recorder::with(&Log::new(), move |ctx, call| match call {
                Event::Active(_) => ctx.write("abcd".into()),
                Event::Writable(true) if more.get() > 0 => {
                    more.set(more.get() - 1);
                    ctx.write("cdef".into())?;
                    ctx.flush();
                    Ok(())
                }
                Event::Writable(true) => {
                    ctx.close();
                    Ok(())
                }
                _ => Ok(()),
            }))
        })
        .bind(anywhere())
        .unwrap();
    let got = read_to_end(&mut connect(&server));
    assert_eq!(String::from_utf8(got).unwrap(), format!("abcd{}", "cdef".repeat(1000)));
    end(&group);
}

/// Reports the pending bytes repeatedly until there are none, and then closes.
fn watch_pending(ctx: &mut Context<'_, Recorder>, seen: mpsc::Sender<usize>) {
    ctx.schedule(Duration::ZERO, move |_, ctx| {
        seen.send(ctx.pending_bytes()).unwrap();
        if ctx.pending_bytes() > 0 {
            watch_pending(ctx, seen);
        } else {
            ctx.close();
        }
        Ok(())
    });
}

fn c_53_a_flush_that_used_its_writes_continues_in_the_next_turn() {
    // One write takes 64 slices. One flush happens when the high water mark is passed, and one at
    // the end of the turn. With one write per flush the rest must wait although the socket is
    // writable.
    const CHUNKS: usize = 4 * 64 + 1;
    let group = one_loop();
    let (sender, pending) = mpsc::channel();
    let sender = Mutex::new(sender);
    let server = ServerBootstrap::new(&group)
        .channel_options(ChannelOptions::new().writes_per_turn(1))
        .pipeline(move |_| {
            let sender = sender.lock().unwrap().clone();
            Pipeline::codec(RawBytes).handler(Recorder::with(&Log::new(), move |ctx, call| {
                if call.is_active() {
                    for _ in 0..CHUNKS {
                        ctx.write(zeros(KEEP_FROM))?;
                    }
                    watch_pending(ctx, sender.clone());
                }
                Ok(())
            }))
        })
        .bind(anywhere())
        .unwrap();
    let got = read_to_end(&mut connect(&server));
    assert_eq!(got.len(), CHUNKS * KEEP_FROM, "the rest is sent without an event of the socket");
    end(&group);
    drop(server);
    let pending: Vec<_> = pending.try_iter().collect();
    let between = pending.iter().any(|n| (1..CHUNKS * KEEP_FROM).contains(n));
    assert!(between, "tasks run between the writes of two turns: {pending:?}");
}

fn c_54_a_full_socket_is_not_tried_again_before_it_is_writable() {
    let group = one_loop();
    let (hand_over, channels) = hand_over();
    let server = ServerBootstrap::new(&group)
        .channel_options(ChannelOptions::new().max_outbound(usize::MAX))
        .pipeline(move |_| Pipeline::codec(RawBytes).handler(Recorder::with(&Log::new(), hand_over.clone())))
        .bind(anywhere())
        .unwrap();
    let mut peer = connect(&server);
    let channel = channels.recv().unwrap();
    let event_loop = group.next();
    // Fill the socket until the kernel refuses more and the counters stop moving.
    let mut written = 0;
    while event_loop.metrics().writes_blocked == 0 {
        channel.write(zeros(1 << 20)).unwrap();
        written += 1 << 20;
        barrier(event_loop);
    }
    let mut settled = event_loop.metrics().bytes_written;
    loop {
        barrier(event_loop);
        let now = event_loop.metrics().bytes_written;
        if now == settled {
            break;
        }
        settled = now;
    }
    let before = event_loop.metrics();
    for _ in 0..20 {
        channel
            .execute(|ctx| {
                ctx.write(zeros(1))?;
                ctx.flush();
                Ok(())
            })
            .unwrap();
        written += 1;
        barrier(event_loop);
    }
    let after = event_loop.metrics();
    // The peer does not read, yet the kernel may move bytes between its buffers and signal that it
    // accepts more. Each signal is one event and a few writes. If each flush tried to write, there
    // would be at least one write per flush.
    if after.bytes_written == before.bytes_written {
        assert_eq!(after.writes, before.writes, "flush is a no-op while the socket is full");
    }
    channel.close();
    let mut got = 0;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match peer.read(&mut buffer).unwrap() {
            0 => break,
            n => got += n,
        }
    }
    assert_eq!(got, written, "sending continues when there is room again");
    end(&group);
}

/// Returns when the loop has made two complete turns.
fn barrier(event_loop: &netwheel::EventLoop) {
    for _ in 0..2 {
        done(event_loop.schedule(Duration::ZERO, || ()).unwrap().completion()).unwrap();
    }
}

fn writes_of_each_thread_keep_their_order() {
    let group = one_loop();
    let (hand_over, channels) = hand_over();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            Pipeline::codec(Line::new()).handler(Recorder::with(&Log::new(), hand_over.clone()))
        })
        .bind(anywhere())
        .unwrap();
    let mut peer = connect(&server);
    let channel = channels.recv().unwrap();
    let start = Arc::new(Barrier::new(4));
    let writers: Vec<_> = (0..4)
        .map(|thread| {
            let (channel, start) = (channel.clone(), start.clone());
            std::thread::spawn(move || {
                start.wait();
                for n in 0..500 {
                    channel.write(format!("{thread} {n}").into()).unwrap();
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    channel.close();
    let text = String::from_utf8(read_to_end(&mut peer)).unwrap();
    for thread in 0..4 {
        let own = text.lines().filter(|line| line.starts_with(&format!("{thread} ")));
        let expected = (0..500).map(|n| format!("{thread} {n}"));
        assert!(own.eq(expected), "all writes of thread {thread} before the close arrive in order");
    }
    end(&group);
}

over_each_transport! {
    c_40_over_tcp_the_writes_of_a_turn_are_sent_in_one_system_call,
    c_43_more_slices_than_one_system_call_takes_arrive_in_order,
    c_47_over_tcp_writes_during_a_flush_are_sent_without_another_trigger,
    c_53_a_flush_that_used_its_writes_continues_in_the_next_turn,
    c_54_a_full_socket_is_not_tried_again_before_it_is_writable,
    writes_of_each_thread_keep_their_order,
}
