//! The stores on Redis and SQLite.

#[cfg(all(unix, feature = "broker-redis"))]
mod checks;
mod conform;
#[cfg(all(unix, feature = "broker-redis"))]
mod cuts;
#[cfg(all(unix, feature = "broker-redis"))]
mod lost_grants;
#[cfg_attr(
    not(all(unix, feature = "broker-redis")),
    allow(dead_code, reason = "tests with a Redis server use all of it")
)]
mod node;
#[cfg(all(feature = "broker-redis", feature = "simulation"))]
mod one_name;
#[cfg(all(unix, feature = "broker-redis"))]
mod owners;
#[cfg(all(unix, feature = "broker-redis"))]
mod redis_process;
#[cfg(all(unix, feature = "broker-redis"))]
mod rewind;
#[cfg(all(feature = "broker-redis", feature = "simulation"))]
mod simulated;
#[cfg(all(feature = "broker-redis", feature = "simulation"))]
mod simulated_maps;
#[cfg(all(feature = "broker-redis", feature = "simulation"))]
mod simulated_rooms;
#[cfg(feature = "broker-sqlite")]
mod sqlite;
