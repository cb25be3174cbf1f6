//! The chat server on a simulated machine, with bots over TCP and WebSocket.
//!
//! The server is the example as it stands, without its signals and its output. Its timers are on a
//! `MemoryDisk` instead of an SQLite file, and its messages in a store that does not fail. Messages
//! of a sender to a room arrive in order, at most once, and without gaps at each member that stays.
//! A direct message that was reported as delivered has arrived, and each one is reported once to a
//! session. When all is calm, the members of the room are the bots.
//!
//! Kept messages and reminders arrive if the server has confirmed them. They arrive only at their
//! user. A reminder does not arrive after the server has confirmed that it is forgotten. Reminders
//! that were acknowledged in calm do not arrive again after the server was killed.

mod arrivals;
mod bot;
mod ledger;
mod node;
mod reminders;
mod server;
#[path = "../../testing/programs/support.rs"]
#[allow(dead_code, reason = "other scenarios use the rest")]
mod support;

use ledger::Ledger;
use netwheel::testing::simulation::{Failure, Faults, Network, Simulation};
use server::Machine;
use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};
use support::{Calm, SECOND, Violations, explore};

/// The bots, each on a node of its own. Every second one uses WebSocket.
const BOTS: u32 = 4;

const STATES: &[&str] = &[
    "message over TCP",
    "message over WebSocket",
    "delivered",
    "undelivered",
    "sent again",
    "name is taken",
    "goodbye",
    "reached its age",
    "left the room",
    "looked up",
    "server deployed",
    "reminder set",
    "reminder fired",
    "reminder forgotten",
    "kept message delivered",
    "timers were not started",
    "reminder refused",
];

fn chat(simulation: &mut Simulation) -> Result<(), Failure> {
    simulation.network(Network::new().buffers(2000, 1500));
    let violations = Violations::checked_by(simulation);
    let ledger = Arc::new(Mutex::new(Ledger::new(violations.clone())));
    let calm = Calm::default();
    let machine = Machine::default();
    let (its_machine, its_calm) = (machine.clone(), calm.clone());
    let server = simulation.node("server", "10.0.0.1", move || server::serve(&its_machine, &its_calm));
    let mut nodes = Vec::new();
    for number in 0..BOTS {
        let (ledger, calm) = (ledger.clone(), calm.clone());
        let main = move || node::run(number, &ledger, &calm);
        nodes.push(simulation.node(&format!("node-{number}"), &format!("10.0.0.{}", number + 2), main));
    }
    simulation.run_for(90 * SECOND)?;
    simulation.heal();
    calm.begin();
    // A store that has failed and connections that are dead are noticed.
    simulation.run_for(12 * SECOND)?;
    run_until_settled(simulation, &ledger, BOTS, 200 * SECOND)?;
    ledger.lock().unwrap().begin_counting();
    simulation.run_for(40 * SECOND)?;
    let now = machine.unix_ms.load(Ordering::Relaxed);
    ledger.lock().unwrap().check_calm(BOTS);
    ledger.lock().unwrap().reminders.check(now);
    let begun = ledger.lock().unwrap().reminders.len();
    // The reminders that were begun arrive and are acknowledged.
    simulation.run_for(8 * SECOND)?;
    ledger.lock().unwrap().reminders.end_calm(begun);
    simulation.kill(server);
    simulation.run_for(5 * SECOND)?;
    simulation.restart(server);
    run_until_settled(simulation, &ledger, BOTS, 60 * SECOND)?;
    simulation.run_for(5 * SECOND)?;
    // The idle timeout of the server ends the session of the last bot.
    simulation.power_off(nodes[BOTS as usize - 1]);
    run_until_settled(simulation, &ledger, BOTS - 1, 60 * SECOND)
}

/// Runs until the first `bots` bots see each other, and no other one.
fn run_until_settled(
    simulation: &mut Simulation,
    ledger: &Arc<Mutex<Ledger>>,
    bots: u32,
    limit: Duration,
) -> Result<(), Failure> {
    let ledger = ledger.clone();
    let is_settled = move || ledger.lock().unwrap().is_settled(bots);
    simulation.run_until(&format!("{bots} bots see each other"), limit, is_settled)
}

#[test]
fn chats_stay_in_order_amid_all_faults() {
    // A seed takes seconds. `.ci/run` runs more.
    explore(1, Faults::all().with_races(), STATES, chat);
}
