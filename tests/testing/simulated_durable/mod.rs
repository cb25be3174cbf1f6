//! Durable timers on simulated machines: disks, power, clocks and the network fail.

mod hosts;
mod ledger;
mod one_node;
mod oracle;
mod three_nodes;
mod watched;
mod workload;

use netwheel::testing::simulation::{Exploration, Explored, Failure, Simulation};
use std::{cell::RefCell, collections::BTreeMap, time::Duration};

/// How often oracles have seen something, over all seeds.
type Totals = RefCell<BTreeMap<&'static str, u64>>;

/// The number of seeds; `NETWHEEL_SEEDS` overrides it, in `.ci/run` and for long runs by hand.
fn seeds(usual: u64) -> u64 {
    std::env::var("NETWHEEL_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(usual)
}

/// Explores seeds until one loses timers. Does not look for fewer faults with which it loses them,
/// which takes most of the time. Tests of explorations do. Seed 4 loses timers soonest.
fn first_loss(
    exploration: Exploration,
    mut scenario: impl FnMut(&mut Simulation) -> Result<(), Failure>,
) -> Failure {
    let mut has_failed = false;
    let explored = exploration.run_twice(false).run(|simulation| {
        if has_failed {
            return Ok(());
        }
        let result = scenario(simulation);
        has_failed = result.is_err();
        result
    });
    *explored.expect_err("timers are lost")
}

/// Prints a summary. After many seeds, checks that each state was reached.
fn report(explored: Result<Explored, Box<Failure>>, totals: &Totals, states: &[&str]) {
    let explored = explored.unwrap_or_else(|failure| panic!("{failure}"));
    let totals = totals.borrow();
    let times = |state: &str| explored.reached(state) + totals.get(state).copied().unwrap_or(0);
    let reached: Vec<_> = states.iter().map(|state| (*state, times(state))).collect();
    eprintln!(
        "{} seeds, {} events, {:?}, {reached:?}",
        explored.seeds(),
        explored.events(),
        explored.faults().collect::<Vec<_>>()
    );
    if explored.seeds() >= 100 {
        for (state, times) in reached {
            assert!(times > 0, "no seed reached: {state}");
        }
    }
}

#[test]
fn stores_with_files_and_servers_are_refused_in_a_simulation() {
    let mut simulation = Simulation::new(1);
    let node = simulation.node("one", "10.0.0.1", || {
        #[cfg(feature = "durable-sqlite")]
        {
            use netwheel::durable::SqliteStore;

            let path = std::env::temp_dir().join("of-no-simulation");
            for error in [SqliteStore::open(&path).unwrap_err(), SqliteStore::in_memory().unwrap_err()] {
                assert!(error.to_string().contains("SqliteStore does not work in a simulation"), "{error}");
            }
            assert!(!path.exists());
        }
        #[cfg(feature = "durable-postgres")]
        {
            let builder = netwheel::durable::PostgresStore::builder("host=10.0.0.2 user=im");
            let error = format!("{:#}", builder.open().unwrap_err());
            assert!(error.contains("PostgresStore does not work in a simulation"), "{error}");
        }
        Ok(())
    });
    simulation.run_until_ended(node, Duration::from_secs(1)).unwrap();
}
