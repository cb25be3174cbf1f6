//! Snapshots of the counters of an event loop.
//!
//! [`EventLoop::metrics`](crate::EventLoop::metrics) takes one.

// Metrics of a loop.
//
// `table` states the name, kind, unit, rustdoc and help text of each metric once. `generate` turns
// it into `Metrics` (the loop's counters), `Tally` (the counters of one turn), `LoopMetrics`
// (the public snapshot) and the rows that exporters read. Durable timers and topics have tables of
// their own.
//
// Invariants: counters never decrease. Only the loop's thread adds, with a plain load and store
// instead of a locked instruction, and any thread reads. Counters that other threads also
// increment use `Counter::add_shared`. Events that happen once per
// message are counted in plain numbers of the `Tally`, which is folded into `Metrics` once per
// turn.

mod counter;
mod generate;
mod histogram;
#[cfg(any(feature = "prometheus", test))]
mod metric;
mod table;

#[cfg(any(feature = "broker", feature = "durable"))]
pub(crate) use counter::Counter;
#[cfg(any(feature = "broker", feature = "durable"))]
pub(crate) use generate::metric_table;
pub use histogram::Histogram;
#[cfg(feature = "durable")]
pub(crate) use histogram::Recorder;
#[cfg(any(feature = "prometheus", test))]
#[cfg_attr(
    not(feature = "prometheus"),
    allow(unused_imports, reason = "the generated rows name them by their path")
)]
pub(crate) use metric::{Metric, Value};
pub use table::LoopMetrics;
pub(crate) use table::{Metrics, Tally};
