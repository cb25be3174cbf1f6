//! Tasks, hooks and polls of event loops: each accepted task runs once and in order, panics stay in
//! their task, and a new poll loses no event.

use super::{
    kit::{Draw, MS, PATIENCE, Play, SECOND, lock, now},
    settings,
};
use bytes::Bytes;
use netwheel::{
    channel::ChannelOptions,
    codec::Line,
    prelude::*,
    shutdown::ShutdownOptions,
    testing::simulation::{Failure, Simulation, sleep, sometimes},
    time::Periodic,
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

const CLIENTS: usize = 2;

pub(super) fn play(simulation: &mut Simulation, is_strict: bool) -> Result<(), Failure> {
    crate::support::logs::quiet_panics();
    let play = Play::new(simulation, is_strict);
    let shared = play.clone();
    let server = simulation.node("server", "10.0.0.1", move || serve(&shared));
    let mut nodes = vec![server];
    for n in 2..2 + CLIENTS {
        let shared = play.clone();
        nodes.push(simulation.node(&format!("client-{n}"), &format!("10.0.0.{n}"), move || client(&shared)));
    }
    play.run_amid_faults(simulation, 10 * SECOND)?;
    play.end(simulation, server, &nodes)
}

/// Echoes lines, and replaces the polls of its loops at the same time.
fn serve(play: &Play) -> Result {
    let mut draw = Draw::new();
    let group = settings::group(&mut draw).build()?;
    let bind = || {
        ServerBootstrap::new(&group)
            .pipeline(|_peer| Pipeline::codec(Line::new()).on_read(|ctx, line| ctx.write(line)))
            .bind("10.0.0.1:7000")
    };
    let mut server = settings::bound(play, bind)?;
    while !play.has_finished(CLIENTS) {
        sleep(draw.millis(700));
        rebuild(play, group.next(), &mut draw);
        if server.closed().is_done() {
            server = settings::bound(play, bind)?;
        }
    }
    settings::end(play, &group, "the server")
}

/// Replaces the poll of a loop, and checks the report.
fn rebuild(play: &Play, event_loop: &EventLoop, draw: &mut Draw) {
    if draw.chance(40) {
        return;
    }
    let Ok(rebuilding) = event_loop.rebuild_poll() else { return };
    let Ok(result) = rebuilding.wait_timeout(PATIENCE) else {
        return play.violation("the rebuild of a poll does not end".to_owned());
    };
    match result {
        Ok(report) => {
            play.must(report.new_poll > report.old_poll, || format!("{report:?}"));
            play.must(!play.is_strict() || report.closed == 0, || format!("sources are closed: {report:?}"));
            if report.moved > 1 {
                sometimes("a rebuild has moved connections");
            }
        }
        Err(error) => play.must(!play.is_strict(), || format!("a poll is not replaced: {error:#}")),
    }
}

/// The order in which the tasks of one thread run on one loop.
#[derive(Clone)]
struct Order {
    play: Play,
    next: Arc<AtomicU32>,
    /// The number of tasks that were accepted.
    accepted: Arc<AtomicU32>,
}

impl Order {
    /// Returns a task that checks its number.
    fn task(&self, number: u32) -> impl FnOnce() + Send + 'static {
        let (play, next) = (self.play.clone(), self.next.clone());
        move || {
            let expected = next.fetch_add(1, SeqCst);
            play.must(number == expected, || format!("task {number} runs as task {expected}"));
        }
    }
}

fn client(play: &Play) -> Result {
    play.wait_for_listener();
    let mut draw = Draw::new();
    let group = settings::group(&mut draw).build()?;
    let hooks = Arc::new(Mutex::new(Vec::new()));
    for event_loop in group.event_loops() {
        add_hooks(play, event_loop, &hooks);
    }
    let (mut channels, mut panics) = (Vec::new(), 0);
    for _ in 0..8 + draw.below(12) {
        match draw.below(6) {
            0 => channels.extend(connect(play, &group, &mut draw)),
            1 => panics += panicking_tasks(play, group.next(), &mut draw),
            2 => rebuild(play, group.next(), &mut draw),
            3 => scheduled(play, group.next(), &mut draw),
            _ => ordered_tasks(play, group.next(), &mut draw),
        }
        sleep(draw.millis(60));
    }
    play.wait_for_calm();
    for Pinged { channel, answers, weight } in channels {
        ping(play, &channel, &answers);
        let event_loop = channel.event_loop().expect("a channel of a loop");
        play.must(event_loop.load() >= weight || !channel.is_open(), || "a weight is not counted".to_owned());
        channel.close();
        play.must(channel.closed().wait_timeout(PATIENCE).is_ok(), || "a channel stays open".to_owned());
    }
    end(play, &group, panics, &hooks)?;
    play.finished();
    Ok(())
}

