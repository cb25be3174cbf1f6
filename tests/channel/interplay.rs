//! Combinations of channel features that work separately and must also work together.

use crate::support::{
    channels::{embedded, embedded_with},
    journal::Log,
    loops::{end, one_loop, watch},
    recorder::{Event, Recorder},
    tcp::{self, connect},
    wait::{self, SECOND, done},
};
use bytes::Bytes;
use netwheel::{
    Error, EventLoop, Stage, StageContext,
    buffer::WaterMark,
    channel::{ChannelOptions, Overflow, TimeLimits},
    codec::{Line, RawBytes},
    prelude::*,
    testing::EmbeddedChannel,
};
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    sync::mpsc,
    time::Duration,
};

const TICK: Duration = Duration::from_millis(1);

fn limited(options: &ChannelOptions, limits: TimeLimits, handler: Recorder) -> EmbeddedChannel<Bytes> {
    let pipeline = Pipeline::codec(Line::new()).time_limits(limits).handler(handler);
    EmbeddedChannel::builder(pipeline).channel_options(options.clone()).build().unwrap()
}

/// Writes a farewell on an error, and closes.
fn polite(log: &Log) -> Recorder {
    Recorder::with(
        log,
        |ctx, call| if matches!(call, Event::Error(_)) { ctx.write("bye".into()) } else { Ok(()) },
    )
}

/// A message written in `writability_changed` is subject to the write limit like any other.
#[test]
fn the_write_limit_covers_writes_in_writability_changed() {
    let log = Log::new();
    let handler =
        Recorder::with(
            &log,
            |ctx, call| {
                if *call == Event::Writable(true) { ctx.write("more".into()) } else { Ok(()) }
            },
        );
    let options = ChannelOptions::new().water_mark(WaterMark::new(10, 10).unwrap());
    let mut channel = limited(&options, TimeLimits::new().write(SECOND), handler);
    channel.set_outbound_room(Some(0));
    channel.channel().write("twelve bytes".into()).unwrap();
    channel.run_pending();
    // The peer takes these 13 bytes but not the message that is written afterwards.
    channel.set_outbound_room(Some(13));
    assert_eq!(channel.pending_bytes(), 5);
    log.take();
    channel.advance(SECOND + TICK);
    assert_eq!(log.take(), ["error writing timed out after 1s", "inactive", "drop"]);
}

#[test]
fn a_farewell_is_sent_after_a_timeout() {
    let log = Log::new();
    let mut channel = limited(&ChannelOptions::new(), TimeLimits::new().first_byte(SECOND), polite(&log));
    channel.advance(2 * SECOND);
    assert_eq!(channel.read_outbound(), &b"bye\n"[..]);
    assert!(channel.is_closed());
}

#[test]
fn a_farewell_is_sent_when_input_exceeds_its_limit() {
    let log = Log::new();
    let mut channel = embedded_with(&ChannelOptions::new().max_inbound(10), polite(&log));
    channel.write_inbound(b"eleven byte").unwrap();
    assert_eq!(channel.read_outbound(), &b"bye\n"[..]);
    assert!(channel.is_closed());
}

/// Neither write is reported to `error`: a message in transit to a closing output is dropped.
#[test]
fn messages_in_transit_to_a_closing_output_are_dropped_and_reading_continues() {
    let log = Log::new();
    let mut channel = embedded(Recorder::new(&log));
    let handle = channel.channel();
    handle.shutdown_write();
    handle.write("too late".into()).unwrap();
    let notified = handle.write_tracked("too late as well".into()).unwrap();
    channel.run_pending();
    assert!(matches!(done(notified), Err(Error::Closed)));
    assert!(channel.is_open() && channel.is_output_ended());
    channel.write_inbound(b"still here\n").unwrap();
    assert_eq!(log.take(), ["active", "read still here", "read_complete"]);
}

