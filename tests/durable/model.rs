//! Random operations on a store that fails now and then, compared with a sorted map.

use crate::{
    faults::{Fault, FaultyStore},
    support::{
        loops::{end, settle},
        wait::{done, ms, receive, wait_until},
    },
};
use netwheel::{
    EventLoopGroup,
    durable::{Due, DurableTimers, Late, Retry, StoreError, TimerFilter, TimerId, TimerState, Topic},
    testing::ManualClock,
    time::Clock,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::mpsc::{Receiver, channel},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// What the handler does, which is the payload. Anything else is done at once.
const SKIP: u32 = 1;
const FAIL_ONCE: u32 = 2;
const FAIL: u32 = 3;

/// The pause before the retry of a run that failed once.
const PAUSE: Duration = Duration::from_secs(5);

/// When a timer is late, in milliseconds. The default.
const LATE_AFTER: u128 = 1000;

struct Modelled {
    payload: u32,
    attempts: u32,
    scheduled: u128,
    /// The interval of a periodic timer in milliseconds, and its key.
    periodic: Option<(u128, u32)>,
}

impl Modelled {
    /// Returns the next run after one that begins at `now`, with `RunOnce`.
    fn next(&self, due: u128, now: u128) -> Option<u128> {
        let (period, _) = self.periodic?;
        let is_late = due + LATE_AFTER < now || self.scheduled + period + LATE_AFTER < now;
        let missed = if is_late { (now - self.scheduled) / period } else { 0 };
        Some(self.scheduled + (missed + 1) * period)
    }
}

/// The timers as they should be: pending by due time and id, and the dead ones.
#[derive(Default)]
struct Model {
    pending: BTreeMap<(u128, TimerId), Modelled>,
    dead: BTreeSet<TimerId>,
}

fn millis(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).unwrap().as_nanos().div_ceil(1_000_000)
}

impl Model {
    fn find(&self, id: TimerId) -> Option<(u128, TimerId)> {
        self.pending.keys().find(|key| key.1 == id).copied()
    }

    fn ids(&self) -> Vec<TimerId> {
        self.pending.keys().map(|key| key.1).chain(self.dead.iter().copied()).collect()
    }

    /// Moves a timer or revives a dead one. Returns whether it exists.
    fn move_to(&mut self, id: TimerId, due: u128) -> bool {
        let timer = match self.find(id) {
            Some(key) => self.pending.remove(&key).unwrap(),
            None if self.dead.remove(&id) => {
                Modelled { payload: FAIL, attempts: 0, scheduled: due, periodic: None }
            }
            None => return false,
        };
        self.pending.insert((due, id), Modelled { attempts: 0, scheduled: due, ..timer });
        true
    }

    /// Starts a periodic timer that may exist already. `id` is the answer of the store.
    fn every(&mut self, id: TimerId, now: u128, period: u128, key: u32, payload: u32) {
        let has_key = |timer: &Modelled| timer.periodic.is_some_and(|(_, other)| other == key);
        let found = self.pending.iter().find(|(_, timer)| has_key(timer)).map(|(key, _)| *key);
        let started =
            Modelled { payload, attempts: 0, scheduled: now + period, periodic: Some((period, key)) };
        let Some(place) = found else {
            self.pending.insert((now + period, id), started);
            return;
        };
        assert_eq!(place.1, id, "the same key");
        let old = self.pending.remove(&place).unwrap();
        let (place, timer) = if old.periodic == started.periodic {
            (place, old)
        } else if old.scheduled <= now {
            (place, Modelled { attempts: old.attempts, scheduled: old.scheduled, ..started })
        } else {
            ((now + period, id), started)
        };
        self.pending.insert(place, timer);
    }

