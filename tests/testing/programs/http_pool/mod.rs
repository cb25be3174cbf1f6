//! HTTP calls through pools: to a server of this crate, and to a server that misbehaves.
//!
//! Each call ends in time, with its own response or an error. A request that is not safe arrives at
//! most once. A request whose call was reported as not sent never arrives. A server never receives
//! a request while it answers another one on the same connection.

mod client;
mod honest;
mod leaving;
mod ledger;
mod rogue;

use super::support::{Calm, MS, SECOND, Violations, explore};
use client::Client;
use ledger::Ledger;
use netwheel::testing::simulation::{Failure, Faults, Network, Simulation};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// The channels of each pool.
const POOL_SIZE: usize = 3;

const STATES: &[&str] = &[
    "own response",
    "repeated",
    "not sent",
    "timed out",
    "refused response",
    "given up",
    "beginning of a response",
    "server deployed",
];

/// Returns the body of the response to a request. Its first 16 bytes tell all requests apart.
fn body_for(id: u64) -> String {
    let mut body = format!("response{id:08}");
    for n in 0..id * 37 % 1500 {
        body.push(char::from(b'a' + ((id + n) % 26) as u8));
    }
    body
}

fn calls(simulation: &mut Simulation, slack: Duration) -> Result<(), Failure> {
    simulation.network(Network::new().buffers(1200, 900));
    let violations = Violations::checked_by(simulation);
    let ledger = Arc::new(Mutex::new(Ledger::new(violations.clone())));
    let (servers_calm, clients_calm) = (Calm::default(), Calm::default());
    let (seen, calm) = (ledger.clone(), servers_calm.clone());
    simulation.node("rogue", "10.0.0.1", move || {
        rogue::serve(&seen, &calm);
        Ok(())
    });
    let (seen, calm) = (ledger.clone(), servers_calm.clone());
    simulation.node("honest", "10.0.0.2", move || {
        honest::serve(&seen, &calm);
        Ok(())
    });
    let mut clients = Vec::new();
    for n in 3..5 {
        let client = Client {
            ledger: ledger.clone(),
            violations: violations.clone(),
            healed: servers_calm.clone(),
            calm: clients_calm.clone(),
            slack,
        };
        let main = move || client.run();
        clients.push(simulation.node(&format!("client-{n}"), &format!("10.0.0.{n}"), main));
    }
    simulation.run_for(90 * SECOND)?;
    simulation.heal();
    servers_calm.begin();
    // Connections that have broken silently are closed, and calls that have begun end.
    simulation.run_for(80 * SECOND)?;
    clients_calm.begin();
    let calm_rounds = ledger.clone();
    let rounds = move || calm_rounds.lock().map_or(0, |ledger| ledger.calm_rounds);
    simulation.run_until("calls succeed when all is calm", 300 * SECOND, move || rounds() >= 8)?;
    for client in clients {
        let sockets = simulation.open_sockets(client);
        // A connection that closes counts until its end has arrived.
        if sockets > 4 * POOL_SIZE {
            violations.add(format!("a client with two pools of {POOL_SIZE} has {sockets} sockets"));
        }
    }
    simulation.run_for(MS)
}

#[test]
fn calls_get_their_own_responses_amid_all_faults() {
    explore(1, Faults::all(), STATES, |simulation| calls(simulation, 10 * SECOND));
}

/// Without faults of the client's machine, calls end within a tick of their limit.
#[test]
fn calls_end_at_their_limit() {
    let faults = Faults::all();
    let faults =
        ["slow-turn", "node-stalls", "clock-jumps", "poll-fails", "poll-spins", "out-of-descriptors"]
            .into_iter()
            .fold(faults, |faults, name| faults.rate(name, 0));
    explore(1, faults, STATES, |simulation| calls(simulation, 300 * MS));
}
