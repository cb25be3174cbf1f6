//! The chat server on a simulated machine, with bots over TCP and WebSocket.
//!
//! The server is the example as it stands, without its signals, its output and its durable timers.
//! Messages of a sender to a room arrive in order, at most once, and without gaps at each member
//! that stays. A direct message that was reported as delivered has arrived, and each one is
//! reported once. When all is calm, the members of the room are the bots.

mod bot;
mod ledger;
mod node;
mod server;
#[path = "../../testing/programs/support.rs"]
#[allow(dead_code, reason = "other scenarios use the rest")]
mod support;

use ledger::Ledger;
use netwheel::testing::simulation::{Failure, Faults, Network, Simulation};
use std::sync::{Arc, Mutex};
use support::{Calm, MS, SECOND, Violations, explore};

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
    "left the room",
    "looked up",
    "server deployed",
];

fn chat(simulation: &mut Simulation) -> Result<(), Failure> {
    simulation.network(Network::new().buffers(2000, 1500));
    let violations = Violations::checked_by(simulation);
    let ledger = Arc::new(Mutex::new(Ledger::new(violations.clone())));
    let calm = Calm::default();
    let its_calm = calm.clone();
    simulation.node("server", "10.0.0.1", move || server::serve(&its_calm));
    let mut nodes = Vec::new();
    for number in 0..BOTS {
        let (ledger, calm) = (ledger.clone(), calm.clone());
        let main = move || node::run(number, &ledger, &calm);
        nodes.push(simulation.node(&format!("node-{number}"), &format!("10.0.0.{}", number + 2), main));
    }
    simulation.run_for(90 * SECOND)?;
    simulation.heal();
    calm.begin();
    let seen = ledger.clone();
    let is_settled = move || seen.lock().unwrap().is_settled(BOTS);
    simulation.run_until("all bots see each other", 200 * SECOND, is_settled)?;
    ledger.lock().unwrap().begin_counting();
    simulation.run_for(40 * SECOND)?;
    ledger.lock().unwrap().check_calm(BOTS);
    simulation.run_for(MS)?;
    // The idle timeout of the server ends the session of the last bot.
    simulation.power_off(nodes[BOTS as usize - 1]);
    let is_settled = move || ledger.lock().unwrap().is_settled(BOTS - 1);
    simulation.run_until("the others see that a bot has gone", 60 * SECOND, is_settled)
}

#[test]
fn chats_stay_in_order_amid_all_faults() {
    explore(3, Faults::all(), STATES, chat);
}
