//! Counters of a loop.
//!
//! `table` states each metric once: name, kind, unit, rustdoc and help text. `generate` turns it into
//! [`Metrics`] (the loop's counters), [`Tally`] (the counters of one turn), [`LoopMetrics`] (the
//! public snapshot) and the rows that exporters read.
//!
//! Invariants: counters never decrease. Only the loop's thread adds, with a plain load and store and
//! no locked instruction, and any thread reads. The exceptions use
//! [`Counter::add_shared`](counter::Counter::add_shared), because other threads count too. Events that
//! happen once per message are counted in plain numbers of the [`Tally`], which is folded into
//! [`Metrics`] once per turn.

mod counter;
mod generate;
mod histogram;
#[cfg(any(feature = "prometheus", test))]
mod metric;
mod table;

pub use histogram::Histogram;
#[cfg(any(feature = "prometheus", test))]
#[cfg_attr(
    not(feature = "prometheus"),
    allow(unused_imports, reason = "the generated rows name them by their path")
)]
pub(crate) use metric::{Metric, Value};
pub use table::LoopMetrics;
pub(crate) use table::{Metrics, Tally};
