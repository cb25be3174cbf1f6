//! The chat server: without sockets, as processes that may share a store, and simulated. Names,
//! kept messages and members of several servers; faults in rooms on several nodes; and code that
//! the examples share.

#[path = "../broker/faulty.rs"]
#[allow(dead_code, reason = "the tests of brokers use the rest")]
pub(crate) mod faulty;
pub(crate) mod im;
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
pub(crate) mod im_process;
mod im_resume;
mod im_rooms;
mod im_simulated;
mod im_slow;
mod im_users;
#[path = "../../examples/support/output.rs"]
#[allow(dead_code, reason = "the tests do not redirect standard output")]
pub(crate) mod output;
mod shared;
#[path = "../../examples/support/token_bucket.rs"]
#[allow(dead_code, reason = "each part uses some of it")]
pub(crate) mod token_bucket;
