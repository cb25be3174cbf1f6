//! Backpressure and limits of queues: writability, overflow policies, budgets, traffic shaping.

#[path = "../support/mod.rs"]
mod support;

mod conflation;
mod inbound_mark;
mod outbound_budget;
mod overflow;
mod traffic;
mod two_paused_peers;
mod writability;