/// Adds hooks that note their number. The last one adds another.
fn add_hooks(play: &Play, event_loop: &EventLoop, hooks: &Arc<Mutex<Vec<u32>>>) {
    for number in 0..3 {
        let (hooks, again, of_hook) = (hooks.clone(), event_loop.clone(), play.clone());
        let hook = move || {
            lock(&hooks).push(number);
            of_hook.must(again.execute(|| ()).is_err(), || "a loop that has ended accepts a task".to_owned());
            if number == 2 {
                let hooks = hooks.clone();
                let added = again.on_shutdown(move || lock(&hooks).push(3));
                of_hook.must(added.is_ok(), || "a hook cannot add a hook".to_owned());
            }
        };
        play.must(event_loop.on_shutdown(hook).is_ok(), || "a hook is refused".to_owned());
    }
}

/// Submits tasks in each way, from this thread.
fn ordered_tasks(play: &Play, event_loop: &EventLoop, draw: &mut Draw) {
    let order = Order { play: play.clone(), next: Arc::default(), accepted: Arc::default() };
    for _ in 0..1 + draw.below(150) {
        let task = order.task(order.accepted.load(SeqCst));
        let submitted = match draw.below(4) {
            0 => event_loop.execute_lazily(task).is_ok(),
            1 => event_loop.execute_timeout(PATIENCE, task).is_ok(),
            _ => event_loop.execute(task).is_ok(),
        };
        if submitted {
            order.accepted.fetch_add(1, SeqCst);
        } else {
            sometimes("a queue is full");
        }
    }
    let (last, is_over) = (order.accepted.load(SeqCst), Arc::new(AtomicBool::new(false)));
    let (me, of_task, over) = (event_loop.clone(), play.clone(), is_over.clone());
    let deadlock = move || {
        let refused = me.execute_timeout(SECOND, || ()).map_err(|refused| refused.into_parts().1);
        of_task
            .must(matches!(refused, Err(Error::WouldDeadlock)), || format!("a wait on a loop: {refused:?}"));
        of_task.must(me.in_event_loop(), || "a task runs elsewhere".to_owned());
        over.store(true, SeqCst);
    };
    // It wakes the loop, so lazy tasks run too.
    let submitted = event_loop.execute_timeout(PATIENCE, deadlock);
    play.must(submitted.is_ok() && !event_loop.in_event_loop(), || "a task is refused".to_owned());
    play.eventually(|| "the last task runs".to_owned(), || is_over.load(SeqCst));
    let ran = order.next.load(SeqCst);
    play.must(ran == last, || format!("{ran} of {last} tasks have run"));
    play.must(event_loop.lag() < 20 * SECOND || !play.is_strict(), || format!("{event_loop:?} lags"));
}

/// Lets tasks panic. Returns their number.
fn panicking_tasks(play: &Play, event_loop: &EventLoop, draw: &mut Draw) -> u64 {
    let mut panics = 0;
    let called = event_loop.call(|| -> u32 { panic!("on purpose") });
    let result = called.wait_timeout(PATIENCE);
    play.must(matches!(result, Ok(Err(Error::Panicked(_) | Error::Full { .. }))), || format!("{result:?}"));
    if event_loop.execute(|| panic!("on purpose")).is_ok() {
        panics += 1;
    }
    let scheduled = event_loop.schedule(draw.millis(20), || -> u32 { panic!("on purpose") });
    if let Ok(task) = scheduled {
        panics += 1;
        let result = task.completion().wait_timeout(PATIENCE);
        play.must(matches!(result, Ok(Err(Error::Panicked(_)))), || format!("{result:?}"));
    }
    let is_error = draw.chance(50);
    let periodic = event_loop.schedule_periodic(Periodic::fixed_rate(10 * MS).jitter(5 * MS), move || {
        assert!(is_error, "on purpose");
        Err(Error::Cancelled)
    });
    if let Ok(task) = periodic {
        panics += u64::from(!is_error);
        let result = task.completion().wait_timeout(PATIENCE);
        let is_expected = match &result {
            Ok(Err(Error::Panicked(_))) => !is_error,
            Ok(Err(_)) => is_error,
            _ => false,
        };
        play.must(is_expected, || format!("a periodic task ends with {result:?}"));
    }
    panics
}

