//! Tests of the end of a driver's loop.

use crate::{
    durable::{
        DurableTimers,
        policy::{Late, Retry},
        store::MemoryDisk,
        topic::{Due, Topic},
    },
    event_loop::ShutdownOptions,
    group::EventLoopGroup,
    testing::wait::PATIENCE,
};
use std::{sync::mpsc::channel, thread, time::Duration};

/// The effect of an answer may own the last handle of the timers, whose drop sends a message to the
/// engine.
#[test]
fn an_answer_after_the_end_of_the_loop_drops_its_effect_without_a_lock() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (fired, due) = channel();
    let topic = Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<u32>| {
        fired.send(due).unwrap();
    });
    let timers =
        DurableTimers::builder(MemoryDisk::new().open().unwrap()).topic(topic).start(&group).unwrap();
    timers.at("topic", Duration::ZERO, &1).start().wait().unwrap();
    let due = due.recv_timeout(PATIENCE).expect("the timer has fired");
    group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO)).wait().unwrap();
    timers.close().wait().unwrap();
    let (answered, done) = channel();
    thread::spawn(move || {
        due.done_with(move |_| {
            let _last = &timers;
            Ok(())
        });
        answered.send(()).unwrap();
    });
    done.recv_timeout(PATIENCE).expect("the answer returns");
}
