//! Tests of the protocol, in memory.

mod attacks;
mod client;
#[cfg(feature = "deflate")]
mod decompress;
mod exchanges;
mod limits;
mod request_bodies;
mod responses;
mod strictness;
mod support;
