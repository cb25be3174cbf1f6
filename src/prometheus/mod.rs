//! Metrics of loops in the text format of Prometheus (OpenMetrics 1.0).
//!
//! Requires the feature `prometheus`. [`encode`] returns the whole text for a group, or for several
//! things that have metrics. Serve it under `/metrics` with the content type
//! `application/openmetrics-text; version=1.0.0; charset=utf-8`. A program with metrics of its own
//! registers a [`Collector`] with its registry instead, with the feature `prometheus-client-025`.
//!
//! Every field of [`LoopMetrics`](crate::metrics::LoopMetrics) is exported, under names that begin
//! with `netwheel_`, with the loop's name as the label `event_loop`. Times are in seconds. Encoding
//! runs on the calling thread and never blocks a loop. The loops own the metrics.
//!
//! A name consists of `netwheel_`, the field, and `_total` for counters. There are two exceptions:
//! wakeups and phases are labels (`cause`, `phase`), and the unit is a suffix.
//! `docs/observability.md` lists all names. Histograms have one bucket for each power of two from
//! 1.024 µs.

mod collector;
mod exported;
mod tables;

pub use collector::Collector;
pub use exported::Exported;

use crate::error::{Error, Result};
use prometheus_client::encoding::text;

/// Encodes metrics as a complete text that ends with `# EOF`.
///
/// ```
/// let group = netwheel::EventLoopGroup::builder().threads(1).build()?;
/// let text = netwheel::prometheus::encode(&group)?;
/// assert!(text.contains("# UNIT netwheel_lag_seconds seconds"));
/// # Ok::<(), netwheel::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::Setting`] if two parts of a pair declare the same metrics. Use one [`Collector`] for
/// several groups, one for several durable timers, and one for the topics of several brokers.
pub fn encode(exported: &(impl Exported + ?Sized)) -> Result<String> {
    let mut exposition = exported::Exposition::default();
    exported.add_to(&mut exposition)?;
    let mut text = String::new();
    let failed = |_| Error::other("the metrics could not be encoded");
    text::encode(&mut text, &exposition.registry).map_err(failed)?;
    Ok(text)
}