/// Schedules a task and looks at it.
fn scheduled(play: &Play, event_loop: &EventLoop, draw: &mut Draw) {
    let (delay, begun) = (SECOND + draw.millis(500), now());
    let Ok(task) = event_loop.schedule(delay, || 7) else { return };
    let remaining = task.remaining();
    play.must(remaining.is_none_or(|left| left <= delay), || format!("{remaining:?} of {delay:?}"));
    play.must(!play.is_strict() || remaining.is_some(), || format!("{task:?} has ended already"));
    if draw.chance(50) {
        play.must(task.cancel() || !play.is_strict(), || "a task cannot be cancelled".to_owned());
        play.must(task.remaining().is_none(), || "a cancelled task has time left".to_owned());
        let result = task.completion().wait_timeout(PATIENCE);
        let is_over = matches!(result, Ok(Err(Error::Cancelled)));
        play.must(is_over || !play.is_strict(), || format!("a cancelled task: {result:?}"));
        return;
    }
    let result = task.completion().wait_timeout(PATIENCE);
    play.must(matches!(result, Ok(Ok(7))), || format!("a scheduled task: {result:?}"));
    play.must(now() >= begun + delay, || "a task is early".to_owned());
}

struct Pinged {
    channel: Channel<Bytes>,
    answers: Arc<AtomicU64>,
    weight: usize,
}

fn connect(play: &Play, group: &EventLoopGroup, draw: &mut Draw) -> Option<Pinged> {
    let (answers, weight) = (Arc::<AtomicU64>::default(), draw.pick(&[1, 5]));
    let count = answers.clone();
    let client = ClientBootstrap::new(group)
        .channel_options(ChannelOptions::new().weight(weight))
        .connect_timeout(20 * SECOND)
        .pipeline(move |_peer| {
            let count = count.clone();
            Pipeline::codec(Line::new()).on_read(move |_ctx, _line| {
                count.fetch_add(1, SeqCst);
                Ok(())
            })
        });
    let Ok(Ok(channel)) = client.connect("server:7000").wait_timeout(PATIENCE) else {
        play.must(!play.is_strict(), || "a connect fails".to_owned());
        return None;
    };
    Some(Pinged { channel, answers, weight: weight as usize })
}

/// Checks that lines come back, although polls were replaced.
fn ping(play: &Play, channel: &Channel<Bytes>, answers: &AtomicU64) {
    if !play.is_strict() || channel.write("ping".into()).is_err() {
        return;
    }
    play.eventually(|| "an answer arrives".to_owned(), || answers.load(SeqCst) == 1 || !channel.is_open());
    play.must(channel.is_open(), || "a channel has closed".to_owned());
}

/// Shuts the group down. Checks the number of panics, and the hooks.
fn end(play: &Play, group: &EventLoopGroup, panics: u64, hooks: &Mutex<Vec<u32>>) -> Result {
    let count = || group.metrics().iter().map(|metrics| metrics.tasks_panicked).sum::<u64>();
    play.eventually(|| format!("{panics} panics, not {}", count()), || count() == panics);
    let options = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(20 * SECOND);
    let ended = group.shutdown(options).wait_timeout(PATIENCE).is_ok();
    play.must(ended, || "a shutdown does not end".to_owned());
    for event_loop in group.event_loops() {
        let is_over =
            event_loop.is_shutting_down() && event_loop.is_shut_down() && event_loop.is_terminated();
        play.must(is_over, || format!("{event_loop:?} has not ended"));
        play.must(event_loop.terminated().is_done(), || "a loop has not terminated".to_owned());
        let refused = event_loop.on_shutdown(|| ()).is_err() && event_loop.execute_lazily(|| ()).is_err();
        play.must(refused && event_loop.rebuild_poll().is_err(), || "a loop that has ended".to_owned());
    }
    let (hooks, loops) = (lock(hooks).clone(), group.event_loops().len());
    let are_complete = hooks.len() == 4 * loops && hooks.iter().filter(|hook| **hook == 3).count() == loops;
    play.must(are_complete, || format!("the hooks {hooks:?} have run"));
    if loops == 1 {
        play.must(hooks == [0, 1, 2, 3], || format!("the hooks run in the order {hooks:?}"));
    }
    Ok(())
}
