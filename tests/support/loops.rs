//! Helpers to control event loops from a test: run a task and wait, block the loop, wait for turns,
//! shut down.

use super::wait::{PATIENCE, done, ms, receive, wait_until_or};
use netwheel::{
    EventLoop, EventLoopGroup, group::EventLoopGroupBuilder, metrics::LoopMetrics, shutdown::ShutdownOptions,
    testing::ManualClock,
};
use std::{
    sync::{
        Arc, Weak,
        mpsc::{Sender, channel},
    },
    time::Duration,
};

/// Returns a group of one loop with a tick of one millisecond.
pub(crate) fn one_loop() -> EventLoopGroup {
    EventLoopGroup::builder().threads(1).wheel_tick(ms(1)).build().unwrap()
}

/// Builds a group of one loop; returns the group and the loop.
pub(crate) fn single(builder: EventLoopGroupBuilder) -> (EventLoopGroup, EventLoop) {
    let group = builder.threads(1).build().unwrap();
    let event_loop = group.next().clone();
    (group, event_loop)
}

/// Returns a loop on a manual clock, and the clock.
pub(crate) fn manual() -> (EventLoop, ManualClock) {
    let clock = ManualClock::new();
    let (_, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()));
    (event_loop, clock)
}

/// Returns a group of one loop on a manual clock, with a tick of one millisecond, and the clock.
pub(crate) fn manual_group() -> (EventLoopGroup, ManualClock) {
    let clock = ManualClock::new();
    (single(EventLoopGroup::builder().clock(clock.clone()).wheel_tick(ms(1))).0, clock)
}

/// Returns the loop of a group of one.
pub(crate) fn the_loop(group: &EventLoopGroup) -> &EventLoop {
    &group.event_loops()[0]
}

/// Returns the metrics of the loop of a group of one.
pub(crate) fn metrics(group: &EventLoopGroup) -> LoopMetrics {
    the_loop(group).metrics()
}

/// Shuts a group down. Panics if a loop did not end normally because it panicked or hangs.
#[track_caller]
pub(crate) fn end(group: &EventLoopGroup) {
    done(group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5))))
        .expect("all loops end normally");
}

/// Runs `f` on the loop and waits for its value.
#[track_caller]
pub(crate) fn on<T: Send + 'static>(event_loop: &EventLoop, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    event_loop.execute(move || drop(sender.send(f()))).expect("the loop accepts tasks");
    receive(&receiver)
}

/// Runs `task` on the loop of a group of one and waits for it.
#[track_caller]
pub(crate) fn on_loop<T: Send + 'static>(
    group: &EventLoopGroup,
    task: impl FnOnce() -> T + Send + 'static,
) -> T {
    on(the_loop(group), task)
}

/// Waits for the end of the current turn and of one complete turn that starts after this call.
/// Everything that is due at the call has then run.
///
/// The current turn may have read the clock before this call. A task of the next turn runs before
/// the timers of that turn, so the complete turn has ended only when a third one runs tasks.
#[track_caller]
pub(crate) fn settle(event_loop: &EventLoop) {
    let turns = || {
        let me = event_loop.clone();
        on(event_loop, move || me.metrics().turns)
    };
    let first = turns();
    while turns() < first + 2 {}
}

/// Looks at the metrics of a loop until they satisfy `is_met`, and returns them. Submits no task.
#[track_caller]
pub(crate) fn watch(event_loop: &EventLoop, is_met: impl Fn(&LoopMetrics) -> bool) -> LoopMetrics {
    let mut metrics = event_loop.metrics();
    wait_until_or(
        || format!("{:#?}", event_loop.metrics()),
        || {
            metrics = event_loop.metrics();
            is_met(&metrics)
        },
    );
    metrics
}

/// Like [`watch`], but makes the loop turn between two looks.
#[track_caller]
pub(crate) fn settle_until(event_loop: &EventLoop, is_met: impl Fn(&LoopMetrics) -> bool) {
    watch(event_loop, |metrics| {
        let is_met = is_met(metrics);
        if !is_met {
            settle(event_loop);
        }
        is_met
    });
}

/// Advances the clock and runs everything that is due.
#[track_caller]
pub(crate) fn advance(event_loop: &EventLoop, clock: &ManualClock, by: Duration) {
    clock.advance(by);
    settle(event_loop);
}

/// Waits for several turns, so that work which the loop does on its own initiative is complete.
#[track_caller]
pub(crate) fn some_turns(group: &EventLoopGroup) {
    let begin = metrics(group).turns;
    while metrics(group).turns < begin + 5 {
        on_loop(group, || ());
    }
}

/// Turns the loop until `is_met` returns `true`. Panics after [`PATIENCE`].
#[track_caller]
pub(crate) fn turn_until(group: &EventLoopGroup, is_met: impl Fn(&LoopMetrics) -> bool) {
    settle_until(the_loop(group), is_met);
}

/// Blocks a loop until dropped.
#[must_use]
pub(crate) struct Gate {
    _open: Sender<()>,
}

impl Gate {
    /// Blocks the loop and waits until it is blocked.
    #[track_caller]
    pub(crate) fn shut(event_loop: &EventLoop) -> Self {
        let (open, opened) = channel::<()>();
        let (stands, standing) = channel();
        let task = move || {
            let _ = stands.send(());
            let _ = opened.recv_timeout(PATIENCE);
        };
        event_loop.execute(task).unwrap();
        standing.recv_timeout(PATIENCE).expect("the loop reaches the gate");
        Gate { _open: open }
    }
}

/// Blocks the loop of a group of one until the returned value is dropped.
#[track_caller]
pub(crate) fn block(group: &EventLoopGroup) -> Gate {
    Gate::shut(the_loop(group))
}

/// Submits a task that resubmits itself until the returned value is dropped.
pub(crate) fn flood(event_loop: &EventLoop) -> Arc<()> {
    let running = Arc::new(());
    again(event_loop.clone(), Arc::downgrade(&running));
    running
}

fn again(event_loop: EventLoop, running: Weak<()>) {
    if running.strong_count() > 0 {
        let me = event_loop.clone();
        let _ = event_loop.execute(move || again(me, running));
    }
}
