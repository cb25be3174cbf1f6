//! Stages that pause reading.

use super::Probe;
use crate::support::{
    channels::{NOTHING, TICK, embedded_pipeline},
    journal::Log,
    recorder::{Recorder, named},
};
use bytes::Bytes;
use netwheel::{
    Codec, Stage, StageContext,
    buffer::OutboundBuffer,
    channel::{ChannelOptions, TimeLimits},
    codec::Line,
    pipeline::{Links, PipelineBuilder},
    prelude::*,
    testing::EmbeddedChannel,
};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A probe that pauses at the line `pause`, and resumes with a task `delay` later.
fn pauses(name: &'static str, log: &Log, delay: Duration) -> Probe {
    Probe::with(name, log, move |ctx, event| {
        if event == "read pause" {
            ctx.pause_reading();
            assert!(ctx.is_paused());
            ctx.schedule(delay, |me, ctx| {
                me.note("resumes");
                ctx.resume_reading();
                assert!(!ctx.is_paused());
                Ok(())
            });
        }
        None
    })
}

fn open(
    log: &Log,
    links: PipelineBuilder<impl Links<Read = Bytes, Write = Bytes>>,
) -> EmbeddedChannel<Bytes> {
    opened(log, links, ChannelOptions::new())
}

fn opened(
    log: &Log,
    links: PipelineBuilder<impl Links<Read = Bytes, Write = Bytes>>,
    options: ChannelOptions,
) -> EmbeddedChannel<Bytes> {
    let channel = embedded_pipeline(&options, links.handler(named("h", log, |_, _| Ok(()))));
    log.take();
    channel
}

/// The lines of the log that are neither of a `read_complete` nor of a drop.
fn reads(log: &Log) -> Vec<String> {
    log.take().into_iter().filter(|line| !line.contains("read_complete")).collect()
}

#[test]
fn nothing_is_delivered_while_a_stage_pauses_and_everything_after_that() {
    let log = Log::new();
    let mut channel = open(&log, Pipeline::codec(Line::new()).stage(pauses("a", &log, SECOND)));
    channel.write_inbound(b"1\npause\n2\n3").unwrap();
    channel.write_inbound(b"4\n").unwrap();
    // The message of the callback itself is still delivered.
    assert_eq!(reads(&log), ["a read 1", "h read 1", "a read pause", "h read pause"]);
    channel.advance(SECOND);
    assert_eq!(reads(&log), ["a resumes", "a read 2", "h read 2", "a read 34", "h read 34"]);
}

#[test]
fn reading_resumes_when_no_stage_pauses_it() {
    let log = Log::new();
    let links = Pipeline::codec(Line::new())
        .stage(pauses("a", &log, 2 * SECOND))
        .stage(pauses("b", &log, SECOND))
        .stage(pauses("c", &log, 3 * SECOND));
    let mut channel = open(&log, links);
    channel.write_inbound(b"pause\nx\n").unwrap();
    reads(&log);
    channel.advance(SECOND);
    assert_eq!(reads(&log), ["b resumes"]);
    channel.advance(SECOND);
    assert_eq!(reads(&log), ["a resumes"]);
    channel.advance(SECOND);
    assert_eq!(reads(&log), ["c resumes", "a read x", "b read x", "c read x", "h read x"]);
}

#[test]
fn a_second_pause_and_a_resume_without_a_pause_do_nothing() {
    let log = Log::new();
    let a = Probe::with("a", &log, |ctx, event| {
        ctx.resume_reading();
        if event == "read 1" {
            ctx.pause_reading();
            ctx.pause_reading();
            ctx.resume_reading();
        }
        None
    });
    let b = Probe::with("b", &log, |ctx, event| {
        if event == "read 2" {
            ctx.pause_reading();
            ctx.schedule(SECOND, |_, ctx| {
                ctx.resume_reading();
                Ok(())
            });
        }
        None
    });
    let mut channel = open(&log, Pipeline::codec(Line::new()).stage(a).stage(b));
    channel.write_inbound(b"1\n2\n3\n").unwrap();
    assert_eq!(reads(&log).last().unwrap(), "h read 2");
    channel.advance(SECOND);
    assert_eq!(reads(&log), ["a read 3", "b read 3", "h read 3"]);
}

