//! Tests of the protocol, in memory.

mod client;
mod strictness;
