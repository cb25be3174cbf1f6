//! Tasks of stages: timers, blocking work and completions that give the stage back.

use super::Probe;
use crate::support::{
    channels::{TICK, embedded_pipeline},
    journal::Log,
    recorder::Recorder,
};
use bytes::Bytes;
use netwheel::{
    Stage, StageContext, channel::ChannelOptions, codec::Line, prelude::*, testing::EmbeddedChannel,
};
use std::{rc::Rc, sync::mpsc::channel, time::Duration};

const SECOND: Duration = Duration::from_secs(1);

/// A stage that starts a task of each kind for a line, and records which stage each task gets back.
struct Tasks(&'static str, Log);

impl Tasks {
    fn start(&mut self, ctx: &mut StageContext<'_, Self>, name: &'static str) -> Result {
        ctx.schedule(SECOND, move |me, _| me.note(&format!("{name} timer")));
        ctx.offload(move || name, |me, _, name| me.note(&format!("{} work", name?)))?;
        Ok(())
    }

    fn note(&self, event: &str) -> Result {
        self.1.push(format!("{} {event}", self.0));
        Ok(())
    }
}

impl Stage for Tasks {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, ctx: &mut StageContext<'_, Self>, line: Bytes) -> Result<Option<Bytes>> {
        self.start(ctx, self.0)?;
        Ok(Some(line))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, line: Bytes) -> Result {
        ctx.schedule(2 * SECOND, |me, _| me.note("timer of a write"));
        ctx.write(line)
    }
}

#[test]
fn two_stages_of_one_type_get_their_own_tasks_back() {
    let log = Log::new();
    let stages = Pipeline::codec(Line::new()).stage(Tasks("a", log.clone())).stage(Tasks("b", log.clone()));
    let mut channel = EmbeddedChannel::new(stages.on_read(|ctx, line| ctx.write(line)));
    channel.write_inbound(b"x\n").unwrap();
    channel.run_pending();
    assert_eq!(log.take(), ["a a work", "b b work"]);
    channel.advance(SECOND);
    assert_eq!(log.take(), ["a a timer", "b b timer"]);
    channel.advance(SECOND);
    assert_eq!(log.take(), ["b timer of a write", "a timer of a write"]);
    assert_eq!(channel.timers(), 0);
}

#[test]
fn a_task_may_write_and_its_error_goes_to_error() {
    let log = Log::new();
    let stage = Probe::with("a", &log, |ctx, event| {
        if event == "active" {
            ctx.schedule(SECOND, |_, ctx| ctx.write("tick".into()));
            ctx.schedule(2 * SECOND, |_, _| Err("on purpose".into()));
        }
        None
    });
    let mut channel =
        EmbeddedChannel::new(Pipeline::codec(Line::new()).stage(stage).handler(Recorder::new(&log)));
    channel.advance(SECOND);
    assert_eq!(channel.read_outbound(), &b"tick\n"[..]);
    channel.advance(SECOND);
    assert_eq!((log.count("a error on purpose"), log.count("error on purpose")), (1, 1));
    assert!(channel.is_closed());
}

#[test]
fn a_cancelled_task_is_dropped_and_its_work_does_not_run() {
    let log = Log::new();
    let kept = Rc::new(());
    let (value, ran) = (kept.clone(), log.clone());
    let stage = Probe::with("a", &log, move |ctx, event| {
        if event == "read x" {
            let (one, other, ran) = (value.clone(), value.clone(), ran.clone());
            let timer = ctx.schedule(SECOND, move |_, _| {
                drop(one);
                Ok(())
            });
            let work = ctx.offload(
                move || ran.push("work"),
                move |_, _, _| {
                    drop(other);
                    Ok(())
                },
            );
            let work = work.unwrap();
            assert!(ctx.cancel(timer) && !ctx.cancel(timer));
            assert!(ctx.cancel(work) && !ctx.cancel(work));
        }
        None
    });
    let mut channel =
        EmbeddedChannel::new(Pipeline::codec(Line::new()).stage(stage).handler(Recorder::new(&log)));
    channel.write_inbound(b"x\n").unwrap();
    assert_eq!(Rc::strong_count(&kept), 2, "the test's and the closure's");
    channel.run_pending();
    assert_eq!((log.count("work"), channel.timers()), (0, 0));
}