#[test]
fn auto_read_and_requested_reads_wait_for_the_pause_and_stay_as_they_are() {
    let log = Log::new();
    let handler = Recorder::with(&log, |ctx, event| {
        match event.to_string().as_str() {
            "read off" => {
                assert!(ctx.auto_read(), "a pause of a stage does not change it");
                ctx.set_auto_read(false);
            }
            "read pause" => ctx.read(),
            _ => {}
        }
        Ok(())
    });
    let links = Pipeline::codec(Line::new()).stage(pauses("a", &log, SECOND));
    let mut channel =
        embedded_pipeline(&ChannelOptions::new().one_message_per_read(true), links.handler(handler));
    channel.write_inbound(b"off\npause\n1\n2\n").unwrap();
    assert_eq!(reads(&log).last().unwrap(), "read off");
    channel
        .channel()
        .execute(|ctx| {
            ctx.read();
            Ok(())
        })
        .unwrap();
    channel.run_pending();
    assert_eq!(reads(&log), ["a read pause", "read pause"], "the read that it requests waits");
    channel.advance(SECOND);
    assert_eq!(reads(&log), ["a resumes", "a read 1", "read 1"]);
    channel.advance(SECOND);
    assert_eq!(reads(&log), NOTHING, "auto-read is still off");
}

/// Splits a line into characters.
struct Characters(Bytes);

impl Stage for Characters {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, ctx: &mut StageContext<'_, Self>, line: Bytes) -> Result<Option<Bytes>> {
        self.0 = line;
        self.read_more(ctx)
    }

    fn has_more(&self) -> bool {
        !self.0.is_empty()
    }

    fn read_more(&mut self, _: &mut StageContext<'_, Self>) -> Result<Option<Bytes>> {
        Ok(Some(self.0.split_to(1)))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, line: Bytes) -> Result {
        ctx.write(line)
    }
}

#[test]
fn queued_messages_of_a_stage_wait_for_the_pause() {
    let log = Log::new();
    let pauses = Probe::with("a", &log, |ctx, event| {
        if event == "read p" {
            ctx.pause_reading();
            ctx.schedule(SECOND, |_, ctx| {
                ctx.resume_reading();
                Ok(())
            });
        }
        None
    });
    let mut channel = open(&log, Pipeline::codec(Line::new()).stage(Characters(Bytes::new())).stage(pauses));
    channel.write_inbound(b"1p2\n3\n").unwrap();
    assert_eq!(reads(&log), ["a read 1", "h read 1", "a read p", "h read p"]);
    channel.advance(SECOND);
    assert_eq!(reads(&log), ["a read 2", "h read 2", "a read 3", "h read 3"]);
}

#[test]
fn the_peer_is_not_late_while_a_stage_pauses() {
    let log = Log::new();
    let limits = TimeLimits::new().progress(1, 2 * SECOND).read(5 * SECOND);
    let links = Pipeline::codec(Line::new()).time_limits(limits).stage(pauses("a", &log, 60 * SECOND));
    let mut channel = open(&log, links);
    // The second half of a line follows, and a part of another one.
    channel.write_inbound(b"pause\n2").unwrap();
    channel.advance(60 * SECOND - TICK);
    reads(&log);
    // Both limits restart when reading resumes.
    channel.advance(2 * SECOND);
    assert_eq!(reads(&log), ["a resumes"]);
    channel.advance(2 * TICK);
    assert_eq!(
        log.count(
            "h error the peer violated the protocol: 0 bytes of a message in 2s; at least 1 are required"
        ),
        1
    );
}

#[test]
fn undecoded_bytes_do_not_count_towards_max_inbound_while_a_stage_pauses() {
    let log = Log::new();
    let options = ChannelOptions::new().max_inbound(16);
    let links = Pipeline::codec(Line::new()).stage(pauses("a", &log, SECOND));
    let mut channel = opened(&log, links, options);
    channel.write_inbound(b"pause\n0123456789\n0123456789\n0123456789\n").unwrap();
    channel.advance(SECOND);
    assert_eq!(log.count("h read 0123456789"), 3);
    assert!(channel.is_open());
}