#[test]
fn a_handle_created_later_reflects_the_state_of_the_channel() {
    let log = Log::new();
    let (sender, handles) = mpsc::channel();
    let handler = Recorder::with(&log, move |ctx, call| {
        match call {
            Event::Read(line) if line == "end" => ctx.shutdown_write(),
            Event::Read(_) => ctx.write(Bytes::from(vec![b'x'; 100_000]))?,
            Event::ReadComplete => sender.send(ctx.channel()).unwrap(),
            _ => {}
        }
        Ok(())
    });
    let mut channel = embedded(handler);
    channel.write_inbound(b"end\n").unwrap();
    let handle = handles.recv().unwrap();
    assert!(matches!(handle.write("late".into()), Err(refused) if matches!(refused.error(), Error::Closed)));
    assert!(!handle.is_writable());

    let mut channel = embedded(Recorder::with(&log, |ctx, call| {
        if matches!(call, Event::Read(_)) { ctx.write(Bytes::from(vec![b'x'; 100_000])) } else { Ok(()) }
    }));
    channel.set_outbound_room(Some(0));
    channel.write_inbound(b"much\n").unwrap();
    assert!(!channel.channel().is_writable(), "100 kB are pending");
}

/// Acknowledges each line before it reaches the handler.
struct Acknowledges;

impl Stage for Acknowledges {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, ctx: &mut StageContext<'_, Self>, line: Bytes) -> Result<Option<Bytes>> {
        ctx.write("acknowledged".into())?;
        Ok(Some(line))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, line: Bytes) -> Result {
        ctx.write(line)
    }
}

/// `DropOldest` never drops part of a message, including a message written by a stage.
#[test]
fn drop_oldest_never_truncates_a_message_written_by_a_stage() {
    for written_before in [false, true] {
        let options = ChannelOptions::new().max_outbound(100).overflow(Overflow::DropOldest);
        let pipeline = Pipeline::codec(Line::new()).stage(Acknowledges).handler(Recorder::new(&Log::new()));
        let mut channel = EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap();
        let handle = channel.channel();
        if written_before {
            handle.write("first".into()).unwrap();
            channel.run_pending();
            channel.read_outbound();
        }
        // Half of the stage's reply is sent before the writes below make `DropOldest` discard
        // messages.
        channel.set_outbound_room(Some(6));
        channel.write_inbound(b"hello\n").unwrap();
        assert_eq!(channel.pending_bytes(), 7);
        for n in 0..30 {
            handle.write(format!("message {n}").into()).unwrap();
        }
        channel.run_pending();
        channel.set_outbound_room(None);
        let sent = channel.read_outbound();
        let sent = std::str::from_utf8(&sent).unwrap();
        assert!(sent.starts_with("acknowledged\nmessage "), "{written_before}: {sent:?}");
        assert!(sent.ends_with("message 29\n"));
    }
}

/// A handler that toggles its own writability in each `writability_changed` must not occupy the
/// loop forever.
#[test]
fn notifications_of_a_handler_that_toggles_its_own_writability_are_bounded() {
    let log = Log::new();
    let handler = Recorder::exactly(&log, |ctx, call| {
        // A write above the limit drops the oldest messages, down to 112 bytes. Two more fill the
        // buffer.
        if let Event::Writable(writable) = call {
            for _ in 0..if *writable { 2 } else { 1 } {
                ctx.write("1234567".into())?;
            }
        }
        // Fails instead of looping endlessly.
        if log_is_short(ctx) { Ok(()) } else { Err(Error::other("endless notifications")) }
    });
    let options = ChannelOptions::new()
        .max_outbound(128)
        .overflow(Overflow::DropOldest)
        .water_mark(WaterMark::new(120, 127).unwrap());
    let mut channel = embedded_with(&options, handler);
    channel.set_outbound_room(Some(0));
    for _ in 0..16 {
        channel.channel().write("1234567".into()).unwrap();
    }
    channel.run_pending();
    let told = log.all().iter().filter(|entry| entry.contains("writab")).count();
    assert!((3..=64).contains(&told), "{told}");
    channel.set_outbound_room(None);
    assert!(channel.is_open() && channel.pending_bytes() == 0, "{:?}", log.all());
}

