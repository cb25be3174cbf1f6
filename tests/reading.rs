//! Reading: bursts and their end, errors, reading on demand, limits, and codecs that misbehave.

#[path = "support/recorder.rs"]
mod recorder;
#[path = "support/streams.rs"]
mod streams;

use bytes::{Buf, Bytes};
use netwheel::{
    Address, ChannelOptions, PeerError,
    buffer::Outbound,
    codec::{LengthField, Line, RawBytes},
    pipeline::{Codec, Stage, StageContext},
    prelude::*,
    testing::{EmbeddedChannel, ManualClock},
};
use recorder::{Call, Log, Recorder, done, embedded, embedded_with, end, one_loop, read_to_end};
use std::{
    cell::RefCell,
    io::{self, Write},
    net::Shutdown,
    rc::Rc,
    sync::{Mutex, mpsc},
    time::Duration,
};
use streams::{anywhere, connect};

fn raw(options: &ChannelOptions, handler: Recorder) -> EmbeddedChannel<Bytes> {
    with_codec(options, RawBytes, handler)
}

fn with_codec<C: Codec<In = Bytes, Out = Bytes>>(
    options: &ChannelOptions,
    codec: C,
    handler: Recorder,
) -> EmbeddedChannel<Bytes> {
    let pipeline = Pipeline::new().codec(codec).handler(handler);
    EmbeddedChannel::with(pipeline, options, ManualClock::new(), Duration::from_millis(1)).unwrap()
}

/// A server whose channels are read with `options` and write down what happens.
fn serve<C: Codec<In = Bytes, Out = Bytes> + Clone + Send + Sync>(
    group: &EventLoopGroup,
    options: ChannelOptions,
    codec: C,
    log: &Log,
    handler: impl Fn(&Log) -> Recorder + Send + Sync + 'static,
) -> Server<Address> {
    let log = log.clone();
    ServerBootstrap::new(group)
        .channel_options(options)
        .pipeline(move |_| Pipeline::new().codec(codec.clone()).handler(handler(&log)))
        .bind(anywhere())
        .unwrap()
}

#[test]
fn c_58_a_burst_of_reads_has_one_read_complete() {
    let log = Log::new();
    let options = ChannelOptions::new().read_size(2);
    let mut channel = raw(&options, Recorder::new(&log));
    channel.write_inbound(b"abcde").unwrap();
    assert_eq!(log.take(), ["active", "read ab", "read cd", "read e", "read_complete"]);
    channel.write_inbound(b"f").unwrap();
    assert_eq!(log.take(), ["read f", "read_complete"]);
}

#[test]
fn c_58_a_burst_ends_when_auto_read_is_turned_off() {
    let log = Log::new();
    let options = ChannelOptions::new().read_size(2);
    let mut channel = raw(
        &options,
        Recorder::with(&log, |ctx, call| {
            if let Call::Read(message) = call {
                ctx.set_auto_read(message != "cd");
            }
            Ok(())
        }),
    );
    channel.write_inbound(b"abcdef").unwrap();
    assert_eq!(log.take(), ["active", "read ab", "read cd", "read_complete"]);
}

fn c_58_over_tcp_a_turn_reads_so_often_and_no_more() {
    let group = one_loop();
    for (limit, set) in [(16, None), (3, Some(3))] {
        let log = Log::new();
        let mut options = ChannelOptions::new().read_size(1).auto_read(false);
        if let Some(limit) = set {
            options = options.reads_per_turn(limit);
        }
        let server = serve(&group, options, RawBytes, &log, |log| {
            // Nothing is read before everything is there: then each turn is a full one.
            Recorder::with(log, |ctx, call| {
                if *call == Call::Active {
                    ctx.schedule(Duration::ZERO, when_there);
                }
                Ok(())
            })
        });
        let mut peer = connect(&server);
        peer.write_all(&[b'.'; 100]).unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        log.wait_for("active");
        log.push("go");
        log.wait_for("drop");
        let log = log.take();
        assert_eq!(log.iter().filter(|e| *e == "read .").count(), 100);
        let bursts: Vec<_> = log
            .split(|e| e == "read_complete")
            .map(|b| b.iter().filter(|e| *e == "read .").count())
            .collect();
        assert!(bursts.iter().all(|n| *n <= limit), "{bursts:?}");
        assert_eq!(bursts.iter().filter(|n| **n == limit).count(), 100 / limit, "{bursts:?}");
        done(server.close()).unwrap();
    }
    end(&group);
}

