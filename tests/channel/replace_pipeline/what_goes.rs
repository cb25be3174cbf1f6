//! State that ends with a replaced pipeline: tasks, timeouts, limits, stages.

use crate::support::{
    channels::{Guard, embedded_pipeline, lines, raw},
    journal::Log,
    recorder::{Event, Recorder, named, quiet},
    wait::SECOND,
};
use bytes::Bytes;
use netwheel::{
    Codec, Pipeline, Stage, StageContext,
    buffer::OutboundBuffer,
    channel::{ChannelOptions, TimeLimits},
    codec::Line,
    prelude::*,
    testing::EmbeddedChannel,
    time::Delay,
};
use std::time::Duration;

#[test]
fn tasks_of_the_old_pipeline_are_dropped_before_the_new_one_becomes_active() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = EmbeddedChannel::new(lines(named("old", &log, move |ctx, call| {
        match call {
            Event::Active(_) => {
                let (exact, coarse) = (Guard("exact", inner.clone()), Guard("coarse", inner.clone()));
                ctx.schedule(SECOND, move |_, _| exact.runs());
                ctx.schedule(Delay::coarse(SECOND), move |_, _| coarse.runs());
            }
            Event::Read(_) => {
                ctx.replace_pipeline(lines(named("new", &inner, |ctx, call| {
                    if call.is_active() {
                        ctx.schedule(SECOND, |me, _| {
                            me.log.push("new task");
                            Ok(())
                        });
                    }
                    Ok(())
                })))?;
                // A task scheduled after the request belongs to the old pipeline as well.
                ctx.schedule(Duration::ZERO, |_, _| panic!("a task of the old pipeline ran"));
            }
            _ => {}
        }
        Ok(())
    })));
    let guard = Guard("handle's", log.clone());
    channel.channel().schedule(SECOND, move |_| guard.runs()).unwrap();
    channel.run_pending();
    assert_eq!(channel.timers(), 3);
    channel.write_inbound(b"go\n").unwrap();
    assert_eq!(channel.timers(), 1);
    let mut told = log.take();
    told[2..5].sort();
    assert_eq!(
        told,
        [
            "old active",
            "old read go",
            "coarse gone",
            "exact gone",
            "handle's gone",
            "old drop",
            "new active",
            "new read_complete"
        ]
    );
    channel.advance(2 * SECOND);
    assert_eq!(log.take(), ["new task"]);
}

#[test]
fn idle_timeouts_and_time_limits_are_replaced() {
    let log = Log::new();
    let inner = log.clone();
    let old = Pipeline::codec(Line::new())
        .idle(IdleTimeouts::new().reader(SECOND).all(SECOND))
        .time_limits(TimeLimits::new().read(SECOND).first_message(SECOND))
        .handler(named("old", &log, move |ctx, call| match call {
            Event::Idle(_) => {
                // The new pipeline is not notified of the other idle timeout and the limits that
                // are due now.
                let new = Pipeline::codec(Line::new())
                    .idle(IdleTimeouts::new().reader(3 * SECOND).all(3 * SECOND))
                    .time_limits(TimeLimits::new().first_message(5 * SECOND))
                    .handler(quiet("new", &inner));
                ctx.replace_pipeline(new)
            }
            _ => Ok(()),
        }));
    let mut channel = EmbeddedChannel::new(old);
    channel.advance(SECOND + SECOND / 2);
    assert_eq!(log.take(), ["old active", "old idle Reader idle, first", "old drop", "new active"]);
    channel.advance(2 * SECOND);
    assert_eq!(log.take(), [""; 0]);
    channel.advance(SECOND);
    assert_eq!(log.take(), ["new idle Reader idle, first", "new idle All idle, first"]);
    assert_eq!(channel.timers(), 1);
    channel.advance(2 * SECOND);
    assert_eq!(log.take(), ["new error the first message timed out after 5s", "new inactive", "new drop"]);
}

#[test]
fn the_limit_for_the_first_message_restarts() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = EmbeddedChannel::new(lines(named("old", &log, move |ctx, call| match call {
        Event::Read(_) => {
            let limits = TimeLimits::new().first_byte(SECOND).first_message(2 * SECOND);
            let new = Pipeline::codec(Line::new()).time_limits(limits).handler(quiet("new", &inner));
            ctx.replace_pipeline(new)
        }
        _ => Ok(()),
    })));
    channel.write_inbound(b"go\n").unwrap();
    log.take();
    channel.advance(SECOND + SECOND / 2);
    assert_eq!(log.take(), [""; 0], "the first byte has already arrived");
    channel.advance(SECOND);
    assert_eq!(log.take(), ["new error the first message timed out after 2s", "new inactive", "new drop"]);
}

#[test]
fn a_refused_task_of_the_old_pipeline_is_not_an_error_of_the_new_one() {
    let log = Log::new();
    let inner = log.clone();
    let options = ChannelOptions::new().max_scheduled_tasks(1);
    let mut channel = embedded_pipeline(
        &options,
        lines(named("old", &log, move |ctx, call| {
            if let Event::Read(_) = call {
                for _ in 0..3 {
                    ctx.schedule(SECOND, |_, _| Ok(()));
                }
                ctx.replace_pipeline(lines(quiet("new", &inner)))?;
            }
            Ok(())
        })),
    );
    channel.write_inbound(b"go\n").unwrap();
    assert_eq!(log.take()[2..], ["old drop", "new active", "new read_complete"]);
}

