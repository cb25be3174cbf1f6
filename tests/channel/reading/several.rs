//! Codecs and stages that produce several messages from one input: order, interruptions, limits.

use crate::over_each_transport;
use crate::reading::{serve, with_codec};
use crate::support::{
    channels::{read, set_auto_read},
    journal::Log,
    loops::{end, one_loop},
    recorder::{Event, Recorder, hand_over, stop_reading},
    streams::{anywhere, connect},
    tcp::{ask, read_to_end},
};
use bytes::{Buf, Bytes};
use netwheel::{
    Codec, Stage, StageContext,
    buffer::OutboundBuffer,
    channel::ChannelOptions,
    codec::{LengthField, Line, RawBytes},
    prelude::*,
    testing::EmbeddedChannel,
};
use proptest::{arbitrary::any, collection::vec, prop_assert_eq, proptest, sample::select};
use std::{collections::VecDeque, io::Write, net::Shutdown, time::Duration};

/// Decodes a digit and a byte to as many messages as the digit says: `a1`, `a2` and so on. At the
/// end of the stream each remaining byte produces 3000 messages.
#[derive(Clone, Default)]
struct Runs {
    byte: u8,
    made: u32,
    of: u32,
}

impl Runs {
    fn begin(&mut self, byte: u8, of: u32) -> Result<Option<Bytes>> {
        *self = Runs { byte, made: 0, of };
        self.decode_more()
    }
}

impl Codec for Runs {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        assert!(!self.has_more(), "decode was called before all messages were taken");
        while input.len() >= 2 {
            let of = u32::from(input.get_u8() - b'0');
            if let Some(message) = self.begin(input.get_u8(), of)? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    fn has_more(&self) -> bool {
        self.made < self.of
    }

    fn decode_more(&mut self) -> Result<Option<Bytes>> {
        if !self.has_more() {
            return Ok(None);
        }
        self.made += 1;
        Ok(Some(format!("{}{}", self.byte as char, self.made).into()))
    }

    fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        if input.is_empty() { Ok(None) } else { self.begin(input.get_u8(), 3000) }
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        output.put(message);
        Ok(())
    }
}

/// An embedded channel with the codec `Runs`.
fn runs(options: &ChannelOptions, handler: Recorder) -> EmbeddedChannel<Bytes> {
    with_codec(options, Runs::default(), handler)
}

#[test]
fn messages_of_one_input_precede_those_of_the_next() {
    let log = Log::new();
    let mut channel = runs(&ChannelOptions::new(), Recorder::new(&log));
    channel.write_inbound(b"3a0x2b1").unwrap();
    assert_eq!(
        log.take(),
        ["active", "read a1", "read a2", "read a3", "read b1", "read b2", "read_complete"]
    );
    channel.write_inbound(b"c").unwrap();
    assert_eq!(log.take(), ["read c1", "read_complete"]);
}

#[test]
fn auto_read_off_between_two_messages_defers_the_others_to_the_next_read() {
    for one in [false, true] {
        let log = Log::new();
        let options = ChannelOptions::new().one_message_per_read(one);
        let mut channel = runs(
            &options,
            Recorder::with(&log, |ctx, call| {
                if *call == Event::Read("a1".into()) {
                    ctx.set_auto_read(false);
                }
                Ok(())
            }),
        );
        channel.write_inbound(b"3a").unwrap();
        channel.run_pending();
        assert_eq!(log.take(), ["active", "read a1", "read_complete"]);
        read(&channel.channel());
        channel.run_pending();
        if one {
            assert_eq!(log.take(), ["read a2", "read_complete"]);
            set_auto_read(&channel.channel(), true);
            channel.run_pending();
            assert_eq!(log.take(), ["read a3", "read_complete"]);
        } else {
            assert_eq!(log.take(), ["read a2", "read a3", "read_complete"]);
        }
    }
}

