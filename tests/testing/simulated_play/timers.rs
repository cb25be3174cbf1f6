//! Timers of loops and channels: none early, none lost, none after its end.

use super::{
    kit::{Draw, MS, PATIENCE, Play, SECOND, now},
    settings,
};
use bytes::Bytes;
use netwheel::{
    channel::ChannelOptions,
    codec::Line,
    prelude::*,
    testing::simulation::{Failure, Simulation, sleep, sometimes},
    time::{Delay, MissedRuns, Periodic, ScheduledTask},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// How late a timer may be on a machine that has nothing else to do. Turns, ticks of the wheel and
/// preempted threads are shorter together.
const LATENESS: Duration = Duration::from_millis(400);

pub(super) fn play(simulation: &mut Simulation, is_strict: bool) -> Result<(), Failure> {
    let play = Play::new(simulation, is_strict);
    let shared = play.clone();
    let server = simulation.node("server", "10.0.0.1", move || serve(&shared));
    let shared = play.clone();
    let client = simulation.node("client", "10.0.0.2", move || client(&shared));
    play.run_amid_faults(simulation, 20 * SECOND)?;
    play.end(simulation, server, &[server, client])
}

/// A silent connection: the server ends it when it is idle, and never before.
struct Silent {
    play: Play,
    timeout: Duration,
    last_read: Instant,
    /// Input waits in the socket, because reading is off.
    is_paused: bool,
    is_over: bool,
}

impl Handler for Silent {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.last_read = ctx.now();
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        self.last_read = ctx.now();
        self.play.must(!self.is_over, || "a message after inactive".to_owned());
        if line == "pause" {
            self.is_paused = true;
            ctx.set_auto_read(false);
            ctx.schedule(2 * self.timeout, |me, ctx| {
                me.is_paused = false;
                ctx.set_auto_read(true);
                Ok(())
            });
        }
        ctx.write(line)
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, event: IdleEvent) -> Result {
        let silent = ctx.now().saturating_duration_since(self.last_read);
        let (timeout, play) = (self.timeout, &self.play);
        play.must(event.state == IdleState::Reader, || format!("an event of {:?}", event.state));
        play.must(!self.is_over, || "an idle event after inactive".to_owned());
        play.must(!play.is_strict() || !self.is_paused, || "idle with unread input".to_owned());
        play.must(silent >= timeout, || format!("idle after {silent:?} instead of {timeout:?}"));
        play.must(!play.is_strict() || silent <= timeout + LATENESS, || {
            format!("idle only after {silent:?} instead of {timeout:?}")
        });
        sometimes("a silent connection was closed");
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _ctx: &mut Context<'_, Self>) -> Result {
        self.is_over = true;
        Ok(())
    }
}

fn serve(play: &Play) -> Result {
    let mut draw = Draw::new();
    let group = settings::group(&mut draw).build()?;
    let timeout = 2 * SECOND + draw.millis(4000);
    let _server = settings::bound(play, || {
        let play = play.clone();
        ServerBootstrap::new(&group)
            .pipeline(move |_peer| {
                let silent = Silent {
                    play: play.clone(),
                    timeout,
                    last_read: now(),
                    is_paused: false,
                    is_over: false,
                };
                Pipeline::codec(Line::new()).idle(IdleTimeouts::new().reader(timeout)).handler(silent)
            })
            .bind("10.0.0.1:7000")
    })?;
    play.wait_for(1);
    settings::end(play, &group, "the server")
}

/// A task with the time at which it is due.
#[derive(Clone)]
struct Expected {
    play: Play,
    due: Instant,
    runs: Arc<AtomicU32>,
    is_cancelled: Arc<AtomicBool>,
}

impl Expected {
    fn new(play: &Play, delay: Duration) -> Self {
        let due = now() + delay;
        Expected { play: play.clone(), due, runs: Arc::default(), is_cancelled: Arc::default() }
    }

    fn runs_at(&self, at: Instant, what: &str) {
        let (early, late) = (self.due.saturating_duration_since(at), at.saturating_duration_since(self.due));
        self.play.must(early.is_zero(), || format!("{what} is {early:?} early"));
        self.play.must(!self.play.is_strict() || late <= LATENESS, || format!("{what} is {late:?} late"));
        self.play.must(!self.is_cancelled.load(SeqCst), || format!("{what} runs after its cancellation"));
        self.play.must(self.runs.fetch_add(1, SeqCst) == 0, || format!("{what} runs twice"));
    }

    /// Checks that the task has run, or was cancelled.
    fn has_run(&self, what: &str) {
        let is_over = || self.runs.load(SeqCst) == 1 || self.is_cancelled.load(SeqCst);
        self.play.eventually(|| format!("{what} runs"), is_over);
    }
}

fn client(play: &Play) -> Result {
    play.wait_for_listener();
    let mut draw = Draw::new();
    let group = settings::group(&mut draw).build()?;
    let mut expected = Vec::new();
    for _ in 0..20 + draw.below(30) {
        match draw.below(6) {
            0 | 1 => expected.extend(loop_task(play, &group, &mut draw)),
            2 => loop_ticks(play, &group, &mut draw),
            3 => silent_connection(play, &group, &mut draw),
            4 => expected.extend(channel_tasks(play, &group, &mut draw)),
            _ => sleep(draw.millis(300)),
        }
    }
    play.wait_for_calm();
    for task in expected {
        task.has_run("a task");
    }
    settings::end(play, &group, "the client")?;
    play.finished();
    Ok(())
}

