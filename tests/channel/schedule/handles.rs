//! The handle of a one-shot task: its value, its deadline, its cancellation, and its end.

use super::{failure, instant, plain, result, session};
use crate::support::{
    channels::{Guard, lines},
    recorder::named,
    wait::{SECOND, ms},
};
use netwheel::{Error, channel::ChannelOptions, time::Delay};
use std::{sync::mpsc, thread, time::Duration};

/// E-65.
#[test]
fn a_task_of_a_handle_completes_with_its_value() {
    let (mut channel, log) = plain();
    let task = channel
        .channel()
        .schedule(SECOND, |ctx| {
            ctx.write("hello".into())?;
            Ok(ctx.id())
        })
        .unwrap();
    channel.advance(SECOND - ms(1));
    assert!(!task.is_done() && channel.read_outbound().is_empty(), "not early");
    channel.advance(ms(1));
    assert_eq!(channel.read_outbound(), "hello\n");
    assert!(!task.cancel(), "it has run");
    assert_eq!(result(task).unwrap(), channel.channel().id());
    assert!(log.take().is_empty());
}

#[test]
fn a_handle_tells_when_its_task_is_due() {
    let (mut channel, _) = plain();
    let start = instant(channel.clock());
    let exact = channel.channel().schedule(2 * SECOND, |_| Ok(())).unwrap();
    let coarse = channel.channel().schedule(Delay::coarse(SECOND), |_| Ok(())).unwrap();
    let never = channel.channel().schedule(Duration::MAX, |_| Ok(())).unwrap();
    assert_eq!((exact.remaining(), coarse.remaining()), (Some(2 * SECOND), Some(SECOND)), "in the queue");
    channel.advance(SECOND / 2);
    assert_eq!(exact.deadline(), Some(start + 2 * SECOND));
    assert_eq!(exact.remaining(), Some(3 * SECOND / 2));
    channel.stall(5 * SECOND);
    assert_eq!(
        (exact.deadline(), exact.remaining(), coarse.remaining()),
        (None, None, None),
        "they have run"
    );
    assert_eq!((never.deadline(), never.is_done()), (None, false));
    assert!(never.cancel());
}

#[test]
fn an_overdue_task_has_no_time_left() {
    let (mut channel, _) = plain();
    let task = channel.channel().schedule(SECOND, |_| Ok(())).unwrap();
    channel.clock().advance(3 * SECOND);
    assert_eq!(task.remaining(), Some(Duration::ZERO));
    channel.run_pending();
    assert!(task.is_done());
}

/// E-66.
#[test]
fn dropping_a_handle_or_its_completion_does_not_cancel_the_task() {
    let (mut channel, log) = plain();
    for (n, keep) in [(1, 0), (2, 1), (3, 2)] {
        let (log, handle) = (log.clone(), channel.channel());
        let run = move || log.push(format!("ran {n}"));
        let task = handle.schedule(SECOND, move |_| Ok(run())).unwrap();
        match keep {
            0 => drop(task),
            1 => drop(task.completion()),
            _ => task.completion().detach(),
        }
    }
    channel.advance(SECOND);
    assert_eq!(log.take(), ["ran 1", "ran 2", "ran 3"]);
}

/// E-67.
#[test]
fn a_cancel_drops_the_task_immediately_and_frees_its_timer() {
    let (mut channel, log) = plain();
    let handle = channel.channel();
    let schedule = |delay: Delay, name| {
        let guard = Guard(name, log.clone());
        handle.schedule(delay, move |_| guard.runs()).unwrap()
    };
    let exact = schedule(SECOND.into(), "exact");
    let coarse = schedule(Delay::coarse(SECOND), "coarse");
    let queued = schedule(SECOND.into(), "queued");
    assert!(queued.cancel() && !queued.cancel(), "in the queue");
    channel.run_pending();
    assert_eq!(log.take(), ["queued gone"]);
    assert_eq!(channel.timers(), 2);

    assert!(exact.cancel() && !exact.cancel());
    thread::scope(|scope| {
        scope.spawn(|| assert!(coarse.cancel()));
    });
    assert_eq!(log.take(), ["exact gone", "coarse gone"], "before the loop runs");
    channel.run_pending();
    assert_eq!(channel.timers(), 0);
    for task in [exact, coarse, queued] {
        assert!(matches!(result(task), Err(Error::Cancelled)));
    }
    channel.advance(2 * SECOND);
    assert!(log.take().is_empty());
}

