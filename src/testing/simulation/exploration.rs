//! Many seeds of one simulation.

use super::{Counters, Failure, Faults, Simulation};
use crate::machine::simulated::{Fault, Record};
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
};

/// How many events of a run are compared with those of its repetition.
const COMPARED: usize = 1 << 16;

/// The most runs for finding a smaller set of faults.
const SHRINKING_RUNS: u32 = 150;

/// Runs a simulation with many seeds, each with its own faults.
///
/// For each seed, a subset of the faults is drawn, with rates of their own. Each seed runs twice;
/// the first event that differs is reported as a failure, because the program is not reproducible
/// then. A seed that fails is run again with fewer and fewer faults, and the smallest set that
/// still fails is reported.
///
/// `NETWHEEL_SIMULATION` overrides the seeds: `seed` runs one, `seed:count` runs `count` from it.
///
/// ```
/// use netwheel::testing::simulation::{Exploration, Faults, Journal};
/// use std::time::Duration;
///
/// let explored = Exploration::new(3).faults(Faults::without_kills()).run(|simulation| {
///     let woken = Journal::new();
///     let seen = woken.clone();
///     let node = simulation.node("one", "10.0.0.1", move || {
///         netwheel::testing::simulation::sleep(Duration::from_secs(5));
///         woken.push(());
///         Ok(())
///     });
///     simulation.run_until_ended(node, Duration::from_secs(60))?;
///     assert_eq!(seen.len(), 1);
///     Ok(())
/// });
/// assert_eq!(explored.expect("no seed fails").seeds(), 3);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Exploration {
    seeds: u64,
    first: Option<u64>,
    faults: Faults,
    draws_subsets: bool,
    runs_twice: bool,
}

/// What an exploration has seen.
#[derive(Debug, Clone, Default)]
pub struct Explored {
    seeds: u64,
    events: u64,
    faults: BTreeMap<&'static str, u64>,
    pairs: BTreeSet<(&'static str, &'static str)>,
    reached: Counters,
    hashes: BTreeSet<u64>,
}

impl Exploration {
    /// Creates an exploration of this many seeds, without faults, from a random first seed.
    pub fn new(seeds: u64) -> Self {
        Exploration { seeds, first: None, faults: Faults::none(), draws_subsets: true, runs_twice: true }
    }

    /// Sets the first seed. By default it is random, so each run explores new ones.
    pub fn first_seed(mut self, seed: u64) -> Self {
        self.first = Some(seed);
        self
    }

    /// Sets the faults of which each seed draws a subset.
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Uses all faults for each seed, at their rates.
    pub fn all_faults_together(mut self) -> Self {
        self.draws_subsets = false;
        self
    }

    /// Sets whether each seed runs a second time, to find what is not reproducible. The default is
    /// `true`.
    pub fn run_twice(mut self, runs_twice: bool) -> Self {
        self.runs_twice = runs_twice;
        self
    }

    /// Runs `scenario` with each seed.
    ///
    /// # Errors
    /// The failure of the first seed that fails, with the smallest set of faults that was found.
    pub fn run(
        self,
        mut scenario: impl FnMut(&mut Simulation) -> Result<(), Failure>,
    ) -> Result<Explored, Box<Failure>> {
        let (first, seeds) = self.chosen_seeds();
        let mut explored = Explored::default();
        for seed in (0..seeds).map(|n| first.wrapping_add(n)) {
            let faults = if self.draws_subsets { self.faults.subset(seed) } else { self.faults.clone() };
            let (result, run) = play(seed, &faults, &mut scenario);
            if let Err(failure) = result {
                return Err(Box::new(shrink(failure, &faults, &mut scenario)));
            }
            explored.add(&run);
            if self.runs_twice {
                let (_, again) = play(seed, &faults, &mut scenario);
                if let Some(message) = difference(&run, &again) {
                    return Err(Box::new(Failure { message, ..Failure::of(seed) }));
                }
            }
        }
        Ok(explored)
    }

    fn chosen_seeds(&self) -> (u64, u64) {
        if let Ok(chosen) = std::env::var("NETWHEEL_SIMULATION") {
            let (seed, count) = chosen.split_once(':').unwrap_or((&chosen, "1"));
            if let (Ok(seed), Ok(count)) = (seed.parse(), count.parse()) {
                return (seed, count);
            }
        }
        let random = || RandomState::new().hash_one("seed") >> 20;
        (self.first.unwrap_or_else(random), self.seeds)
    }
}

