//! An engine with a store in memory and two clocks, on one thread.

use crate::{
    durable::{
        engine::{
            Engine, Limits, Now, Rules,
            message::{Asked, EngineMessage, EngineStep, RunAnswer, TimerCommand},
            permit::Permit,
            run::Firing,
        },
        id::TimerId,
        metrics::Metrics,
        policy::{Delivery, Late, Retry},
        store::{
            Change, Effect, Lease, LoadRange, Loaded, MemoryDisk, MemoryStore, NewTimer, Outcome, StoreError,
            TimerFilter, TimerInfo, TimerRow, TimerStore,
        },
    },
    sync::{Completion, Permits, completion},
};
use std::{cell::RefCell, rc::Rc, sync::Arc};

/// 2024-03-01 00:00:00 UTC, which is a Friday.
pub(super) const START: i64 = 1_709_251_200_000;
pub(super) const SECOND: i64 = 1000;
pub(super) const MINUTE: i64 = 60 * SECOND;
pub(super) const HOUR: i64 = 60 * MINUTE;
pub(super) const DAY: i64 = 24 * HOUR;

pub(super) const LIMITS: Limits = Limits {
    near: MINUTE,
    late_after: SECOND,
    max_loaded: 1000,
    max_loaded_bytes: 1 << 20,
    max_running: 100,
    max_running_bytes: 1 << 20,
    fires_per_turn: 64,
    has_other_writers: false,
    is_paused: false,
    prunes: false,
};

/// A handler was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fired {
    pub(super) id: TimerId,
    pub(super) topic: usize,
    /// Milliseconds since [`START`].
    pub(super) at: i64,
    /// The scheduled time, since [`START`].
    pub(super) scheduled: i64,
    pub(super) attempt: u32,
    pub(super) missed: u64,
    /// The number of the run.
    pub(super) run: u64,
}

/// What handlers answer.
pub(super) type TopicHandler = Rc<RefCell<dyn FnMut(&Firing) -> Option<RunAnswer>>>;

/// What other connections do.
type Intervention = Box<dyn FnOnce(&mut Simulation)>;

pub(super) struct Simulation {
    pub(super) engine: Engine,
    pub(super) store: MemoryStore,
    pub(super) now: Now,
    pub(super) fired: Vec<Fired>,
    pub(super) metrics: Arc<Metrics>,
    /// The answers of renewals, if the store needs claims. `None`: the store cannot be reached.
    pub(super) leases: Option<Option<Lease>>,
    /// The numbers of renewals and loads.
    pub(super) renewals: u32,
    pub(super) loads: u32,
    pub(super) surveys: u32,
    /// The most bytes that timers took in the window and on their way to it.
    pub(super) most_bytes: usize,
    /// When timers of other connections were looked for, since [`START`].
    pub(super) looks: Vec<i64>,
    pub(super) prunes: u32,
    /// How often the store was notified that it will be closed.
    pub(super) drains: u32,
    /// Timers of other nodes that the engine has not heard of.
    elsewhere: Vec<TimerRow>,
    /// How long the next change takes, in milliseconds.
    pub(super) slow_change: i64,
    /// Happens immediately before the next change.
    pub(super) before_change: Option<Intervention>,
    /// The timer whose handler ends the program, which is then started again.
    pub(super) deadly: Option<TimerId>,
    pub(super) crashes: u32,
    is_dead: bool,
    handler: TopicHandler,
    permits: Arc<Permits>,
    rules: Vec<Rules>,
    limits: Limits,
}

impl Simulation {
    pub(super) fn new(late: Late, retry: Retry) -> Self {
        Self::with(Rules::new(late, retry, Delivery::AtLeastOnce), LIMITS, None)
    }

    pub(super) fn with(rules: Rules, limits: Limits, leases: Option<Option<Lease>>) -> Self {
        Self::with_topics(vec![rules], limits, leases)
    }

    /// Creates a simulation with several topics, named by their indexes.
    pub(super) fn with_topics(rules: Vec<Rules>, limits: Limits, leases: Option<Option<Lease>>) -> Self {
        let mut store = MemoryDisk::new().open().unwrap();
        let names: Vec<String> = (0..rules.len()).map(|topic| topic.to_string()).collect();
        store.attach(&names).unwrap();
        let metrics = Arc::new(Metrics::default());
        Simulation {
            engine: Engine::new(rules.clone(), limits, leases.is_some(), metrics.clone()),
            store,
            now: Now { wall: START, monotonic: 0 },
            fired: Vec::new(),
            metrics,
            leases,
            renewals: 0,
            loads: 0,
            surveys: 0,
            most_bytes: 0,
            looks: Vec::new(),
            prunes: 0,
            drains: 0,
            elsewhere: Vec::new(),
            slow_change: 0,
            before_change: None,
            deadly: None,
            crashes: 0,
            is_dead: false,
            handler: Rc::new(RefCell::new(|_: &Firing| Some(RunAnswer::Done(None)))),
            permits: Arc::new(Permits::new(1000)),
            rules,
            limits,
        }
    }

