//! What a loop counts about itself.
//!
//! `table` states each metric once: name, kind, unit, rustdoc and help text. `generate` makes of it
//! [`Metrics`] (the loop's counters), [`Tally`] (those of one turn), [`LoopMetrics`] (the public
//! copy) and the rows that exporters read.
//!
//! Always holds: only the loop's thread adds (a plain load and store, no locked instruction), any thread reads;
//! counters never go back. The exceptions are the counters that are added to with
//! [`Counter::add_shared`](counter::Counter::add_shared), which other threads count too. What happens once per
//! message is counted in a plain number of the [`Tally`] first and added here once per turn.

mod counter;
mod generate;
mod histogram;
#[cfg(any(feature = "prometheus", test))]
mod metric;
mod table;

pub use histogram::Histogram;
#[cfg(any(feature = "prometheus", test))]
pub(crate) use metric::{Metric, Value};
pub use table::LoopMetrics;
pub(crate) use table::{Metrics, Tally};