/// Fails at `!` without consuming it. Decodes any other input as one message.
struct Picky;

impl Codec for Picky {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        match input.first() {
            Some(b'!') => Err("picky".into()),
            Some(_) => Ok(Some(input.split_to(input.len()))),
            None => Ok(None),
        }
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        output.put(message);
        Ok(())
    }
}

/// Each codec may fail once without consuming a byte. Here three codecs fail on the same byte, and
/// the fourth consumes it.
#[test]
fn the_new_codec_decodes_the_bytes_on_which_the_old_one_failed() {
    fn link(log: &Log, names: &'static [&'static str]) -> Pipeline<Bytes> {
        let inner = log.clone();
        let mut handler = named(names[0], log, move |ctx, call| match call {
            Event::Error(_) if names.len() == 1 => ctx.replace_pipeline(raw(quiet("last", &inner))),
            Event::Error(_) => ctx.replace_pipeline(link(&inner, &names[1..])),
            _ => Ok(()),
        });
        handler.closes = false;
        Pipeline::codec(Picky).handler(handler)
    }
    let log = Log::new();
    let mut channel = EmbeddedChannel::new(link(&log, &["a", "b", "c"]));
    channel.write_inbound(b"!").unwrap();
    assert!(channel.is_open(), "{:?}", log.all());
    assert_eq!(log.take()[9..], ["last active", "last read !", "last read_complete"]);
}

#[test]
fn pipelines_that_fail_on_the_same_byte_do_not_replace_one_another_forever() {
    fn link(log: &Log) -> Pipeline<Bytes> {
        let inner = log.clone();
        let mut handler = named("link", log, move |ctx, call| match call {
            Event::Error(_) if inner.count("link active") < 10_000 => ctx.replace_pipeline(link(&inner)),
            _ => Ok(()),
        });
        handler.closes = false;
        Pipeline::codec(Picky).handler(handler)
    }
    let log = Log::new();
    let mut channel = EmbeddedChannel::new(link(&log));
    channel.write_inbound(b"!").unwrap();
    assert!(!channel.is_open());
    assert_eq!(log.count("link active"), 17);
    assert_eq!(log.count("link inactive"), 1);
}

#[test]
fn a_new_pipeline_without_idle_timeouts_leaves_no_timer() {
    let log = Log::new();
    let inner = log.clone();
    let old = Pipeline::codec(Line::new()).idle(IdleTimeouts::new().reader(SECOND)).handler(named(
        "old",
        &log,
        move |ctx, call| match call {
            Event::Read(_) => ctx.replace_pipeline(lines(quiet("new", &inner))),
            _ => Ok(()),
        },
    ));
    let mut channel = EmbeddedChannel::new(old);
    assert_eq!(channel.timers(), 1);
    channel.write_inbound(b"x\n").unwrap();
    assert_eq!(channel.timers(), 0);
}

/// Logs a tick every second.
struct Ticking(&'static str, Log);

impl Stage for Ticking {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, _: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        Ok(Some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }

    fn active(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        self.1.push(format!("{} stage active", self.0));
        ctx.wake_after(SECOND);
        Ok(())
    }

    fn timer(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        self.1.push(format!("{} tick", self.0));
        ctx.wake_after(SECOND);
        Ok(())
    }
}

#[test]
fn stages_and_their_timers_are_replaced() {
    let log = Log::new();
    let ticking = |name, log: &Log, handler| {
        Pipeline::codec(Line::new()).stage(Ticking(name, log.clone())).handler(handler)
    };
    let inner = log.clone();
    let old = named("old", &log, move |ctx, call| match call {
        Event::Read(_) => ctx.replace_pipeline(ticking("new", &inner, quiet("new", &inner))),
        _ => Ok(()),
    });
    let mut channel = EmbeddedChannel::new(ticking("old", &log, old));
    channel.advance(SECOND);
    channel.advance(SECOND / 2);
    channel.write_inbound(b"go\n").unwrap();
    channel.advance(SECOND);
    assert_eq!(
        log.take(),
        [
            "old stage active",
            "old active",
            "old tick",
            "old read go",
            "old drop",
            "new stage active",
            "new active",
            "new read_complete",
            "new tick"
        ]
    );
}

/// Reports an error of each message that it passes on.
struct Complains;

impl Stage for Complains {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        ctx.fail(Error::other("reported"));
        Ok(Some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

#[test]
fn an_error_that_an_old_stage_has_reported_goes_to_the_old_handler() {
    for closes in [false, true] {
        let log = Log::new();
        let inner = log.clone();
        let old = Recorder::exactly(&log, move |ctx, call| match call {
            Event::Read(_) => ctx.replace_pipeline(lines(quiet("new", &inner))),
            Event::Error(_) if closes => {
                ctx.close();
                Ok(())
            }
            _ => Ok(()),
        });
        let pipeline = Pipeline::codec(Line::new()).stage(Complains).handler(old);
        let mut channel = EmbeddedChannel::new(pipeline);
        channel.write_inbound(b"go\n").unwrap();
        let end: &[&str] = if closes {
            &["new drop", "inactive", "drop"]
        } else {
            &["drop", "new active", "new read_complete"]
        };
        assert_eq!(log.take(), [&["active", "read go", "error reported"], end].concat());
        assert_eq!(channel.is_open(), !closes);
    }
}
