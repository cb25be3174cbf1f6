//! The tasks of a channel on services without a loop.

use super::*;
use std::{rc::Rc, time::Duration};

const CHANNEL: Key = Key { index: 3, generation: 7 };

fn services() -> LoopServices {
    LoopServices::detached(Duration::from_millis(100))
}

/// The timers in the heap, in the order of their deadlines.
fn heap(services: &LoopServices) -> Vec<ChannelTimer> {
    let timer = |due| match due {
        Due::Channel(token) if token.is_for(CHANNEL) => token.timer(),
        _ => unreachable!("only this channel has timers"),
    };
    services.queue.clear().into_iter().map(timer).collect()
}

#[test]
fn a_cancel_removes_only_the_entry_of_its_task() {
    let (mut tasks, mut services) = (Tasks::default(), services());
    let value = Rc::new(());
    let mut arm = |tasks: &mut Tasks, when| {
        tasks.arm(CHANNEL, 10, &mut services, when, Box::new(value.clone())).expect("below the limit")
    };
    let (exact, coarse) = (arm(&mut tasks, TaskTime::Exact(5)), arm(&mut tasks, TaskTime::Coarse(9)));
    assert_eq!((services.queue.len(), services.wheel.len()), (1, 1));
    assert!(tasks.cancel(&mut services, coarse) && !tasks.cancel(&mut services, coarse));
    assert_eq!((services.queue.len(), services.wheel.len(), Rc::strong_count(&value)), (1, 0, 2));
    assert!(tasks.take_due(exact.slot).is_some() && tasks.take_due(exact.slot).is_none());
    assert_eq!(heap(&services), [ChannelTimer::Task(exact.slot)]);
}

#[test]
fn the_limit_counts_scheduled_and_offloaded_tasks_but_not_the_close_timeout() {
    let (mut tasks, mut services) = (Tasks::default(), services());
    tasks.arm_close(CHANNEL, &mut services, 1);
    assert!(tasks.arm(CHANNEL, 2, &mut services, TaskTime::Exact(5), Box::new(())).is_some());
    assert!(tasks.await_answer(2, &mut services, |_| Box::new(())).is_ok());
    assert!(tasks.arm(CHANNEL, 2, &mut services, TaskTime::Exact(5), Box::new(())).is_none());
    assert!(matches!(
        tasks.await_answer(2, &mut services, |_| Box::new(())),
        Err(Error::Full { resource: Resource::ChannelTasks, limit: 2 })
    ));
}

#[test]
fn a_close_cancels_all_tasks() {
    let (mut tasks, mut services) = (Tasks::default(), services());
    tasks.arm_close(CHANNEL, &mut services, 100);
    tasks.arm_close(CHANNEL, &mut services, 1);
    tasks.arm(CHANNEL, 10, &mut services, TaskTime::Exact(5), Box::new(()));
    tasks.arm(CHANNEL, 10, &mut services, TaskTime::Coarse(5), Box::new(()));
    let offloaded = tasks.await_answer(10, &mut services, |_| Box::new(())).expect("below the limit");
    assert_eq!((services.queue.len(), services.wheel.len()), (2, 1), "the close timeout is armed once");
    assert!(tasks.take_answered(offloaded).is_some() && tasks.take_answered(offloaded).is_none());
    assert_eq!(tasks.cancel_all(&mut services, &Error::Closed), 2);
    assert_eq!((services.queue.len(), services.wheel.len()), (0, 0));
}

#[test]
fn each_stage_pauses_for_itself_up_to_the_last_position() {
    let mut tasks = Tasks::default();
    for stage in [1, 2, MAX_STAGES] {
        assert!(!tasks.is_paused(stage));
        assert!(tasks.set_paused(stage, true) && tasks.set_paused(stage, true));
    }
    assert!(tasks.set_paused(2, false) && !tasks.is_paused(2) && tasks.is_paused(MAX_STAGES));
    assert!(tasks.set_paused(MAX_STAGES, false) && !tasks.set_paused(1, false));
}

#[test]
fn a_close_timeout_that_was_taken_outlives_the_channel() {
    let (mut tasks, mut services) = (Tasks::default(), services());
    tasks.arm_close(CHANNEL, &mut services, 100);
    assert!(tasks.take_close().is_some() && tasks.take_close().is_none());
    tasks.cancel_all(&mut services, &Error::Closed);
    assert_eq!(heap(&services), [ChannelTimer::CloseTimeout]);
}