    pub(super) fn handler(&mut self, handler: impl FnMut(&Firing) -> Option<RunAnswer> + 'static) {
        self.handler = Rc::new(RefCell::new(handler));
    }

    /// Stores a timer that is due `after` milliseconds after [`START`].
    pub(super) fn start(&mut self, after: i64) -> TimerId {
        self.store_timer(after, None, None)
    }

    /// Stores a timer of a topic.
    pub(super) fn start_in(&mut self, topic: usize, after: i64) -> TimerId {
        self.store(NewTimer { topic, ..new_timer(after, None, None) })
    }

    /// Stores a timer with a payload of some bytes.
    pub(super) fn start_with(&mut self, after: i64, payload: usize) -> TimerId {
        self.store(NewTimer { payload: vec![b'1'; payload], ..new_timer(after, None, None) })
    }

    /// Pauses a topic, or lets it go on.
    pub(super) fn pause(&mut self, topic: usize, is_paused: bool) {
        assert!(self.store.set_paused(&topic.to_string(), is_paused).unwrap());
        let counts = self.store.counts().unwrap();
        let paused = counts.iter().filter(|counts| counts.is_paused);
        let topics = paused.map(|counts| counts.topic.parse::<usize>().unwrap()).collect();
        self.tell(EngineMessage::Paused { topics, pausing: None });
    }

    /// Stores a periodic timer.
    pub(super) fn periodic(&mut self, after: i64, schedule: &str) -> TimerId {
        self.store_timer(after, Some(schedule), None)
    }

    /// Stores a periodic timer with a key, or gives it another schedule.
    pub(super) fn keyed(&mut self, after: i64, schedule: &str) -> TimerId {
        self.store_timer(after, Some(schedule), Some("key"))
    }

    fn store_timer(&mut self, after: i64, schedule: Option<&str>, key: Option<&str>) -> TimerId {
        self.store(new_timer(after, schedule, key))
    }

    fn store(&mut self, timer: NewTimer) -> TimerId {
        let (id, row) = match self.commit(Change::Start(timer)) {
            Outcome::Started(row) => (row.key.id, Some(row)),
            Outcome::AlreadyStarted { id, changed } => (id, changed),
            other => panic!("{other:?}"),
        };
        row.into_iter().for_each(|row| self.tell(EngineMessage::Stored(row)));
        id
    }

    /// Lets another node store a timer.
    pub(super) fn start_elsewhere(&mut self, after: i64) -> TimerId {
        let Outcome::Started(row) = self.commit(Change::Start(new_timer(after, None, None))) else {
            panic!("not started")
        };
        let id = row.key.id;
        self.elsewhere.push(row);
        id
    }

    pub(super) fn command(&mut self, id: TimerId, command: TimerCommand) -> Completion<bool> {
        let (completer, done) = completion(None);
        let permit = Permit::take(&self.permits).unwrap();
        self.tell(EngineMessage::Asked(Asked { id, command, completer, permit }));
        done
    }

    /// Answers the last run of a timer.
    pub(super) fn answer(&mut self, id: TimerId, answer: RunAnswer) {
        let last = self.fired.iter().rev().find(|fired| fired.id == id);
        self.answer_run(id, last.map_or(0, |fired| fired.run), answer);
    }

    pub(super) fn answer_run(&mut self, id: TimerId, run: u64, answer: RunAnswer) {
        self.tell(EngineMessage::Answered { id, run, answer });
    }

    pub(super) fn done_with(&mut self, id: TimerId, effect: Effect) {
        self.answer(id, RunAnswer::Done(Some(effect)));
    }

    pub(super) fn tell(&mut self, message: EngineMessage) {
        let mut steps = Vec::new();
        self.engine.handle(message, self.now, &mut steps);
        self.carry_out(steps);
    }

    /// Polls once.
    pub(super) fn poll(&mut self) {
        let mut steps = Vec::new();
        self.engine.poll(self.now, &mut steps);
        self.carry_out(steps);
        if std::mem::take(&mut self.is_dead) {
            self.crashes += 1;
            self.restart();
        }
    }

    /// Polls until nothing is due.
    pub(super) fn settle(&mut self) {
        for _ in 0..10_000 {
            let (fired, loaded) = (self.fired.len(), self.metrics.skipped.read());
            self.poll();
            let is_quiet = self.fired.len() == fired && self.metrics.skipped.read() == loaded;
            if is_quiet && self.sleep() > 0 {
                return;
            }
        }
        panic!("the engine does not come to rest");
    }

    /// Lets both clocks go on, as the engine's sleeps ask for it.
    pub(super) fn run_until(&mut self, after: i64) {
        self.settle();
        while self.now.wall < START + after {
            self.pass(self.sleep().clamp(1, START + after - self.now.wall));
            self.settle();
        }
    }

    /// Returns the milliseconds to the next poll.
    fn sleep(&self) -> i64 {
        self.engine.sleep(self.now).map_or(SECOND, |sleep| i64::try_from(sleep.as_millis()).unwrap())
    }

    /// Lets both clocks go on without a poll.
    pub(super) fn pass(&mut self, millis: i64) {
        self.now.wall += millis;
        self.now.monotonic += u64::try_from(millis).unwrap() * 1_000_000;
    }

