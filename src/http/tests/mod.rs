//! Tests of the protocol, in memory.

mod client;