/// Turns reading on once the test has said that all is there.
fn when_there(me: &mut Recorder, ctx: &mut Context<'_, Recorder>) -> Result {
    if me.log.count("go") > 0 {
        ctx.set_auto_read(true);
    } else {
        ctx.schedule(Duration::from_millis(1), when_there);
    }
    Ok(())
}

#[test]
fn c_59_an_end_without_bytes_has_a_read_complete_of_its_own() {
    let log = Log::new();
    let mut channel = raw(&ChannelOptions::new(), Recorder::new(&log));
    channel.write_inbound(b"abc").unwrap();
    channel.end_inbound();
    assert_eq!(log.take(), ["active", "read abc", "read_complete", "read_complete", "inactive"]);
}

#[test]
fn c_59_a_wake_up_for_nothing_has_a_read_complete() {
    let log = Log::new();
    let mut channel = raw(&ChannelOptions::new(), Recorder::new(&log));
    channel.write_inbound(b"").unwrap();
    assert_eq!(log.take(), ["active", "read_complete"]);
    let options = ChannelOptions::new().auto_read(false);
    let mut channel = raw(&options, Recorder::exactly(&log, |_, _| Ok(())));
    channel.write_inbound(b"").unwrap();
    assert_eq!(log.take(), ["active"], "nobody reads");
}

fn c_59_over_tcp_bytes_then_their_end() {
    let group = one_loop();
    let log = Log::new();
    let server = serve(&group, ChannelOptions::new(), RawBytes, &log, Recorder::new);
    let mut peer = connect(&server);
    peer.write_all(b"abc").unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    assert!(read_to_end(&mut peer).is_empty());
    log.wait_for("drop");
    // ✓ Netty: read:3, readComplete, readComplete, inactive.
    assert_eq!(log.take(), ["active", "read abc", "read_complete", "read_complete", "inactive", "drop"]);
    end(&group);
}

/// C-59, D-06: the last messages, the end of a read, the end of the channel.
#[test]
fn c_59_what_is_left_at_the_end_is_decoded_for_the_last_time_even_across_flushes() {
    /// Single bytes, but only once no more will come.
    struct AtLast;
    impl Codec for AtLast {
        type In = Bytes;
        type Out = Bytes;
        fn decode(&mut self, _: &mut Bytes) -> Result<Option<Bytes>> {
            Ok(None)
        }
        fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
            Ok((!input.is_empty()).then(|| input.split_to(1)))
        }
        fn encode(&mut self, message: Bytes, output: &mut Outbound) -> Result {
            output.put(message);
            Ok(())
        }
    }
    let log = Log::new();
    let mut channel = with_codec(
        &ChannelOptions::new(),
        AtLast,
        Recorder::with(&log, |ctx, call| match call {
            Call::Read(message) => {
                ctx.write(message.clone())?;
                ctx.flush();
                Ok(())
            }
            _ => Ok(()),
        }),
    );
    channel.write_inbound(b"abc").unwrap();
    assert_eq!(log.take(), ["active", "read_complete"]);
    channel.end_inbound();
    assert_eq!(log.take(), ["read a", "read b", "read c", "read_complete", "inactive"]);
    assert_eq!(channel.read_outbound(), "abc");
}

#[test]
fn c_60_a_read_error_comes_after_the_bytes_and_closes() {
    let log = Log::new();
    // Staying open is not this handler's to decide: the connection is broken.
    let mut channel = raw(&ChannelOptions::new(), Recorder::exactly(&log, |_, _| Ok(())));
    channel.write_inbound(b"abc").unwrap();
    channel.break_with(io::ErrorKind::ConnectionReset.into());
    assert_eq!(
        log.take(),
        ["active", "read abc", "read_complete", "error reading: connection reset", "inactive"]
    );
    assert!(channel.is_closed());
}

#[test]
fn c_60_over_tcp_a_reset_comes_after_the_bytes_and_closes() {
    streams::over(streams::Kind::Tcp, a_reset_comes_after_the_bytes);
}

