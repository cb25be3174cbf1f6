//! Power failures in the life of a program: random starts, commands and runs, and crashes between
//! any two calls of the store. Also as an example of such a test for a program.

use crate::support::{
    loops::{end, settle},
    wait::{done, ms, wait_until},
};
use netwheel::{
    EventLoopGroup,
    durable::{
        Delivery, Due, DurableTimers, Late, MemoryDisk, MemoryTransaction, Retry, TimerFilter, TimerId,
        TimerState, Topic,
    },
    testing::ManualClock,
    time::Clock,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

/// The longest time of a timer, and the longest pause of the program.
const LONGEST: u64 = 60_000;

/// A run, as its handler has seen it.
#[derive(Debug, Clone)]
struct Ran {
    id: TimerId,
    /// The number of the program's life.
    life: usize,
    at: SystemTime,
    scheduled: SystemTime,
}

type Runs = Arc<Mutex<Vec<Ran>>>;

/// The answers that the program received.
#[derive(Default)]
struct Told {
    /// Timers that run at least once.
    started: BTreeSet<TimerId>,
    /// Timers that run at most once.
    started_once: BTreeSet<TimerId>,
    /// Cancelled timers, with the number of runs of all timers before.
    cancelled: BTreeMap<TimerId, usize>,
    /// Timers whose end was stored at a crash, with the number of that life.
    ended: BTreeMap<TimerId, usize>,
}

/// A program that is killed by power failures.
struct World {
    disk: MemoryDisk,
    clock: ManualClock,
    random: fastrand::Rng,
    runs: Runs,
    told: Told,
    life: usize,
    lost: usize,
    program: Option<(EventLoopGroup, DurableTimers)>,
}

/// The name of the row that a handler writes when it ends.
fn row(id: TimerId) -> String {
    format!("ended {id}")
}

impl World {
    fn new(seed: u64, disk: MemoryDisk) -> Self {
        let mut world = World {
            disk,
            clock: ManualClock::new(),
            random: fastrand::Rng::with_seed(seed),
            runs: Runs::default(),
            told: Told::default(),
            life: 0,
            lost: 0,
            program: None,
        };
        world.open();
        world
    }

    /// Begins a life of the program.
    fn open(&mut self) {
        let group = EventLoopGroup::builder().threads(1).clock(self.clock.clone()).build().unwrap();
        let noting = || {
            let (runs, life, clock) = (self.runs.clone(), self.life, self.clock.clone());
            move |due: &Due<u32>| {
                let (id, scheduled) = (due.id(), due.scheduled());
                runs.lock().unwrap().push(Ran { id, life, at: clock.wall_time(), scheduled });
            }
        };
        let (note, note_once) = (noting(), noting());
        let counted = move |due: Due<u32>| {
            note(&due);
            let name = row(due.id());
            if *due.payload() == 0 && due.attempt() == 1 {
                return due.fail("the first attempt fails");
            }
            due.done_with(move |transaction| {
                let rows = transaction.connection::<MemoryTransaction>()?;
                let times = rows.get(&name).map_or(0, |value| value[0]) + 1;
                rows.put(&name, [times]);
                Ok(())
            });
        };
        let once = move |due: Due<u32>| {
            note_once(&due);
            due.done();
        };
        // A crash during a run counts as an attempt.
        let retry = Retry::backoff(1000).initial(ms(500)).max_delay(ms(500));
        let timers = DurableTimers::builder(self.disk.open().unwrap())
            .topic(Topic::new("counted", Late::RunOnce, retry, counted))
            .topic(Topic::new("once", Late::RunOnce, Retry::never(), once).delivery(Delivery::AtMostOnce))
            .max_commit_delay(Duration::ZERO)
            .start(&group)
            .unwrap();
        self.program = Some((group, timers));
    }

    fn timers(&self) -> &DurableTimers {
        &self.program.as_ref().unwrap().1
    }

    fn step(&mut self) {
        let after = ms(self.random.u64(..LONGEST));
        match self.random.u32(..12) {
            0..4 => {
                let payload = self.random.u32(..4);
                let id = done(self.timers().at("counted", after, &payload).start()).unwrap();
                self.told.started.insert(id);
            }
            4 => {
                let id = done(self.timers().at("once", after, &1).start()).unwrap();
                self.told.started_once.insert(id);
            }
            5 => self.cancel(),
            6 => self.start_without_waiting(after),
            _ => {
                let pause = ms(self.random.u64(..LONGEST / 20));
                self.clock.advance(pause);
                if self.random.bool() {
                    self.settle();
                }
            }
        }
    }

    fn cancel(&mut self) {
        let ids: Vec<TimerId> = self.told.started.iter().chain(&self.told.started_once).copied().collect();
        let Some(&id) = self.random.choice(&ids) else { return };
        if done(self.timers().cancel(id)).unwrap() {
            let before = self.runs.lock().unwrap().len();
            self.told.cancelled.insert(id, before);
        }
    }

    /// Starts timers of which the program may never know whether they were stored.
    fn start_without_waiting(&mut self, after: Duration) {
        for _ in 0..self.random.u32(..5) {
            self.timers().at("counted", after, &1).start().detach();
        }
    }

    /// Lets the loop and the store's thread finish their pending work.
    fn settle(&self) {
        let (group, timers) = self.program.as_ref().unwrap();
        settle(group.next());
        let _ = done(timers.counts());
        settle(group.next());
    }

    /// The power fails, at any moment of the store's thread. The program starts again.
    fn crash(&mut self) {
        let (group, timers) = self.program.take().unwrap();
        self.lost += self.disk.crash(self.random.u64(..));
        // What the loop still does has no effect on the disk, and the clock stands still.
        drop(timers);
        end(&group);
        for id in self.disk.rows().keys().filter_map(|name| name.strip_prefix("ended ")) {
            let id = TimerId::new(id.parse().unwrap());
            self.told.ended.entry(id).or_insert(self.life);
        }
        self.life += 1;
        self.open();
    }

    /// Lets everything fire, and closes the timers.
    fn drain(&mut self) {
        wait_until("nothing is pending", || {
            self.clock.advance(ms(LONGEST / 10));
            self.settle();
            let pending = TimerFilter::new().state(TimerState::Pending);
            done(self.timers().list(pending)).unwrap().is_empty()
        });
        let dead = done(self.timers().list(TimerFilter::new().state(TimerState::Dead))).unwrap();
        assert_eq!(dead, []);
        let (group, timers) = self.program.take().unwrap();
        done(timers.close()).unwrap();
        end(&group);
    }

    /// Returns the acknowledged timers that have not ended as they should have.
    fn missing(&self) -> Vec<TimerId> {
        let rows = self.disk.rows();
        let is_missing =
            |id: &&TimerId| !self.told.cancelled.contains_key(id) && !rows.contains_key(&row(**id));
        self.told.started.iter().filter(is_missing).copied().collect()
    }

    fn check(&self) {
        assert_eq!(self.missing(), [], "lost");
        assert!(self.disk.rows().values().all(|times| times == &[1]), "an effect is stored once");
        let runs = self.runs.lock().unwrap();
        for (number, run) in runs.iter().enumerate() {
            assert!(run.scheduled <= run.at, "early: {run:?}");
            let cancelled = self.told.cancelled.get(&run.id);
            assert!(cancelled.is_none_or(|before| number < *before), "ran after it was cancelled: {run:?}");
            let ended = self.told.ended.get(&run.id);
            assert!(ended.is_none_or(|life| run.life <= *life), "ran after its end was stored: {run:?}");
        }
        for id in &self.told.started_once {
            assert!(runs.iter().filter(|run| run.id == *id).count() <= 1, "{id} ran twice");
        }
    }
}

/// Plays a program with power failures, and lets everything fire in the end.
fn play(seed: u64, disk: MemoryDisk) -> World {
    println!("seed {seed}");
    let mut world = World::new(seed, disk);
    for _ in 0..6 {
        for _ in 0..world.random.u32(1..25) {
            world.step();
        }
        world.crash();
    }
    world.drain();
    world
}

#[test]
fn nothing_acknowledged_is_lost_early_or_repeated_after_its_end() {
    let first = fastrand::u64(..);
    let (mut started, mut repeated) = (0, 0);
    for round in 0..30 {
        let world = play(first.wrapping_add(round), MemoryDisk::new());
        assert_eq!(world.lost, 0);
        world.check();
        started += world.told.started.len();
        let runs = world.runs.lock().unwrap();
        let distinct: BTreeSet<TimerId> = runs.iter().map(|run| run.id).collect();
        repeated += runs.len() - distinct.len();
    }
    assert!(started > 300 && repeated > 0, "{started} starts, {repeated} repeated runs");
}

/// The test of a program fails on a disk that does not sync each commit.
#[test]
fn a_disk_that_does_not_sync_is_noticed() {
    let first = fastrand::u64(..);
    let mut is_noticed = false;
    for round in 0..30 {
        let disk = MemoryDisk::new();
        disk.sync_every(20).unwrap();
        let world = play(first.wrapping_add(round), disk);
        is_noticed |= !world.missing().is_empty();
    }
    assert!(is_noticed);
}
