//! Three nodes that share a database on a fourth one.

use super::{
    Totals, first_loss,
    oracle::Oracle,
    report, seeds,
    workload::{MS, SECOND, Scene, program},
};
use netwheel::{
    EventLoopGroup, Result,
    durable::{Delivery, Due, DurableTimers, Late, MemoryDatabase, Retry, Topic},
    testing::simulation::{Exploration, Failure, Faults, Journal, Network, Simulation, sleep},
};
use std::{
    cell::RefCell,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// Adds the node of the database, whose clock decides, and returns the database. Its leases are
/// longer or shorter than a node may stall.
fn database(simulation: &mut Simulation) -> MemoryDatabase {
    let node = simulation.node("db", "10.0.0.9", || Ok(()));
    simulation.steady_clock(node);
    let lease = SECOND * [1, 2, 6][(simulation.seed() % 3) as usize];
    MemoryDatabase::new().partitions(8).host("db").lease(lease)
}

/// Lets three nodes work amid faults, and checks that nothing is lost.
fn three_nodes(simulation: &mut Simulation, may_be_early: bool, totals: &Totals) -> Result<(), Failure> {
    let database = database(simulation);
    if simulation.seed().is_multiple_of(2) {
        // A claim is on its way for so long that a node may stall and lose its lease before it
        // arrives.
        simulation.network(Network::wide());
    }
    three_nodes_on(&database, simulation, may_be_early, totals)
}

fn three_nodes_on(
    database: &MemoryDatabase,
    simulation: &mut Simulation,
    may_be_early: bool,
    totals: &Totals,
) -> Result<(), Failure> {
    let clock = database.clone();
    let scene = Scene::new(Arc::new(move || clock.wall_time()));
    for n in 1..=3 {
        let (scene, database) = (scene.clone(), database.clone());
        simulation.node(&format!("node-{n}"), &format!("10.0.0.{n}"), move || {
            program(&scene, n, || database.open().ok())
        });
    }
    let oracle = Rc::new(RefCell::new(Oracle::of_nodes(may_be_early)));
    let (checked, events) = (oracle.clone(), scene.events.clone());
    simulation.check("timers", move || events.with(|events| checked.borrow_mut().look(events)));
    simulation.run_for(40 * SECOND)?;
    simulation.heal();
    simulation.run_for(15 * SECOND)?;
    scene.is_calm.store(true, Ordering::Relaxed);
    simulation.run_until("nothing is left", 120 * SECOND, || !scene.left.is_empty())?;
    let (mut oracle, rows) = (oracle.borrow_mut(), database.disk().rows());
    let checked = scene.left.with(|left| oracle.check_end(&left[0].0, &rows, left[0].1));
    for (what, times) in &oracle.counts {
        *totals.borrow_mut().entry(what).or_default() += times;
    }
    checked.map_err(|message| simulation.fail(message))
}

const STATES: [&str; 6] = [
    "nothing is left",
    "the timers were closed",
    "the timers were not started",
    "a start failed",
    "a run was repeated",
    "an at-most-once run was left out",
];

/// The clocks of the nodes drift, and their times of day step. The clock of the database decides.
#[test]
fn three_nodes_lose_nothing_and_are_never_early() {
    let totals = Totals::default();
    let explored = Exploration::new(seeds(1))
        .faults(Faults::all().rate("clock-jumps", 0).with_races())
        .run(|simulation| three_nodes(simulation, false, &totals));
    report(explored, &totals, &STATES);
}

/// A node whose monotonic clock has jumped takes that for the time that has passed at the
/// database, until it renews its lease.
#[test]
fn three_nodes_whose_clocks_jump_lose_nothing() {
    let totals = Totals::default();
    let faults = Faults::none()
        .rate("clock-jumps", 50_000)
        .rate("node-killed", 10_000)
        .rate("node-stalls", 30_000)
        .rate("link-cut", 30_000);
    let explored =
        Exploration::new(seeds(1)).faults(faults).run(|simulation| three_nodes(simulation, true, &totals));
    report(explored, &totals, &STATES[..2]);
}

/// A database that says too early that something is stored, and whose machine loses its power.
#[test]
fn a_database_that_loses_what_it_has_committed_is_found() {
    let faults = Faults::none().rate("node-loses-power", 50_000);
    let seeds = Exploration::new(20).first_seed(4).faults(faults);
    let failure = first_loss(seeds, |simulation| {
        let database = database(simulation);
        database.disk().sync_every(30).expect("within its limits");
        three_nodes_on(&database, simulation, false, &Totals::default())
    });
    assert!(failure.faults().count() > 0, "{failure}");
}

/// Timers of a node that is closed fire on the others at once, and not after the lease.
#[test]
fn a_node_that_closes_hands_its_timers_over_at_once() {
    let lease = 60 * SECOND;
    let explored = Exploration::new(5).run(|simulation| {
        let database = database(simulation).lease(lease);
        let late: Journal<Duration> = Journal::new();
        let mut closing = None;
        for n in 1..=3 {
            let (database, late) = (database.clone(), late.clone());
            let node = simulation.node(&format!("node-{n}"), &format!("10.0.0.{n}"), move || {
                let group = EventLoopGroup::builder().threads(1).build()?;
                let late = late.clone();
                let topic = Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<u32>| {
                    late.push(due.lateness());
                    due.done();
                });
                let store = database.open()?;
                let timers = DurableTimers::builder(store).topic(topic).start(&group)?;
                sleep(10 * SECOND);
                if n > 1 {
                    sleep(lease);
                    return timers.close().wait();
                }
                for number in 0..32u32 {
                    timers.at("topic", 5 * SECOND, &number).start().wait()?;
                }
                timers.close().wait()
            });
            closing.get_or_insert(node);
        }
        let closing = closing.expect("there are nodes");
        simulation.run_until_ended(closing, 15 * SECOND)?;
        simulation.run_for(20 * SECOND)?;
        let (count, latest) = late.with(|late| (late.len(), late.iter().max().copied()));
        if count != 32 || latest.is_none_or(|latest| latest > 500 * MS) {
            return Err(simulation.fail(format!("{count} of 32 timers, {latest:?} late")));
        }
        Ok(())
    });
    explored.unwrap_or_else(|failure| panic!("{failure}"));
}

