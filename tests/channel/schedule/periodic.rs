//! Periodic tasks of a channel, of its handler and of its stages.

use super::{due, instant, plain, result, session};
use crate::support::{
    channels::{Guard, lines},
    recorder::named,
    wait::{SECOND, ms},
};
use bytes::Bytes;
use netwheel::{
    Context, Error, StageContext,
    channel::{ChannelOptions, TaskKey},
    codec::Line,
    prelude::*,
    testing::EmbeddedChannel,
    time::{MissedRuns, Periodic, ScheduledTask},
};
use std::{sync::mpsc, time::Duration};

/// E-72.
#[test]
fn a_fixed_rate_of_a_channel_keeps_its_phase_and_skips_missed_runs() {
    let (mut channel, log) = plain();
    let (start, inner) = (instant(channel.clock()), log.clone());
    let tick = channel.channel().schedule_periodic(SECOND, move |ctx| {
        inner.push(format!("{:?}", ctx.now() - start));
        Ok(())
    });
    let tick = tick.unwrap();
    assert_eq!(due(&tick, start), Some(SECOND), "in the queue");
    channel.advance(2 * SECOND);
    assert_eq!(log.take(), ["1s", "2s"]);
    assert_eq!(due(&tick, start), Some(3 * SECOND));
    channel.stall(3 * SECOND + ms(300));
    assert_eq!(log.take(), ["5.3s"]);
    assert_eq!(due(&tick, start), Some(6 * SECOND));
    channel.advance(ms(700));
    assert_eq!(log.take(), ["6s"]);
    assert!(tick.cancel() && !tick.cancel());
    channel.advance(5 * SECOND);
    assert!(log.take().is_empty() && channel.timers() == 0);
    assert!(matches!(result(tick), Err(Error::Cancelled)));
}

/// E-72.
#[test]
fn missed_runs_of_a_channel_are_made_up_for_on_request() {
    let (mut channel, log) = plain();
    let inner = log.clone();
    let periodic =
        Periodic::fixed_rate(SECOND).missed_runs(MissedRuns::CatchUp).initial_delay(Duration::ZERO);
    let _tick = channel.channel().schedule_periodic(periodic, move |_| Ok(inner.push("run"))).unwrap();
    channel.run_pending();
    assert_eq!(log.take().len(), 1, "the first one is due at once");
    channel.stall(4 * SECOND);
    assert_eq!(log.take().len(), 4);
}

/// E-72.
#[test]
fn a_fixed_delay_of_a_channel_counts_from_the_end_of_a_run() {
    let (mut channel, log) = plain();
    let (clock, inner) = (channel.clock().clone(), log.clone());
    let slow = clock.clone();
    let task = move |_: &mut ChannelContext<'_, Bytes>| {
        inner.push(format!("{:?}", slow.elapsed()));
        slow.advance(ms(250));
        Ok(())
    };
    let tick = channel.channel().schedule_periodic(Periodic::fixed_delay(SECOND), task).unwrap();
    channel.advance(4 * SECOND);
    assert_eq!(log.take(), ["1s", "2.25s", "3.5s"]);
    assert_eq!(tick.remaining(), Some(4750 * ms(1) - clock.elapsed()));
}

/// E-73.
#[test]
fn a_periodic_task_ends_with_its_channel() {
    for by in ["channel", "task", "peer"] {
        let (mut channel, reference, log) = session(&ChannelOptions::new());
        let (guard, inner) = (Guard("tick", log.clone()), Guard("inner", log.clone()));
        let tick = channel.channel().schedule_periodic(SECOND, move |ctx| {
            let _ = &guard;
            if by == "task" { Ok(ctx.close()) } else { Ok(()) }
        });
        let arm = move |_: &mut _, ctx: &mut Context<'_, crate::support::recorder::Recorder>| {
            ctx.schedule_periodic(2 * SECOND, move |_, _| {
                let _ = &inner;
                Ok(())
            })?;
            Ok(())
        };
        reference.schedule(Duration::ZERO, arm).unwrap();
        channel.advance(SECOND);
        match by {
            "channel" => channel.close(),
            "peer" => channel.write_inbound(b"close\n").unwrap(),
            _ => {}
        }
        assert!(channel.is_closed(), "{by}");
        assert!(matches!(result(tick.unwrap()), Err(Error::Closed)));
        assert_eq!(channel.timers(), 0);
        let gone = log.take().into_iter().filter(|line| line.ends_with("gone")).count();
        assert_eq!(gone, 2, "{by}");
    }
}