/// Lines, of which the last one may end with the stream.
struct LastLine(Line);

impl Codec for LastLine {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        self.0.decode(input)
    }

    fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        if let Some(line) = self.0.decode(input)? {
            return Ok(Some(line));
        }
        Ok((!input.is_empty()).then(|| std::mem::take(input)))
    }

    fn encode(&mut self, line: Bytes, output: &mut OutboundBuffer) -> Result {
        self.0.encode(line, output)
    }
}

/// The end of the stream waits, whether the paused stage has had the last message from bytes before
/// the end or because of it.
#[test]
fn the_end_of_the_stream_waits_for_the_pause() {
    for input in ["1\npause\n2\n", "1\npause\n2", "1\npause"] {
        let log = Log::new();
        let links = Pipeline::codec(LastLine(Line::new())).stage(pauses("a", &log, SECOND));
        let mut channel = opened(&log, links, ChannelOptions::new().half_close(true));
        channel.write_inbound(input.as_bytes()).unwrap();
        channel.end_inbound();
        assert_eq!(reads(&log), ["a read 1", "h read 1", "a read pause", "h read pause"], "{input:?}");
        channel.advance(SECOND);
        let mut expected = vec!["a resumes"];
        if input.contains('2') {
            expected.extend(["a read 2", "h read 2"]);
        }
        expected.extend(["a read_closed", "h read_closed"]);
        assert_eq!(reads(&log), expected, "{input:?}");
        assert!(channel.is_open(), "{input:?}");
    }
}

#[test]
fn a_pause_ends_with_its_pipeline() {
    let log = Log::new();
    let next = log.clone();
    let links = Pipeline::codec(Line::new()).stage(pauses("a", &log, SECOND));
    let pipeline = links.on_read(move |ctx, _| {
        let links = Pipeline::codec(Line::new()).stage(Probe::new("b", &next));
        ctx.replace_pipeline(links.on_read(|_, _| Ok(())))
    });
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.write_inbound(b"pause\n1\n").unwrap();
    assert_eq!(log.count("b read 1"), 1);
    channel.advance(2 * SECOND);
    assert_eq!(log.count("a resumes"), 0, "its task is dropped");
}

#[test]
fn a_channel_that_is_paused_can_be_closed() {
    let log = Log::new();
    let mut channel = open(&log, Pipeline::codec(Line::new()).stage(pauses("a", &log, SECOND)));
    channel.write_inbound(b"pause\n1\n").unwrap();
    reads(&log);
    channel.close();
    assert_eq!(log.take(), ["a inactive", "h inactive", "a drop", "h drop"]);
    channel.advance(SECOND);
    assert_eq!(log.take(), NOTHING);
}

/// Passes one request on at a time: the next one waits for the response.
struct OneAtATime;

impl Stage for OneAtATime {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, ctx: &mut StageContext<'_, Self>, request: Bytes) -> Result<Option<Bytes>> {
        ctx.pause_reading();
        Ok(Some(request))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, response: Bytes) -> Result {
        ctx.resume_reading();
        ctx.write(response)
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_one_at_a_time() {
    let log = Log::new();
    let handler = Recorder::with(&log, |ctx, event| {
        let crate::support::recorder::Event::Read(request) = event else { return Ok(()) };
        if request == "now" {
            return ctx.write(request.clone());
        }
        let request = request.clone();
        ctx.schedule(SECOND, move |_, ctx| ctx.write(request));
        Ok(())
    });
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).stage(OneAtATime).handler(handler));
    channel.write_inbound(b"now\nlater\nnow\nlater\n").unwrap();
    assert_eq!(channel.read_outbound(), &b"now\n"[..]);
    assert_eq!(log.count("read later"), 1);
    channel.advance(SECOND);
    assert_eq!(channel.read_outbound(), &b"later\nnow\n"[..]);
    channel.advance(SECOND);
    assert_eq!(channel.read_outbound(), &b"later\n"[..]);
}
