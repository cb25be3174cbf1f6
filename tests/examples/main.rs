//! The chat server: without sockets, as processes that may share a store, and simulated. Names,
//! kept messages and members of several servers; faults in rooms on several nodes; and code that
//! the examples share.
//!
//! `cargo test` builds the programs. For this test alone, build them first:
//! `cargo build --features full --example im_server --example im_client
//! --example im_chaos`.

#[path = "../support/mod.rs"]
mod support;

#[path = "../broker/faulty.rs"]
#[allow(dead_code, reason = "the tests of brokers use the rest")]
mod faulty;
mod im;
mod im_abuse;
#[cfg(unix)]
mod im_chaos;
mod im_client;
mod im_direct;
mod im_elsewhere;
mod im_farewells;
mod im_frames;
mod im_later;
mod im_lookup;
mod im_mail;
mod im_nodes;
mod im_passive;
mod im_process;
mod im_resume;
mod im_rooms;
mod im_simulated;
mod im_slow;
mod im_users;
// At the crate root, where the server's files expect it.
#[path = "../../examples/support/output.rs"]
#[allow(dead_code, reason = "the tests do not redirect standard output")]
mod output;
mod shared;
// At the crate root, where the server's files expect it.
#[path = "../../examples/support/token_bucket.rs"]
#[allow(dead_code, reason = "each part uses some of it")]
mod token_bucket;

#[allow(unused_imports, reason = "files of the server name each other by the root of the crate")]
use im::*;