    /// Runs the due timers, and returns the ids in their order.
    fn run(&mut self, now: u128) -> Vec<TimerId> {
        let mut ran = Vec::new();
        while let Some(entry) = self.pending.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((due, id), timer) = entry.remove_entry();
            ran.push(id);
            match timer.payload {
                FAIL_ONCE | FAIL if timer.attempts == 0 => {
                    self.pending.insert((now + PAUSE.as_millis(), id), Modelled { attempts: 1, ..timer });
                }
                FAIL => drop(self.dead.insert(id)),
                _ => {
                    if let Some(next) = timer.next(due, now) {
                        self.pending.insert((next, id), Modelled { attempts: 0, scheduled: next, ..timer });
                    }
                }
            }
        }
        ran
    }
}

/// Returns the ids without their repetitions.
fn first_of_each(ids: &[TimerId]) -> Vec<TimerId> {
    let mut seen = BTreeSet::new();
    ids.iter().copied().filter(|id| seen.insert(*id)).collect()
}

struct World {
    group: EventLoopGroup,
    clock: ManualClock,
    timers: DurableTimers,
    runs: Receiver<TimerId>,
    model: Model,
    random: fastrand::Rng,
    failures: u32,
}

impl World {
    fn new(seed: u64, mut faults: impl FnMut(usize) -> Option<Fault> + Send + 'static) -> Self {
        let clock = ManualClock::new();
        let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
        let (sender, runs) = channel();
        let handle = move |due: Due<u32>| {
            sender.send(due.id()).unwrap();
            match (*due.payload(), due.attempt()) {
                (SKIP, _) => due.skip(),
                (FAIL_ONCE, 1) | (FAIL, _) => due.fail("as planned"),
                _ => due.done(),
            }
        };
        let retry = Retry::backoff(1).initial(PAUSE).max_delay(PAUSE);
        let timers = DurableTimers::builder(FaultyStore::new(move |number, _| faults(number)))
            .topic(Topic::new("timers", Late::RunOnce, retry, handle))
            .max_loaded(7)
            .max_commit_delay(Duration::ZERO)
            .start(&group)
            .unwrap();
        let random = fastrand::Rng::with_seed(seed);
        World { group, clock, timers, runs, model: Model::default(), random, failures: 0 }
    }

    fn now(&self) -> u128 {
        self.clock.wall_time().duration_since(UNIX_EPOCH).unwrap().as_millis()
    }

    fn step(&mut self) {
        let ids = self.model.ids();
        let id = if ids.is_empty() { TimerId::new(999) } else { ids[self.random.usize(..ids.len())] };
        match self.random.u32(..12) {
            0..4 => self.start(),
            4..6 => self.start_periodic(),
            6 => {
                let result = done(self.timers.cancel(id));
                if self.succeeds(&result) {
                    let key = self.model.find(id);
                    let was_pending = key.is_some_and(|key| self.model.pending.remove(&key).is_some());
                    let is_known = was_pending || self.model.dead.remove(&id);
                    assert_eq!(result.unwrap(), is_known, "cancel");
                }
            }
            7 => {
                let when = self.clock.wall_time() + ms(self.random.u64(1..200_000));
                let result = done(self.timers.move_to(id, when));
                if self.succeeds(&result) {
                    assert_eq!(result.unwrap(), self.model.move_to(id, millis(when)), "move");
                }
            }
            8 => {
                let result = done(self.timers.run_now(id));
                if self.succeeds(&result) {
                    assert_eq!(result.unwrap(), self.model.move_to(id, self.now()), "run");
                    self.time_passes(ms(0));
                }
            }
            _ => {
                let time = ms(self.random.u64(..40_000));
                self.time_passes(time);
            }
        }
    }

    fn start(&mut self) {
        let payload = self.random.u32(..=FAIL);
        let when = self.clock.wall_time() + ms(self.random.u64(1..200_000));
        let result = done(self.timers.at("timers", when, &payload).start());
        if self.succeeds(&result) {
            let timer = Modelled { payload, attempts: 0, scheduled: millis(when), periodic: None };
            self.model.pending.insert((millis(when), result.unwrap()), timer);
        }
    }