/// Schedules a task from another thread, and may cancel it.
fn loop_task(play: &Play, group: &EventLoopGroup, draw: &mut Draw) -> Option<Expected> {
    let delay = draw.pick(&[Duration::ZERO, MS, 20 * MS, 3 * SECOND]) + draw.millis(20);
    let expected = Expected::new(play, delay);
    let of_task = expected.clone();
    let task = group.next().schedule(delay, move || of_task.runs_at(now(), "a task of a loop"));
    let task = task.ok()?;
    if draw.chance(40) {
        sleep(draw.millis(20));
        cancel(play, &task, &expected);
    }
    let token = play.token("a task of a loop");
    task.completion().on_complete(move |_| token.called());
    Some(expected)
}

fn cancel<T>(play: &Play, task: &ScheduledTask<T>, expected: &Expected) {
    if task.cancel() {
        play.must(expected.runs.load(SeqCst) == 0, || "a task that has run was cancelled".to_owned());
        expected.is_cancelled.store(true, SeqCst);
        play.must(task.deadline().is_none() && task.is_done(), || "a cancelled task is pending".to_owned());
        play.must(!task.cancel(), || "a task was cancelled twice".to_owned());
    }
}

/// Lets a periodic task run a few times.
fn loop_ticks(play: &Play, group: &EventLoopGroup, draw: &mut Draw) {
    let period = 5 * MS + draw.millis(50);
    let is_rate = draw.chance(50);
    let missed = draw.pick(&[MissedRuns::Skip, MissedRuns::CatchUp]);
    let periodic = if is_rate {
        Periodic::fixed_rate(period).missed_runs(missed)
    } else {
        Periodic::fixed_delay(period)
    };
    let (begun, runs, is_over) = (now(), Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let (of_task, count, ended) = (play.clone(), runs.clone(), is_over.clone());
    let task = group.next().schedule_periodic(periodic, move || {
        let run = count.fetch_add(1, SeqCst) + 1;
        let least = begun + period * run;
        of_task.must(now() >= least, || format!("run {run} is early"));
        of_task.must(!ended.load(SeqCst), || "a periodic task runs after its cancellation".to_owned());
        Ok(())
    });
    let Ok(task) = task else { return };
    let time = period * draw.below(6) as u32 + period / 2;
    sleep(time);
    play.must(task.cancel(), || "a periodic task cannot be cancelled".to_owned());
    is_over.store(true, SeqCst);
    if play.is_strict() && time > LATENESS {
        play.must(runs.load(SeqCst) > 0, || "a periodic task has not run".to_owned());
    }
    let token = play.token("a periodic task");
    task.completion().on_complete(move |_| token.called());
}

fn connect(play: &Play, group: &EventLoopGroup, options: ChannelOptions) -> Option<Channel<Bytes>> {
    let client = ClientBootstrap::new(group).channel_options(options).connect_timeout(20 * SECOND);
    let client = client.pipeline(|_peer| Pipeline::codec(Line::new()).on_read(|_ctx, _line| Ok(())));
    match client.connect("server:7000").wait_timeout(PATIENCE) {
        Ok(Ok(channel)) => Some(channel),
        Ok(Err(error)) => {
            play.must(!play.is_strict(), || format!("a connect fails: {error:#}"));
            None
        }
        Err(_) => {
            play.violation("a connect does not end".to_owned());
            None
        }
    }
}

/// Opens a connection that becomes silent, and waits until the server has closed it.
fn silent_connection(play: &Play, group: &EventLoopGroup, draw: &mut Draw) {
    let Some(channel) = connect(play, group, ChannelOptions::new()) else { return };
    for _ in 0..draw.below(3) {
        let _ = channel.write("a sign of life".into());
        sleep(draw.millis(1500));
    }
    if draw.chance(30) {
        let _ = channel.write("pause".into());
        sleep(100 * MS);
        let _ = channel.write("more".into());
    }
    let token = play.token("a silent connection");
    if !play.is_strict() || draw.chance(50) {
        channel.close();
    }
    channel.closed().on_complete(move |_| token.called());
}

/// Schedules tasks of a channel, by its handle, and closes the channel at some point.
fn channel_tasks(play: &Play, group: &EventLoopGroup, draw: &mut Draw) -> Vec<Expected> {
    let limit = draw.pick(&[1, 4, 1024]);
    let options = ChannelOptions::new().max_scheduled_tasks(limit);
    let Some(channel) = connect(play, group, options) else { return Vec::new() };
    let (mut all, is_closed) = (Vec::new(), Arc::new(AtomicBool::new(false)));
    for _ in 0..1 + draw.below(8) {
        let (delay, is_coarse) = (draw.millis(400), draw.chance(50));
        let expected = Expected::new(play, delay);
        let (of_task, closed) = (expected.clone(), is_closed.clone());
        let when = if is_coarse { Delay::coarse(delay) } else { Delay::exact(delay) };
        let task = channel.schedule(when, move |ctx| {
            of_task.play.must(!closed.load(SeqCst), || "a task of a closed channel runs".to_owned());
            of_task.runs_at(ctx.now(), "a task of a channel");
            Ok(())
        });
        let Ok(task) = task else {
            sometimes("a task of a channel was refused");
            continue;
        };
        if draw.chance(30) {
            sleep(draw.millis(30));
            cancel(play, &task, &expected);
        }
        let (token, of_end) = (play.token("a task of a channel"), expected.clone());
        task.completion().on_complete(move |result| {
            token.called();
            let is_over = of_end.runs.load(SeqCst) == 1;
            of_end.play.must(result.is_ok() == is_over, || format!("a task ends with {result:?}"));
            // Dropped with its channel, or refused.
            of_end.is_cancelled.store(true, SeqCst);
        });
        all.push(expected);
    }
    if draw.chance(60) {
        sleep(draw.millis(600));
    }
    let closed = is_closed;
    channel.closed().on_complete(move |_| closed.store(true, SeqCst));
    channel.close();
    all
}
