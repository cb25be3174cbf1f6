//! WebSocket conversations, with and without compression, also in fragments.
//!
//! Messages arrive in order and whole. A Close frame arrives behind all messages, with its code. If
//! a side reads no Close frame, then its connection has broken, its peer was killed, or its peer
//! has closed without a Close frame.

mod conversation;
mod fragments;
mod player;
mod server;
mod visitors;

use super::support::{Calm, MS, SECOND, Violations, explore};
use conversation::Conversations;
use netwheel::testing::simulation::{Failure, Faults, Network, Simulation};
use std::sync::{Arc, Mutex};

const STATES: &[&str] = &[
    "closed by the client",
    "closed by the server",
    "closed by both",
    "the server goes away",
    "no Close frame",
    "compressed",
    "uncompressed",
    "long message",
    "fragments",
    "pong",
    "peer does not answer",
];

fn conversations(simulation: &mut Simulation) -> Result<(), Failure> {
    simulation.network(Network::new().buffers(5000, 3000));
    let violations = Violations::checked_by(simulation);
    let conversations = Arc::new(Mutex::new(Conversations::new(violations.clone())));
    let calm = Calm::default();
    let (of_server, its_calm) = (conversations.clone(), calm.clone());
    simulation.node("server", "10.0.0.1", move || server::serve(&of_server, &its_calm));
    for n in 2..5 {
        let (conversations, calm) = (conversations.clone(), calm.clone());
        let main = move || visitors::run(&conversations, &calm);
        simulation.node(&format!("client-{n}"), &format!("10.0.0.{n}"), main);
    }
    simulation.run_for(80 * SECOND)?;
    simulation.heal();
    // Pings find the peers that have gone.
    simulation.run_for(90 * SECOND)?;
    calm.begin();
    let seen = conversations.clone();
    let completed = move || seen.lock().unwrap().completed;
    let before = completed();
    simulation.run_until("conversations are complete", 300 * SECOND, move || completed() >= before + 8)?;
    simulation.run_for(MS)
}

#[test]
fn messages_and_close_frames_arrive_amid_all_faults() {
    explore(1, Faults::all(), STATES, conversations);
}