/// A handler that retries in `error` after its tasks are refused must not occupy the loop forever.
#[test]
fn a_handler_that_retries_a_refused_task_in_error_is_closed() {
    let log = Log::new();
    let handler = Recorder::exactly(&log, |ctx, call| {
        if matches!(call, Event::Active(_) | Event::Error(_)) {
            for _ in 0..2 {
                ctx.schedule(SECOND, |_, _| Ok(()));
            }
        }
        // Fails instead of looping endlessly.
        if log_is_short(ctx) { Ok(()) } else { Err(Error::other("endless notifications")) }
    });
    let mut channel = embedded_with(&ChannelOptions::new().max_scheduled_tasks(1), handler);
    channel.run_pending();
    assert!(channel.is_closed());
    let told = log.all().iter().filter(|entry| entry.contains("scheduled tasks")).count();
    assert!((2..=16).contains(&told), "{:?}", log.all());
}

fn log_is_short(ctx: &mut Context<'_, Recorder>) -> bool {
    let calls = ctx.attributes_mut();
    let so_far = calls.get::<usize>().copied().unwrap_or(0) + 1;
    calls.insert(so_far);
    so_far < 1000
}

#[test]
fn held_bytes_do_not_overflow() {
    let log = Log::new();
    let mut channel = embedded(Recorder::new(&log));
    let (sender, held) = mpsc::channel();
    let hold = move |ctx: &mut netwheel::ChannelContext<'_, Bytes>| {
        sender.send((ctx.hold_input(usize::MAX), ctx.hold_input(10))).unwrap();
        Ok(())
    };
    channel.channel().execute(hold).unwrap();
    channel.run_pending();
    let (all, ten) = held.recv().unwrap();
    drop(all);
    drop(ten);
    channel.run_pending();
    log.take();
    channel.write_inbound(b"read again\n").unwrap();
    assert_eq!(log.take(), ["read read again", "read_complete"]);
}