/// A run of one seed.
struct Run {
    hash: u64,
    events: u64,
    records: Vec<Record>,
    faults: Vec<Fault>,
    reached: Counters,
}

fn play(
    seed: u64,
    faults: &Faults,
    scenario: &mut impl FnMut(&mut Simulation) -> Result<(), Failure>,
) -> (Result<(), Failure>, Run) {
    let mut simulation = Simulation::with_faults(seed, faults);
    simulation.keep_trace(COMPARED);
    let result = scenario(&mut simulation).map_err(|failure| Failure { seed, ..failure });
    let mut world = simulation.shared.lock();
    let run = Run {
        hash: world.trace.hash(),
        events: world.events,
        records: world.trace.kept.take().unwrap_or_default(),
        faults: world.faults.happened.iter().map(|record| record.fault).collect(),
        reached: std::mem::take(&mut world.sometimes),
    };
    drop(world);
    (result, run)
}

/// Describes the first event in which two runs of one seed differ.
fn difference(first: &Run, second: &Run) -> Option<String> {
    if first.hash == second.hash {
        return None;
    }
    let at = first.records.iter().zip(&second.records).position(|(a, b)| a != b);
    let Some(at) = at else {
        let counts = (first.records.len(), second.records.len());
        return Some(format!("two runs of the seed differ after {} and {} events", counts.0, counts.1));
    };
    let before = at.checked_sub(1).map(|at| first.records[at].to_string()).unwrap_or_default();
    let (a, b) = (&first.records[at], &second.records[at]);
    Some(format!(
        "two runs of the seed differ at event {at}: `{a}` and `{b}`, after `{before}`; see \"What a program \
         must not use\" in the documentation of `netwheel::testing::simulation`"
    ))
}

/// Finds a small set of faults with which the seed still fails. Halves of the set are left out
/// first, then smaller parts (delta debugging, Zeller 1999).
fn shrink(
    mut failure: Failure,
    faults: &Faults,
    scenario: &mut impl FnMut(&mut Simulation) -> Result<(), Failure>,
) -> Failure {
    let mut kept: Vec<(Fault, u64)> = failure.happened.iter().map(|f| (f.fault, f.opportunity)).collect();
    let mut disabled = BTreeSet::new();
    let (mut parts, mut runs) = (2, 0);
    while kept.len() > 1 && parts <= kept.len() && runs < SHRINKING_RUNS {
        let size = kept.len().div_ceil(parts);
        let mut has_shrunk = false;
        for chunk in kept.chunks(size).map(<[_]>::to_vec).collect::<Vec<_>>() {
            let mut without: BTreeSet<_> = disabled.clone();
            without.extend(chunk.iter().copied());
            let mut fewer = faults.clone();
            fewer.plan.disabled = without.clone();
            runs += 1;
            if let (Err(smaller), _) = play(failure.seed, &fewer, scenario) {
                kept = smaller.happened.iter().map(|f| (f.fault, f.opportunity)).collect();
                (disabled, failure, has_shrunk) = (without, smaller, true);
                break;
            }
            if runs >= SHRINKING_RUNS {
                break;
            }
        }
        parts = if has_shrunk { 2.max(parts - 1) } else { parts * 2 };
    }
    failure
}

impl Explored {
    fn add(&mut self, run: &Run) {
        self.seeds += 1;
        self.events += run.events;
        self.hashes.insert(run.hash);
        let names: BTreeSet<&'static str> = run.faults.iter().map(|fault| fault.name()).collect();
        for fault in &run.faults {
            *self.faults.entry(fault.name()).or_default() += 1;
        }
        for a in &names {
            self.pairs.extend(names.iter().take_while(|b| *b < a).map(|b| (*b, *a)));
        }
        for (what, count) in &run.reached {
            *self.reached.entry(what).or_default() += count;
        }
    }

    /// Returns the number of seeds that were run.
    pub fn seeds(&self) -> u64 {
        self.seeds
    }

    /// Returns the number of events of all runs, repetitions not counted.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the number of different traces.
    pub fn different_runs(&self) -> usize {
        self.hashes.len()
    }

    /// Returns how often each fault has happened.
    pub fn faults(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.faults.iter().map(|(name, count)| (*name, *count))
    }

    /// Returns the pairs of faults that happened in one run.
    pub fn pairs(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        self.pairs.iter().copied()
    }

    /// Returns how often the programs have reached a state
    /// ([`sometimes`](super::sometimes)).
    pub fn reached(&self, what: &str) -> u64 {
        self.reached.get(what).copied().unwrap_or(0)
    }
}
