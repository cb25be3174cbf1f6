//! A store on the disk of its node.

use super::{
    Totals, first_loss,
    oracle::Oracle,
    report, seeds,
    workload::{SECOND, Scene, program},
};
use netwheel::{
    durable::MemoryDisk,
    testing::simulation::{Exploration, Failure, Faults, Simulation},
    time::default_clock,
};
use std::{
    cell::RefCell,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
};

/// Lets a node work amid faults, and checks that nothing is lost.
fn one_node(simulation: &mut Simulation, disk: &MemoryDisk, totals: &Totals) -> Result<(), Failure> {
    let scene = Scene::new(Arc::new(|| default_clock().wall_time()));
    let (programs, opened) = (scene.clone(), disk.clone());
    simulation.node("timers", "10.0.0.1", move || program(&programs, 0, || opened.open().ok()));
    let oracle = Rc::new(RefCell::new(Oracle::default()));
    let (checked, events) = (oracle.clone(), scene.events.clone());
    simulation.check("timers", move || events.with(|events| checked.borrow_mut().look(events)));
    simulation.run_for(60 * SECOND)?;
    simulation.heal();
    simulation.run_for(30 * SECOND)?;
    scene.is_calm.store(true, Ordering::Relaxed);
    simulation.run_until("nothing is left", 120 * SECOND, || !scene.left.is_empty())?;
    let (mut oracle, rows) = (oracle.borrow_mut(), disk.rows());
    let checked = scene.left.with(|left| oracle.check_end(&left[0].0, &rows, left[0].1));
    for (what, times) in &oracle.counts {
        *totals.borrow_mut().entry(what).or_default() += times;
    }
    checked.map_err(|message| simulation.fail(message))
}

#[test]
fn a_node_with_a_disk_loses_nothing() {
    let totals = Totals::default();
    let explored = Exploration::new(seeds(2))
        .faults(Faults::all().with_races())
        .run(|simulation| one_node(simulation, &MemoryDisk::new(), &totals));
    let states = [
        "nothing is left",
        "the timers were closed",
        "the store had failed",
        "the timers were not started",
        "a start failed",
        "a run was repeated",
        "a timer was given up",
        "an at-most-once run was left out",
    ];
    report(explored, &totals, &states);
}

/// A disk that says too early that something is stored.
#[test]
fn a_disk_that_loses_what_it_has_synced_is_found() {
    let faults = Faults::none().rate("node-loses-power", 50_000);
    let seeds = Exploration::new(20).first_seed(4).faults(faults);
    let failure = first_loss(seeds, |simulation| {
        let disk = MemoryDisk::new();
        disk.sync_every(10).expect("within its limits");
        one_node(simulation, &disk, &Totals::default())
    });
    assert!(failure.faults().count() > 0, "{failure}");
}