#[test]
fn a_task_may_cancel_another_one_that_is_due_at_the_same_time() {
    let (mut channel, log) = plain();
    let (sender, victims) = mpsc::channel::<netwheel::time::ScheduledTask>();
    let killer = channel.channel().schedule(SECOND, move |_| Ok(victims.recv().unwrap().cancel())).unwrap();
    let guard = Guard("victim", log.clone());
    sender.send(channel.channel().schedule(SECOND, move |_| guard.runs()).unwrap()).unwrap();
    channel.advance(SECOND);
    assert!(result(killer).unwrap());
    assert_eq!(log.take(), ["victim gone"]);
}

#[test]
fn a_running_task_cannot_cancel_itself() {
    let (mut channel, _) = plain();
    let (sender, own) = mpsc::channel::<netwheel::time::ScheduledTask<bool>>();
    let (report, reports) = mpsc::channel();
    let task = channel
        .channel()
        .schedule(SECOND, move |_| {
            let own = own.recv().unwrap();
            report.send((own.cancel(), own.is_done(), own.remaining())).unwrap();
            Ok(true)
        })
        .unwrap();
    sender.send(task).unwrap();
    channel.advance(SECOND);
    assert_eq!(reports.recv().unwrap(), (false, false, None));
}

/// E-68.
#[test]
fn a_task_ends_with_the_reason_when_its_channel_closes_first() {
    for close in ["close", "close now", "remote", "reset"] {
        let (mut channel, _) = plain();
        let (armed, queued) = (channel.channel().schedule(SECOND, |_| Ok(())).unwrap(), channel.channel());
        channel.run_pending();
        let queued = match close {
            "close" => {
                channel.close();
                None
            }
            "close now" => {
                let task = queued.schedule(SECOND, |_| Ok(())).unwrap();
                queued.close_now();
                let behind = queued.schedule(SECOND, |_| Ok(())).unwrap();
                channel.run_pending();
                assert!(matches!(result(behind), Err(Error::Closed)), "{close}");
                Some(task)
            }
            "remote" => {
                channel.end_inbound();
                None
            }
            _ => {
                channel.fail_inbound(std::io::ErrorKind::ConnectionReset.into());
                None
            }
        };
        // This handler stays open after errors, but the connection does not.
        channel.run_pending();
        if channel.is_closed() {
            assert!(matches!(result(armed), Err(Error::Closed)), "{close}");
            assert!(matches!(channel.channel().schedule(SECOND, |_| Ok(())), Err(Error::Closed)));
        } else {
            assert_eq!(close, "remote", "the recorder stays open for the end of the stream only");
            assert!(armed.cancel());
        }
        if let Some(queued) = queued {
            assert!(matches!(result(queued), Err(Error::Closed)));
        }
    }
}

/// E-68.
#[test]
fn a_task_of_a_replaced_pipeline_fails_with_that_reason() {
    let (mut channel, log) = plain();
    let handle = channel.channel();
    let armed = handle.schedule(SECOND, |_| Ok(())).unwrap();
    let tick = handle.schedule_periodic(SECOND, |_| Ok(())).unwrap();
    let (inner, new) = (log.clone(), log.clone());
    handle.execute(move |ctx| ctx.replace_pipeline(lines(named("new", &inner, |_, _| Ok(()))))).unwrap();
    // This one has the same types, so it belongs to the new pipeline.
    let later = handle.schedule(SECOND, move |_| Ok(new.push("later ran"))).unwrap();
    channel.run_pending();
    assert!(matches!(result(armed), Err(Error::PipelineReplaced)));
    assert!(matches!(result(tick), Err(Error::PipelineReplaced)));
    channel.advance(SECOND);
    result(later).unwrap();
    assert_eq!(log.take(), ["drop", "new active", "later ran"]);
}