fn deferred_messages_need_no_new_event() {
    let group = one_loop();
    let log = Log::new();
    let (hook, channels) = hand_over();
    let options = ChannelOptions::new().auto_read(false).one_message_per_read(true);
    let server = serve(&group, options, Runs::default(), &log, move |log| Recorder::with(log, hook.clone()));
    let mut peer = connect(&server);
    let channel = channels.recv().unwrap();
    peer.write_all(b"3a1b").unwrap();
    for message in ["read a1", "read a2", "read a3", "read b1"] {
        read(&channel);
        log.wait_for(message);
        log.wait_until("the end of the read", |log| log.last().unwrap() == "read_complete");
        assert_eq!(log.take().iter().filter(|entry| entry.starts_with("read ")).count(), 1);
    }
    end(&group);
}

#[test]
fn a_flush_between_two_messages_loses_none() {
    let log = Log::new();
    let mut channel = runs(
        &ChannelOptions::new(),
        Recorder::with(&log, |ctx, call| {
            if let Event::Read(message) = call {
                ctx.write(message.clone())?;
                ctx.flush();
            }
            Ok(())
        }),
    );
    channel.write_inbound(b"3a2b").unwrap();
    assert_eq!(channel.read_outbound(), "a1a2a3b1b2");
    assert_eq!(log.take().len(), 7);
}

fn a_flush_between_two_messages_loses_none_over_a_socket() {
    let group = one_loop();
    let log = Log::new();
    let server = serve(&group, ChannelOptions::new(), Runs::default(), &log, |log| {
        Recorder::with(log, |ctx, call| {
            if let Event::Read(message) = call {
                ctx.write(message.clone())?;
                ctx.flush();
            }
            Ok(())
        })
    });
    let mut peer = connect(&server);
    ask(&mut peer, "9a", "a1a2a3a4a5a6a7a8a9");
    ask(&mut peer, "2b2c", "b1b2c1c2");
    end(&group);
}

#[test]
fn a_close_between_two_messages_drops_the_others() {
    let log = Log::new();
    let mut channel = runs(
        &ChannelOptions::new(),
        Recorder::with(&log, |ctx, call| {
            if let Event::Read(_) = call {
                ctx.close();
            }
            Ok(())
        }),
    );
    channel.write_inbound(b"3a").unwrap();
    assert!(channel.is_closed());
    assert_eq!(log.take(), ["active", "read a1", "inactive", "drop"]);
}

#[test]
fn a_replacement_pipeline_receives_the_bytes_but_not_the_messages_of_the_previous_one() {
    let log = Log::new();
    let (other, rest) = (log.clone(), [("3aone\n", vec!["read one"]), ("3a", vec![])]);
    for (input, expected) in rest {
        let other = other.clone();
        let mut channel = runs(
            &ChannelOptions::new(),
            Recorder::with(&log, move |ctx, call| match call {
                Event::Read(_) => {
                    let lines = Pipeline::codec(Line::new()).handler(Recorder::new(&other));
                    ctx.replace_pipeline(lines)
                }
                _ => Ok(()),
            }),
        );
        channel.write_inbound(input.as_bytes()).unwrap();
        channel.run_pending();
        let reads: Vec<_> = log.take().into_iter().filter(|entry| entry.starts_with("read ")).collect();
        assert_eq!(reads, [vec!["read a1"], expected].concat());
    }
}

#[test]
fn an_error_between_two_messages_loses_neither() {
    /// Fails at the second of three messages.
    #[derive(Default)]
    struct Fails(VecDeque<Result<Bytes>>);
    impl Codec for Fails {
        type Read = Bytes;
        type Write = Bytes;
        fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
            input.clear();
            self.0 = [Ok("two".into()), Err("bang".into()), Ok("three".into())].into();
            Ok(Some("one".into()))
        }
        fn has_more(&self) -> bool {
            !self.0.is_empty()
        }
        fn decode_more(&mut self) -> Result<Option<Bytes>> {
            self.0.pop_front().transpose()
        }
        fn encode(&mut self, _: Bytes, _: &mut OutboundBuffer) -> Result {
            Ok(())
        }
    }
    let log = Log::new();
    let mut channel =
        with_codec(&ChannelOptions::new(), Fails::default(), Recorder::exactly(&log, |_, _| Ok(())));
    channel.write_inbound(b"x").unwrap();
    assert_eq!(log.take(), ["active", "read one", "read two", "error bang", "read three", "read_complete"]);
}

