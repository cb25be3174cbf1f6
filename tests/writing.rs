//! Writing: what leaves when, what is counted, what is refused, and what a failure leaves behind.

#[path = "support/recorder.rs"]
mod recorder;
#[path = "support/streams.rs"]
mod streams;

use bytes::Bytes;
use netwheel::{
    ChannelOptions, EncodeError, Error,
    buffer::{KEEP_FROM, Outbound, WaterMark},
    codec::{Line, RawBytes},
    pipeline::{Codec, Stage, StageContext},
    prelude::*,
    testing::{EmbeddedChannel, ManualClock},
};
use recorder::{
    Call, Fussy, Log, Recorder, done, embedded, embedded_with, end, one_loop, read_to_end, reason,
};
use std::{
    cell::Cell,
    io::Read,
    rc::Rc,
    sync::{Arc, Barrier, Mutex, mpsc},
    time::Duration,
};
use streams::{anywhere, connect};

/// What an entry counts against the marks besides its bytes.
const OVERHEAD: usize = 96;

/// A channel of bytes without any framing, so that a test can count them.
fn raw(options: &ChannelOptions, handler: Recorder) -> EmbeddedChannel<Bytes> {
    let pipeline = Pipeline::new().codec(RawBytes).handler(handler);
    EmbeddedChannel::with(pipeline, options, ManualClock::new(), Duration::from_millis(1)).unwrap()
}

fn marks(low: usize, high: usize) -> ChannelOptions {
    ChannelOptions::new().water_mark(WaterMark::new(low, high).unwrap())
}

fn zeros(n: usize) -> Bytes {
    Bytes::from(vec![0; n])
}

/// Writes `n` bytes to the channel as a task of its own.
fn write(channel: &mut EmbeddedChannel<Bytes>, n: usize) {
    channel.channel().execute(move |scope| scope.write(zeros(n))).unwrap();
    channel.run_pending();
}

/// Lets the peer take `n` bytes.
fn take(channel: &mut EmbeddedChannel<Bytes>, n: usize) {
    channel.set_outbound_room(Some(n));
    assert_eq!(channel.read_outbound().len(), n);
}

// A write needs no flush here: it leaves at the end of the turn at the latest, with all others of the turn.
#[test]
fn c_40_a_write_without_flush_leaves_at_the_end_of_the_turn() {
    let log = Log::new();
    let pending = Rc::new(Cell::new(0));
    let seen = pending.clone();
    let mut channel = embedded(Recorder::with(&log, move |ctx, call| match call {
        Call::Read(message) => ctx.write(message.clone()),
        Call::ReadComplete => {
            seen.set(ctx.pending_bytes());
            Ok(())
        }
        _ => Ok(()),
    }));
    channel.write_inbound(b"a\nb\n").unwrap();
    assert_eq!(pending.get(), 4, "within the turn both wait");
    assert_eq!(channel.read_outbound(), "a\nb\n", "after it both are sent");
    assert_eq!(channel.pending_bytes(), 0);
}

