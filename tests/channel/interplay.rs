//! Where the features of a channel meet: each works alone, and has to beside the others.

use crate::support::{
    channels::{embedded, embedded_with},
    journal::Log,
    loops::{end, one_loop},
    recorder::{Event, Recorder},
    tcp::{self, connect},
    wait::{self, SECOND, done},
};
use bytes::Bytes;
use netwheel::{
    ChannelOptions, Error, EventLoop, Overflow, TimeLimits,
    buffer::WaterMark,
    codec::{Line, RawBytes},
    pipeline::{Stage, StageContext},
    prelude::*,
    testing::{EmbeddedChannel, ManualClock},
};
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    sync::mpsc,
    time::{Duration, Instant},
};

const TICK: Duration = Duration::from_millis(1);

fn limited(options: &ChannelOptions, limits: TimeLimits, handler: Recorder) -> EmbeddedChannel<Bytes> {
    let pipeline = Pipeline::codec(Line::new()).time_limits(limits).handler(handler);
    EmbeddedChannel::with(pipeline, options, ManualClock::new(), TICK).unwrap()
}

/// Writes a farewell when it is told of an error, and closes.
fn polite(log: &Log) -> Recorder {
    Recorder::with(
        log,
        |ctx, call| if matches!(call, Event::Error(_)) { ctx.write("bye".into()) } else { Ok(()) },
    )
}

/// A writer that goes on when it may is watched as one that writes at any other time.
#[test]
fn a_write_limit_holds_for_what_is_written_when_the_channel_is_writable_again() {
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
    // The peer takes all of that, and nothing of what is written then.
    channel.set_outbound_room(Some(13));
    assert_eq!(channel.pending_bytes(), 5);
    log.take();
    channel.advance(SECOND + TICK);
    assert_eq!(log.take(), ["error writing timed out after 1s", "inactive"]);
}

#[test]
fn a_peer_that_is_late_is_told_so() {
    let log = Log::new();
    let mut channel = limited(&ChannelOptions::new(), TimeLimits::new().first_byte(SECOND), polite(&log));
    channel.advance(2 * SECOND);
    assert_eq!(channel.read_outbound(), &b"bye\n"[..]);
    assert!(channel.is_closed());
}

#[test]
fn a_peer_that_sends_too_much_of_one_message_is_told_so() {
    let log = Log::new();
    let mut channel = embedded_with(&ChannelOptions::new().max_inbound(10), polite(&log));
    channel.write_inbound(b"eleven byte").unwrap();
    assert_eq!(channel.read_outbound(), &b"bye\n"[..]);
    assert!(channel.is_closed());
}

/// As a message that is on its way to a channel which closes, it is nobody's error.
#[test]
fn a_message_on_its_way_to_an_output_that_ends_is_dropped_and_the_input_lives_on() {
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
fn a_handle_that_is_made_later_knows_what_the_channel_is_like() {
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
    assert!(!channel.channel().is_writable(), "100 kB wait");
}

/// Answers each line by itself, before the handler has it.
struct Acknowledges;

impl Stage for Acknowledges {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, ctx: &mut StageContext<'_, Bytes>, line: Bytes) -> Result<Option<Bytes>> {
        ctx.write("acknowledged".into())?;
        Ok(Some(line))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Bytes>, line: Bytes) -> Result {
        ctx.write(line)
    }
}

