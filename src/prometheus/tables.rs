//! Encodes tables of metrics with prometheus-client.

use crate::metrics::{Histogram, Metric, Value};
use prometheus_client::{
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet},
    metrics::MetricType,
    registry::Unit,
};
use std::{fmt, time::Duration};

/// Encodes tables with the same rows. `label` distinguishes them; each has its value of the label.
pub(super) fn encode_tables(
    encoder: &mut DescriptorEncoder<'_>,
    label: &str,
    tables: &[(&str, Vec<Metric>)],
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

impl Metric {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match &self.value {
            Value::Counter(n) => encoder.encode_counter::<NoLabelSet, _, f64>(n, None),
            Value::Time(time) => encoder.encode_counter::<NoLabelSet, _, f64>(&time.as_secs_f64(), None),
            Value::Gauge(n) => encoder.encode_gauge(n),
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
