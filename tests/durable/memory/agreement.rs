//! Random operations on the store in memory, SQLite and PostgreSQL, which give the same answers.

use super::NOW;
use crate::new_timers::with;
use netwheel::durable::{
    MemoryDisk, SqliteStore, TimerFilter, TimerId, TimerInfo, TimerState, TimerStore,
    store::{Change, DeadLetters, DueKey, LoadRange, NewTimer, Outcome, TimerRow, TopicSet},
};
use std::{collections::BTreeSet, time::Duration};

/// How long the keys of ended timers are remembered. The clock passes it in each round.
const KEY_MEMORY: Duration = Duration::from_millis(400);

const TOPICS: [&str; 3] = ["b", "a", "c"];

/// The state of a round, from which the same operations follow for each store.
struct World {
    random: fastrand::Rng,
    now: i64,
    /// Timers as the last store has loaded them a while ago, with its partition and epoch. The
    /// others have no partitions, and ignore them.
    rows: Vec<TimerRow>,
    ids: Vec<TimerId>,
}

/// Describes the answer to an operation. Equal stores give equal descriptions.
type Answer = String;

/// An operation of all stores.
type Operation = Box<dyn Fn(&mut dyn TimerStore) -> Answer>;

fn describe(outcomes: Vec<Outcome>) -> Answer {
    outcomes.into_iter().map(|outcome| format!("{:?}\n", without_partition(outcome))).collect()
}

fn without_partition(outcome: Outcome) -> Outcome {
    let alone = |row: TimerRow| {
        with(row, |row| {
            row.partition = 0;
            row.epoch = 0;
        })
    };
    match outcome {
        Outcome::Started(row) => Outcome::Started(alone(row)),
        Outcome::AlreadyStarted { id, changed } => {
            Outcome::AlreadyStarted { id, changed: changed.map(alone) }
        }
        Outcome::Done(row) => Outcome::Done(row.map(alone)),
        other => other,
    }
}

impl World {
    fn new(seed: u64) -> Self {
        World { random: fastrand::Rng::with_seed(seed), now: NOW, rows: Vec::new(), ids: Vec::new() }
    }

    fn any_due(&mut self) -> i64 {
        self.now + self.random.i64(-50..50)
    }

    fn timer(&mut self) -> NewTimer {
        let key = self.random.bool().then(|| self.random.u32(..6).to_string());
        let schedule =
            (key.is_some() && self.random.bool()).then(|| format!("every {}", 10 * self.random.u32(1..4)));
        // Now and then one that is not attached.
        let topics = TOPICS.len() + usize::from(self.random.u32(..20) == 0);
        with(
            NewTimer::new(self.random.usize(..topics), self.any_due(), vec![b'7'; self.random.usize(1..40)]),
            |timer| {
                timer.idempotency_key = key;
                timer.schedule = schedule;
                timer.replaces_payload = self.random.u32(..3) == 0;
            },
        )
    }

    fn change(&mut self) -> Change {
        let id = self.random.choice(&self.ids).copied().unwrap_or(TimerId::new(99));
        let Some(held) = self.random.choice(&self.rows).map(TimerRow::held) else {
            return Change::Start(self.timer());
        };
        let next = self.random.bool().then(|| self.any_due());
        let error = format!("error {}", self.random.u32(..100));
        match self.random.u32(..14) {
            0..5 => Change::Start(self.timer()),
            5..7 => Change::End { held, next, effect: None },
            7..9 => Change::Begin { held, is_counted: self.random.bool() },
            9 => Change::Retry { held, due: self.any_due(), error },
            10 => Change::DeadLetter { held, next, error },
            11 => Change::SkipTo { held, next: self.any_due() },
            12 => Change::Cancel(id),
            _ => Change::Move { id, due: self.any_due() },
        }
    }

    /// Returns an operation that is the same for each store. Changes are made from a seed for each
    /// store, because they cannot be cloned.
    fn operation(&mut self, batch: usize) -> Operation {
        let now = self.now;
        match self.random.u32(..12) {
            0 => self.list(),
            1 => self.load(),
            2 => {
                let letters = self.letters();
                Box::new(move |store| store.remove_dead(&letters, now).unwrap().to_string())
            }
            3 => {
                let letters = self.letters();
                let dues: Vec<i64> = (0..self.random.usize(..4)).map(|_| self.any_due()).collect();
                Box::new(move |store| {
                    let retried = store.retry_dead(&letters, &dues).unwrap();
                    describe(retried.into_iter().map(Outcome::Done).collect())
                })
            }
            4 => {
                let (topic, is_paused) = (self.topic(), self.random.bool());
                Box::new(move |store| store.set_paused(&topic, is_paused).unwrap().to_string())
            }
            5 => {
                let after = DueKey::new(self.any_due(), TimerId::new(0));
                let limit = self.random.usize(1..20);
                Box::new(move |store| {
                    let rows = store.far_periodic(after, limit).unwrap();
                    describe(rows.into_iter().map(Outcome::Started).collect())
                })
            }
            _ => {
                let seed = self.random.u64(..);
                let (ids, rows) = (self.ids.clone(), self.rows.clone());
                Box::new(move |store| {
                    let random = fastrand::Rng::with_seed(seed);
                    let mut world = World { random, now, rows: rows.clone(), ids: ids.clone() };
                    let count = world.random.usize(1..=batch);
                    let mut changes: Vec<Change> = (0..count).map(|_| world.change()).collect();
                    describe(store.commit(&mut changes, now).unwrap())
                })
            }
        }
    }

    fn topic(&mut self) -> String {
        let topics = ["a", "b", "c", "unknown"];
        topics[self.random.usize(..topics.len())].to_owned()
    }