/// Whose message it is does not matter, half of one is never dropped.
#[test]
fn what_a_stage_has_written_is_never_cut_in_two_where_the_oldest_are_dropped() {
    for written_before in [false, true] {
        let options = ChannelOptions::new().max_outbound(100).overflow(Overflow::DropOldest);
        let pipeline = Pipeline::codec(Line::new()).stage(Acknowledges).handler(Recorder::new(&Log::new()));
        let mut channel = EmbeddedChannel::with(pipeline, &options, ManualClock::new(), TICK).unwrap();
        let handle = channel.channel();
        if written_before {
            handle.write("first".into()).unwrap();
            channel.run_pending();
            channel.read_outbound();
        }
        // Half of the stage's answer is on its way when so much is written that the oldest messages have to go.
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

/// A writer that makes room by dropping, and fills it up, whenever it is told of either, does not keep the loop for ever.
#[test]
fn a_writer_that_flips_its_own_writability_again_and_again_is_told_so_often_and_no_more() {
    let log = Log::new();
    let handler = Recorder::exactly(&log, |ctx, call| {
        // One more than there is room for has the oldest dropped, down to 112 bytes; two more fill it up.
        if let Event::Writable(writable) = call {
            for _ in 0..if *writable { 2 } else { 1 } {
                ctx.write("1234567".into())?;
            }
        }
        // Not an endless test where it is an endless loop.
        if log_is_short(ctx) { Ok(()) } else { Err(Error::other("told without an end")) }
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

/// One who asks again when it is told that it asked too often does not keep the loop for ever.
#[test]
fn a_handler_that_schedules_one_more_whenever_one_is_refused_is_stopped() {
    let log = Log::new();
    let handler = Recorder::exactly(&log, |ctx, call| {
        if matches!(call, Event::Active(_) | Event::Error(_)) {
            for _ in 0..2 {
                ctx.schedule(SECOND, |_, _| Ok(()));
            }
        }
        // Not an endless test where it is an endless loop.
        if log_is_short(ctx) { Ok(()) } else { Err(Error::other("told without an end")) }
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
fn any_number_of_bytes_may_be_held() {
    let log = Log::new();
    let mut channel = embedded(Recorder::new(&log));
    let (sender, held) = mpsc::channel();
    let hold = move |scope: &mut netwheel::Scope<'_, Bytes>| {
        sender.send((scope.hold_input(usize::MAX), scope.hold_input(10))).unwrap();
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

/// A writer that fills up again whenever there is room, and flushes, has one flush's share, as everybody has.
#[test]
fn a_flush_in_writability_changed_does_not_keep_the_next_message_waiting() {
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
    assert!(refills <= 4, "{refills} before the next message");
    drop(stream);
    end(&group);
}

/// Has a writer answer the first line with `first` bytes and fill up again whenever there is room; how often it did in one turn,
/// which may write so often at the end.
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

/// An answer that passes the high mark is flushed before the next message, with the share of a flush; then comes the one write
/// that is tried when the channel has been read, and the flush at the end of the turn.
#[test]
fn an_answer_that_fills_up_again_has_two_flushes_and_one_write_in_a_turn() {
    let most = refills_in_a_turn(4, 4, |_, _| {});
    assert!(most <= 4 + 1 + 4, "{most} in one turn");
}

/// The same where the peer makes room, which an event tells.
#[test]
fn a_writer_that_fills_up_again_when_its_peer_makes_room_has_no_flush_more() {
    const MUCH: usize = 16 << 20;
    let most = refills_in_a_turn(MUCH, 4, |event_loop, peer| {
        let began = Instant::now();
        while event_loop.metrics().writes_blocked == 0 {
            assert!(began.elapsed() < wait::PATIENCE, "the kernel takes all of it");
        }
        peer.read_exact(&mut vec![0; MUCH]).unwrap();
    });
    assert!(most <= 1 + 4, "{most} in one turn");
}

/// More than a peer that begins to read late has taken when the kernel has them all.
const LAST_WORDS: usize = 256 * 1024;

/// What a peer has sent that nobody wants must not become a reset, which drops what the kernel has still to send: also if
/// it has ended its stream.
#[test]
fn last_words_to_a_peer_that_has_ended_its_stream_are_followed_by_an_end_and_not_by_a_reset() {
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
    // The loop is busy until the peer has said and ended everything.
    let (go, gone) = mpsc::channel::<()>();
    group.next().execute(move || assert!(gone.recv().is_err())).unwrap();
    stream.write_all(b"quit\nand a lot more that nobody wants to read\n").unwrap();
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