/// E-74.
#[test]
fn a_periodic_task_ends_with_its_error_which_the_handler_gets() {
    let (mut channel, log) = plain();
    let mut runs = 0;
    let tick = channel.channel().schedule_periodic(SECOND, move |_| {
        runs += 1;
        if runs == 2 { Err(Error::other("enough")) } else { Ok(()) }
    });
    channel.advance(5 * SECOND);
    assert_eq!(result(tick.unwrap()).unwrap_err().to_string(), "enough");
    assert_eq!(log.take(), ["error enough"], "once, and this handler keeps the channel open");
    assert!(channel.is_open() && channel.timers() == 0);
}

/// E-74.
#[test]
fn a_periodic_task_ends_itself_without_an_error() {
    let (mut channel, reference, log) = session(&ChannelOptions::new());
    let tick = channel.channel().schedule_periodic(SECOND, |_| Err(Error::Cancelled)).unwrap();
    let arm = |_: &mut _, ctx: &mut Context<'_, crate::support::recorder::Recorder>| {
        let mut left = 3;
        ctx.schedule_periodic(SECOND, move |me, _| {
            me.log.push("run");
            left -= 1;
            if left == 0 { Err(Error::Cancelled) } else { Ok(()) }
        })
    };
    let key = reference.schedule(Duration::ZERO, arm).unwrap();
    channel.advance(9 * SECOND);
    assert!(matches!(result(tick), Err(Error::Cancelled)));
    result(key).unwrap();
    assert_eq!(log.take(), ["run", "run", "run"]);
    assert!(channel.is_open() && channel.timers() == 0);
}

/// E-75.
#[test]
fn a_periodic_task_is_cancelled_within_its_own_run() {
    let (mut channel, reference, log) = session(&ChannelOptions::new());
    // By its handle.
    let (sender, own) = mpsc::channel::<ScheduledTask>();
    let guard = Guard("task", log.clone());
    let tick = channel.channel().schedule_periodic(SECOND, move |_| {
        let own = own.recv().unwrap();
        guard.1.push(format!("{} {} {}", own.cancel(), own.cancel(), own.is_done()));
        Ok(())
    });
    sender.send(tick.unwrap()).unwrap();
    channel.advance(2 * SECOND);
    assert_eq!(log.take(), ["true false false", "task gone"], "dropped after its run");

    // By its key. Another task takes the place in the same run.
    let arm = |_: &mut _, ctx: &mut Context<'_, crate::support::recorder::Recorder>| {
        let key = std::rc::Rc::new(std::cell::Cell::new(None::<TaskKey>));
        let own = key.clone();
        key.set(Some(ctx.schedule_periodic(SECOND, move |me, ctx| {
            let key = own.get().unwrap();
            assert_eq!(ctx.deadline(key), None, "it is running");
            me.log.push(format!("{} {}", ctx.cancel(key), ctx.cancel(key)));
            let next = ctx.schedule(SECOND, |me, _| Ok(me.log.push("next")));
            assert_eq!(ctx.deadline(next), Some(ctx.now() + SECOND));
            Ok(())
        })?));
        assert_eq!(ctx.deadline(key.get().unwrap()), Some(ctx.now() + SECOND));
        Ok(())
    };
    reference.execute(arm).unwrap();
    channel.advance(5 * SECOND);
    assert_eq!(log.take(), ["true false", "next"]);
    assert!(channel.is_open() && channel.timers() == 0);
}