    fn letters(&mut self) -> DeadLetters {
        with(DeadLetters::new(self.topic()), |letters| {
            letters.until = self.now - self.random.i64(0..100);
            letters.keep = self.random.u64(..3);
            letters.limit = self.random.usize(..5);
        })
    }

    fn list(&mut self) -> Operation {
        let mut filter = TimerFilter::new().limit(self.random.usize(1..30));
        if self.random.bool() {
            filter = filter.topic(self.topic());
        }
        if self.random.u32(..4) == 0 {
            filter = filter.key(self.random.u32(..6).to_string());
        }
        if self.random.bool() {
            let state = if self.random.bool() { TimerState::Dead } else { TimerState::Pending };
            filter = filter.state(state);
        }
        let by_due = self.random.bool();
        Box::new(move |store| {
            let first = if by_due { filter.clone().by_due() } else { filter.clone() };
            let page = store.list(&first).unwrap();
            // The next page too.
            let next = page.last().map(|last| match by_due {
                true => first.clone().after_due(last),
                false => first.clone().after(last.id),
            });
            let next = next.map(|next| store.list(&next).unwrap());
            format!("{page:#?} {next:#?}")
        })
    }

    fn load(&mut self) -> Operation {
        let range = with(
            LoadRange::new(
                (0..TOPICS.len()).filter(|_| self.random.bool()).collect::<TopicSet>(),
                self.any_due(),
            ),
            |range| {
                range.after =
                    DueKey::new(self.now - self.random.i64(0..60), TimerId::new(self.random.i64(0..30)));
                range.limit = self.random.usize(1..20);
                range.max_bytes = self.random.usize(..300);
            },
        );
        // A store may cut an answer earlier than its limits demand.
        Box::new(move |store| {
            let (mut range, mut rows) = (range, Vec::new());
            loop {
                let loaded = store.load(range).unwrap();
                assert!(loaded.rows.len() <= range.limit);
                range.after = loaded.rows.last().map_or(range.after, |row| row.key);
                rows.extend(loaded.rows.into_iter().map(Outcome::Started));
                if loaded.is_complete {
                    return describe(rows);
                }
            }
        })
    }

    /// Reads everything, and checks that the stores agree. Remembers the result.
    fn compare(&mut self, stores: &mut [Box<dyn TimerStore>], what: &str) {
        let read = |store: &mut Box<dyn TimerStore>| {
            let listed = store.list(&TimerFilter::new().limit(TimerFilter::MAX_LIMIT)).unwrap();
            (listed, store.counts().unwrap(), super::load(&mut **store))
        };
        let alone = |row: &TimerRow| {
            with(row.clone(), |row| {
                row.partition = 0;
                row.epoch = 0;
            })
        };
        let all: Vec<_> = stores.iter_mut().map(read).collect();
        let (listed, counts, rows) = &all[0];
        for (other, other_counts, other_rows) in &all[1..] {
            assert_eq!((other, other_counts), (listed, counts), "{what}");
            let other_rows: Vec<TimerRow> = other_rows.iter().map(alone).collect();
            assert_eq!(other_rows, *rows, "{what}");
        }
        let dead = |info: &&TimerInfo| info.state == TimerState::Dead;
        assert_eq!(
            counts.iter().map(|topic| topic.dead).sum::<u64>(),
            listed.iter().filter(dead).count() as u64
        );
        self.ids = listed.iter().map(|info| info.id).collect();
        // Rows that have changed since are asked for too.
        if self.random.bool() {
            self.rows.clone_from(&all[all.len() - 1].2);
        }
    }
}

/// Plays random operations in batches of changes. Returns the number of timers that were stored.
fn play(mut stores: Vec<Box<dyn TimerStore>>, seed: u64, steps: usize, batch: usize) -> i64 {
    for store in &mut stores {
        store.attach(&TOPICS.map(str::to_owned)).unwrap();
        store.renew(&BTreeSet::new()).unwrap();
    }
    let mut world = World::new(seed);
    for step in 0..steps {
        let what = format!("seed {seed}, step {step}");
        world.now += world.random.i64(0..20);
        let operation = world.operation(batch);
        let answers: Vec<Answer> = stores.iter_mut().map(|store| operation(&mut **store)).collect();
        for other in &answers[1..] {
            assert_eq!(*other, answers[0], "{what}");
        }
        world.compare(&mut stores, &what);
    }
    world.ids.last().map_or(0, |id| id.get())
}

fn memory() -> Box<dyn TimerStore> {
    Box::new(MemoryDisk::new().open().unwrap().remember_keys(KEY_MEMORY))
}

fn sqlite() -> Box<dyn TimerStore> {
    Box::new(SqliteStore::in_memory().unwrap().remember_keys(KEY_MEMORY))
}

#[test]
fn the_store_in_memory_answers_as_sqlite_does() {
    let first = fastrand::u64(..);
    let mut stored = 0;
    for round in 0..10 {
        stored += play(vec![memory(), sqlite()], first.wrapping_add(round), 200, 6);
    }
    assert!(stored > 500, "{stored}");
}

/// One change in each transaction, because PostgreSQL gives other ids to many at once.
#[cfg(feature = "postgres-019")]
#[test]
fn the_store_in_memory_answers_as_postgres_does() {
    let Some(server) = crate::postgres::server::server() else { return };
    let first = fastrand::u64(..);
    for round in 0..3 {
        let builder = server.builder(&format!("agreement_{round}")).remember_keys(KEY_MEMORY);
        let builder = builder.partitions(1).lease(Duration::from_secs(60));
        let postgres = Box::new(builder.open().unwrap());
        play(vec![memory(), postgres], first.wrapping_add(round), 150, 1);
    }
}
