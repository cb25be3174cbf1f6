//! Random schedules, cancels, errors, stalls and ends of a channel, compared with a simple model in
//! virtual time.

use crate::support::{
    channels::lines,
    journal::Log,
    random::Random,
    recorder::{Event, Recorder},
    wait::ms,
};
use bytes::Bytes;
use netwheel::{
    Context, Error, HandlerRef, Pipeline, Result,
    channel::{ChannelOptions, TaskKey},
    codec::Line,
    testing::EmbeddedChannel,
    time::{Delay, MissedRuns, Periodic, ScheduledTask},
};
use std::sync::{Arc, Mutex, mpsc};

/// What a task does when it runs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Deed {
    Nothing,
    Fail,
    /// Returns `Cancelled`.
    Stop,
    Panic,
    Close,
    /// Cancels the task with this number, which may be itself.
    Cancel(usize),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Rhythm {
    Once { coarse: bool },
    Rate(u64, MissedRuns),
    Delay(u64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// In the queue of the loop.
    Queued,
    /// Due at a time. The time and the number of its entry order the tasks.
    Armed {
        due: u64,
        order: (u64, u64),
    },
    Ended(End),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Value,
    Failed,
    Cancelled,
    Panicked,
    Closed,
    Replaced,
    Full,
}

/// A task of the model.
#[derive(Debug, Clone)]
struct Task {
    by_handle: bool,
    rhythm: Rhythm,
    deed: Deed,
    delay: u64,
    /// The deadline of the first run. Counted from the call, which is later on the loop for tasks
    /// of the handler.
    first: u64,
    state: State,
}

#[derive(Default)]
struct Model {
    limit: usize,
    now: u64,
    order: u64,
    tasks: Vec<Task>,
    lines: Vec<String>,
    closed: bool,
}

impl Model {
    fn is_pending(&self, n: usize) -> bool {
        !matches!(self.tasks[n].state, State::Ended(_))
    }

    /// Returns whether a handle may schedule another task.
    fn admits(&self) -> bool {
        let pending = |n: &usize| self.tasks[*n].by_handle && self.is_pending(*n);
        (0..self.tasks.len()).filter(pending).count() < self.limit
    }

    fn armed(&self) -> usize {
        self.tasks.iter().filter(|task| matches!(task.state, State::Armed { .. })).count()
    }

    fn arm(&mut self, n: usize, due: u64) {
        self.arm_at(n, due, due);
    }

    /// Arms a task whose entry is at another time than its deadline.
    fn arm_at(&mut self, n: usize, due: u64, at: u64) {
        self.order += 1;
        self.tasks[n].state = State::Armed { due, order: (at, self.order) };
    }

    fn end(&mut self, n: usize, end: End) {
        if self.is_pending(n) {
            self.tasks[n].state = State::Ended(end);
        }
    }

    fn end_all(&mut self, end: End) {
        (0..self.tasks.len()).for_each(|n| self.end(n, end));
    }

    /// The loop receives its mail.
    fn receive(&mut self) {
        for n in 0..self.tasks.len() {
            if self.tasks[n].state == State::Queued {
                if !self.tasks[n].by_handle {
                    self.tasks[n].first = self.now + self.tasks[n].delay;
                }
                if self.armed() < self.limit {
                    self.arm(n, self.tasks[n].first);
                } else {
                    if !self.tasks[n].by_handle && matches!(self.tasks[n].rhythm, Rhythm::Once { .. }) {
                        self.lines.push("full".into());
                    }
                    self.end(n, End::Full);
                }
            }
        }
    }

    fn next_due(&self) -> Option<u64> {
        let due = |task: &Task| if let State::Armed { due, .. } = task.state { Some(due) } else { None };
        self.tasks.iter().filter_map(due).min()
    }

    /// Runs the due tasks: exact tasks before coarse ones.
    fn run(&mut self) {
        loop {
            let due = |(n, task): (usize, &Task)| match task.state {
                State::Armed { due, order } if due <= self.now => {
                    Some((task.rhythm == Rhythm::Once { coarse: true }, order, due, n))
                }
                _ => None,
            };
            let Some((_, _, due, n)) = self.tasks.iter().enumerate().filter_map(due).min() else { return };
            self.run_one(n, due);
        }
    }

    fn run_one(&mut self, n: usize, due: u64) {
        let Task { rhythm, deed, .. } = self.tasks[n];
        self.lines.push(format!("{n} at {}", self.now));
        let once = matches!(rhythm, Rhythm::Once { .. });
        match deed {
            Deed::Nothing | Deed::Close => {}
            Deed::Fail => {
                self.end(n, End::Failed);
                self.lines.push(format!("error {n}"));
            }
            Deed::Stop => {
                self.end(n, End::Cancelled);
                if once {
                    self.lines.push("cancelled".into());
                }
            }
            Deed::Panic => {
                self.end(n, End::Panicked);
                self.lines.push(format!("panic {n}"));
            }
            Deed::Cancel(other) if other == n && once => {}
            Deed::Cancel(other) => self.end(other, End::Cancelled),
        }
        if matches!(deed, Deed::Panic | Deed::Close) {
            if once {
                self.end(n, End::Value);
            }
            self.closed = true;
            return self.end_all(End::Closed);
        }
        match rhythm {
            _ if !self.is_pending(n) => {}
            Rhythm::Once { .. } => self.end(n, End::Value),
            Rhythm::Delay(delay) => self.arm(n, self.now + delay),
            Rhythm::Rate(period, missed) => {
                let mut next = due + period;
                while missed == MissedRuns::Skip && next <= self.now {
                    next += period;
                }
                // The runs that are made up for take turns with other tasks.
                self.arm_at(n, next, next.max(self.now));
            }
        }
    }

    fn advance(&mut self, to: u64) {
        self.receive();
        self.run();
        while let Some(next) = self.next_due().filter(|next| *next <= to) {
            self.now = self.now.max(next);
            self.run();
        }
        self.now = to;
    }
}

/// What a task returns and its handle holds.
type Handles = Arc<Mutex<Vec<Option<Handle>>>>;

enum Handle {
    Task(ScheduledTask),
    Key(TaskKey),
}

/// A handler that logs errors and stays open. Sends the reference to itself.
fn recorder(log: &Log, made: Option<mpsc::Sender<HandlerRef<Recorder>>>) -> Recorder {
    let log = log.clone();
    Recorder::exactly(&Log::new(), move |ctx, event| {
        match (event, &made) {
            (Event::Active(_), Some(made)) => made.send(ctx.handler_ref()).unwrap(),
            (Event::Error(text), _) if text.contains("limit of") => log.push("full"),
            (Event::Error(text), _) if text.contains("cancelled") => log.push("cancelled"),
            (Event::Error(text), _) => log.push(text.trim_start_matches("panicked: ")),
            _ => {}
        }
        Ok(())
    })
}

/// The real channel.
struct Real {
    channel: EmbeddedChannel<Bytes>,
    handler: HandlerRef<Recorder>,
    handles: Handles,
    log: Log,
}

impl Real {
    fn new(limit: usize) -> Self {
        let (sender, handlers) = mpsc::channel();
        let log = Log::new();
        let recorder = recorder(&log, Some(sender));
        let options = ChannelOptions::new().max_scheduled_tasks(limit);
        let pipeline = Pipeline::codec(Line::new()).handler(recorder);
        let channel = EmbeddedChannel::builder(pipeline).channel_options(options).wheel_tick(ms(1));
        let channel = channel.build().unwrap();
        let handler = handlers.recv().unwrap();
        Real { channel, handler, handles: Handles::default(), log }
    }

    /// Returns the closure of the task with the number `n`.
    fn body(
        &self,
        n: usize,
        deed: Deed,
    ) -> impl FnMut(&mut Recorder, &mut Context<'_, Recorder>) -> Result + Send + 'static {
        let (log, handles) = (self.log.clone(), self.handles.clone());
        let start = super::instant(self.channel.clock()) - self.channel.clock().elapsed();
        move |_, ctx| {
            log.push(format!("{n} at {}", (ctx.now() - start).as_millis()));
            match deed {
                Deed::Nothing => {}
                Deed::Fail => return Err(Error::other(format!("error {n}"))),
                Deed::Stop => return Err(Error::Cancelled),
                // Without the panic hook, which would print thousands of backtraces.
                Deed::Panic => std::panic::resume_unwind(Box::new(format!("panic {n}"))),
                Deed::Close => ctx.close(),
                Deed::Cancel(other) => cancel(&handles, other, ctx),
            }
            Ok(())
        }
    }

    /// Schedules a task. Returns whether it was accepted.
    fn schedule(&mut self, n: usize, task: &Task) -> bool {
        let (mut body, delay) = (self.body(n, task.deed), task.delay);
        let when = match task.rhythm {
            Rhythm::Once { coarse: false } => Ok(Delay::exact(ms(delay))),
            Rhythm::Once { coarse: true } => Ok(Delay::coarse(ms(delay))),
            Rhythm::Rate(period, missed) => Err(Periodic::fixed_rate(ms(period)).missed_runs(missed)),
            Rhythm::Delay(period) => Err(Periodic::fixed_delay(ms(period))),
        };
        let when = when.map_err(|periodic| periodic.initial_delay(ms(delay)));
        let handle = if task.by_handle {
            let scheduled = match when {
                Ok(delay) => self.handler.schedule(delay, body),
                Err(periodic) => self.handler.schedule_periodic(periodic, body),
            };
            match scheduled {
                Ok(task) => Some(Handle::Task(task)),
                Err(Error::Full { .. }) => return false,
                Err(other) => panic!("{other}"),
            }
        } else {
            let handles = self.handles.clone();
            let arm = move |_: &mut Recorder, ctx: &mut Context<'_, Recorder>| {
                let key = match when {
                    Ok(delay) => Ok(ctx.schedule(delay, body)),
                    Err(periodic) => ctx.schedule_periodic(periodic, move |me, ctx| body(me, ctx)),
                };
                handles.lock().unwrap()[n] = key.ok().map(Handle::Key);
                Ok(())
            };
            self.handler.execute(arm).unwrap();
            None
        };
        self.handles.lock().unwrap().push(handle);
        true
    }
}

fn cancel(handles: &Handles, n: usize, ctx: &mut Context<'_, Recorder>) {
    match handles.lock().unwrap().get(n) {
        Some(Some(Handle::Task(task))) => _ = task.cancel(),
        Some(Some(Handle::Key(key))) => _ = ctx.cancel(*key),
        _ => {}
    }
}

/// Plays one sequence of operations. The description is printed if a check fails.
fn play(seed: u64, random: &mut Random) {
    let limit = random.between(1, 6);
    let mut model = Model { limit, ..Model::default() };
    let mut real = Real::new(limit);
    let mut story = vec![format!("seed {seed}, limit {limit}")];
    for _ in 0..random.between(5, 40) {
        let step = step(&mut model, &mut real, random);
        story.push(step);
        assert_eq!(real.log.take(), std::mem::take(&mut model.lines), "{story:#?}");
        assert_eq!(real.channel.is_closed(), model.closed, "{story:#?}");
        check_handles(&model, &real, &story);
        if model.closed {
            break;
        }
    }
    if !model.closed {
        // Before the loop has handled its mail.
        real.channel.close();
        model.end_all(End::Closed);
    }
    assert_eq!(real.channel.timers(), 0, "{story:#?}");
    check_results(&model, &real, &story);
}

fn step(model: &mut Model, real: &mut Real, random: &mut Random) -> String {
    let n = model.tasks.len();
    match random.between(0, 99) {
        0..50 => {
            let deed = match random.between(0, 19) {
                0 => Deed::Fail,
                1 => Deed::Stop,
                2 if random.between(0, 3) == 0 => Deed::Panic,
                3 if random.between(0, 3) == 0 => Deed::Close,
                4..8 => Deed::Cancel(random.between(0, n)),
                _ => Deed::Nothing,
            };
            let period = random.between(1, 12) as u64;
            let rhythm = match random.between(0, 6) {
                0 => Rhythm::Delay(period),
                1 => Rhythm::Rate(period, MissedRuns::Skip),
                2 => Rhythm::Rate(period, MissedRuns::CatchUp),
                other => Rhythm::Once { coarse: other == 3 },
            };
            let delay = random.between(1, 30) as u64;
            let by_handle = random.between(0, 2) > 0;
            let first = model.now + delay;
            let task = Task { by_handle, rhythm, deed, delay, first, state: State::Queued };
            let accepted = real.schedule(n, &task);
            assert_eq!(accepted, !by_handle || model.admits(), "{task:?} at {}", model.now);
            let story = format!("{n} at {}, accepted {accepted}: {task:?}", model.now);
            if accepted {
                model.tasks.push(task);
            }
            story
        }
        50..60 => {
            real.channel.run_pending();
            model.receive();
            model.run();
            "run".into()
        }
        60..75 if n > 0 => {
            let which = random.between(0, n - 1);
            // A task of the handler is cancelled on the loop, behind earlier mail.
            if model.tasks[which].by_handle {
                let cancelled = match &real.handles.lock().unwrap()[which] {
                    Some(Handle::Task(task)) => task.cancel(),
                    _ => unreachable!("every task of a handle has one"),
                };
                assert_eq!(cancelled, model.is_pending(which), "cancelling {which}");
            } else {
                let handles = real.handles.clone();
                real.handler.execute(move |_, ctx| Ok(cancel(&handles, which, ctx))).unwrap();
                real.channel.run_pending();
                model.receive();
            }
            model.end(which, End::Cancelled);
            model.run();
            format!("cancel {which}")
        }
        75..90 => {
            let by = random.between(0, 40) as u64;
            real.channel.advance(ms(by));
            model.advance(model.now + by);
            format!("advance {by}")
        }
        90..96 => {
            let by = random.between(0, 60) as u64;
            real.channel.stall(ms(by));
            model.now += by;
            model.receive();
            model.run();
            format!("stall {by}")
        }
        96..98 => {
            let log = real.log.clone();
            let replace = move |_: &mut Recorder, ctx: &mut Context<'_, Recorder>| {
                ctx.replace_pipeline(lines(recorder(&log, None)))
            };
            real.handler.execute(replace).unwrap();
            real.channel.run_pending();
            model.receive();
            model.end_all(End::Replaced);
            "replace".into()
        }
        _ => "nothing".into(),
    }
}

