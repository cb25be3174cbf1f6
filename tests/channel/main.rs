//! Tests of a channel from `active` to `inactive`: reading, writing, half-close, errors, and
//! replaced pipelines.

#[path = "../support/mod.rs"]
mod support;

mod attributes;
mod context;
mod endings;
mod errors;
mod interplay;
mod lifecycle;
mod model;
mod reading;
mod reentrancy;
mod remote;
mod replace_pipeline;
mod stats;
mod types;
mod wire_log;
mod writing;
