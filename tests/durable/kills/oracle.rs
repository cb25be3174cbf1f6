//! What must be true of everything that the children said.

use super::child::PERIODIC;
use netwheel::durable::rusqlite::Connection;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// A run of a timer.
#[derive(Debug, Clone, Copy)]
struct Run {
    life: u32,
    id: i64,
    scheduled: u64,
    attempt: u32,
}

#[derive(Debug, Default)]
struct Timer {
    ids: BTreeSet<i64>,
    is_started: bool,
    runs: Vec<Run>,
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    life: u32,
    /// By kind and number.
    timers: BTreeMap<(String, u64), Timer>,
    by_id: BTreeMap<i64, (String, u64)>,
    cancel_asked: BTreeSet<i64>,
    cancelled: BTreeSet<i64>,
    ended: BTreeSet<i64>,
    periodic: Vec<Run>,
    /// Runs that began again in a later life, because a kill interrupted them.
    repeated: usize,
    /// At-most-once timers that ended, and that a kill has kept from running.
    left_out: usize,
}

/// The sums over many stores.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) starts: usize,
    runs: usize,
    repeated: usize,
    left_out: usize,
    cancelled: usize,
}

impl Totals {
    pub(super) const HEAD: &str = "| killed at | kills | starts | runs | repeated, at least once | \
        left out, at most once | cancelled |\n|---|---:|---:|---:|---:|---:|---:|";

    /// Returns a row of a table.
    pub(super) fn row(&self, moment: &str, kills: usize) -> String {
        let Totals { starts, runs, repeated, left_out, cancelled } = self;
        format!("| {moment} | {kills} | {starts} | {runs} | {repeated} | {left_out} | {cancelled} |")
    }

    pub(super) fn add(&mut self, oracle: &Oracle) {
        self.starts += oracle.timers.values().filter(|timer| timer.is_started).count();
        self.runs +=
            oracle.timers.values().map(|timer| timer.runs.len()).sum::<usize>() + oracle.periodic.len();
        self.repeated += oracle.repeated;
        self.left_out += oracle.left_out;
        self.cancelled += oracle.cancelled.len();
    }
}

impl Oracle {
    /// A child was started.
    pub(super) fn life_begins(&mut self) {
        self.life += 1;
    }

    /// A child said something.
    pub(super) fn hears(&mut self, said: &str) {
        let words: Vec<&str> = said.split(' ').collect();
        let number = |word: &str| word.parse::<u64>().unwrap();
        let id = |word: &str| word.parse::<i64>().unwrap();
        match words[..] {
            ["start", kind, n] => drop(self.timer(kind, number(n))),
            ["started", kind, n, given] => {
                let timer = self.timer(kind, number(n));
                timer.is_started = true;
                timer.ids.insert(id(given));
                self.by_id.insert(id(given), (kind.to_owned(), number(n)));
            }
            ["cancel", given] => drop(self.cancel_asked.insert(id(given))),
            ["cancelled", given] => drop(self.cancelled.insert(id(given))),
            ["ended", given] => drop(self.ended.insert(id(given))),
            ["ran", kind, n, given, scheduled, now, attempt] => {
                assert!(number(now) >= number(scheduled), "early: {said}");
                let run = Run {
                    life: self.life,
                    id: id(given),
                    scheduled: number(scheduled),
                    attempt: attempt.parse().unwrap(),
                };
                self.ran(kind, number(n), run, said);
            }
            _ => panic!("{said:?}"),
        }
    }

    fn timer(&mut self, kind: &str, number: u64) -> &mut Timer {
        self.timers.entry((kind.to_owned(), number)).or_default()
    }

    fn ran(&mut self, kind: &str, number: u64, run: Run, said: &str) {
        assert!(!self.cancelled.contains(&run.id), "ran after it was cancelled: {said}");
        assert!(!self.ended.contains(&run.id), "ran after its end was stored: {said}");
        if kind == PERIODIC {
            if let Some(last) = self.periodic.last() {
                let is_repeated = run.scheduled == last.scheduled && run.life > last.life;
                assert!(run.scheduled > last.scheduled || is_repeated, "{said} after {last:?}");
                self.repeated += usize::from(is_repeated);
            }
            return self.periodic.push(run);
        }
        let timer = self.timer(kind, number);
        timer.ids.insert(run.id);
        assert_eq!(timer.ids.len(), 1, "a key has one timer: {said}");
        if let Some(last) = timer.runs.last().copied() {
            let is_interrupted = run.life > last.life && run.attempt == last.attempt;
            let is_retry = kind == "retry" && last.attempt == 1 && run.attempt == 2;
            assert!(kind != "once", "an at-most-once timer ran twice: {said}");
            assert!(is_interrupted || is_retry, "ran twice without a kill: {said} after {last:?}");
            timer.runs.push(run);
            self.repeated += usize::from(is_interrupted);
        } else {
            timer.runs.push(run);
        }
    }

    /// Checks that nothing is missing. The last child has ended by itself, and the store is closed.
    pub(super) fn check(&mut self, store: &Path, what: &str) {
        let connection = Connection::open(store).unwrap();
        let damage: String =
            connection.pragma_query_value(None, "integrity_check", |row| row.get(0)).unwrap();
        assert_eq!(damage, "ok", "{what}");
        let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(count("SELECT count(*) FROM timers WHERE state = 0"), 0, "{what}: pending");
        assert_eq!(count("SELECT sum(pending) FROM topics"), 0, "{what}: the count of pending timers");
        let dead = count("SELECT count(*) FROM timers WHERE state = 1");
        assert_eq!(count("SELECT sum(dead) FROM topics"), dead, "{what}: the count of dead letters");

        let mut effects: BTreeMap<u64, u32> = BTreeMap::new();
        let has_effects = count("SELECT count(*) FROM sqlite_schema WHERE name = 'effects'") > 0;
        if has_effects {
            let mut statement = connection.prepare("SELECT number FROM effects").unwrap();
            for number in statement.query_map([], |row| row.get::<_, i64>(0)).unwrap() {
                *effects.entry(number.unwrap() as u64).or_default() += 1;
            }
        }
        let mut expected_dead = 0;
        for ((kind, number), timer) in &self.timers {
            let told = format!("{what}: {kind} {number} {timer:?}");
            let is_cancel_asked = timer.ids.iter().any(|id| self.cancel_asked.contains(id));
            let has_run = !timer.runs.is_empty();
            if timer.is_started && !is_cancel_asked && kind != "once" {
                assert!(has_run, "lost: {told}");
            }
            match kind.as_str() {
                "once" if timer.is_started && !is_cancel_asked && !has_run => self.left_out += 1,
                "effect" => {
                    let stored = effects.remove(number).unwrap_or(0);
                    let wanted =
                        u32::from(has_run && !timer.ids.iter().any(|id| self.cancelled.contains(id)));
                    // The answer to a cancel may have been lost.
                    let is_gone = stored == 0 && is_cancel_asked;
                    assert!(stored == wanted || is_gone, "{stored} effects: {told}");
                }
                "retry" if !is_cancel_asked && has_run => {
                    assert_eq!(timer.runs.last().map(|run| run.attempt), Some(2), "not retried: {told}");
                }
                "dead" => {
                    let is_dead = has_run && !timer.ids.iter().any(|id| self.cancel_asked.contains(id));
                    expected_dead += i64::from(is_dead);
                }
                _ => {}
            }
        }
        assert_eq!(effects, BTreeMap::new(), "{what}: effects of timers that did not run");
        assert!(dead >= expected_dead, "{what}: {dead} of {expected_dead} dead letters");
    }
}
