//! The limit of tasks of a channel.

use super::{result, session};
use crate::support::{
    channels::embedded_with,
    journal::Log,
    recorder::{Event, Recorder},
    wait::{HOUR, SECOND},
};
use bytes::Bytes;
use netwheel::{
    Error, Result, buffer::WaterMark, channel::ChannelOptions, error::Resource, time::ScheduledTask,
};

fn options() -> ChannelOptions {
    ChannelOptions::new().max_scheduled_tasks(3)
}

#[track_caller]
fn full<T>(refused: Result<T>) {
    match refused {
        Err(Error::Full { resource: Resource::ChannelTasks, limit: 3, .. }) => {}
        Err(other) => panic!("refused with {other}"),
        Ok(_) => panic!("not refused"),
    }
}

/// E-70.
#[test]
fn a_full_limit_refuses_a_task_of_a_handle_and_leaves_the_channel_alone() {
    let (mut channel, reference, log) = session(&options());
    let handle = channel.channel();
    let mut tasks: Vec<ScheduledTask> = (0..2).map(|_| handle.schedule(HOUR, |_| Ok(())).unwrap()).collect();
    tasks.push(handle.schedule_periodic(HOUR, |_| Ok(())).unwrap());
    // None of them has reached the loop yet.
    full(handle.schedule(HOUR, |_| Ok(())));
    channel.run_pending();
    full(handle.schedule(HOUR, |_| Ok(())));
    full(handle.schedule_periodic(HOUR, |_| Ok(())));
    full(reference.schedule(HOUR, |_, _| Ok(())));
    full(reference.schedule_periodic(HOUR, |_, _| Ok(())));
    channel.run_pending();
    assert!(channel.is_open() && log.take().is_empty());

    // A cancel makes room at once, also before the loop has received it.
    assert!(tasks.remove(0).cancel());
    tasks.push(handle.schedule(HOUR, |_| Ok(())).unwrap());
    full(handle.schedule(HOUR, |_| Ok(())));
    // So does a run, but not that of a periodic task.
    channel.advance(HOUR);
    assert_eq!(tasks.iter().map(ScheduledTask::is_done).collect::<Vec<_>>(), [true, false, true]);
    let again: Vec<_> = (0..2).map(|_| handle.schedule(HOUR, |_| Ok(())).unwrap()).collect();
    full(handle.schedule(HOUR, |_| Ok(())));
    channel.advance(HOUR);
    assert!(again.into_iter().all(|task| result(task).is_ok()));
    assert!(channel.is_open() && log.take().is_empty());
}

/// E-70.
#[test]
fn tasks_of_the_handler_count_when_a_task_of_a_handle_arrives() {
    let (mut channel, reference, log) = session(&options());
    let arm = |_: &mut _, ctx: &mut netwheel::Context<'_, crate::support::recorder::Recorder>| {
        ctx.schedule(HOUR, |_, _| Ok(()));
        ctx.schedule_periodic(HOUR, |_, _| Ok(()))?;
        Ok(())
    };
    reference.execute(arm).unwrap();
    channel.run_pending();
    let handle = channel.channel();
    let fits = handle.schedule(SECOND, |_| Ok(1)).unwrap();
    let too_many = handle.schedule(SECOND, |_| Ok(2)).unwrap();
    let ticks = handle.schedule_periodic(SECOND, |_| Ok(())).unwrap();
    channel.run_pending();
    full(result(too_many));
    full(result(ticks));
    channel.advance(SECOND);
    assert_eq!(result(fits).unwrap(), 1);
    assert!(channel.is_open() && log.take().is_empty());
}

/// E-71.
#[test]
fn cancelled_tasks_of_handles_take_no_place_from_the_handler() {
    let (mut channel, reference, log) = session(&options());
    let handle = channel.channel();
    let tasks = [SECOND, HOUR, HOUR].map(|delay| handle.schedule(delay, |_| Ok(())).unwrap());
    channel.run_pending();
    let swap = move |_: &mut _, ctx: &mut netwheel::Context<'_, crate::support::recorder::Recorder>| {
        // The loop has not received these cancels when the handler needs the places.
        assert!(tasks.iter().all(ScheduledTask::cancel));
        for _ in 0..2 {
            ctx.schedule(SECOND, |me, _| Ok(me.log.push("task")));
        }
        ctx.schedule_periodic(SECOND, |me, _| Ok(me.log.push("tick")))?;
        Ok(())
    };
    reference.execute(swap).unwrap();
    channel.run_pending();
    assert_eq!(channel.timers(), 3);
    channel.advance(SECOND);
    assert_eq!(log.take(), ["task", "task", "tick"]);
}

#[test]
fn a_context_returns_the_error_of_a_periodic_task_beyond_the_limit() {
    let (mut channel, reference, log) = session(&ChannelOptions::new().max_scheduled_tasks(1));
    let arm = |_: &mut _, ctx: &mut netwheel::Context<'_, crate::support::recorder::Recorder>| {
        ctx.schedule(SECOND, |_, _| Ok(()));
        match ctx.schedule_periodic(SECOND, |_, _| Ok(())) {
            Err(Error::Full { resource: Resource::ChannelTasks, limit: 1, .. }) => Ok(()),
            other => panic!("{other:?}"),
        }
    };
    reference.execute(arm).unwrap();
    channel.run_pending();
    assert!(channel.is_open() && log.take().is_empty());
}

/// E-70. A notification of writability comes from a flush, which no call of the handler follows.
#[test]
fn a_task_refused_when_the_channel_becomes_writable_is_reported_at_once() {
    let log = Log::new();
    let recorder = Recorder::exactly(&log, |ctx, event| {
        if event.is_active() || matches!(event, Event::Writable(true)) {
            ctx.schedule(HOUR, |_, _| Ok(()));
        }
        Ok(())
    });
    let options = ChannelOptions::new().max_scheduled_tasks(1).water_mark(WaterMark::new(8, 16).unwrap());
    let mut channel = embedded_with(&options, recorder);
    channel.set_outbound_room(Some(0));
    channel.channel().write(Bytes::from(vec![0; 100])).unwrap();
    channel.run_pending();
    log.take();
    channel.set_outbound_room(None);
    channel.run_pending();
    let calls = log.take();
    assert!(calls.len() == 2 && calls[0] == "writable true" && calls[1].starts_with("error "), "{calls:?}");
    assert!(channel.is_open());
}
