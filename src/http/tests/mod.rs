//! Tests of the protocol, in memory.

mod client;
#[cfg(feature = "deflate")]
mod decompress;
mod strictness;
