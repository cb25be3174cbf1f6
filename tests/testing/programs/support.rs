//! Violations and explorations of all scenarios.

pub(super) use crate::support::draw::Draw;
use netwheel::{
    Completion, EventLoopGroup,
    shutdown::ShutdownOptions,
    testing::simulation::{Exploration, Explored, Failure, Faults, Journal, Simulation, sleep, sometimes},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MS: Duration = Duration::from_millis(1);

/// Violations that the programs of a scenario have found. The first one ends the run.
#[derive(Clone, Default)]
pub(super) struct Violations(Journal<String>);

impl Violations {
    /// Creates an empty list, and adds its check to the simulation.
    pub(super) fn checked_by(simulation: &mut Simulation) -> Self {
        let violations = Violations::default();
        let seen = violations.clone();
        simulation.check("the programs' own checks", move || {
            seen.0.with(|all| all.first().map_or(Ok(()), |first| Err(first.clone())))
        });
        violations
    }

    pub(super) fn add(&self, what: impl Into<String>) {
        self.0.push(what.into());
    }

    /// Records a violation unless `holds`.
    pub(super) fn unless(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.add(what());
        }
    }
}

/// A switch between the time of faults and the time in which everything has to work.
#[derive(Clone, Default)]
pub(super) struct Calm(Arc<AtomicBool>);

impl Calm {
    pub(super) fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_now(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs a server that is deployed again after `time`, which is called for each version. `bind`
/// returns the end of the listener. While all is calm, the server is kept as it is.
pub(super) fn deploy(
    calm: &Calm,
    mut time: impl FnMut() -> Duration,
    mut bind: impl FnMut(&EventLoopGroup) -> netwheel::Result<Completion>,
) {
    loop {
        let group = until_ok(|| EventLoopGroup::builder().threads(2).build());
        match until_ok(|| bind(&group)).wait_timeout(time()) {
            // The loop could not watch its listener.
            Ok(_failed) => {}
            Err(closed) if calm.is_now() => drop(closed.wait()),
            Err(_) => sometimes("server deployed"),
        }
        let options = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(3 * SECOND);
        let _ = group.shutdown(options).wait();
    }
}

/// Repeats `attempt` each second until it succeeds. A node may be out of descriptors.
pub(super) fn until_ok<T>(mut attempt: impl FnMut() -> netwheel::Result<T>) -> T {
    loop {
        match attempt() {
            Ok(result) => return result,
            Err(_) => sleep(SECOND),
        }
    }
}

/// Runs a scenario amid these faults and races, with `seeds` seeds, or with as many as
/// `NETWHEEL_SEEDS` says, as in `.ci/run`. From 20 seeds on, each of `states` has to be reached.
pub(super) fn explore(
    seeds: u64,
    faults: Faults,
    states: &[&str],
    scenario: impl FnMut(&mut Simulation) -> Result<(), Failure>,
) -> Explored {
    let from_environment = std::env::var("NETWHEEL_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let explored =
        Exploration::new(from_environment.unwrap_or(seeds)).faults(faults.with_races()).run(scenario);
    let explored = explored.unwrap_or_else(|failure| panic!("{failure}"));
    let reached: Vec<_> = states.iter().map(|state| (*state, explored.reached(state))).collect();
    eprintln!("{} seeds, {} events, {reached:?}", explored.seeds(), explored.events());
    if explored.seeds() >= 20 {
        let missing: Vec<_> = reached.iter().filter(|state| state.1 == 0).collect();
        assert!(missing.is_empty(), "no seed reached {missing:?}");
    }
    explored
}
