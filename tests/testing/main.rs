//! The test kit that the crate provides: embedded channels, embedded loops and virtual time.

#[path = "../support/mod.rs"]
mod support;

mod embedded;
mod embedded_loop;
#[cfg(all(feature = "simulation", feature = "websocket"))]
mod max_age;
#[cfg(feature = "simulation")]
mod programs;
#[cfg(all(unix, feature = "simulation"))]
mod redis;
#[cfg(all(feature = "simulation", feature = "http"))]
mod simulated_agent;
#[cfg(feature = "simulation")]
mod simulated_dialing;
#[cfg(all(feature = "simulation", feature = "durable"))]
mod simulated_durable;
#[cfg(feature = "simulation")]
mod simulated_ends;
#[cfg(feature = "simulation")]
mod simulated_exploration;
#[cfg(all(feature = "simulation", feature = "websocket"))]
mod simulated_hints;
#[cfg(feature = "simulation")]
mod simulated_memory;
#[cfg(all(feature = "simulation", feature = "websocket"))]
mod simulated_overload;
#[cfg(feature = "simulation")]
mod simulated_play;
#[cfg(feature = "simulation")]
mod simulated_threads;
#[cfg(feature = "simulation")]
mod simulated_traffic;
#[cfg(feature = "simulation")]
mod simulated_wheel;
#[cfg(feature = "simulation")]
mod simulation;
mod virtual_time;
