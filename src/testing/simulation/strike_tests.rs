//! Faults that strike nodes and links from outside.

use super::{Simulation, faults::Faults};
use crate::machine::simulated::{Fault, FaultRecord, Mask};
use std::time::Duration;

fn happened(seed: u64, faults: &Faults) -> Vec<FaultRecord> {
    let mut simulation = Simulation::with_faults(seed, faults);
    for (name, address) in [("one", "10.0.0.1"), ("two", "10.0.0.2")] {
        simulation.node(name, address, || Ok(()));
    }
    simulation.run_for(Duration::from_secs(60)).unwrap();
    simulation.shared.lock().faults.happened.clone()
}

/// Otherwise a failure does not shrink to few faults.
#[test]
fn leaving_kills_out_changes_no_other_strike() {
    for seed in 0..10 {
        let mut faults = Faults::none()
            .rate("node-killed", 300_000)
            .rate("node-loses-power", 300_000)
            .rate("link-clogged", 300_000);
        let all = happened(seed, &faults);
        let clogs: Vec<_> = all.into_iter().filter(|record| record.fault == Fault::LinkClogged).collect();
        let only = clogs.iter().map(|record| (record.fault, record.opportunity)).collect();
        faults.plan.only = Some(Mask { faults: only, operations: None });
        assert_eq!(happened(seed, &faults), clogs);
    }
}

#[test]
fn a_strike_takes_the_power_of_a_killed_node_once() {
    for name in ["node-loses-power", "node-killed"] {
        let mut simulation = Simulation::with_faults(1, &Faults::none().rate(name, 1_000_000));
        let node = simulation.node("one", "10.0.0.1", || Ok(()));
        simulation.kill(node);
        simulation.run_for(Duration::from_secs(10)).unwrap();
        let world = simulation.shared.lock();
        let struck: u64 = world.faults.counts().map(|(_, count)| count).sum();
        let loses_power = name == "node-loses-power";
        assert_eq!((world.nodes[0].has_power, struck), (!loses_power, u64::from(loses_power)), "{name}");
        assert_eq!(world.faults.happened.len() as u64, struck);
    }
}

#[test]
fn a_node_that_the_test_ends_stays_down_although_a_fault_has_planned_its_restart() {
    for loses_power in [false, true] {
        let mut simulation = Simulation::with_faults(1, &Faults::none().rate("node-killed", 1_000_000));
        let node = simulation.node("one", "10.0.0.1", || Ok(()));
        let shared = simulation.shared.clone();
        let is_down = move || !shared.lock().nodes[0].is_up;
        simulation.run_until("a strike", Duration::from_secs(10), &is_down).unwrap();
        simulation.set_faults(&Faults::none());
        if loses_power {
            simulation.power_off(node)
        } else {
            simulation.kill(node)
        }
        simulation.run_for(Duration::from_secs(10)).unwrap();
        assert!(is_down());
        simulation.restart(node);
        assert!(!is_down());
    }
}