fn c_40_over_tcp_the_writes_of_a_turn_leave_in_one_system_call() {
    let group = one_loop();
    let server = ServerBootstrap::new(&group)
        .pipeline(|_| {
            Pipeline::new().codec(Line::new()).handler(Recorder::with(&Log::new(), |ctx, call| match call {
                Call::Active => {
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
fn c_40_flush_sends_what_was_written_before_it_and_no_more() {
    let log = Log::new();
    let pending = Rc::new(Cell::new(0));
    let seen = pending.clone();
    let mut channel = embedded(Recorder::with(&log, move |ctx, call| match call {
        Call::Read(message) if message == "flush" => {
            ctx.write("before".into())?;
            ctx.flush();
            Ok(())
        }
        Call::Read(_) => {
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
fn c_41_partial_writes_move_an_offset_and_lose_or_repeat_nothing() {
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
    // Steps that end before, at and behind every seam.
    for step in [1, 2, 1, KEEP_FROM - 1, 1, 1, 3, 1, 6, KEEP_FROM, 1].into_iter().chain([usize::MAX]) {
        channel.set_outbound_room(Some(step));
        let part = channel.read_outbound();
        assert!(step == usize::MAX || part.len() == step);
        got.extend_from_slice(&part);
        assert_eq!(channel.pending_bytes(), expected.len() - got.len());
    }
    assert_eq!(String::from_utf8(got).unwrap(), expected);
}

// Writes have no promises that could complete: their order on the wire is what is left to hold.
#[test]
fn c_41_writes_of_handler_and_handles_leave_in_the_order_in_which_they_were_made() {
    let log = Log::new();
    let mut channel = embedded(Recorder::new(&log));
    for n in 0..4 {
        channel.channel().write(format!("{n}").into()).unwrap();
        channel.channel().execute(move |scope| scope.write(format!("{n}x").into())).unwrap();
    }
    channel.run_pending();
    assert_eq!(channel.read_outbound(), "0\n0x\n1\n1x\n2\n2x\n3\n3x\n");
}

// A write cannot be cancelled, so there is no cancelled one to skip. What its form here can do, be refused by
// the encoder half-way, must leave its neighbours as whole as a cancelled write would.
#[test]
fn c_42_a_failed_encode_is_rolled_back_and_its_neighbours_are_whole() {
    let log = Log::new();
    let inner = log.clone();
    let handler = Recorder::with(&log, move |ctx, call| match call {
        Call::Active => {
            ctx.write("one".into())?;
            let before = ctx.pending_bytes();
            let failed = ctx.write("fail".into()).unwrap_err();
            assert!(matches!(failed, Error::Encode(EncodeError::Unencodable(_))), "{failed}");
            assert_eq!(ctx.pending_bytes(), before, "its size is returned");
            inner.push("failed");
            ctx.write("two".into())?;
            ctx.write(zeros(KEEP_FROM))?;
            assert!(ctx.write("fail".into()).is_err());
            ctx.write("three".into())
        }
        _ => Ok(()),
    });
    let mut channel = EmbeddedChannel::new(Pipeline::new().codec(Fussy::new()).handler(handler));
    assert_eq!(log.take(), ["active", "failed"], "the caller has the error, nobody else");
    let mut expected = b"one\ntwo\n".to_vec();
    expected.extend_from_slice(&[0; KEEP_FROM]);
    expected.extend_from_slice(b"\nthree\n");
    assert_eq!(channel.read_outbound(), expected);
    assert_eq!(channel.pending_bytes(), 0);
}

#[test]
fn c_42_a_failed_encode_behind_a_partly_sent_one_takes_back_its_own_bytes_only() {
    let log = Log::new();
    let mut channel = EmbeddedChannel::new(
        Pipeline::new().codec(Fussy::new()).handler(Recorder::exactly(&log, |_, _| Ok(()))),
    );
    channel.set_outbound_room(Some(2));
    channel.channel().write("one".into()).unwrap();
    channel.run_pending();
    channel.channel().write("fail".into()).unwrap();
    channel.run_pending();
    assert_eq!(channel.pending_bytes(), 2);
    channel.channel().write("two".into()).unwrap();
    channel.set_outbound_room(None);
    assert_eq!(channel.read_outbound(), "one\ntwo\n");
    assert_eq!(
        log.take(),
        ["active", "error cannot encode: on purpose"],
        "of a handle's write the handler hears"
    );
}

/// Writes every message twice.
struct Twice;

impl Stage for Twice {
    type In = Bytes;
    type Out = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, _: &mut StageContext<'_, Bytes>, message: Bytes) -> Result<Option<Bytes>> {
        Ok(Some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Bytes>, message: Bytes) -> Result {
        ctx.write("first".into())?;
        ctx.write(message)
    }
}

#[test]
fn c_42_a_message_of_which_a_stage_makes_two_goes_whole_or_not_at_all() {
    let log = Log::new();
    let handler = Recorder::exactly(&log, |ctx, call| match call {
        Call::Active => {
            assert!(ctx.write("fail".into()).is_err());
            assert_eq!(ctx.pending_bytes(), 0);
            ctx.write("good".into())
        }
        _ => Ok(()),
    });
    let mut channel = EmbeddedChannel::new(Pipeline::new().codec(Fussy::new()).stage(Twice).handler(handler));
    assert_eq!(channel.read_outbound(), "first\ngood\n");
}

// The number of slices per system call is 64 here; that each of them is a whole or a rest of a write, in order,
// is for `buffer::outbound` to test. Here: more of them than one call takes, mixed with small ones, arrive whole.
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
            Pipeline::new().codec(RawBytes).handler(Recorder::with(&Log::new(), |ctx, call| {
                if *call == Call::Active {
                    for n in 0..500u32 {
                        let size = if n % 3 == 0 { 7 } else { KEEP_FROM + n as usize };
                        ctx.write(Bytes::from(vec![n as u8; size]))?;
                        // An empty one must neither end the gathering nor hold it up.
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
    assert!(got == expected, "the bytes are in order");
    end(&group);
}

#[test]
fn c_44_marks_have_hysteresis() {
    let log = Log::new();
    let mut channel = raw(&marks(100, 200), Recorder::new(&log));
    let handle = channel.channel();
    channel.set_outbound_room(Some(0));
    log.take();
    write(&mut channel, 200);
    assert!(handle.is_writable(), "at the high mark, not above it");
    write(&mut channel, 1);
    assert!(!handle.is_writable());
    assert_eq!(log.take(), ["writable false"]);
    write(&mut channel, 50);
    take(&mut channel, 151);
    assert_eq!(channel.pending_bytes(), 100);
    assert!(!handle.is_writable(), "at the low mark, not below it");
    assert_eq!(log.take(), [""; 0], "nothing is told between the marks");
    take(&mut channel, 1);
    assert!(handle.is_writable());
    assert_eq!(log.take(), ["writable true"]);
    take(&mut channel, 99);
    write(&mut channel, 200);
    assert_eq!(log.take(), [""; 0], "once per flip");
}

// Small messages are copied together and count their bytes only; each chunk that is kept by reference counts 96
// more. (What waits in the loop's queue counts 96 as well: see c_46.)
#[test]
fn c_44_a_chunk_that_is_kept_counts_an_overhead() {
    let log = Log::new();
    let high = 2 * (KEEP_FROM + OVERHEAD);
    let mut channel = raw(&marks(1, high), Recorder::new(&log));
    channel.set_outbound_room(Some(0));
    write(&mut channel, KEEP_FROM);
    write(&mut channel, KEEP_FROM);
    assert_eq!(log.take(), ["active"], "exactly at the mark");
    write(&mut channel, 1);
    assert_eq!(log.take(), ["writable false"]);

    let log = Log::new();
    let mut channel = raw(&marks(1, high), Recorder::new(&log));
    channel.set_outbound_room(Some(0));
    for _ in 0..high {
        write(&mut channel, 1);
    }
    assert_eq!(log.take(), ["active"], "as many bytes in small messages are within it");
}

#[test]
fn c_44_the_scope_says_the_same_within_the_callback_that_writes() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = raw(
        &marks(100, 200),
        Recorder::with(&log, move |ctx, call| {
            if *call == Call::Active {
                ctx.write(zeros(200))?;
                inner.push(format!("at the mark: {}", ctx.is_writable()));
                ctx.write(zeros(1))?;
                inner.push(format!("above: {}", ctx.is_writable()));
            }
            Ok(())
        }),
    );
    assert_eq!(
        log.take(),
        ["active", "at the mark: true", "above: false", "writable false", "writable true"],
        "told after the callback; and again once all is sent"
    );
    assert_eq!(channel.read_outbound().len(), 201);
}

// C-45 (user writability flags) is a SHOULD that is not ported: a program keeps a flag of its own beside the mark.

#[test]
fn c_46_a_write_of_another_thread_counts_from_the_moment_it_is_submitted() {
    let log = Log::new();
    let mut channel = raw(&marks(100, 3 * OVERHEAD), Recorder::new(&log));
    let handle = channel.channel();
    let submitted = handle.clone();
    std::thread::spawn(move || {
        for n in 1..=4 {
            submitted.write(zeros(1)).unwrap();
            assert_eq!(submitted.is_writable(), n <= 3, "{n} entries of {OVERHEAD}");
        }
    })
    .join()
    .unwrap();
    assert!(!handle.is_writable(), "before the loop has run");
    assert_eq!(log.take(), ["active"]);
    channel.run_pending();
    assert!(handle.is_writable());
    assert_eq!(channel.read_outbound().len(), 4);
}

#[test]
fn c_46_a_refused_write_of_another_thread_does_not_stay_counted() {
    let mut channel = raw(&marks(1, 150).max_outbound(100), Recorder::new(&Log::new()));
    let handle = channel.channel();
    handle.write(zeros(10)).unwrap();
    handle.write(zeros(10)).unwrap();
    for _ in 0..10 {
        assert!(matches!(reason(handle.write(zeros(10))), Error::Full { limit: 100, .. }));
    }
    channel.run_pending();
    assert!(handle.is_writable());
    handle.write(zeros(10)).unwrap();
    assert!(handle.is_writable(), "one entry of {OVERHEAD} is counted, not those that were refused");
}

fn c_46_a_write_that_the_loops_queue_refuses_does_not_stay_counted() {
    let group = EventLoopGroup::builder().threads(1).max_pending_tasks(16).build().unwrap();
    let (sender, channels) = mpsc::channel();
    let sender = Mutex::new(sender);
    let server = ServerBootstrap::new(&group)
        .channel_options(marks(1, 3 * OVERHEAD))
        .pipeline(move |_| {
            let sender = sender.lock().unwrap().clone();
            Pipeline::new().codec(RawBytes).handler(Recorder::with(&Log::new(), move |ctx, call| {
                if *call == Call::Active {
                    sender.send(ctx.channel()).unwrap();
                }
                Ok(())
            }))
        })
        .bind(anywhere())
        .unwrap();
    let mut peer = connect(&server);
    let channel = channels.recv().unwrap();
    // The loop is held, and its queue filled.
    let gate = Arc::new(Barrier::new(2));
    let inside = gate.clone();
    let hold = move || {
        inside.wait();
        inside.wait();
    };
    group.next().execute(hold).unwrap();
    gate.wait();
    while group.next().execute(|| ()).is_ok() {}
    for _ in 0..10 {
        let refused = channel.write("refused".into()).unwrap_err();
        assert_eq!(refused.value, "refused", "the message comes back");
        assert!(matches!(refused.reason, Error::Full { what: "pending tasks", limit: 16 }), "{refused}");
    }
    assert!(channel.is_writable());
    gate.wait();
    while channel.write("taken".into()).is_err() {
        std::thread::yield_now();
    }
    channel.close();
    assert_eq!(read_to_end(&mut peer), b"taken");
    end(&group);
}

#[test]
fn c_46_flushing_within_writability_changed_is_allowed() {
    let log = Log::new();
    let mut channel = raw(
        &marks(512, 1024),
        Recorder::with(&log, |ctx, call| {
            if let Call::Writability(_) = call {
                ctx.flush();
            }
            Ok(())
        }),
    );
    let handle = channel.channel();
    for n in [2000, 300, 1600] {
        handle.write(zeros(n)).unwrap();
    }
    channel.run_pending();
    assert_eq!(channel.read_outbound().len(), 3900);
    assert_eq!(channel.pending_bytes(), 0);
    assert!(handle.is_writable());
    let told = log.take();
    assert_eq!(told[0], "active");
    // Netty's test sees WRITABILITY false, FLUSH, WRITABILITY true; ours may flip more than once, in turns.
    assert!(told.len() >= 3 && told.len() % 2 == 1, "{told:?}");
    for (n, entry) in told[1..].iter().enumerate() {
        assert_eq!(*entry, format!("writable {}", n % 2 == 1));
    }
}

#[test]
fn c_47_a_flush_within_a_flush_does_not_recurse_and_its_data_is_sent() {
    let log = Log::new();
    let inner = log.clone();
    let more = Cell::new(5);
    // `writability_changed` is the one callback that a flush makes: it stands in for a write's promise.
    let mut channel = raw(
        &marks(2, 3),
        Recorder::with(&log, move |ctx, call| {
            if *call == Call::Writability(true) && more.get() > 0 {
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
    assert_eq!(channel.read_outbound(), format!("abcd{}", "cdef".repeat(5)), "without another trigger");
    let told = log.take();
    for pair in told.windows(2) {
        let nested = pair[0] == "writable true" && pair[1] != "end of writable";
        assert!(!nested, "called from within itself: {told:?}");
    }
    assert_eq!(told.iter().filter(|entry| *entry == "end of writable").count(), 5);
}

fn c_47_over_tcp_what_is_written_while_flushing_is_sent_without_another_trigger() {
    let group = one_loop();
    let server = ServerBootstrap::new(&group)
        .channel_options(marks(2, 3))
        .pipeline(|_| {
            let more = Cell::new(1000);
            Pipeline::new().codec(RawBytes).handler(Recorder::with(
                &Log::new(),
                move |ctx, call| match call {
                    Call::Active => ctx.write("abcd".into()),
                    Call::Writability(true) if more.get() > 0 => {
                        more.set(more.get() - 1);
                        ctx.write("cdef".into())?;
                        ctx.flush();
                        Ok(())
                    }
                    Call::Writability(true) => {
                        ctx.close();
                        Ok(())
                    }
                    _ => Ok(()),
                },
            ))
        })
        .bind(anywhere())
        .unwrap();
    let got = read_to_end(&mut connect(&server));
    assert_eq!(String::from_utf8(got).unwrap(), format!("abcd{}", "cdef".repeat(1000)));
    end(&group);
}

/// Writes as long as the channel is writable, until `left` is used up.
fn fill(ctx: &mut Context<'_, Recorder>, left: &Cell<usize>) -> Result {
    while ctx.is_writable() && left.get() > 0 {
        left.set(left.get() - 1);
        ctx.write(zeros(100))?;
    }
    Ok(())
}

// What a writer writes when it is told that it may is itself above the mark at the end, and may be gone at once.
#[test]
fn c_44_a_writer_that_goes_by_the_marks_is_always_told_to_go_on() {
    let left = Rc::new(Cell::new(1000));
    let inner = left.clone();
    let mut channel = raw(
        &marks(100, 250),
        Recorder::with(&Log::new(), move |ctx, call| match call {
            Call::Active | Call::Writability(true) => fill(ctx, &inner),
            _ => Ok(()),
        }),
    );
    assert_eq!((left.get(), channel.read_outbound().len()), (0, 100_000));
}

#[test]
fn c_50_a_closed_channel_refuses_writes_at_once_and_tells_of_writability_no_more() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = raw(
        &marks(100, 200),
        Recorder::with(&log, move |ctx, call| {
            if *call == Call::Inactive {
                let failed = ctx.write("late".into()).unwrap_err();
                inner.push(format!("write: {failed}"));
            }
            Ok(())
        }),
    );
    let handle = channel.channel();
    channel.set_outbound_room(Some(0));
    write(&mut channel, 300);
    assert_eq!(log.take(), ["active", "writable false"]);
    channel.close();
    take(&mut channel, 250);
    assert_eq!(log.take(), [""; 0], "pending bytes fell below the low mark, but the channel is closing");
    let message = Bytes::from_static(b"too late");
    let refused = handle.write(message).unwrap_err();
    assert_eq!(refused.value, "too late", "the message comes back");
    assert!(matches!(refused.reason, Error::Closed));
    channel.set_outbound_room(None);
    assert_eq!(log.take(), ["inactive", "write: the channel is closed"]);
    assert!(matches!(reason(handle.write("later".into())), Error::Closed));
    assert!(handle.execute(|_| Ok(())).is_err());
    assert!(handle.schedule(Duration::ZERO, |_| Ok(())).is_err());
    assert_eq!(channel.run_pending(), 0);
    assert_eq!(channel.read_outbound().len(), 50);
}

fn c_50_over_tcp_a_write_in_inactive_is_refused() {
    let group = one_loop();
    let log = Log::new();
    let handler_log = log.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let inner = handler_log.clone();
            Pipeline::new().codec(Line::new()).handler(Recorder::with(&handler_log, move |ctx, call| {
                if *call == Call::Inactive {
                    let (own, handle) = (ctx.write("late".into()), ctx.channel());
                    inner.push(format!("{} / {}", own.unwrap_err(), reason(handle.write("late".into()))));
                    assert!(!ctx.is_open() && !ctx.is_writable());
                }
                Ok(())
            }))
        })
        .bind(anywhere())
        .unwrap();
    drop(connect(&server));
    log.wait_for("drop");
    let log = log.all();
    assert_eq!(log[log.len() - 3..], ["inactive", "the channel is closed / the channel is closed", "drop"]);
    end(&group);
}

/// Notes how much waits, again and again, until nothing does; then closes.
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

fn c_53_a_flush_that_spent_its_writes_goes_on_in_the_next_turn() {
    // 64 slices are one write here: with one write per turn the rest must wait, though the socket is free.
    const CHUNKS: usize = 65;
    let group = one_loop();
    let (sender, pending) = mpsc::channel();
    let sender = Mutex::new(sender);
    let server = ServerBootstrap::new(&group)
        .channel_options(ChannelOptions::new().writes_per_turn(1))
        .pipeline(move |_| {
            let sender = sender.lock().unwrap().clone();
            Pipeline::new().codec(RawBytes).handler(Recorder::with(&Log::new(), move |ctx, call| {
                if *call == Call::Active {
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
    assert_eq!(got.len(), CHUNKS * KEEP_FROM, "and no event of the socket was needed for the rest");
    end(&group);
    drop(server);
    let pending: Vec<_> = pending.try_iter().collect();
    let between = pending.iter().any(|n| (1..CHUNKS * KEEP_FROM).contains(n));
    assert!(between, "tasks run between the writes of two turns: {pending:?}");
}

fn c_54_a_full_socket_is_not_tried_again_until_it_says_that_it_takes_more() {
    let group = one_loop();
    let (sender, channels) = mpsc::channel();
    let sender = Mutex::new(sender);
    let server = ServerBootstrap::new(&group)
        .channel_options(ChannelOptions::new().max_outbound(usize::MAX))
        .pipeline(move |_| {
            let sender = sender.lock().unwrap().clone();
            Pipeline::new().codec(RawBytes).handler(Recorder::with(&Log::new(), move |ctx, call| {
                if *call == Call::Active {
                    sender.send(ctx.channel()).unwrap();
                }
                Ok(())
            }))
        })
        .bind(anywhere())
        .unwrap();
    let mut peer = connect(&server);
    let channel = channels.recv().unwrap();
    let event_loop = group.next();
    // Fill the socket: until the kernel has refused, and nothing moves any more.
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
            .execute(|scope| {
                scope.write(zeros(1))?;
                scope.flush();
                Ok(())
            })
            .unwrap();
        written += 1;
        barrier(event_loop);
    }
    let after = event_loop.metrics();
    // Nobody reads, yet the kernel may move bytes from one buffer to the other and ask for more; each time that
    // is one event and a few writes. A flush that tried by itself would be at least one write per flush.
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
    assert_eq!(got, written, "once there is room again it goes on by itself");
    end(&group);
}

/// Returns when the loop has made two whole turns.
fn barrier(event_loop: &netwheel::EventLoop) {
    for _ in 0..2 {
        done(event_loop.schedule(Duration::ZERO, || ()).unwrap().completion()).unwrap();
    }
}

#[test]
fn max_outbound_refuses_with_full_and_loses_nothing_else() {
    let log = Log::new();
    let inner = log.clone();
    let options = ChannelOptions::new().max_outbound(10);
    let mut channel = embedded_with(
        &options,
        Recorder::exactly(&log, move |ctx, call| match call {
            Call::Active => {
                ctx.write("1234".into())?;
                let failed = ctx.write("123456".into()).unwrap_err();
                assert!(matches!(failed, Error::Full { what: "outbound bytes", limit: 10 }), "{failed}");
                inner.push(failed.to_string());
                ctx.write("5678".into())?;
                assert_eq!(ctx.pending_bytes(), 10);
                assert!(matches!(ctx.write("".into()), Err(Error::Full { .. })));
                Ok(())
            }
            _ => Ok(()),
        }),
    );
    assert_eq!(log.take(), ["active", "full: at most 10 outbound bytes"]);
    assert!(channel.is_open(), "a full buffer is the writer's to handle");
    assert_eq!(channel.read_outbound(), "1234\n5678\n");
    channel.channel().write("12345678".into()).unwrap();
    channel.run_pending();
    assert_eq!(channel.read_outbound(), "12345678\n", "and there is room again once it is sent");
}

#[test]
fn max_outbound_of_a_handles_write_gives_the_message_back_or_tells_the_handler() {
    let log = Log::new();
    let options = ChannelOptions::new().max_outbound(2 * OVERHEAD);
    let mut channel = embedded_with(&options, Recorder::exactly(&log, |_, _| Ok(())));
    let handle = channel.channel();
    channel.set_outbound_room(Some(0));
    handle.write("first".into()).unwrap();
    // Its size is not known before it is encoded: it is taken, and refused by the loop.
    handle.write("x".repeat(500).into()).unwrap();
    let refused = handle.write("third".into()).unwrap_err();
    assert_eq!(refused.value, "third");
    assert!(matches!(refused.reason, Error::Full { limit: 192, .. }), "{}", refused.reason);
    channel.run_pending();
    assert_eq!(log.take(), ["active", "error full: at most 192 outbound bytes"]);
    handle.write("fourth".into()).unwrap();
    channel.set_outbound_room(None);
    assert_eq!(channel.read_outbound(), "first\nfourth\n");
}

/// Puts every part by its own way.
struct Parts;

impl Codec for Parts {
    type In = Bytes;
    type Out = u64;

    fn decode(&mut self, _: &mut Bytes) -> Result<Option<Bytes>> {
        Ok(None)
    }

    fn encode(&mut self, message: u64, output: &mut Outbound) -> Result {
        use std::io::Write as _;
        output.put_u8(message as u8);
        output.put_u16(message as u16);
        output.put_u32(message as u32);
        output.put_u64(message);
        write!(output, "{message}").map_err(Error::from)
    }
}

struct Silent;

impl Handler for Silent {
    type In = Bytes;
    type Out = u64;

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}

#[test]
fn numbers_are_written_with_the_most_significant_byte_first() {
    let mut channel = EmbeddedChannel::new(Pipeline::new().codec(Parts).handler(Silent));
    channel.channel().write(0x0102_0304_0506_0708).unwrap();
    channel.run_pending();
    let expected: &[u8] = b"\x08\x07\x08\x05\x06\x07\x08\x01\x02\x03\x04\x05\x06\x07\x0872623859790382856";
    assert_eq!(channel.read_outbound(), expected);
}

fn many_threads_write_and_each_ones_order_holds() {
    let group = one_loop();
    let (sender, channels) = mpsc::channel();
    let sender = Mutex::new(sender);
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let sender = sender.lock().unwrap().clone();
            Pipeline::new().codec(Line::new()).handler(Recorder::with(&Log::new(), move |ctx, call| {
                if *call == Call::Active {
                    sender.send(ctx.channel()).unwrap();
                }
                Ok(())
            }))
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
        assert!(own.eq(expected), "what thread {thread} wrote before the close is there, in order");
    }
    end(&group);
}

over_each_transport! {
    c_40_over_tcp_the_writes_of_a_turn_leave_in_one_system_call,
    c_43_more_slices_than_one_system_call_takes_arrive_in_order,
    c_46_a_write_that_the_loops_queue_refuses_does_not_stay_counted,
    c_47_over_tcp_what_is_written_while_flushing_is_sent_without_another_trigger,
    c_50_over_tcp_a_write_in_inactive_is_refused,
    c_53_a_flush_that_spent_its_writes_goes_on_in_the_next_turn,
    c_54_a_full_socket_is_not_tried_again_until_it_says_that_it_takes_more,
    many_threads_write_and_each_ones_order_holds,
}