#[test]
fn a_task_for_a_handler_that_was_replaced_fails_when_it_is_due() {
    let (mut channel, reference, log) = session(&ChannelOptions::new());
    let handle = channel.channel();
    let inner = log.clone();
    handle.execute(move |ctx| ctx.replace_pipeline(other(&inner))).unwrap();
    let stale = reference.schedule(SECOND, |_, _| -> netwheel::Result { panic!("it ran") }).unwrap();
    let tick = reference.schedule_periodic(SECOND, |_, _| panic!("it ran")).unwrap();
    channel.advance(SECOND);
    assert!(matches!(result(stale), Err(Error::PipelineReplaced)));
    assert!(matches!(result(tick), Err(Error::PipelineReplaced)));
    let refused = reference.schedule(SECOND, |_, _| Ok(())).unwrap_err();
    assert!(matches!(refused, Error::PipelineReplaced));
    assert!(matches!(reference.schedule_periodic(SECOND, |_, _| Ok(())), Err(Error::PipelineReplaced)));
    assert!(channel.is_open());
}

/// A pipeline with another handler of the same messages.
fn other(log: &crate::support::journal::Log) -> netwheel::Pipeline<bytes::Bytes> {
    let log = log.clone();
    netwheel::Pipeline::codec(netwheel::codec::Line::new()).on_read(move |_, _| Ok(log.push("read")))
}

/// E-69.
#[test]
fn an_error_of_a_task_reaches_its_completion_and_the_handler() {
    let (mut channel, log) = plain();
    let task = channel.channel().schedule(SECOND, |_| -> netwheel::Result { Err(Error::other("broken")) });
    channel.advance(SECOND);
    assert_eq!(failure(task.unwrap()), "broken");
    assert_eq!(log.take(), ["error broken"]);
    assert!(channel.is_open(), "this handler keeps it open");
}

/// E-69.
#[test]
fn a_panic_of_a_task_reaches_its_completion_and_closes_the_channel() {
    for periodic in [false, true] {
        let (mut channel, log) = plain();
        let handle = channel.channel();
        let task = if periodic {
            handle.schedule_periodic(SECOND, |_| panic!("oh dear")).unwrap()
        } else {
            handle.schedule(SECOND, |_| -> netwheel::Result { panic!("oh dear") }).unwrap()
        };
        channel.advance(SECOND);
        assert!(failure(task).contains("oh dear"));
        assert!(channel.is_closed());
        assert_eq!(log.take().len(), 3, "error, inactive, drop");
    }
}

#[test]
fn the_handler_is_available_to_tasks_of_its_reference() {
    let (mut channel, reference, log) = session(&ChannelOptions::new());
    let named = reference.schedule(SECOND, |me, ctx| {
        me.log.push("task");
        ctx.write("sent".into())?;
        Ok(me.name)
    });
    channel.advance(SECOND);
    assert_eq!((result(named.unwrap()).unwrap(), channel.read_outbound()), ("", "sent\n".into()));
    assert_eq!(log.take(), ["task"]);
}

/// A value that is dropped with a cancelled task may use the channel's handles.
#[test]
fn what_a_cancelled_task_drops_may_schedule_and_cancel() {
    struct OnDrop<F: FnMut()>(F);
    impl<F: FnMut()> Drop for OnDrop<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let (mut channel, log) = plain();
    let handle = channel.channel();
    let other = handle.schedule(SECOND, |_| Ok(())).unwrap();
    let (inner, inner_log) = (handle.clone(), log.clone());
    let guard = OnDrop(move || {
        inner_log.push(format!("cancelled {}", other.cancel()));
        drop(inner.schedule(SECOND, |ctx| ctx.write("again".into())).unwrap());
    });
    let task = handle.schedule(SECOND, move |_| Ok(drop(guard))).unwrap();
    channel.run_pending();
    assert!(task.cancel());
    assert_eq!(log.take(), ["cancelled true"]);
    channel.advance(SECOND);
    assert_eq!(channel.read_outbound(), "again\n");
}
