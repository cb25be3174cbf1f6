//! The events that a stage receives, and their order.

use super::Probe;
use crate::support::{channels::embedded_pipeline, journal::Log, recorder::named};
use bytes::Bytes;
use netwheel::{
    Error, StageContext as Ctx, buffer::WaterMark, channel::ChannelOptions, codec::Line, prelude::*,
    testing::EmbeddedChannel,
};
use std::{io, time::Duration};

/// A channel with the stages `a` and `b` and the handler `h`.
fn channel(log: &Log, a: Probe, b: Probe) -> EmbeddedChannel<Bytes> {
    let options = ChannelOptions::new().half_close(true).water_mark(WaterMark::new(4, 8).unwrap());
    let pipeline = Pipeline::codec(Line::new()).stage(a).stage(b);
    embedded_pipeline(&options, pipeline.handler(named("h", log, |_, _| Ok(()))))
}

fn quiet(log: &Log) -> EmbeddedChannel<Bytes> {
    channel(log, Probe::new("a", log), Probe::new("b", log))
}

/// The log of an event that reaches both stages and the handler.
fn all(event: &str) -> Vec<String> {
    ["a", "b", "h"].map(|link| format!("{link} {event}")).to_vec()
}

#[test]
fn events_pass_through_the_stages_in_the_order_from_the_socket() {
    let log = Log::new();
    let mut channel = quiet(&log);
    assert_eq!(log.take(), all("active"));

    channel.write_inbound(b"x\n").unwrap();
    assert_eq!(log.take(), [all("read x"), all("read_complete")].concat());

    channel.set_outbound_room(Some(0));
    channel.channel().write("0123456789".into()).unwrap();
    channel.run_pending();
    assert_eq!(
        log.take(),
        [vec!["b write 0123456789".into(), "a write 0123456789".into()], all("writable false")].concat()
    );
    channel.set_outbound_room(None);
    assert_eq!(log.take(), all("writable true"));

    channel.end_inbound();
    assert_eq!(log.take(), [all("read_complete"), all("read_closed")].concat());
    channel.close();
    assert_eq!(log.take(), [all("inactive"), all("drop")].concat());
}

#[test]
fn without_half_close_the_end_of_the_stream_closes_the_channel() {
    let log = Log::new();
    let pipeline = Pipeline::codec(Line::new()).stage(Probe::new("a", &log));
    let mut channel = EmbeddedChannel::new(pipeline.on_read(|ctx, line| ctx.write(line)));
    log.take();
    channel.end_inbound();
    assert_eq!(log.take(), ["a read_complete", "a inactive", "a drop"]);
}

#[test]
fn an_event_reaches_the_links_behind_a_stage_that_fails() {
    let log = Log::new();
    let a = Probe::with("a", &log, |_, event| (event == "active").then(|| Err("on purpose".into())));
    let _channel = channel(&log, a, Probe::new("b", &log));
    let closed = [all("inactive"), all("drop")].concat();
    assert_eq!(log.take(), [all("active"), all("error on purpose"), closed].concat());
}

/// Input that each stage can be made to fail with, and the errors that the links receive for it.
#[test]
fn an_error_visits_the_stages_until_one_of_them_handles_it() {
    let log = Log::new();
    let a = Probe::with("a", &log, |_, event| match event {
        "error handled by a" => Some(Ok(())),
        "error replaced by a" => Some(Err("handled by b".into())),
        _ => None,
    });
    let b = Probe::with("b", &log, |ctx, event| match event {
        "error handled by b" => Some(ctx.write("sorry".into())),
        _ => event.strip_prefix("read ").map(|text| Err(text.to_owned().into())),
    });
    let mut channel = channel(&log, a, b);
    log.take();
    let mut receive = |line: &str| {
        channel.write_inbound(format!("{line}\n").as_bytes()).unwrap();
        let errors: Vec<_> = log.take().into_iter().filter(|line| line.contains("error")).collect();
        (errors.join(", "), String::from_utf8(channel.read_outbound().to_vec()).unwrap(), channel.is_open())
    };
    assert_eq!(receive("handled by a"), ("a error handled by a".into(), String::new(), true));
    let errors = "a error replaced by a, b error handled by b";
    assert_eq!(receive("replaced by a"), (errors.into(), "sorry\n".into(), true));
    let errors = "a error other, b error other, h error other";
    assert_eq!(receive("other"), (errors.into(), String::new(), false));
}

#[test]
fn a_broken_connection_closes_the_channel_also_if_a_stage_handles_the_error() {
    let log = Log::new();
    let a = Probe::with("a", &log, |_, event| event.starts_with("error").then_some(Ok(())));
    let mut channel = channel(&log, a, Probe::new("b", &log));
    log.take();
    channel.fail_inbound(io::Error::from(io::ErrorKind::ConnectionReset));
    let closed = ["a error reading failed", "a inactive", "b inactive", "h inactive"];
    assert_eq!(log.take(), [&closed[..], &["a drop", "b drop", "h drop"]].concat());
}

#[test]
fn a_stage_that_panics_closes_the_channel_and_the_handler_receives_the_error() {
    let log = Log::new();
    let a = Probe::with("a", &log, |_, event| match event {
        "read x" => panic!("on purpose"),
        _ => event.starts_with("error").then_some(Ok(())),
    });
    let mut channel = channel(&log, a, Probe::new("b", &log));
    log.take();
    channel.write_inbound(b"x\n").unwrap();
    assert_eq!(log.take()[..2], ["a read x", "a error panicked: on purpose"]);
    assert!(channel.is_closed(), "whatever the stage does with the error");
}

#[test]
fn an_error_of_the_handler_visits_the_stages_too() {
    let log = Log::new();
    let pipeline = Pipeline::codec(Line::new()).stage(Probe::new("a", &log));
    let mut channel = EmbeddedChannel::new(pipeline.on_read(|_, _| Err(Error::other("of the handler"))));
    channel.write_inbound(b"x\n").unwrap();
    assert_eq!(log.count("a error of the handler"), 1);
    assert!(channel.is_closed());
}

#[test]
fn messages_that_a_stage_queues_in_an_event_are_delivered() {
    /// Collects lines, and passes them on when the input has been decoded.
    #[derive(Default)]
    struct Collect {
        lines: Vec<Bytes>,
        ready: bool,
    }

    impl netwheel::Stage for Collect {
        type ReadIn = Bytes;
        type ReadOut = Bytes;
        type WriteIn = Bytes;
        type WriteOut = Bytes;

        fn read(&mut self, _: &mut Ctx<'_, Self>, line: Bytes) -> Result<Option<Bytes>> {
            self.lines.push(line);
            Ok(None)
        }

        fn read_complete(&mut self, _: &mut Ctx<'_, Self>) -> Result {
            self.ready = true;
            Ok(())
        }

        fn has_more(&self) -> bool {
            self.ready && !self.lines.is_empty()
        }

        fn read_more(&mut self, _: &mut Ctx<'_, Self>) -> Result<Option<Bytes>> {
            Ok(Some(std::mem::take(&mut self.lines).concat().into()))
        }

        fn write(&mut self, ctx: &mut Ctx<'_, Self>, line: Bytes) -> Result {
            ctx.write(line)
        }
    }

    let pipeline = Pipeline::codec(Line::new()).stage(Collect::default());
    let mut channel = EmbeddedChannel::new(pipeline.on_read(|ctx, lines| ctx.write(lines)));
    channel.write_inbound(b"a\nb\n").unwrap();
    channel.advance(Duration::from_millis(1));
    assert_eq!(channel.read_outbound(), &b"ab\n"[..]);
}
