//! The chat server without sockets, and code shared by the examples.

#[path = "../support/mod.rs"]
mod support;

#[cfg(feature = "json")]
mod im;
#[cfg(feature = "json")]
mod im_abuse;
#[cfg(feature = "json")]
mod im_direct;
#[cfg(feature = "json")]
mod im_lookup;
#[cfg(feature = "json")]
mod im_rooms;
#[cfg(feature = "json")]
mod im_slow;
mod shared;
// At the crate root, where the server's files expect it.
#[path = "../../examples/support/token_bucket.rs"]
#[allow(dead_code, reason = "each part uses some of it")]
mod token_bucket;

#[cfg(feature = "json")]
#[allow(unused_imports, reason = "files of the server name each other by the root of the crate")]
use im::*;
