//! Tests of a channel from `active` to `inactive`: reading, writing, half-close, errors, and
//! replaced pipelines.

#[path = "../support/mod.rs"]
mod support;

mod attributes;
mod context;
mod endings;
mod errors;
mod handler_ref;
mod interplay;
mod lifecycle;
mod model;
mod on_complete;
mod reading;
mod reentrancy;
mod replace_pipeline;
mod requests;
mod schedule;
mod spawn;
mod stages;
mod stats;
mod types;
mod wire_log;
mod writing;