/// Compares the state of the tasks in their handles.
fn check_handles(model: &Model, real: &Real, story: &[String]) {
    for (n, handle) in real.handles.lock().unwrap().iter().enumerate() {
        let Some(Handle::Task(task)) = handle else { continue };
        let (due, pending) = match model.tasks[n].state {
            State::Queued => (Some(model.tasks[n].first), true),
            State::Armed { due, .. } => (Some(due), true),
            State::Ended(_) => (None, false),
        };
        assert_eq!(task.is_done(), !pending, "{n}: {story:#?}");
        let remaining = due.map(|due| ms(due.saturating_sub(model.now)));
        assert_eq!(task.remaining(), remaining, "{n}: {story:#?}");
    }
}

fn check_results(model: &Model, real: &Real, story: &[String]) {
    for (n, handle) in real.handles.lock().unwrap().drain(..).enumerate() {
        let Some(Handle::Task(task)) = handle else { continue };
        let end = match task.completion().wait() {
            Ok(()) => End::Value,
            Err(Error::Cancelled) => End::Cancelled,
            Err(Error::Closed) => End::Closed,
            Err(Error::PipelineReplaced) => End::Replaced,
            Err(Error::Full { .. }) => End::Full,
            Err(Error::Panicked(_)) => End::Panicked,
            Err(error) => {
                assert_eq!(error.to_string(), format!("error {n}"));
                End::Failed
            }
        };
        assert_eq!(State::Ended(end), model.tasks[n].state, "{n}: {story:#?}");
    }
}

#[test]
fn random_schedules_cancels_and_ends_follow_the_model() {
    let cases = Random::cases() / 5;
    for seed in 1..=cases as u64 {
        play(seed, &mut Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    }
}
