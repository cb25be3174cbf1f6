//! A store that several nodes use: nothing fires without a valid lease.

use super::simulation::{LIMITS, MINUTE, SECOND, Simulation};
use crate::durable::{
    Delivery, Late, Retry,
    engine::{Message, Rules},
    store::Lease,
};
use std::time::Duration;

fn lease() -> Lease {
    Lease { partitions: vec![(0, 0)], valid_for: Duration::from_secs(3), renew_after: Duration::from_secs(1) }
}

fn node(lease: Option<Lease>) -> Simulation {
    let rules = Rules { late: Late::RunOnce, retry: Retry::never(), delivery: Delivery::AtLeastOnce };
    Simulation::with(rules, LIMITS, Some(lease))
}

/// P-25.
#[test]
fn nothing_fires_before_the_first_lease() {
    let mut simulation = node(None);
    simulation.start(SECOND);
    simulation.run_until(10 * SECOND);
    assert_eq!(simulation.fired, []);
    simulation.leases = Some(Some(lease()));
    simulation.run_until(11 * SECOND);
    assert_eq!(simulation.fired.len(), 1);
}

/// P-25.
#[test]
fn a_lease_that_is_not_renewed_ends() {
    let mut simulation = node(Some(lease()));
    simulation.start(SECOND);
    simulation.start(MINUTE);
    simulation.run_until(2 * SECOND);
    simulation.leases = Some(None);
    simulation.run_until(2 * MINUTE);
    assert_eq!(simulation.scheduled(), [SECOND]);
}

/// P-25.
#[test]
fn a_node_that_was_stopped_for_longer_than_its_lease_does_not_fire() {
    let mut simulation = node(Some(lease()));
    simulation.start(5 * SECOND);
    simulation.run_until(SECOND);
    // Both clocks go on while the process is stopped, and the store cannot be asked at once.
    simulation.leases = Some(None);
    simulation.pass(9 * SECOND);
    simulation.poll();
    assert_eq!(simulation.fired, []);
}

#[test]
fn other_partitions_are_loaded_anew() {
    let mut simulation = node(Some(lease()));
    simulation.start(30 * SECOND);
    simulation.run_until(2 * SECOND);
    assert_eq!(simulation.metrics.loaded.read(), 1);
    let other = Lease { partitions: vec![(0, 0), (1, 1)], ..lease() };
    let asked = simulation.now.monotonic;
    simulation.leases = Some(Some(other.clone()));
    simulation.tell(Message::Renewed { asked, lease: Some(other), changed: Vec::new() });
    simulation.run_until(MINUTE);
    assert_eq!(simulation.times(), [30 * SECOND]);
}

#[test]
fn timers_of_other_nodes_are_left_to_them() {
    let other = Lease { partitions: vec![(0, 7)], ..lease() };
    let mut simulation = node(Some(other));
    simulation.run_until(SECOND);
    simulation.start(2 * SECOND);
    simulation.run_until(3 * SECOND);
    assert_eq!((simulation.metrics.loaded.read(), simulation.times()), (0, Vec::new()));
}

/// The same node owns the timer after the renewal, so the window is not loaded anew.
#[test]
fn a_claim_that_outlives_the_lease_is_repeated() {
    let mut simulation = node(Some(lease()));
    simulation.start(5 * SECOND);
    simulation.run_until(5 * SECOND - 1);
    simulation.slow_change = 4 * SECOND;
    simulation.run_until(10 * SECOND);
    assert_eq!(simulation.times(), [9 * SECOND]);
}