/// When the handler of an at-most-once run is called, the store has ended the run, and has the next
/// one of a periodic timer. The node keeps the partition until the handler has answered.
#[test]
fn an_open_run_does_not_overlap_with_the_next_one_on_another_node() {
    let explored = Exploration::new(5).run(|simulation| {
        let database = database(simulation).lease(60 * SECOND);
        let calls: Journal<&'static str> = Journal::new();
        for n in 1..=2 {
            let (database, calls) = (database.clone(), calls.clone());
            simulation.node(&format!("node-{n}"), &format!("10.0.0.{n}"), move || {
                let group = EventLoopGroup::builder().threads(1).build()?;
                let calls = calls.clone();
                let topic = Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<u32>| {
                    calls.push("begins");
                    let calls = calls.clone();
                    let event_loop = due.event_loop();
                    let end = move || {
                        calls.push("ends");
                        due.done();
                    };
                    // Refused after the end of the node only.
                    let _ = event_loop.schedule(5 * SECOND, end);
                });
                let builder = DurableTimers::builder(database.open()?);
                let timers = builder.topic(topic.delivery(Delivery::AtMostOnce)).start(&group)?;
                sleep(10 * SECOND);
                if n == 1 {
                    timers.every("topic", SECOND, &0_u32).start().wait()?;
                    sleep(2 * SECOND);
                    return timers.close().wait();
                }
                sleep(60 * SECOND);
                timers.close().wait()
            });
        }
        simulation.run_for(60 * SECOND)?;
        let calls = calls.with(<[_]>::to_vec);
        if calls.len() < 10 || calls.chunks_exact(2).any(|run| run != ["begins", "ends"]) {
            return Err(simulation.fail(format!("{calls:?}")));
        }
        Ok(())
    });
    explored.unwrap_or_else(|failure| panic!("{failure}"));
}