fn a_reset_comes_after_the_bytes() {
    let group = one_loop();
    let log = Log::new();
    let server =
        serve(&group, ChannelOptions::new(), RawBytes, &log, |log| Recorder::exactly(log, |_, _| Ok(())));
    let mut peer = connect(&server);
    peer.write_all(b"abc").unwrap();
    log.wait_for("read_complete");
    socket2::SockRef::from(peer.as_tcp()).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    log.wait_for("drop");
    let log = log.take();
    assert_eq!(log[..3], ["active", "read abc", "read_complete"]);
    let error = log.iter().position(|e| e.starts_with("error reading:")).expect("it is told");
    assert_eq!(log[error + 1..], ["inactive", "drop"]);
    assert!(log[3..error].iter().all(|e| e == "read_complete"), "{log:?}");
    end(&group);
}

#[test]
fn c_66_turning_auto_read_on_reads_what_is_there() {
    let log = Log::new();
    let options = ChannelOptions::new().auto_read(false);
    let mut channel = embedded_with(&options, Recorder::new(&log));
    channel.write_inbound(b"one\ntwo\n").unwrap();
    assert_eq!(log.take(), ["active"]);
    channel
        .channel()
        .execute(|scope| {
            scope.set_auto_read(true);
            Ok(())
        })
        .unwrap();
    channel.run_pending();
    assert_eq!(log.take(), ["read one", "read two", "read_complete"]);
    channel.write_inbound(b"three\n").unwrap();
    assert_eq!(log.take(), ["read three", "read_complete"]);
}

#[test]
fn c_66_turning_auto_read_off_drops_a_read_that_was_asked_for() {
    let log = Log::new();
    let options = ChannelOptions::new().auto_read(false);
    let mut channel = embedded_with(&options, Recorder::new(&log));
    channel
        .channel()
        .execute(|scope| {
            scope.read();
            scope.set_auto_read(true);
            scope.set_auto_read(false);
            assert!(!scope.auto_read());
            Ok(())
        })
        .unwrap();
    channel.run_pending();
    channel.write_inbound(b"one\n").unwrap();
    assert_eq!(log.take(), ["active"]);
}

fn c_66_over_tcp_bytes_that_came_while_auto_read_was_off_need_no_further_event() {
    let group = one_loop();
    let log = Log::new();
    let (sender, channels) = mpsc::channel();
    let sender = Mutex::new(sender);
    let server = serve(&group, ChannelOptions::new(), Line::new(), &log, move |log| {
        let sender = sender.lock().unwrap().clone();
        Recorder::with(log, move |ctx, call| {
            match call {
                Call::Active => sender.send(ctx.channel()).unwrap(),
                Call::Read(message) if message == "off" => ctx.set_auto_read(false),
                _ => {}
            }
            Ok(())
        })
    });
    let mut peer = connect(&server);
    let channel = channels.recv().unwrap();
    peer.write_all(b"off\nsame read\n").unwrap();
    log.wait_for("read_complete");
    peer.write_all(b"later read\n").unwrap();
    // The event of the later bytes has come and gone when this timer has run.
    done(group.next().schedule(Duration::from_millis(1), || ()).unwrap().completion()).unwrap();
    assert_eq!(log.all(), ["active", "read off", "read_complete"]);
    channel
        .execute(|scope| {
            scope.set_auto_read(true);
            Ok(())
        })
        .unwrap();
    log.wait_for("read later read");
    end(&group);
}

#[test]
fn t_27_auto_read_off_in_the_first_read_ends_the_burst_and_loses_nothing() {
    let log = Log::new();
    let options = ChannelOptions::new().read_size(1);
    let mut channel = raw(
        &options,
        Recorder::with(&log, |ctx, call| {
            if let Call::Read(_) = call {
                ctx.set_auto_read(false);
            }
            Ok(())
        }),
    );
    channel.write_inbound(b"abc").unwrap();
    assert_eq!(log.take(), ["active", "read a", "read_complete"]);
    for message in ["read b", "read c"] {
        channel
            .channel()
            .execute(|scope| {
                scope.read();
                Ok(())
            })
            .unwrap();
        channel.run_pending();
        assert_eq!(log.take(), [message, "read_complete"]);
    }
}

