//! Errors that a stage reports besides the result of its callback.

use super::Probe;
use crate::support::{channels::embedded_pipeline, journal::Log, recorder::Recorder};
use bytes::Bytes;
use netwheel::{
    buffer::WaterMark, channel::ChannelOptions, codec::Line, prelude::*, testing::EmbeddedChannel,
};

fn channel(log: &Log, a: Probe, handler: Recorder) -> EmbeddedChannel<Bytes> {
    let options = ChannelOptions::new().water_mark(WaterMark::new(4, 8).unwrap());
    let pipeline = Pipeline::codec(Line::new()).stage(a).handler(handler);
    let channel = embedded_pipeline(&options, pipeline);
    log.take();
    channel
}

#[test]
fn an_error_is_reported_after_the_callback_and_later_messages_are_read() {
    let log = Log::new();
    let a = Probe::with("a", &log, |ctx, event| {
        if event == "read 1" {
            ctx.fail("first".into());
            ctx.fail("second".into());
        }
        None
    });
    let mut channel = channel(&log, a, Recorder::exactly(&log, |_, _| Ok(())));
    channel.write_inbound(b"1\n2\n").unwrap();
    let events = ["a read 1", "read 1", "a error first", "error first", "a read 2", "read 2"];
    assert_eq!(log.take()[..6], events);
    assert!(channel.is_open());
}

#[test]
fn a_write_may_report_an_error_that_its_writer_does_not_get() {
    let log = Log::new();
    let a = Probe::with("a", &log, |ctx, event| {
        if event == "write 1" {
            ctx.fail("of the write".into());
        }
        None
    });
    let mut channel = channel(
        &log,
        a,
        Recorder::exactly(&log, |ctx, event| match event {
            crate::support::recorder::Event::Read(line) => ctx.write(line.clone()),
            _ => Ok(()),
        }),
    );
    channel.write_inbound(b"1\n").unwrap();
    assert_eq!(channel.read_outbound(), &b"1\n"[..], "it is written");
    assert_eq!(
        log.take()[..5],
        ["a read 1", "read 1", "a write 1", "a error of the write", "error of the write"]
    );
}

#[test]
fn a_stage_that_reports_an_error_for_each_error_is_stopped() {
    let log = Log::new();
    let a = Probe::with("a", &log, |ctx, event| {
        if event == "read 1" || event.starts_with("error") {
            ctx.fail("again".into());
            return event.starts_with("error").then_some(Ok(()));
        }
        None
    });
    let mut channel = channel(&log, a, Recorder::exactly(&log, |_, _| Ok(())));
    channel.write_inbound(b"1\n2\n").unwrap();
    assert!(channel.is_closed());
    assert_eq!(log.count("a error again"), 16);
    assert_eq!(log.count("read 2"), 0);
}

#[test]
fn an_error_that_is_reported_when_the_channel_is_closed_is_dropped() {
    let log = Log::new();
    let a = Probe::with("a", &log, |ctx, event| {
        if event == "inactive" {
            ctx.fail("too late".into());
        }
        None
    });
    let mut channel = channel(&log, a, Recorder::new(&log));
    channel.close();
    assert_eq!(log.take(), ["a inactive", "inactive", "a drop", "drop"]);
}

#[test]
fn a_report_in_a_change_of_writability_belongs_to_that_channel() {
    let log = Log::new();
    let a = Probe::with("a", &log, |ctx, event| {
        if event == "writable false" {
            ctx.fail("slow".into());
        }
        None
    });
    let mut channel = channel(&log, a, Recorder::exactly(&log, |_, _| Ok(())));
    channel.set_outbound_room(Some(0));
    channel.channel().write("0123456789".into()).unwrap();
    channel.run_pending();
    assert_eq!(log.count("error slow"), 1);
}

/// Offloaded work that panics ends with such an error, which a stage may pass on.
#[test]
fn an_error_with_the_text_of_a_panic_leaves_the_end_of_the_channel_to_the_handler() {
    let log = Log::new();
    let a = Probe::with("a", &log, |_, event| {
        (event == "read 1").then(|| Err(Error::Panicked("of a worker".into())))
    });
    let mut channel = channel(&log, a, Recorder::exactly(&log, |_, _| Ok(())));
    channel.write_inbound(b"1\n2\n").unwrap();
    assert!(channel.is_open());
    assert_eq!(log.count("error panicked: of a worker"), 1);
    assert_eq!(log.count("read 2"), 1);
}
