//! A gateway: TLS in front, and a relay to a plain backend.
//!
//! The bytes that arrive in each direction are a prefix of the written bytes. The end of a stream
//! arrives only behind all of its bytes, so a cut or a reset never looks like an end.
//!
//! rustls draws its own random numbers. The key is Ed25519, whose signatures have one length, and
//! the version is TLS 1.3. So the runs of a seed have records of the same lengths.

mod backend;
mod client;
mod gateway;
mod transfer;

#[cfg(feature = "websocket")]
pub(crate) use gateway::{HOST, roots, server_tls};

use super::support::{Calm, MS, SECOND, Violations, explore};
use netwheel::testing::simulation::{Failure, Faults, Network, Simulation};
use std::sync::{Arc, Mutex};
use transfer::Transfers;

const STATES: &[&str] = &[
    "complete in both directions",
    "backend breaks off",
    "client breaks off",
    "reset is passed on",
    "cut is passed on",
    "handshake failed",
    "gateway or backend has died",
];

fn relays(simulation: &mut Simulation) -> Result<(), Failure> {
    // The cryptographic library draws its own random numbers.
    simulation.compare_contents(false);
    simulation.network(Network::new().buffers(6000, 4000));
    let violations = Violations::checked_by(simulation);
    let transfers = Arc::new(Mutex::new(Transfers::new(violations)));
    let calm = Calm::default();
    let (of_backend, its_calm) = (transfers.clone(), calm.clone());
    simulation.node("backend", "10.0.0.1", move || {
        backend::serve(&of_backend, &its_calm);
        Ok(())
    });
    let (of_gateway, its_calm) = (transfers.clone(), calm.clone());
    simulation.node("gateway", "10.0.0.2", move || gateway::serve(&of_gateway, &its_calm));
    for n in 3..6 {
        let (transfers, calm) = (transfers.clone(), calm.clone());
        let main = move || client::run(&transfers, &calm);
        simulation.node(&format!("client-{n}"), &format!("10.0.0.{n}"), main);
    }
    simulation.run_for(60 * SECOND)?;
    simulation.heal();
    // Idle timeouts end connections whose peers have gone.
    simulation.run_for(60 * SECOND)?;
    calm.begin();
    simulation.run_for(SECOND)?;
    let completed = move || transfers.lock().unwrap().completed;
    let before = completed();
    simulation.run_until("transfers are complete", 300 * SECOND, move || completed() >= before + 6)?;
    simulation.run_for(MS)
}

#[test]
fn streams_and_their_ends_pass_a_gateway_amid_all_faults() {
    explore(1, Faults::all(), STATES, relays);
}