#[test]
fn t_27_messages_behind_the_one_that_turned_auto_read_off_are_kept_whatever_max_inbound_says() {
    let log = Log::new();
    let options = ChannelOptions::new().max_inbound(8);
    let mut channel = embedded_with(
        &options,
        Recorder::with(&log, |ctx, call| {
            if let Call::Read(_) = call {
                ctx.set_auto_read(false);
            }
            Ok(())
        }),
    );
    channel.write_inbound(b"one\ntwo\nthree\nfour\nfi").unwrap();
    assert_eq!(log.take(), ["active", "read one", "read_complete"]);
    for message in ["read two", "read three", "read four"] {
        channel
            .channel()
            .execute(|scope| {
                scope.set_auto_read(true);
                Ok(())
            })
            .unwrap();
        channel.run_pending();
        assert_eq!(log.take(), [message, "read_complete"]);
    }
    channel
        .channel()
        .execute(|scope| {
            scope.set_auto_read(true);
            Ok(())
        })
        .unwrap();
    channel.write_inbound(b"ve\n").unwrap();
    assert!(log.take().contains(&"read five".to_owned()));
}

fn t_27_over_tcp_auto_read_off_in_a_read_and_on_again_from_another_thread() {
    let group = one_loop();
    let log = Log::new();
    let (sender, channels) = mpsc::channel();
    let sender = Mutex::new(sender);
    let server = serve(&group, ChannelOptions::new().read_size(1), RawBytes, &log, move |log| {
        let sender = sender.lock().unwrap().clone();
        Recorder::with(log, move |ctx, call| {
            match call {
                Call::Active => sender.send(ctx.channel()).unwrap(),
                Call::Read(_) => ctx.set_auto_read(false),
                _ => {}
            }
            Ok(())
        })
    });
    let mut peer = connect(&server);
    let channel = channels.recv().unwrap();
    peer.write_all(b"abc").unwrap();
    for message in ["read a", "read b", "read c"] {
        log.wait_for(message);
        log.wait_until("the end of the burst", |log| log.last().is_some_and(|e| e == "read_complete"));
        channel
            .execute(|scope| {
                scope.read();
                Ok(())
            })
            .unwrap();
    }
    end(&group);
    let reads: Vec<_> = log.take().into_iter().filter(|e| e.starts_with("read ")).collect();
    assert_eq!(reads, ["read a", "read b", "read c"]);
}

// A request is for one read here, not for one burst: asked once more within it, two reads make one burst.
#[test]
fn t_28_a_read_that_was_asked_for_is_used_up_by_one_read() {
    let log = Log::new();
    let options = ChannelOptions::new().auto_read(false).read_size(1);
    let first = RefCell::new(true);
    let mut channel = raw(
        &options,
        Recorder::with(&log, move |ctx, call| {
            if *call == Call::Active || (matches!(call, Call::Read(_)) && first.replace(false)) {
                ctx.read();
            }
            Ok(())
        }),
    );
    channel.write_inbound(b"abcd").unwrap();
    assert_eq!(log.take(), ["active", "read a", "read b", "read_complete"]);
    channel.run_pending();
    assert_eq!(log.take(), [""; 0], "it is not repeated");
}

#[test]
fn t_28_one_read_gives_all_messages_of_its_bytes() {
    let log = Log::new();
    let options = ChannelOptions::new().auto_read(false);
    let mut channel = embedded_with(
        &options,
        Recorder::with(&log, |ctx, call| {
            if *call == Call::Active {
                ctx.read();
            }
            Ok(())
        }),
    );
    channel.write_inbound(b"a\nb\nc").unwrap();
    channel.write_inbound(b"\nd\n").unwrap();
    assert_eq!(log.take(), ["active", "read a", "read b", "read_complete"]);
}

#[test]
fn max_inbound_closes_a_channel_whose_codec_waits_for_more_than_it_may_keep() {
    let log = Log::new();
    let options = ChannelOptions::new().max_inbound(10);
    // Ten bytes may wait; the handler's wish to stay open does not count.
    let mut channel = embedded_with(&options, Recorder::exactly(&log, |_, _| Ok(())));
    channel.write_inbound(b"0123456789").unwrap();
    assert_eq!(log.take(), ["active", "read_complete"]);
    channel.write_inbound(b"x").unwrap();
    let expected = PeerError::TooLong { what: "undecoded input", length: 11, limit: 10 };
    assert_eq!(log.take(), [format!("error the peer broke the protocol: {expected}"), "inactive".to_owned()]);
    assert!(channel.write_inbound(b"\n").is_err());
}

