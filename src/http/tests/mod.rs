//! Tests of the protocol, in memory.
