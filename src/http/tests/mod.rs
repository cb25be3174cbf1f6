//! Tests of the protocol, in memory.

mod attacks;
mod calls;
mod client;
mod exchanges;
mod failures;
mod hosts;
mod limits;
mod pool;
mod pool_random;
mod random_exchanges;
mod request_bodies;
mod responses;
mod strictness;
mod support;
mod tables;