fn max_inbound_over_tcp_closes_the_connection_whatever_the_handler_does() {
    let group = one_loop();
    let log = Log::new();
    let options = ChannelOptions::new().max_inbound(10);
    let server = serve(&group, options, Line::new(), &log, |log| Recorder::exactly(log, |_, _| Ok(())));
    let mut peer = connect(&server);
    peer.write_all(b"0123456789 and more without an end").unwrap();
    assert!(read_to_end(&mut peer).is_empty());
    log.wait_for("drop");
    let log = log.take();
    assert!(
        log.iter().any(|e| e.starts_with("error the peer broke the protocol: a undecoded input")),
        "{log:?}"
    );
    assert_eq!(log[log.len() - 2..], ["inactive", "drop"]);
    end(&group);
}

/// Fails without taking a byte, again and again.
#[derive(Clone)]
struct Stuck;

impl Codec for Stuck {
    type In = Bytes;
    type Out = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        if input.is_empty() { Ok(None) } else { Err("stuck".into()) }
    }

    fn encode(&mut self, message: Bytes, output: &mut Outbound) -> Result {
        output.put(message);
        Ok(())
    }
}

#[test]
fn a_codec_that_is_stuck_closes_its_channel_on_the_second_error() {
    let log = Log::new();
    let mut channel = with_codec(&ChannelOptions::new(), Stuck, Recorder::exactly(&log, |_, _| Ok(())));
    channel.write_inbound(b"abc").unwrap();
    assert_eq!(log.take(), ["active", "error stuck", "error stuck", "inactive"]);
}

fn a_codec_that_is_stuck_closes_its_connection_over_tcp_too() {
    let group = one_loop();
    let log = Log::new();
    let server =
        serve(&group, ChannelOptions::new(), Stuck, &log, |log| Recorder::exactly(log, |_, _| Ok(())));
    let mut peer = connect(&server);
    peer.write_all(b"abc").unwrap();
    assert!(read_to_end(&mut peer).is_empty());
    log.wait_for("drop");
    assert_eq!(log.take(), ["active", "error stuck", "error stuck", "inactive", "drop"]);
    end(&group);
}

#[test]
fn a_codec_that_is_stuck_at_the_end_does_not_go_round_for_ever() {
    /// Fails whenever it is asked for the last message.
    struct StuckAtLast;
    impl Codec for StuckAtLast {
        type In = Bytes;
        type Out = Bytes;
        fn decode(&mut self, _: &mut Bytes) -> Result<Option<Bytes>> {
            Ok(None)
        }
        fn decode_last(&mut self, _: &mut Bytes) -> Result<Option<Bytes>> {
            Err("stuck at last".into())
        }
        fn encode(&mut self, _: Bytes, _: &mut Outbound) -> Result {
            Ok(())
        }
    }
    let log = Log::new();
    let mut channel = with_codec(
        &ChannelOptions::new(),
        StuckAtLast,
        Recorder::exactly(&log, |ctx, _| {
            ctx.flush();
            Ok(())
        }),
    );
    channel.write_inbound(b"abc").unwrap();
    channel.end_inbound();
    let log = log.take();
    assert_eq!(log[..2], ["active", "read_complete"]);
    assert!(log.iter().filter(|e| *e == "error stuck at last").count() <= 2, "{log:?}");
    assert_eq!(log.last().unwrap(), "inactive");
}

#[test]
fn errors_that_take_no_byte_close_only_if_nothing_moves_in_between() {
    /// Fails at each `!` without taking it; the next call takes it and everything up to the next one.
    #[derive(Default)]
    struct Resumes(bool);
    impl Codec for Resumes {
        type In = Bytes;
        type Out = Bytes;
        fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
            while let Some(&first) = input.first() {
                if first == b'!' && !std::mem::replace(&mut self.0, true) {
                    return Err("bang".into());
                }
                self.0 = false;
                input.advance(1);
            }
            Ok(None)
        }
        fn encode(&mut self, _: Bytes, _: &mut Outbound) -> Result {
            Ok(())
        }
    }
    let log = Log::new();
    let mut channel =
        with_codec(&ChannelOptions::new(), Resumes::default(), Recorder::exactly(&log, |_, _| Ok(())));
    for _ in 0..3 {
        channel.write_inbound(b"!abc").unwrap();
    }
    assert!(channel.is_open());
    assert_eq!(log.take().iter().filter(|e| *e == "error bang").count(), 3);
}

