//! The chat server without sockets, and code shared by the examples.

#[path = "../support/mod.rs"]
mod support;

#[cfg(all(feature = "durable", feature = "json"))]
mod im;
#[cfg(all(feature = "durable", feature = "json"))]
mod im_abuse;
#[cfg(all(feature = "durable", feature = "json"))]
mod im_direct;
#[cfg(all(feature = "durable", feature = "json"))]
mod im_lookup;
#[cfg(all(feature = "durable", feature = "json"))]
mod im_rooms;
#[cfg(all(feature = "durable", feature = "json"))]
mod im_slow;
mod shared;
// At the crate root, where the server's files expect it.
#[path = "../../examples/support/token_bucket.rs"]
#[allow(dead_code, reason = "each part uses some of it")]
mod token_bucket;

#[cfg(all(feature = "durable", feature = "json"))]
#[allow(unused_imports, reason = "files of the server name each other by the root of the crate")]
use im::*;
