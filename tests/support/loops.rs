//! Event loops under control of a test: run a task and wait, block the loop, wait for turns, shut it
//! down.

use super::wait::{PATIENCE, done, ms, receive};
use netwheel::{EventLoop, EventLoopGroup, EventLoopGroupBuilder, LoopMetrics, testing::ManualClock};
use std::{
    sync::{
        Arc, Weak,
        mpsc::{Sender, channel},
    },
    time::{Duration, Instant},
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

/// The loop of a group of one.
pub(crate) fn the_loop(group: &EventLoopGroup) -> &EventLoop {
    &group.event_loops()[0]
}

/// The counters of a group of one.
pub(crate) fn metrics(group: &EventLoopGroup) -> LoopMetrics {
    the_loop(group).metrics()
}

/// Ends a group; fails if a loop did not end by itself (it panicked, or hangs).
#[track_caller]
pub(crate) fn end(group: &EventLoopGroup) {
    done(group.shutdown_gracefully(Duration::ZERO, Duration::from_secs(5))).expect("no loop has failed");
}

/// Runs `f` on the loop and waits for its value.
#[track_caller]
pub(crate) fn on<T: Send + 'static>(event_loop: &EventLoop, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    event_loop.execute(move || drop(sender.send(f()))).expect("the loop takes tasks");
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

/// Waits until the turn that is running, and a whole one begun after this call, are over: what was due is run.
///
/// The turn that is running may have read the clock before this call, and a task in the next one runs before that
/// one's timers: it is over when there is a third.
#[track_caller]
pub(crate) fn settle(event_loop: &EventLoop) {
    let turns = || {
        let me = event_loop.clone();
        on(event_loop, move || me.metrics().turns)
    };
    let first = turns();
    while turns() < first + 2 {}
}

/// Moves the time on, and has what is due then run.
#[track_caller]
pub(crate) fn advance(event_loop: &EventLoop, clock: &ManualClock, by: Duration) {
    clock.advance(by);
    settle(event_loop);
}

/// Waits until the loop has turned a few times: whatever it meant to do without being asked, it has done.
#[track_caller]
pub(crate) fn some_turns(group: &EventLoopGroup) {
    let begin = metrics(group).turns;
    while metrics(group).turns < begin + 5 {
        on_loop(group, || ());
    }
}

/// Lets the loop turn until `is_met`, which has to come.
#[track_caller]
pub(crate) fn turn_until(group: &EventLoopGroup, is_met: impl Fn(&LoopMetrics) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_met(&metrics(group)) {
        assert!(Instant::now() < end, "waited in vain: {:#?}", metrics(group));
        some_turns(group);
    }
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
        standing.recv_timeout(PATIENCE).expect("the loop comes to the gate");
        Gate { _open: open }
    }
}

/// Blocks the loop of a group of one until the returned value is dropped.
#[track_caller]
pub(crate) fn block(group: &EventLoopGroup) -> Gate {
    Gate::shut(the_loop(group))
}

/// A task that gives itself to the loop again and again, until the returned value is dropped.
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