/// D-02.
#[test]
fn a_codec_that_makes_messages_of_no_bytes_does_not_go_round_for_ever() {
    struct Endless;
    impl Codec for Endless {
        type In = Bytes;
        type Out = Bytes;
        fn decode(&mut self, _: &mut Bytes) -> Result<Option<Bytes>> {
            Ok(Some(Bytes::new()))
        }
        fn encode(&mut self, _: Bytes, _: &mut Outbound) -> Result {
            Ok(())
        }
    }
    let log = Log::new();
    let mut channel = with_codec(&ChannelOptions::new(), Endless, Recorder::exactly(&log, |_, _| Ok(())));
    channel.write_inbound(b"abc").unwrap();
    assert!(channel.is_closed());
    assert!(log.take().iter().all(|e| !e.starts_with("read ")));
}

/// D-11: messages before a failed decoding are delivered, then the failure, then those behind it.
#[test]
fn a_handler_that_stays_open_after_an_error_reads_on_behind_it() {
    let log = Log::new();
    let mut channel = with_codec(
        &ChannelOptions::new(),
        recorder::Fussy::new(),
        Recorder::exactly(&log, |_, call| match call {
            Call::Read(message) if message == "mine" => Err("my own".into()),
            _ => Ok(()),
        }),
    );
    channel.write_inbound(b"one\nbad\ntwo\nmine\nthree\n").unwrap();
    assert_eq!(
        log.take(),
        [
            "active",
            "read one",
            "error the peer broke the protocol: malformed message: bad",
            "read two",
            "read mine",
            "error my own",
            "read three",
            "read_complete"
        ]
    );
}

/// Writes down what it is given and when, and takes one byte for a message, but only at last if it is `x`.
struct Asked(Log);

impl Codec for Asked {
    type In = Bytes;
    type Out = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        self.0.push(format!("decode {}", String::from_utf8_lossy(input)));
        Ok(input.first().is_some_and(|first| *first != b'x').then(|| input.split_to(1)))
    }

    fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        self.0.push(format!("decode_last {}", String::from_utf8_lossy(input)));
        Ok((!input.is_empty()).then(|| input.split_to(input.len())))
    }

    fn encode(&mut self, message: Bytes, output: &mut Outbound) -> Result {
        output.put(message);
        Ok(())
    }
}

/// D-06, D-07, D-08: at the end of input what is left is decoded for the last time, and then the channel closes, or is told of
/// the end and nothing else. Nothing but `decode_last`, which may have a last word, is asked with no bytes.
#[test]
fn d_07_the_last_decoding_is_asked_until_nothing_is_left_also_at_a_half_close() {
    for half_close in [false, true] {
        let log = Log::new();
        let options = ChannelOptions::new().half_close(half_close);
        // The recorder closes when it is told of the end; that is the default.
        let mut channel = with_codec(&options, Asked(log.clone()), Recorder::new(&log));
        channel.write_inbound(b"axy").unwrap();
        assert_eq!(log.take(), ["active", "decode axy", "read a", "decode xy", "read_complete"]);
        channel.end_inbound();
        assert_eq!(log.take(), ["decode_last xy", "read xy", "decode_last ", "read_complete", "inactive"]);

        let mut channel = with_codec(&options, Asked(log.clone()), Recorder::new(&log));
        channel.write_inbound(b"a").unwrap();
        channel.end_inbound();
        let told = log.take();
        assert_eq!(told[told.len() - 3..], ["decode_last ", "read_complete", "inactive"]);
    }
}

/// Writes down what it is given, and wants four bytes for a message.
struct Fours(Rc<RefCell<Vec<Bytes>>>);

impl Codec for Fours {
    type In = Bytes;
    type Out = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        self.0.borrow_mut().push(input.clone());
        Ok((input.len() >= 4).then(|| input.split_to(4)))
    }

    fn encode(&mut self, message: Bytes, output: &mut Outbound) -> Result {
        output.put(message);
        Ok(())
    }
}

#[test]
fn d_01_a_codec_is_not_asked_again_before_more_bytes_come_and_what_it_leaves_is_kept() {
    let log = Log::new();
    let asked = Rc::new(RefCell::new(Vec::new()));
    let mut channel = with_codec(&ChannelOptions::new(), Fours(asked.clone()), Recorder::new(&log));
    channel.write_inbound(b"ab").unwrap();
    channel.run_pending();
    channel.channel().execute(|scope| scope.write("x".into())).unwrap();
    channel
        .channel()
        .execute(|scope| {
            scope.read();
            scope.set_auto_read(true);
            Ok(())
        })
        .unwrap();
    channel.run_pending();
    channel.advance(Duration::from_secs(10));
    channel.write_inbound(b"").unwrap();
    assert_eq!(asked.take(), ["ab"], "once, whatever else happens");
    channel.write_inbound(b"cdef").unwrap();
    assert_eq!(asked.take(), ["abcdef", "ef"]);
    channel.write_inbound(b"gh").unwrap();
    assert_eq!(asked.take()[0], "efgh");
    let reads: Vec<_> = log.take().into_iter().filter(|e| e.starts_with("read ")).collect();
    assert_eq!(reads, ["read abcd", "read efgh"]);
}

