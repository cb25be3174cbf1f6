//! Topics that span nodes: what every broker has to do, nodes with members on a broker in memory,
//! also with faults, and the stores on Redis and SQLite.

#[path = "../support/mod.rs"]
mod support;

mod conformance;
mod delivery;
mod faults;
mod faulty;
mod maps;
mod members;
mod memory;
mod nodes;
mod prometheus;
mod races;
mod settings;
#[cfg(any(feature = "broker-redis", feature = "broker-sqlite"))]
mod stores;
