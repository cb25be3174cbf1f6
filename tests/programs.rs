//! Tests of programs: the examples, the programs of the guide, other implementations of the
//! protocols, and child processes under strace. Most wait, so they are one binary and run together.
//!
//! `cargo test` builds the examples. For this test alone, build them first:
//! `cargo build --features full --examples`.

#[cfg(feature = "full")]
mod examples;
mod guide;
#[cfg(all(feature = "http", feature = "tls"))]
mod interop;
mod support;
mod system;

#[cfg(feature = "full")]
#[allow(unused_imports, reason = "files of the chat server name each other by the root of the crate")]
use examples::{faulty, im, im::*, im_process, output, token_bucket};