fn d_01_over_tcp_a_frame_that_comes_byte_by_byte_is_whole() {
    let group = one_loop();
    let log = Log::new();
    let server = serve(&group, ChannelOptions::new(), LengthField::u16(), &log, Recorder::new);
    let mut peer = connect(&server);
    for byte in b"\0\x05hello\0\x05world" {
        peer.write_all(&[*byte]).unwrap();
    }
    log.wait_for("read world");
    assert_eq!(log.count("read hello"), 1);
    end(&group);
}

fn a_large_frame_grows_across_many_reads() {
    let group = one_loop();
    let log = Log::new();
    let codec = LengthField::u32().max_len(4 << 20);
    let server = serve(&group, ChannelOptions::new(), codec, &log, |log| {
        let inner = log.clone();
        Recorder::with(&Log::new(), move |ctx, call| {
            if let Call::Read(message) = call {
                inner.push(format!("{} {}", message.len(), message.iter().all(|b| *b == 7)));
                ctx.write(message.slice(..3))?;
            }
            Ok(())
        })
    });
    let mut peer = connect(&server);
    for size in [3_000_000u32, 10, 70_000] {
        peer.write_all(&size.to_be_bytes()).unwrap();
        peer.write_all(&vec![7; size as usize]).unwrap();
        recorder::ask(&mut peer, "", "\0\0\0\x03\x07\x07\x07");
    }
    assert_eq!(log.take(), ["3000000 true", "10 true", "70000 true"]);
    end(&group);
}

/// Swallows what begins with `-`, answers `?` by itself, shouts the rest.
struct Shouting;

impl Stage for Shouting {
    type In = Bytes;
    type Out = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, ctx: &mut StageContext<'_, Bytes>, message: Bytes) -> Result<Option<Bytes>> {
        match message.first() {
            Some(b'-') => Ok(None),
            Some(b'?') => ctx.write("answer".into()).map(|()| None),
            Some(b'.') => {
                ctx.close();
                Ok(None)
            }
            _ => Ok(Some(message.to_ascii_uppercase().into())),
        }
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Bytes>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

#[test]
fn a_stage_may_swallow_answer_change_and_close() {
    let log = Log::new();
    let handler = Recorder::with(&log, |ctx, call| match call {
        Call::Read(message) => ctx.write(message.clone()),
        _ => Ok(()),
    });
    let mut channel =
        EmbeddedChannel::new(Pipeline::new().codec(Line::new()).stage(Shouting).handler(handler));
    channel.write_inbound(b"-a\nb\n?\n-c\nd\n.\ne\n").unwrap();
    assert_eq!(log.take(), ["active", "read B", "read D", "inactive"]);
    assert_eq!(channel.read_outbound(), "B\nanswer\nD\n");
}

#[test]
fn nothing_is_read_after_a_close_in_the_same_burst() {
    let log = Log::new();
    let mut channel = embedded(Recorder::with(&log, |ctx, call| {
        if let Call::Read(_) = call {
            ctx.close();
        }
        Ok(())
    }));
    channel.write_inbound(b"one\ntwo\n").unwrap();
    assert_eq!(log.take(), ["active", "read one", "inactive"]);
}

over_each_transport! {
    c_58_over_tcp_a_turn_reads_so_often_and_no_more,
    c_59_over_tcp_bytes_then_their_end,
    c_66_over_tcp_bytes_that_came_while_auto_read_was_off_need_no_further_event,
    t_27_over_tcp_auto_read_off_in_a_read_and_on_again_from_another_thread,
    max_inbound_over_tcp_closes_the_connection_whatever_the_handler_does,
    a_codec_that_is_stuck_closes_its_connection_over_tcp_too,
    d_01_over_tcp_a_frame_that_comes_byte_by_byte_is_whole,
    a_large_frame_grows_across_many_reads,
}