#[test]
fn a_completion_gives_the_stage_back() {
    let log = Log::new();
    let mut other = EmbeddedChannel::new(Pipeline::codec(Line::new()).on_read(|ctx, line| ctx.write(line)));
    let mut closed = Some(other.channel().closed());
    let stage = Probe::with("a", &log, move |ctx, event| {
        if event == "active"
            && let Some(closed) = closed.take()
        {
            ctx.on_complete(closed, |me, ctx, result| {
                me.note(&format!("completed {}", result.is_ok()));
                ctx.write("the other is closed".into())
            });
        }
        None
    });
    let mut channel =
        EmbeddedChannel::new(Pipeline::codec(Line::new()).stage(stage).handler(Recorder::new(&log)));
    channel.run_pending();
    assert_eq!(log.count("a completed true"), 0);
    other.close();
    channel.run_pending();
    assert_eq!(log.count("a completed true"), 1);
    assert_eq!(channel.read_outbound(), &b"the other is closed\n"[..]);
}

#[test]
fn another_thread_can_give_a_stage_a_value() {
    let log = Log::new();
    let (sender, completers) = channel();
    let stage = Probe::with("a", &log, move |ctx, event| {
        if event == "active" {
            let (completer, completion) = ctx.completer::<String>();
            sender.send(completer).unwrap();
            ctx.on_complete(completion, |_, ctx, text| ctx.write(text?.into()));
        }
        None
    });
    let mut channel =
        EmbeddedChannel::new(Pipeline::codec(Line::new()).stage(stage).handler(Recorder::new(&log)));
    let completer = completers.recv().unwrap();
    std::thread::spawn(move || completer.complete(Ok("from a thread".into()))).join().unwrap();
    channel.run_pending();
    assert_eq!(channel.read_outbound(), &b"from a thread\n"[..]);
}

#[test]
fn tasks_of_stages_count_towards_the_limit_of_the_channel() {
    let log = Log::new();
    let stage = Probe::with("a", &log, |ctx, event| {
        if event == "active" {
            for _ in 0..2 {
                ctx.schedule(SECOND, |me, _| {
                    me.note("task");
                    Ok(())
                });
            }
            let full = ctx.offload(|| (), |_, _, _| Ok(())).err().map(|refused| refused.error().to_string());
            assert_eq!(full.as_deref(), Some("the limit of 2 scheduled tasks of a channel is reached"));
            ctx.schedule(SECOND, |me, _| {
                me.note("one too many");
                Ok(())
            });
        }
        None
    });
    let handler = Recorder::exactly(&log, |_, _| Ok(()));
    let options = ChannelOptions::new().max_scheduled_tasks(2);
    let mut channel = embedded_pipeline(&options, Pipeline::codec(Line::new()).stage(stage).handler(handler));
    assert_eq!(log.count("a error the limit of 2 scheduled tasks of a channel is reached"), 1);
    channel.advance(SECOND + TICK);
    assert_eq!((log.count("a task"), log.count("a one too many")), (2, 0));
}

#[test]
fn tasks_of_a_replaced_pipeline_are_dropped() {
    let log = Log::new();
    let kept = Rc::new(());
    let value = kept.clone();
    let stage = Probe::with("a", &log, move |ctx, event| {
        if event == "active" {
            let value = value.clone();
            ctx.schedule(SECOND, move |me, _| {
                drop(value);
                me.note("task");
                Ok(())
            });
        }
        None
    });
    let next = log.clone();
    let pipeline = Pipeline::codec(Line::new()).stage(stage).on_read(move |ctx, _| {
        ctx.replace_pipeline(
            Pipeline::codec(Line::new()).stage(Probe::new("b", &next)).on_read(|_, _| Ok(())),
        )
    });
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.write_inbound(b"x\n").unwrap();
    assert_eq!(Rc::strong_count(&kept), 1);
    channel.advance(2 * SECOND);
    assert_eq!((log.count("a task"), log.count("b active"), channel.timers()), (0, 1, 0));
}