/// A codec whose `has_more` is wrongly `true` is asked once and then decodes further input.
#[test]
fn a_codec_that_wrongly_promises_more_does_not_cause_an_endless_loop() {
    #[derive(Clone)]
    struct Promises;
    impl Codec for Promises {
        type Read = Bytes;
        type Write = Bytes;
        fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
            Ok(Some(input.split_to(1)))
        }
        fn has_more(&self) -> bool {
            true
        }
        fn encode(&mut self, _: Bytes, _: &mut OutboundBuffer) -> Result {
            Ok(())
        }
    }
    let log = Log::new();
    let mut channel = with_codec(&ChannelOptions::new(), Promises, Recorder::new(&log));
    log.take();
    channel.write_inbound(b"ab").unwrap();
    assert_eq!(log.take(), ["read a", "read b", "read_complete"]);
}

#[test]
fn a_panic_in_has_more_closes_only_its_channel() {
    #[derive(Default)]
    struct Panics(bool);
    impl Codec for Panics {
        type Read = Bytes;
        type Write = Bytes;
        fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
            self.0 = true;
            Ok(Some(input.split_to(1)))
        }
        fn has_more(&self) -> bool {
            assert!(!self.0, "on purpose");
            false
        }
        fn encode(&mut self, _: Bytes, _: &mut OutboundBuffer) -> Result {
            Ok(())
        }
    }
    let log = Log::new();
    let handler = Recorder::exactly(&log, |_, _| Ok(()));
    let mut channel = with_codec(&ChannelOptions::new(), Panics::default(), handler);
    channel.write_inbound(b"a").unwrap();
    assert!(channel.is_closed());
    assert_eq!(log.take(), ["active", "read a", "error panicked: on purpose", "inactive", "drop"]);
}

// ---- stages ------------------------------------------------------------------------------------

/// Passes each message on twice. If it has a timer, it produces `tick` and `tock` when the timer
/// expires.
#[derive(Default)]
struct Twice {
    queue: VecDeque<Bytes>,
    timer: Option<Duration>,
}

impl Stage for Twice {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn active(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        if let Some(delay) = self.timer {
            ctx.wake_after(delay);
        }
        Ok(())
    }

    fn read(&mut self, _: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        // A stage that returns no message may still have more.
        self.queue.extend([message.clone(), message]);
        Ok(None)
    }

    fn has_more(&self) -> bool {
        !self.queue.is_empty()
    }

    fn read_more(&mut self, _: &mut StageContext<'_, Self>) -> Result<Option<Bytes>> {
        Ok(self.queue.pop_front())
    }

    fn timer(&mut self, _: &mut StageContext<'_, Self>) -> Result {
        self.queue.extend(["tick".into(), "tock".into()]);
        Ok(())
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

#[test]
fn stages_that_produce_several_messages_can_be_chained() {
    let log = Log::new();
    let pipeline = Pipeline::codec(Runs::default())
        .stage(Twice::default())
        .stage(Twice::default())
        .handler(Recorder::new(&log));
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.write_inbound(b"2a").unwrap();
    let expected = [&["active"][..], &["read a1"; 4], &["read a2"; 4], &["read_complete"]].concat();
    assert_eq!(log.take(), expected);
}

#[test]
fn auto_read_off_between_two_messages_of_a_stage_defers_the_others() {
    let log = Log::new();
    let handler = Recorder::with(&log, stop_reading);
    let pipeline = Pipeline::codec(Runs::default()).stage(Twice::default()).handler(handler);
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.write_inbound(b"2a").unwrap();
    assert_eq!(log.take(), ["active", "read a1", "read_complete"]);
    for message in ["read a1", "read a2", "read a2"] {
        read(&channel.channel());
        channel.run_pending();
        assert_eq!(log.take(), [message, "read_complete"]);
    }
    read(&channel.channel());
    channel.run_pending();
    assert_eq!(log.take(), [""; 0], "no message is left");
}

#[test]
fn messages_of_a_stage_timer_are_delivered_without_input() {
    let log = Log::new();
    let stage = Twice { timer: Some(Duration::from_secs(1)), ..Twice::default() };
    let pipeline = Pipeline::codec(LengthField::u8()).stage(stage).handler(Recorder::new(&log));
    let mut channel = EmbeddedChannel::new(pipeline);
    // An incomplete frame stays buffered.
    channel.write_inbound(b"\x02h").unwrap();
    log.take();
    channel.advance(Duration::from_secs(2));
    assert_eq!(log.take(), ["read tick", "read tock", "read_complete"]);
    channel.write_inbound(b"i").unwrap();
    assert_eq!(log.take(), ["read hi", "read hi", "read_complete"]);
}

fn messages_of_a_stage_timer_are_delivered_over_a_socket() {
    let group = one_loop();
    let log = Log::new();
    let handlers = log.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let stage = Twice { timer: Some(Duration::from_millis(1)), ..Twice::default() };
            Pipeline::codec(RawBytes).stage(stage).handler(Recorder::new(&handlers))
        })
        .bind(anywhere())
        .unwrap();
    let peer = connect(&server);
    log.wait_for("read tock");
    drop(peer);
    end(&group);
}

