//! Tests of the protocol, in memory.

mod agent;
mod attacks;
mod calls;
mod client;
mod exchanges;
mod failures;
mod forwarding;
mod hosts;
mod limits;
mod overload;
mod pipelining;
mod pool;
mod pool_random;
mod pool_requests;
mod random_exchanges;
mod request_bodies;
mod responses;
mod shutdowns;
mod streams;
mod strictness;
mod support;
mod tables;
