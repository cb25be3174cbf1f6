//! Many seeds of one simulation.

use super::{
    Simulation,
    difference::difference,
    explored::Explored,
    failure::Failure,
    faults::Faults,
    replay::{Chosen, Replay},
    run::{Played, SeedRun},
    shrinking::shrink,
};
use crate::error::caught;
use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// The environment variable with the path of the file to which traces are written.
const TRACE: &str = "NETWHEEL_SIMULATION_TRACE";

/// How many events of a run are compared with those of its repetition.
const COMPARED: usize = 1 << 16;

/// Runs a simulation with many seeds, each with its own faults.
///
/// For each seed, a subset of the faults is drawn, with rates of their own. Each seed runs twice;
/// the first event that differs is reported as a failure, because the program is not reproducible
/// then. A seed that fails is run again with fewer and fewer faults and
/// [operations](super::chance), and the smallest set that still fails is reported.
///
/// Environment variables override the settings:
///
/// | variable | value | effect |
/// |---|---|---|
/// | `NETWHEEL_SEEDS` | a number | runs this many seeds, unless the test sets the first seed |
/// | `NETWHEEL_SIMULATION` | `seed` | runs one seed |
/// | | `seed:count` | runs `count` seeds from this one |
/// | | `seed:faults`, from a report | repeats one run with exactly these faults and operations |
/// | `NETWHEEL_SIMULATION_TRACE` | a path | writes the events of the last run, or of the failed one, to this file as JSON lines |
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
    replay: Option<Replay>,
    faults: Faults,
    draws_subsets: bool,
    runs_twice: bool,
}

impl Exploration {
    /// Creates an exploration of this many seeds, without faults, from a random first seed.
    pub fn new(seeds: u64) -> Self {
        Exploration {
            seeds,
            first: None,
            replay: None,
            faults: Faults::none(),
            draws_subsets: true,
            runs_twice: true,
        }
    }

    /// Repeats one run, given by the text that a [`Failure`] prints for `NETWHEEL_SIMULATION`:
    /// `seed:faults`. For a test of a fault that was found and corrected.
    ///
    /// # Panics
    /// If `run` is not such a text.
    pub fn replay(mut self, run: &str) -> Self {
        match run.parse() {
            Ok(Chosen::Run(replay)) => self.replay = Some(replay),
            Ok(Chosen::Seeds { .. }) => panic!("{run:?} has no list of faults"),
            Err(why) => panic!("{why}"),
        }
        self
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

    /// Sets whether each seed runs a second time, to detect runs that are not reproducible. The
    /// default is `true`.
    pub fn run_twice(mut self, runs_twice: bool) -> Self {
        self.runs_twice = runs_twice;
        self
    }

    /// Runs `scenario` with each seed. A panic of the scenario is a failure of the seed.
    ///
    /// # Errors
    /// [`Failure`] of the first seed that fails, with the smallest set of faults that was found.
    ///
    /// # Panics
    /// If an environment variable has a value without a meaning.
    pub fn run(
        self,
        mut scenario: impl FnMut(&mut Simulation) -> Result<(), Failure>,
    ) -> Result<Explored, Box<Failure>> {
        let trace = std::env::var_os(TRACE);
        let mut play = |seed: u64, faults: &Faults| {
            let mut simulation = Simulation::with_faults(seed, faults);
            if let Some(path) = &trace
                && let Err(e) = simulation.write_trace_to(path.as_ref())
            {
                log::warn!("{TRACE}: {}: {e}", path.display());
            }
            play(simulation, &mut scenario)
        };
        let (first, seeds) = match self.chosen() {
            Chosen::Seeds { first, count } => (first, count),
            Chosen::Run(replay) => {
                return self.explore(replay.seed, &replay.faults(), &mut play).map(|run| {
                    let mut explored = Explored::default();
                    explored.add(&run);
                    explored
                });
            }
        };
        let mut explored = Explored::default();
        for seed in (0..seeds).map(|n| first.wrapping_add(n)) {
            let faults = if self.draws_subsets { self.faults.subset(seed) } else { self.faults.clone() };
            explored.add(&self.explore(seed, &faults, &mut play)?);
        }
        Ok(explored)
    }

    /// Runs one seed, also a second time.
    fn explore(
        &self,
        seed: u64,
        faults: &Faults,
        play: &mut impl FnMut(u64, &Faults) -> Played,
    ) -> Result<SeedRun, Box<Failure>> {
        let (result, run) = play(seed, faults);
        if let Err(failure) = result {
            let failure = shrink(failure, &run, &mut |replay| play(replay.seed, &replay.faults()));
            // The trace that is written is that of the last run.
            if let Some(smallest) = failure.replay.as_ref().filter(|_| std::env::var_os(TRACE).is_some()) {
                let _ = play(seed, &smallest.faults());
            }
            return Err(Box::new(Failure { is_explored: true, ..failure }));
        }
        if self.runs_twice {
            let (_, again) = play(seed, faults);
            if let Some(message) = difference(&run, &again) {
                // The seed alone does not repeat the faults of a replay.
                let replay = faults.plan.only.clone().map(|mask| Box::new(Replay { seed, mask }));
                return Err(Box::new(Failure { message, replay, is_explored: true, ..Failure::of(seed) }));
            }
        }
        Ok(run)
    }

    fn chosen(&self) -> Chosen {
        if let Ok(chosen) = std::env::var("NETWHEEL_SIMULATION") {
            return chosen.parse().unwrap_or_else(|why| panic!("NETWHEEL_SIMULATION: {why}"));
        }
        if let Some(replay) = &self.replay {
            return Chosen::Run(replay.clone());
        }
        if let Some(first) = self.first {
            return Chosen::Seeds { first, count: self.seeds };
        }
        let count = std::env::var("NETWHEEL_SEEDS").map_or(self.seeds, |seeds| {
            seeds.parse().unwrap_or_else(|e| panic!("NETWHEEL_SEEDS is {seeds:?}: {e}"))
        });
        Chosen::Seeds { first: RandomState::new().hash_one("seed") >> 20, count }
    }
}

fn play(
    mut simulation: Simulation,
    scenario: &mut impl FnMut(&mut Simulation) -> Result<(), Failure>,
) -> Played {
    simulation.keep_trace(COMPARED);
    let mut result = Ok(());
    if let Some(message) = caught(|| result = scenario(&mut simulation)) {
        result = Err(simulation.fail(format!("the scenario has panicked: {message}")));
    }
    if std::mem::take(&mut simulation.is_unreported) && result.is_ok() {
        result = simulation.check_failure();
    }
    let mut result = result.map_err(|failure| match failure.replay {
        Some(_) => failure,
        // The scenario has made the failure itself, or a thread is stuck.
        None => simulation.fail(failure.message),
    });
    let mut world = simulation.shared.lock();
    let mut run = SeedRun {
        hash: world.trace.hash(),
        events: world.events,
        elapsed: Duration::from_nanos(world.now()),
        records: world.trace.kept.take().unwrap_or_default(),
        faults: world.faults.counts().collect(),
        operations: world.operations.happened(),
        reached: std::mem::take(&mut world.sometimes),
        states: std::mem::take(&mut world.states),
        message: result.as_ref().err().map(|failure| failure.message.clone()),
    };
    drop(world);
    if let Err(message) = simulation.end()
        && result.is_ok()
    {
        run.message = Some(message.clone());
        result = Err(simulation.fail(message));
    }
    (result, run)
}