#[test]
fn a_key_cancels_a_periodic_task_after_any_number_of_runs() {
    let (mut channel, reference, log) = session(&ChannelOptions::new());
    let key = reference
        .schedule(Duration::ZERO, |_, ctx| ctx.schedule_periodic(SECOND, |me, _| Ok(me.log.push("run"))));
    channel.advance(3 * SECOND);
    let key = result(key.unwrap()).unwrap();
    let cancel = reference.call(move |_, ctx| Ok((ctx.cancel(key), ctx.cancel(key), ctx.deadline(key))));
    channel.advance(3 * SECOND);
    assert_eq!(cancel.wait().unwrap(), (true, false, None));
    assert_eq!(log.take(), ["run", "run", "run"]);
}

#[test]
fn a_periodic_task_may_replace_its_pipeline() {
    let (mut channel, reference, log) = session(&ChannelOptions::new());
    let inner = log.clone();
    let tick = reference.schedule_periodic(SECOND, move |_, ctx| {
        ctx.replace_pipeline(lines(named("new", &inner, |_, _| Ok(()))))
    });
    channel.advance(3 * SECOND);
    assert!(matches!(result(tick.unwrap()), Err(Error::PipelineReplaced)));
    assert_eq!(log.take(), ["drop", "new active"]);
    assert!(channel.is_open() && channel.timers() == 0);
}

#[test]
fn periodic_tasks_run_while_reading_is_paused() {
    let (mut channel, log) = plain();
    let inner = log.clone();
    channel.channel().execute(|ctx| Ok(ctx.set_auto_read(false))).unwrap();
    channel.run_pending();
    let _tick = channel.channel().schedule_periodic(SECOND, move |ctx| {
        inner.push("tick");
        ctx.write("tick".into())
    });
    channel.write_inbound(b"unread\n").unwrap();
    channel.advance(2 * SECOND);
    assert_eq!((log.take().join(","), channel.read_outbound()), ("tick,tick".into(), "tick\ntick\n".into()));
}

#[test]
fn periods_out_of_range_are_refused_before_anything_is_queued() {
    let (mut channel, reference, log) = session(&ChannelOptions::new());
    let zero = |refused: Error| assert!(matches!(&refused, Error::Setting(e) if e.setting() == "period"));
    zero(channel.channel().schedule_periodic(Duration::ZERO, |_| Ok(())).unwrap_err());
    zero(reference.schedule_periodic(Duration::ZERO, |_, _| Ok(())).unwrap_err());
    let within = reference.call(|_, ctx| ctx.schedule_periodic(Duration::ZERO, |_, _| Ok(())));
    channel.run_pending();
    zero(within.wait().unwrap_err());
    assert!(channel.is_open() && log.take().is_empty() && channel.timers() == 0);
}

#[test]
fn a_closing_channel_refuses_periodic_tasks_of_its_handler() {
    let (mut channel, reference, _) = session(&ChannelOptions::new());
    let refused = reference.call(|_, ctx| {
        ctx.close();
        Ok(matches!(ctx.schedule_periodic(SECOND, |_, _| Ok(())), Err(Error::Closed)))
    });
    channel.run_pending();
    assert!(refused.wait().unwrap() && channel.is_closed());
}

/// A stage that writes at a fixed rate.
struct Ticker(&'static str);

impl Stage for Ticker {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn active(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        ctx.schedule_periodic(SECOND, |me, ctx| ctx.write(me.0.into()))?;
        Ok(())
    }

    fn read(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        let _ = ctx;
        Ok(Some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

#[test]
fn each_stage_gets_its_own_periodic_task_back() {
    let pipeline = Pipeline::codec(Line::new()).stage(Ticker("a")).stage(Ticker("b")).on_read(|_, _| Ok(()));
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.advance(2 * SECOND);
    assert_eq!(channel.read_outbound(), "a\nb\na\nb\n");
}