/// A handler that refills its buffer and flushes whenever the channel is writable gets one flush
/// budget per flush, like any other.
#[test]
fn a_flush_in_writability_changed_does_not_delay_the_next_message() {
    let group = one_loop();
    let (sender, counts) = mpsc::channel();
    let server = ServerBootstrap::new(&group)
        .channel_options(ChannelOptions::new().water_mark(WaterMark::new(1, 1).unwrap()).writes_per_turn(4))
        .pipeline(move |_| {
            let sender = sender.clone();
            let mut refills = 0;
            let handler = Recorder::exactly(&Log::new(), move |ctx, call| {
                match call {
                    Event::Read(line) if line == "fill" => {
                        ctx.write("some".into())?;
                        ctx.flush();
                    }
                    Event::Read(_) => sender.send(refills).unwrap(),
                    Event::Writable(true) if refills < 500 => {
                        refills += 1;
                        ctx.write("more".into())?;
                        ctx.flush();
                    }
                    _ => {}
                }
                Ok(())
            });
            Pipeline::codec(Line::new()).handler(handler)
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut stream = connect(server.local_address());
    stream.write_all(b"fill\nnext\n").unwrap();
    let refills = counts.recv_timeout(wait::PATIENCE).unwrap();
    assert!(refills <= 4, "{refills} refills before the next message");
    drop(stream);
    end(&group);
}

/// Runs a handler that answers the first line with `first` bytes and refills its buffer whenever
/// the channel becomes writable. A flush may make `writes_per_turn` writes. Returns the largest
/// number of refills in one turn.
fn refills_in_a_turn(
    first: usize,
    writes_per_turn: usize,
    once_it_is_written: impl FnOnce(&EventLoop, &mut TcpStream),
) -> usize {
    let group = one_loop();
    let event_loop = group.next().clone();
    let (sender, turns) = mpsc::channel();
    let options = ChannelOptions::new().water_mark(WaterMark::new(1, 1).unwrap()).max_outbound(usize::MAX);
    let server = ServerBootstrap::new(&group)
        .channel_options(options.writes_per_turn(writes_per_turn))
        .pipeline(move |_| {
            let (sender, event_loop) = (sender.clone(), event_loop.clone());
            let mut refills = 0;
            let handler = Recorder::exactly(&Log::new(), move |ctx, call| {
                match call {
                    Event::Read(_) => ctx.write(vec![b'x'; first].into())?,
                    Event::Writable(true) if refills < 100 => {
                        refills += 1;
                        sender.send(event_loop.metrics().turns).unwrap();
                        ctx.write("more".into())?;
                        ctx.flush();
                    }
                    _ => {}
                }
                Ok(())
            });
            Pipeline::codec(RawBytes).handler(handler)
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut stream = connect(server.local_address());
    stream.write_all(b"fill\n").unwrap();
    once_it_is_written(group.next(), &mut stream);
    let turns: Vec<_> = (0..100).map(|_| turns.recv_timeout(wait::PATIENCE).unwrap()).collect();
    drop(stream);
    end(&group);
    turns.chunk_by(|a, b| a == b).map(<[_]>::len).max().unwrap()
}

/// A reply above the high water mark is flushed before the next message, with the budget of one
/// flush. After the read, one more write is attempted. The flush at the end of the turn has its own
/// budget.
#[test]
fn a_refilled_reply_gets_two_flushes_and_one_write_per_turn() {
    let most = refills_in_a_turn(4, 4, |_, _| {});
    assert!(most <= 4 + 1 + 4, "{most} refills in one turn");
}

/// Here the peer makes room, which is reported by a writable event.
#[test]
fn a_writable_event_gets_one_write_and_one_flush_per_turn() {
    const MUCH: usize = 16 << 20;
    let most = refills_in_a_turn(MUCH, 4, |event_loop, peer| {
        watch(event_loop, |metrics| metrics.writes_blocked > 0);
        peer.read_exact(&mut vec![0; MUCH]).unwrap();
    });
    assert!(most <= 1 + 4, "{most} refills in one turn");
}

/// More bytes than a peer with a small receive buffer has accepted when the last write is handed to
/// the kernel.
const LAST_WORDS: usize = 256 * 1024;

/// Unread input must not turn the close into a reset, which would discard bytes in the kernel's
/// send buffer. This also holds if the peer has ended its stream.
#[test]
fn a_close_after_the_peers_end_of_stream_sends_fin_and_not_rst() {
    let group = one_loop();
    let log = Log::new();
    let recorded = log.clone();
    let server = ServerBootstrap::new(&group)
        .channel_options(ChannelOptions::new().read_size(8))
        .pipeline(move |_| {
            let handler = Recorder::with(&recorded, |ctx, call| match call {
                Event::Active(_) => ctx.write("hello".into()),
                Event::Read(_) => {
                    for _ in 0..LAST_WORDS / 1024 {
                        ctx.write(Bytes::from(vec![b'x'; 1023]))?;
                    }
                    ctx.close();
                    Ok(())
                }
                _ => Ok(()),
            });
            Pipeline::codec(Line::new()).handler(handler)
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut stream = connect(server.local_address());
    socket2::SockRef::from(&stream).set_recv_buffer_size(32 * 1024).unwrap();
    tcp::ask(&mut stream, "", "hello\n");
    // Block the loop until the peer has sent everything and ended its stream.
    let (go, gone) = mpsc::channel::<()>();
    group.next().execute(move || assert!(gone.recv().is_err())).unwrap();
    stream.write_all(b"quit\nand a lot more that is never read\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    drop(go);
    log.wait_for("inactive");
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => assert_eq!(answer.len(), LAST_WORDS),
        Err(e) => panic!("{} bytes, then: {e}", answer.len()),
    }
    end(&group);
}
