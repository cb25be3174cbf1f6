//! Metrics of loops in the text format of Prometheus (OpenMetrics 1.0).
//!
//! Requires the feature `prometheus`. [`encode`] returns the whole text for one group. Serve it
//! under `/metrics` with the content type
//! `application/openmetrics-text; version=1.0.0; charset=utf-8`. A program with metrics of its own
//! registers a [`Collector`] with its [`Registry`] instead.
//!
//! Every field of [`LoopMetrics`] is exported, under names that begin with `netwheel_`, with the
//! loop's name as the label `event_loop`. Times are in seconds. Encoding runs on the calling thread
//! and never blocks a loop. The loops own the metrics.
//!
//! A name consists of `netwheel_`, the field, and `_total` for counters. There are two exceptions:
//! wakeups and phases are labels (`cause`, `phase`), and the unit is a suffix.
//! `docs/observability.md` lists all names. Histograms have one bucket for each power of two from
//! 1.024 µs.

use crate::{
    error::{Error, Result},
    event_loop::EventLoop,
    group::EventLoopGroup,
    metrics::{Histogram, LoopMetrics, Metric, Value},
};
use prometheus_client::{
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::MetricType,
    registry::{Registry, Unit},
};
use std::{fmt, time::Duration};

/// A collector that reads the metrics of the loops of one or more groups when a [`Registry`] is
/// encoded.
///
/// Register one collector for all groups of a program, because the format allows only one
/// declaration of each metric.
///
/// ```
/// use netwheel::{EventLoopGroup, prometheus::Collector};
/// use prometheus_client::registry::Registry;
///
/// let acceptors = EventLoopGroup::builder().threads(1).name("acceptor").build()?;
/// let workers = EventLoopGroup::builder().threads(2).name("worker").build()?;
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(Collector::new(&acceptors).and(&workers)?));
///
/// let mut text = String::new();
/// prometheus_client::encoding::text::encode(&mut text, &registry).expect("infallible");
/// assert!(text.contains(r#"netwheel_turns_total{event_loop="worker-1"} 0"#));
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Collector {
    loops: Vec<EventLoop>,
}

impl Collector {
    /// Creates a collector for the loops of a group.
    pub fn new(group: &EventLoopGroup) -> Self {
        Collector { loops: group.event_loops().to_vec() }
    }

    /// Adds the loops of another group.
    ///
    /// # Errors
    ///
    /// Fails if a loop has the same name as a loop of the collector, because the label would be
    /// ambiguous. Give the groups different names.
    pub fn and(mut self, group: &EventLoopGroup) -> Result<Self> {
        for event_loop in group.event_loops() {
            let name = event_loop.name();
            if self.loops.iter().any(|other| other.name() == name) {
                return Err(Error::setting("name", name, "a name that no other collected loop has"));
            }
            self.loops.push(event_loop.clone());
        }
        Ok(self)
    }
}

impl prometheus_client::collector::Collector for Collector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics: Vec<_> = self.loops.iter().map(EventLoop::metrics).collect();
        let names = self.loops.iter().map(EventLoop::name);
        let tables: Vec<_> = names.zip(metrics.iter().map(LoopMetrics::rows)).collect();
        encode_tables(&mut encoder, "event_loop", &tables)
    }
}

/// Encodes tables with the same rows. `label` distinguishes them; each has its value of the label.
pub(crate) fn encode_tables(
    encoder: &mut DescriptorEncoder<'_>,
    label: &str,
    tables: &[(&str, Vec<Metric<'_>>)],
) -> fmt::Result {
    let Some((_, rows)) = tables.first() else { return Ok(()) };
    let mut begin = 0;
    // The format requires all samples of a family to be adjacent.
    for family in rows.chunk_by(|a, b| a.family == b.family) {
        let end = begin + family.len();
        let (name, first) = (format!("netwheel_{}", family[0].family), &family[0]);
        let unit = first.unit.map(|unit| Unit::Other(unit.into()));
        let mut encoder = encoder.encode_descriptor(&name, first.help, unit.as_ref(), first.kind())?;
        for (value, rows) in tables {
            for row in &rows[begin..end] {
                let labels = [(label, *value)].into_iter().chain(row.label);
                row.encode(encoder.encode_family(&labels.collect::<Vec<_>>())?)?;
            }
        }
        begin = end;
    }
    Ok(())
}

/// Encodes the metrics of a group's loops as a complete text that ends with `# EOF`.
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
/// Writing to a string does not fail, so no error is expected.
pub fn encode(group: &EventLoopGroup) -> Result<String> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collector::new(group)));
    let mut text = String::new();
    text::encode(&mut text, &registry).map_err(|_| Error::other("the metrics could not be encoded"))?;
    Ok(text)
}

impl Metric<'_> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match self.value {
            Value::Counter(n) => encoder.encode_counter::<NoLabelSet, _, f64>(&n, None),
            Value::Time(time) => encoder.encode_counter::<NoLabelSet, _, f64>(&time.as_secs_f64(), None),
            Value::Gauge(n) => encoder.encode_gauge(&n),
            Value::Histogram(histogram) => {
                let (sum, count) = (histogram.sum().as_secs_f64(), histogram.count());
                encoder.encode_histogram::<NoLabelSet>(sum, count, &octaves(histogram), None)
            }
        }
    }

    fn kind(&self) -> MetricType {
        match self.value {
            Value::Counter(_) | Value::Time(_) => MetricType::Counter,
            Value::Gauge(_) => MetricType::Gauge,
            Value::Histogram(_) => MetricType::Histogram,
        }
    }
}

/// Merges the buckets to one for each power of two, in seconds. This reduces the number of series
/// to a quarter, which is sufficient for graphs.
fn octaves(histogram: &Histogram) -> Vec<(f64, u64)> {
    let mut octaves = Vec::new();
    let mut count = 0;
    for (bound, n) in histogram.buckets() {
        count += n;
        let last = bound == Duration::MAX;
        if last || bound.as_nanos().is_power_of_two() {
            octaves.push((if last { f64::INFINITY } else { bound.as_secs_f64() }, count));
            count = 0;
        }
    }
    octaves
}