// ---- all together ------------------------------------------------------------------------------

/// The action of a handler after a message.
#[derive(Debug, Clone, Copy)]
enum Interruption {
    None,
    Flush,
    Pause,
    FlushAndPause,
}

proptest! {
    /// Each message is delivered once and in order, for every split of the stream and every
    /// interruption by the handler.
    #[test]
    fn no_message_is_lost_or_repeated_by_interruptions(
        runs in vec((0..5u8, select(b"abc".to_vec())), 0..8),
        interruptions in vec(select(vec![
            Interruption::None, Interruption::Flush, Interruption::Pause, Interruption::FlushAndPause,
        ]), 1..6),
        cut in 1..6usize, one_message_per_read in any::<bool>(), twice in any::<bool>(),
    ) {
        let mut expected = String::new();
        for (of, byte) in &runs {
            for made in 1..=*of {
                let message = format!("{}{made}", *byte as char);
                expected += &message.repeat(if twice { 2 } else { 1 });
            }
        }
        let stream: Vec<u8> = runs.iter().flat_map(|(of, byte)| [of + b'0', *byte]).collect();
        let mut next = interruptions.into_iter().cycle();
        let handler = Recorder::with(&Log::new(), move |ctx, call| {
            if let Event::Read(message) = call {
                ctx.write(message.clone())?;
                let interruption = next.next();
                if let Some(Interruption::Flush | Interruption::FlushAndPause) = interruption {
                    ctx.flush();
                }
                if let Some(Interruption::Pause | Interruption::FlushAndPause) = interruption {
                    ctx.set_auto_read(false);
                }
            }
            Ok(())
        });
        let options = ChannelOptions::new().one_message_per_read(one_message_per_read);
        let begin = Pipeline::codec(Runs::default());
        let mut channel = if twice {
            EmbeddedChannel::builder(begin.stage(Twice::default()).handler(handler)).channel_options(options).build()
        } else {
            EmbeddedChannel::builder(begin.handler(handler)).channel_options(options).build()
        }.unwrap();
        let mut sent = String::new();
        for piece in stream.chunks(cut) {
            channel.write_inbound(piece).unwrap();
            read(&channel.channel());
            channel.run_pending();
            sent += std::str::from_utf8(&channel.read_outbound()).unwrap();
        }
        // Each read delivers a message unless none is left.
        for _ in 0..=expected.len() {
            read(&channel.channel());
            channel.run_pending();
            sent += std::str::from_utf8(&channel.read_outbound()).unwrap();
        }
        prop_assert_eq!(sent, expected);
    }
}

// ---- limits ------------------------------------------------------------------------------------

/// A codec that produces endless messages from one byte.
#[derive(Clone, Default)]
struct Endless(bool);