    /// Sets the wall clock.
    pub(super) fn jump(&mut self, millis: i64) {
        self.now.wall += millis;
    }

    /// Starts a new engine on the same store, as after a crash.
    pub(super) fn restart(&mut self) {
        let needs_claims = self.leases.is_some();
        self.engine = Engine::new(self.rules.clone(), self.limits, needs_claims, self.metrics.clone());
        self.engine.suspect_store();
    }

    /// Returns the times of the runs since [`START`].
    pub(super) fn times(&self) -> Vec<i64> {
        self.fired.iter().map(|fired| fired.at).collect()
    }

    /// Returns the scheduled times of the runs since [`START`].
    pub(super) fn scheduled(&self) -> Vec<i64> {
        self.fired.iter().map(|fired| fired.scheduled).collect()
    }

    pub(super) fn stored(&mut self) -> Vec<TimerInfo> {
        self.store.list(&TimerFilter::new()).unwrap()
    }

    pub(super) fn commit(&mut self, change: Change) -> Outcome {
        self.store.commit(&mut [change], self.now.wall).unwrap().remove(0)
    }

    fn look(&mut self, until: i64) {
        self.looks.push(self.now.wall - START);
        // Later ones are loaded in time.
        let found = std::mem::take(&mut self.elsewhere).into_iter().filter(|row| row.key.due <= until);
        found.for_each(|row| self.tell(EngineMessage::Stored(row)));
        self.tell(EngineMessage::Looked);
    }

    fn load(&mut self, range: LoadRange) {
        self.loads += 1;
        let loaded = self.store.load(range).unwrap();
        let on_their_way: usize = loaded.rows.iter().map(TimerRow::weight).sum();
        self.most_bytes = self.most_bytes.max(self.engine.window.bytes() + on_their_way);
        self.tell(EngineMessage::Loaded { range, loaded });
    }

    fn carry_out(&mut self, steps: Vec<EngineStep>) {
        for step in steps {
            if self.is_dead {
                return;
            }
            match step {
                EngineStep::Fire(firing) => self.fire(&firing),
                EngineStep::Change { id, change, .. } => {
                    if let Some(happens) = self.before_change.take() {
                        happens(self);
                    }
                    // A claim is always granted here, as far as the store knows.
                    let outcome = self.commit(change);
                    let slow = std::mem::take(&mut self.slow_change);
                    self.pass(slow);
                    self.tell(EngineMessage::Changed { id, outcome });
                }
                EngineStep::Discard(effect) => drop(effect),
                EngineStep::Load(range) => self.load(range),
                EngineStep::Prune => self.prunes += 1,
                EngineStep::Survey { after, limit } => {
                    self.surveys += 1;
                    let rows = self.store.far_periodic(after, limit).unwrap();
                    self.tell(EngineMessage::Surveyed { rows: Some(rows) });
                }
                EngineStep::Drain => self.drains += 1,
                EngineStep::Renew { asked, until, .. } => {
                    self.renewals += 1;
                    let lease = self.leases.clone().expect("only stores with claims are asked");
                    // The store does not report them again: later ones are loaded in time.
                    let changed = std::mem::take(&mut self.elsewhere);
                    let rows = changed.into_iter().filter(|row| row.key.due <= until).collect();
                    let changed = Loaded { rows, is_complete: true };
                    self.tell(EngineMessage::Renewed { asked, lease, changed });
                }
                EngineStep::Look { until } => self.look(until),
                EngineStep::Complete(completer, result) => completer.complete(result),
                EngineStep::FailClose(completers, error) => {
                    completers.into_iter().for_each(|c| c.complete(Err(error.clone())));
                }
                EngineStep::Close(completers) => completers.into_iter().for_each(|c| c.complete(Ok(()))),
            }
        }
    }

    fn fire(&mut self, firing: &Firing) {
        let row = &firing.row;
        // An at-most-once run has ended before, so it fires although the clock was set back.
        let has_ended = self.rules[row.topic].delivery == Delivery::AtMostOnce;
        assert!(has_ended || row.key.due <= self.now.wall, "fired early");
        self.fired.push(Fired {
            id: row.key.id,
            topic: row.topic,
            at: self.now.wall - START,
            scheduled: row.scheduled - START,
            attempt: row.attempt(),
            missed: firing.missed,
            run: firing.run,
        });
        if self.deadly == Some(row.key.id) {
            self.is_dead = true;
            return;
        }
        let handler = self.handler.clone();
        let answer = handler.borrow_mut()(firing);
        if let Some(answer) = answer {
            self.answer(row.key.id, answer);
        }
    }
}

/// Returns a timer that is due `after` milliseconds after [`START`].
pub(super) fn new_timer(after: i64, schedule: Option<&str>, key: Option<&str>) -> NewTimer {
    NewTimer {
        topic: 0,
        due: START + after,
        idempotency_key: key.map(str::to_owned),
        schedule: schedule.map(str::to_owned),
        payload: b"null".to_vec(),
        replaces_payload: false,
    }
}

/// The error of a store that stops.
pub(super) fn failure() -> crate::error::Error {
    StoreError::failed("fsync").into()
}
