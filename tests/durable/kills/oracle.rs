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
    /// Timers that became dead letters because kills interrupted all their attempts.
    given_up: usize,
    /// How far ahead the clock of an earlier child may have been, in milliseconds.
    pub(super) ahead_before: u64,
    /// What the children have done on purpose: files copied or moved, clocks set.
    pub(super) faults: usize,
}

/// The sums over many stores.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) starts: usize,
    runs: usize,
    repeated: usize,
    left_out: usize,
    given_up: usize,
    cancelled: usize,
}

impl Totals {
    pub(super) const HEAD: &str = "| killed at | kills | starts | runs | repeated, at least once | \
        left out, at most once | dead after kills | cancelled |\n|---|---:|---:|---:|---:|---:|---:|---:|";

    /// Returns a row of a table.
    pub(super) fn row(&self, moment: &str, kills: usize) -> String {
        let Totals { starts, runs, repeated, left_out, given_up, cancelled } = self;
        format!(
            "| {moment} | {kills} | {starts} | {runs} | {repeated} | {left_out} | {given_up} | {cancelled} |"
        )
    }

    pub(super) fn add(&mut self, oracle: &Oracle) {
        self.starts += oracle.timers.values().filter(|timer| timer.is_started).count();
        self.runs +=
            oracle.timers.values().map(|timer| timer.runs.len()).sum::<usize>() + oracle.periodic.len();
        self.repeated += oracle.repeated;
        self.left_out += oracle.left_out;
        self.given_up += oracle.given_up;
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
            ["fault"] => self.faults += 1,
            ["ran", kind, n, given, scheduled, now, attempt] => {
                let attempt = attempt.parse().unwrap();
                // An earlier child may have stored the end or the first attempt.
                let ahead = if kind == "once" || attempt > 1 { self.ahead_before } else { 0 };
                assert!(number(now) + ahead >= number(scheduled), "early: {said}");
                let run = Run { life: self.life, id: id(given), scheduled: number(scheduled), attempt };
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
            // From the second kill on, an attempt is counted before it runs. One more may have
            // failed before the first.
            let counted = if kind == "retry" { run.life - last.life + 1 } else { 0 };
            let allowed = last.attempt..=last.attempt + counted;
            let is_interrupted = run.life > last.life && allowed.contains(&run.attempt);
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
        let given_up = given_up(&connection, what);
        self.given_up += given_up.len();
        let mut expected_dead = 0;
        for ((kind, number), timer) in &self.timers {
            let told = format!("{what}: {kind} {number} {timer:?}");
            let is_cancel_asked = timer.ids.iter().any(|id| self.cancel_asked.contains(id));
            let has_run = !timer.runs.is_empty();
            let is_given_up = timer.ids.iter().any(|id| given_up.contains(id));
            assert!(!is_given_up || kind != "once", "noted, though it runs at most once: {told}");
            if timer.is_started && !is_cancel_asked && kind != "once" && !is_given_up {
                assert!(has_run, "lost: {told}");
            }
            match kind.as_str() {
                "once" if timer.is_started && !is_cancel_asked && !has_run => self.left_out += 1,
                "effect" => {
                    let stored = effects.remove(number).unwrap_or(0);
                    let is_cancelled = timer.ids.iter().any(|id| self.cancelled.contains(id));
                    let wanted = u32::from(has_run && !is_cancelled && !is_given_up);
                    // The answer to a cancel may have been lost.
                    let is_gone = stored == 0 && is_cancel_asked;
                    assert!(stored == wanted || is_gone, "{stored} effects: {told}");
                }
                "retry" if !is_cancel_asked && has_run && !is_given_up => {
                    let attempts = timer.runs.last().map_or(0, |run| run.attempt);
                    assert!((2..=4).contains(&attempts), "not retried: {told}");
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

/// Returns the timers whose attempts kills have interrupted, until none was left.
fn given_up(connection: &Connection, what: &str) -> BTreeSet<i64> {
    let sql = "SELECT timers.id, name, attempts FROM timers JOIN topics ON topics.id = timers.topic
        WHERE state = 1 AND error = 'the program ended during the run'";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?, row.get(2)?)));
    let check = |(id, kind, attempts): (i64, String, u32)| {
        let allowed = if kind == "retry" { 4 } else { 1 };
        assert_eq!(attempts, allowed, "{what}: given up too early: {kind} {id}");
        id
    };
    rows.unwrap().map(|row| check(row.unwrap())).collect()
}