impl Codec for Endless {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        self.0 = true;
        Ok(Some(input.split_to(1)))
    }

    fn has_more(&self) -> bool {
        self.0
    }

    fn decode_more(&mut self) -> Result<Option<Bytes>> {
        Ok(Some("more".into()))
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        output.put(message);
        Ok(())
    }
}

/// The limit of a turn is reached repeatedly, and the other channels of the loop still get their
/// share.
fn endless_messages_do_not_occupy_the_loop() {
    for flushes in [false, true] {
        let group = one_loop();
        let quiet = Log::new();
        let (hook, channels) = hand_over();
        // A log would grow without bound.
        let endless = serve(&group, ChannelOptions::new(), Endless::default(), &quiet, move |_| {
            let hook = hook.clone();
            Recorder::with(&Log::new(), move |ctx, call| {
                if flushes && matches!(call, Event::Read(_)) {
                    ctx.flush();
                }
                hook(ctx, call)
            })
        });
        let log = Log::new();
        let lines = serve(&group, ChannelOptions::new(), Line::new(), &log, |log| {
            Recorder::with(log, |ctx, call| match call {
                Event::Read(message) => ctx.write(message.clone()),
                _ => Ok(()),
            })
        });
        let mut busy = connect(&endless);
        busy.write_all(b"xx").unwrap();
        let channel = channels.recv().unwrap();
        let mut other = connect(&lines);
        for _ in 0..10 {
            ask(&mut other, "hello\n", "hello\n");
        }
        // A task reaches the busy channel between two of its messages.
        channel.close();
        assert!(read_to_end(&mut busy).is_empty());
        channel.closed().wait().unwrap();
        end(&group);
    }
}

#[test]
fn messages_beyond_the_limit_of_a_turn_are_all_delivered_at_the_end() {
    for half_close in [false, true] {
        let log = Log::new();
        let options = ChannelOptions::new().half_close(half_close);
        let mut channel = runs(
            &options,
            Recorder::with(&log, |ctx, call| {
                if let Event::Read(_) = call {
                    ctx.flush();
                }
                Ok(())
            }),
        );
        channel.write_inbound(b"a").unwrap();
        channel.end_inbound();
        channel.run_pending();
        assert!(channel.is_closed());
        let log = log.take();
        assert_eq!(log.iter().filter(|entry| entry.starts_with("read a")).count(), 3000);
        assert_eq!(log[log.len() - 2..], ["inactive", "drop"]);
    }
}

fn messages_beyond_the_limit_of_a_turn_are_all_delivered_at_the_end_of_a_socket() {
    let group = one_loop();
    let log = Log::new();
    let server = serve(&group, ChannelOptions::new(), Runs::default(), &log, Recorder::new);
    let mut peer = connect(&server);
    peer.write_all(b"a").unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    log.wait_for("drop");
    let log = log.take();
    assert_eq!(log.iter().filter(|entry| entry.starts_with("read a")).count(), 3000);
    assert_eq!(log[log.len() - 3..], ["read_complete", "inactive", "drop"]);
    end(&group);
}

over_each_transport! {
    deferred_messages_need_no_new_event,
    a_flush_between_two_messages_loses_none_over_a_socket,
    messages_of_a_stage_timer_are_delivered_over_a_socket,
    endless_messages_do_not_occupy_the_loop,
    messages_beyond_the_limit_of_a_turn_are_all_delivered_at_the_end_of_a_socket,
}

/// Fails for the first three messages of a run.
struct OnlyFourth;

