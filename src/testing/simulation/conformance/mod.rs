//! Scripts that run on the kernel and on the simulated network.
//!
//! A script is a sequence of calls on the sockets of `transport` and on the poll of a loop. It
//! records the result of each call, and the readiness that the poll reports. The records of one run
//! are its outcome. Each script is a test of its own, which checks two things:
//!
//! - Each outcome of the kernel is an outcome of the model, for some seed.
//! - The outcomes of the model without faults are outcomes of the kernel.
//!
//! Timing decides some outcomes, for example whether two writes are one edge. Scripts wait for
//! conditions, with a limit, and never for a time. The model varies the time that passes between
//! two calls.
//!
//! Modules: `backend` (the kernel, or the model with a seed), `watcher` (the poll), `bench` (the
//! calls of scripts, `streams`, `listeners`, `datagram_calls`), `runner` (the comparison),
//! `own_process`. The other modules are scripts by topic.

mod backend;
mod bench;
mod datagram_calls;
mod listeners;
mod own_process;
mod runner;
mod streams;
mod watcher;

mod addresses;
mod connecting;
mod datagrams;
mod descriptors;
mod edges;
mod endings;
mod listening;
mod polling;
mod reading;
mod resets;
mod writing;