    /// Starts one of three periodic timers, or gives it another interval.
    fn start_periodic(&mut self) {
        let (key, payload) = (self.random.u32(..3), self.random.u32(..FAIL));
        let period = 1000 * self.random.u64(20..23);
        let start = self.timers.every("timers", ms(period), &payload).key(key.to_string());
        let result = done(start.start());
        if self.succeeds(&result) {
            self.model.every(result.unwrap(), self.now(), period.into(), key, payload);
        }
    }

    /// Returns whether an operation succeeded. An injected error has changed nothing.
    fn succeeds<T>(&mut self, result: &netwheel::Result<T>) -> bool {
        if let Err(error) = result {
            assert!(
                error.to_string().contains("injected") || error.to_string().contains("full"),
                "{error:#}"
            );
            self.failures += 1;
        }
        result.is_ok()
    }

    /// Lets time pass, and compares the runs with the model.
    fn time_passes(&mut self, time: Duration) {
        self.clock.advance(time);
        let now = self.now();
        let expected = self.model.run(now);
        let ran: Vec<TimerId> = expected.iter().map(|_| receive(&self.runs)).collect();
        // A second run of a timer is stored with the end of the first one: others may precede it.
        assert_eq!(first_of_each(&ran), first_of_each(&expected), "at {now}");
        let sorted = |mut ids: Vec<TimerId>| {
            ids.sort_unstable();
            ids
        };
        assert_eq!(sorted(ran), sorted(expected), "at {now}");
        self.wait_for_ends();
        assert!(self.runs.try_recv().is_err(), "more ran than the model has due at {now}");
        self.compare();
    }

    /// Waits until all runs have ended.
    fn wait_for_ends(&mut self) {
        wait_until("all runs end", || {
            settle(self.group.next());
            // Queries go through the store's queue, behind the changes.
            let _ = done(self.timers.counts());
            settle(self.group.next());
            self.timers.metrics().running == 0
        });
    }

    /// Compares the store with the model.
    fn compare(&self) {
        let stored = done(self.timers.list(TimerFilter::new().limit(TimerFilter::MAX_LIMIT))).unwrap();
        let pending: BTreeSet<_> = stored
            .iter()
            .filter(|info| info.state == TimerState::Pending)
            .map(|info| (millis(info.due), info.id))
            .collect();
        assert_eq!(pending, self.model.pending.keys().copied().collect());
        let dead: BTreeSet<_> =
            stored.iter().filter(|info| info.state == TimerState::Dead).map(|info| info.id).collect();
        assert_eq!(dead, self.model.dead);
    }
}

#[test]
fn random_operations_agree_with_a_sorted_map() {
    for round in 0..10 {
        let seed = fastrand::u64(..);
        println!("seed {seed}, round {round}");
        let mut world = World::new(seed, |_| None);
        for _ in 0..60 {
            world.step();
        }
        world.time_passes(Duration::from_secs(1000));
        world.time_passes(PAUSE);
        assert_eq!(world.failures, 0);
        done(world.timers.close()).unwrap();
        end(&world.group);
    }
}

#[test]
fn random_operations_agree_although_the_store_fails_now_and_then() {
    let mut failures = 0;
    for round in 0..6 {
        let seed = fastrand::u64(..);
        println!("seed {seed}, round {round}");
        let mut random = fastrand::Rng::with_seed(seed);
        let faults = move |_| match random.u32(..20) {
            0 => Some(Fault::Error(StoreError::Busy("injected".into()))),
            1 => Some(Fault::Error(StoreError::DiskFull)),
            _ => None,
        };
        let mut world = World::new(seed, faults);
        for _ in 0..50 {
            world.step();
        }
        world.time_passes(Duration::from_secs(1000));
        world.time_passes(PAUSE);
        failures += world.failures;
        done(world.timers.close()).unwrap();
        end(&world.group);
    }
    assert!(failures > 0, "no fault was injected");
}
