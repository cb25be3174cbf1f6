//! The chat server without sockets, its reminders and kept messages as a process, faults in rooms
//! on several nodes, and code shared by the examples.
//!
//! `cargo test` builds the programs. For this test alone, build them first:
//! `cargo build --example im_server --example im_chaos --features full`.

#[path = "../support/mod.rs"]
mod support;

#[cfg(all(feature = "broker", feature = "durable-sqlite", feature = "json"))]
mod im;
#[cfg(all(feature = "broker", feature = "durable-sqlite", feature = "json"))]
mod im_abuse;
#[cfg(all(unix, feature = "broker-redis", feature = "json"))]
mod im_chaos;
#[cfg(all(feature = "broker", feature = "durable-sqlite", feature = "json"))]
mod im_direct;
#[cfg(all(feature = "broker", feature = "durable-sqlite", feature = "json"))]
mod im_elsewhere;
#[cfg(all(
    feature = "broker-redis",
    feature = "broker-sqlite",
    feature = "durable-sqlite",
    feature = "json",
    feature = "prometheus",
    feature = "simulation",
    feature = "websocket"
))]
mod im_farewells;
#[cfg(all(
    feature = "broker",
    feature = "durable-sqlite",
    feature = "json",
    feature = "prometheus",
    feature = "websocket"
))]
mod im_frames;
#[cfg(all(
    feature = "broker-redis",
    feature = "broker-sqlite",
    feature = "durable-sqlite",
    feature = "json",
    feature = "prometheus",
    feature = "websocket"
))]
mod im_later;
#[cfg(all(feature = "broker", feature = "durable-sqlite", feature = "json"))]
mod im_lookup;
#[cfg(all(
    feature = "broker-redis",
    feature = "broker-sqlite",
    feature = "durable-sqlite",
    feature = "json",
    feature = "prometheus",
    feature = "websocket"
))]
mod im_mail;
#[cfg(all(
    feature = "broker-redis",
    feature = "broker-sqlite",
    feature = "durable-sqlite",
    feature = "json",
    feature = "prometheus",
    feature = "websocket"
))]
mod im_nodes;
#[cfg(all(feature = "broker", feature = "durable-sqlite", feature = "json"))]
mod im_passive;
#[cfg(all(
    feature = "broker-redis",
    feature = "broker-sqlite",
    feature = "durable-sqlite",
    feature = "json",
    feature = "prometheus",
    feature = "websocket"
))]
mod im_process;
#[cfg(all(
    feature = "broker-redis",
    feature = "broker-sqlite",
    feature = "durable-sqlite",
    feature = "json",
    feature = "prometheus",
    feature = "websocket"
))]
mod im_resume;
#[cfg(all(feature = "broker", feature = "durable-sqlite", feature = "json"))]
mod im_rooms;
#[cfg(all(
    feature = "broker-redis",
    feature = "broker-sqlite",
    feature = "durable-sqlite",
    feature = "json",
    feature = "prometheus",
    feature = "simulation",
    feature = "websocket"
))]
mod im_simulated;
#[cfg(all(feature = "broker", feature = "durable-sqlite", feature = "json"))]
mod im_slow;
// At the crate root, where the server's files expect it.
#[path = "../../examples/support/output.rs"]
#[allow(dead_code, reason = "the tests do not redirect standard output")]
mod output;
mod shared;
// At the crate root, where the server's files expect it.
#[path = "../../examples/support/token_bucket.rs"]
#[allow(dead_code, reason = "each part uses some of it")]
mod token_bucket;

#[cfg(all(feature = "broker", feature = "durable-sqlite", feature = "json"))]
#[allow(unused_imports, reason = "files of the server name each other by the root of the crate")]
use im::*;