impl Stage for OnlyFourth {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, _: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        if message.ends_with(b"4") { Ok(Some(message)) } else { Err(Error::other("not the fourth")) }
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

#[test]
fn a_stage_that_refuses_queued_messages_in_a_row_does_not_end_the_channel() {
    let log = Log::new();
    let handler = Recorder::exactly(&log, |_, _| Ok(()));
    let mut channel =
        EmbeddedChannel::new(Pipeline::codec(Runs::default()).stage(OnlyFourth).handler(handler));
    channel.write_inbound(b"4a").unwrap();
    let failed = "error not the fourth";
    assert_eq!(log.take(), ["active", failed, failed, failed, "read a4", "read_complete"]);
    assert!(channel.is_open());
}

/// Has a message for each byte, the second one and the others queued. Refuses capitals.
#[derive(Default)]
struct Letters {
    queued: VecDeque<u8>,
}

impl Letters {
    fn next(&mut self) -> Result<Option<Bytes>> {
        match self.queued.pop_front() {
            Some(letter) if letter.is_ascii_uppercase() => Err(Error::other("a capital")),
            letter => Ok(letter.map(|letter| vec![letter].into())),
        }
    }
}

impl Stage for Letters {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, _: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        self.queued.extend(message);
        self.next()
    }

    fn has_more(&self) -> bool {
        !self.queued.is_empty()
    }

    fn read_more(&mut self, _: &mut StageContext<'_, Self>) -> Result<Option<Bytes>> {
        self.next()
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

#[test]
fn a_stage_that_refuses_its_own_queued_messages_in_a_row_does_not_end_the_channel() {
    let log = Log::new();
    let handler = Recorder::exactly(&log, |_, _| Ok(()));
    let mut channel =
        EmbeddedChannel::new(Pipeline::codec(Line::new()).stage(Letters::default()).handler(handler));
    channel.write_inbound(b"aBCDe\n").unwrap();
    let failed = "error a capital";
    assert_eq!(log.take(), ["active", "read a", failed, failed, failed, "read e", "read_complete"]);
    assert!(channel.is_open());
}

/// Keeps each message that it refuses.
#[derive(Default)]
struct Keeps {
    refused: Option<Bytes>,
}

impl Stage for Keeps {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, _: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        self.refused = Some(message);
        Ok(None)
    }

    fn has_more(&self) -> bool {
        self.refused.is_some()
    }

    fn read_more(&mut self, _: &mut StageContext<'_, Self>) -> Result<Option<Bytes>> {
        Err(Error::other("refused"))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

#[test]
fn a_stage_that_refuses_the_same_queued_message_again_and_again_ends_the_channel() {
    for ends in [false, true] {
        let log = Log::new();
        let handler = Recorder::exactly(&log, |_, _| Ok(()));
        let options = ChannelOptions::new().half_close(true);
        let pipeline = Pipeline::codec(Line::new()).stage(Keeps::default()).handler(handler.half_open());
        let mut channel = EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap();
        let _ = channel.write_inbound(b"a\nb\n");
        if ends {
            channel.end_inbound();
        }
        channel.run_pending();
        assert!(channel.is_closed());
        let errors = log.take().into_iter().filter(|call| call == "error refused").count();
        assert_eq!(errors, 1025, "1,024 in a row after one that has consumed a line");
    }
}

/// Has two messages for each byte, the second one queued. Refuses `!` without consuming it.
#[derive(Default)]
struct Pairs {
    queued: bool,
    refuses: bool,
}

impl Codec for Pairs {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        if input.first() == Some(&b'!') && !self.refuses {
            self.refuses = true;
            return Err(Error::other("refused"));
        }
        self.queued = !input.is_empty();
        Ok(self.queued.then(|| input.split_to(1)))
    }

    fn has_more(&self) -> bool {
        self.queued
    }

    fn decode_more(&mut self) -> Result<Option<Bytes>> {
        self.queued = false;
        Ok(Some("again".into()))
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        output.put(message);
        Ok(())
    }
}

#[test]
fn an_error_of_the_handler_at_a_queued_message_is_no_failure_of_the_codec() {
    let log = Log::new();
    let handler = Recorder::exactly(&log, |_, call| match call {
        Event::Read(message) if message != "!" => Err(Error::other("of the handler")),
        _ => Ok(()),
    });
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Pairs::default()).handler(handler));
    channel.write_inbound(b"a!").unwrap();
    let failed = "error of the handler";
    let calls = ["active", "read a", failed, "read again", failed, "error refused"];
    let then = ["read !", "read again", failed, "read_complete"];
    assert_eq!(log.take(), [&calls[..], &then].concat());
    assert!(channel.is_open());
}
