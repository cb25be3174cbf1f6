//! Reconnecting clients of a server that is deployed, killed and cut off.
//!
//! Attempts are counted as documented, and delays are within their bounds. A client has at most one
//! channel. When it has ended, it has none, and nothing of it happens any more. When all is calm,
//! the server has exactly one connection of each client.

mod client;
mod server;
mod watch;

use super::support::{Calm, SECOND, Violations, explore};
use client::ClientNode;
use netwheel::testing::simulation::{Failure, Faults, Network, Simulation};
use server::Online;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

/// The reconnecting clients of each node, and the nodes that have them.
const CLIENTS: u32 = 3;
const NODES: u32 = 3;

const STATES: &[&str] = &[
    "attempt failed",
    "connection lost",
    "count reset",
    "gave up",
    "closed while connected",
    "closed without a connection",
    "stopped by the hook",
    "group shut down",
    "server deployed",
];

fn reconnecting(simulation: &mut Simulation, is_timed: bool) -> Result<(), Failure> {
    simulation.network(Network::new().buffers(600, 500));
    let violations = Violations::checked_by(simulation);
    let (calm, online) = (Calm::default(), Arc::new(Mutex::new(Online::default())));
    let (of_server, its_calm) = (online.clone(), calm.clone());
    simulation.node("server", "10.0.0.1", move || {
        server::serve(&of_server, &its_calm);
        Ok(())
    });
    let connected = Arc::new(Mutex::new(BTreeMap::new()));
    let waited = Arc::new(Mutex::new(BTreeMap::new()));
    for number in 0..NODES {
        let node = ClientNode {
            number,
            violations: violations.clone(),
            calm: calm.clone(),
            connected: connected.clone(),
            waited: waited.clone(),
        };
        let address = format!("10.0.0.{}", number + 2);
        simulation.node(&format!("clients-{number}"), &address, move || node.run());
    }
    simulation.run_for(150 * SECOND)?;
    simulation.heal();
    calm.begin();
    // Idle timeouts end connections whose peers have gone.
    simulation.run_for(60 * SECOND)?;
    let total = (CLIENTS * NODES) as usize;
    let (of_clients, of_server) = (connected.clone(), online.clone());
    let is_complete = move || {
        let connected = of_clients.lock().unwrap().values().filter(|is| **is).count();
        connected == total && of_server.lock().unwrap().is_one_each(total)
    };
    simulation.run_until("each client is connected once", 120 * SECOND, is_complete.clone())?;
    simulation.run_for(30 * SECOND)?;
    if !is_complete() {
        violations.add("a client has lost its connection although all is calm");
    }
    for (client, time) in &*waited.lock().unwrap() {
        let elapsed = simulation.elapsed();
        if is_timed && *time > elapsed {
            violations.add(format!("client {client:?} has waited {time:?} in {elapsed:?}"));
        }
    }
    simulation.run_for(Duration::from_millis(1))
}

#[test]
fn each_client_is_connected_once_after_all_faults() {
    explore(1, Faults::all(), STATES, |simulation| reconnecting(simulation, false));
}

/// Without faults of clocks, the delays of a client are not longer than the time that has passed.
#[test]
fn delays_before_attempts_are_kept() {
    let faults = Faults::all().rate("clock-jumps", 0).rate("clock-drifts", 0);
    explore(1, faults, STATES, |simulation| reconnecting(simulation, true));
}
