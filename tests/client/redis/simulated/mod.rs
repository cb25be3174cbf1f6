//! The Redis client in simulated machines: cuts, restarts, and servers that do not accept commands.

mod conditions;
mod faults;
mod links;

use super::servers::redis;
use netwheel::{
    EventLoopGroup, Result,
    redis::{RedisClient, RedisClientBuilder},
    testing::{
        redis::RedisServer,
        simulation::{NodeId, Simulation, sleep},
    },
};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

const URL: &str = "redis://redis";

fn one_loop() -> Result<EventLoopGroup> {
    EventLoopGroup::builder().threads(1).build()
}

/// Adds the node that runs Redis.
fn redis_node(simulation: &mut Simulation, server: &RedisServer) -> NodeId {
    let server = server.clone();
    simulation.node("redis", "10.0.0.1", move || {
        // None of this works while the machine lacks descriptors or watches.
        loop {
            if let Ok(group) = one_loop()
                && let Ok(bound) = server.bind(&group, "10.0.0.1:6379")
                && bound.closed().wait().is_ok()
            {
                return Ok(());
            }
            sleep(SECOND);
        }
    })
}

/// Runs a program of a client against a server, without faults.
fn with_client(server: &RedisServer, program: impl Fn() -> Result + Send + Sync + 'static) {
    let mut simulation = Simulation::new(1);
    redis_node(&mut simulation, server);
    let client = simulation.node("client", "10.0.0.2", program);
    simulation.run_until_ended(client, 100_000 * SECOND).unwrap_or_else(|failure| panic!("{failure}"));
}

fn builder() -> Result<RedisClientBuilder> {
    Ok(RedisClient::builder(&one_loop()?, URL))
}
