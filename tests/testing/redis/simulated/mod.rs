//! The simulated Redis in simulated machines.

mod conditions;
mod durability;
mod program_client;
mod restarts;

use super::scripts;
use netwheel::{
    EventLoopGroup, Result,
    testing::{
        redis::{RedisDisk, RedisServer},
        simulation::{Journal, NodeId, Simulation, sleep},
    },
};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

const ADDRESS: &str = "10.0.0.1:6379";

/// Returns a server that knows the scripts.
fn server() -> RedisServer {
    scripts::register(RedisServer::new(RedisDisk::new()))
}

fn one_loop() -> Result<EventLoopGroup> {
    EventLoopGroup::builder().threads(1).build()
}

/// Adds the node that runs Redis. Each start of its program is recorded.
fn redis_node(simulation: &mut Simulation, server: &RedisServer, starts: &Journal<()>) -> NodeId {
    let (server, starts) = (server.clone(), starts.clone());
    simulation.node("redis", "10.0.0.1", move || {
        starts.push(());
        let group = one_loop()?;
        // Binding may fail while the machine has no descriptors.
        loop {
            match server.bind(&group, ADDRESS) {
                Ok(bound) => return bound.closed().wait(),
                Err(_) => sleep(SECOND),
            }
        }
    })
}

/// Runs a program of a client against a server, without faults. Returns the simulation.
fn with_client(server: &RedisServer, program: impl Fn() -> Result + Send + Sync + 'static) -> Simulation {
    let mut simulation = Simulation::new(1);
    redis_node(&mut simulation, server, &Journal::new());
    let client = simulation.node("client", "10.0.0.2", program);
    simulation.run_until_ended(client, 100_000 * SECOND).unwrap_or_else(|failure| panic!("{failure}"));
    simulation
}
