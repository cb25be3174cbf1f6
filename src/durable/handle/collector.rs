//! `DurableCollector`: the metrics of durable timers in the text format of Prometheus.

use super::timers::DurableTimers;
use crate::{
    durable::metrics::Metrics,
    error::{Error, Result},
    prometheus::{Exposition, MetricTables, encode_tables, sealed},
};
use prometheus_client::encoding::DescriptorEncoder;
use std::{fmt, sync::Arc};

/// The metrics of durable timers, which are read when
/// [`prometheus::encode`](crate::prometheus::encode) encodes a text.
///
/// Every field of [`DurableMetrics`](crate::durable::DurableMetrics) is exported under a name that
/// begins with `netwheel_durable_`, with the given name as the label `timers`. Times are in
/// seconds. `docs/observability.md` lists all names. Encoding runs on the calling thread, without a
/// lock.
///
/// A text has one collector for all timers of a program, because the format allows only one
/// declaration of each metric. A collector does not keep timers open.
///
/// ```
/// use netwheel::{EventLoopGroup, durable::{DurableCollector, DurableTimers, MemoryDisk}};
/// use netwheel::prometheus;
///
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let timers = DurableTimers::builder(MemoryDisk::new().open()?).start(&group)?;
/// let text = prometheus::encode(&(&group, DurableCollector::new("orders", &timers)))?;
/// assert!(text.contains(r#"netwheel_durable_fired_total{timers="orders"} 0"#));
/// # Ok::<(), netwheel::Error>(())
/// ```
///
/// With the feature `prometheus-client-025` it implements that crate's trait `Collector`, for a
/// program that has a registry.
#[derive(Debug, Clone)]
pub struct DurableCollector {
    sources: Vec<(String, Arc<Metrics>)>,
}

impl DurableCollector {
    /// Creates a collector for timers, with the value of their label.
    pub fn new(name: impl Into<String>, timers: &DurableTimers) -> Self {
        DurableCollector { sources: vec![(name.into(), timers.metrics_source())] }
    }

    /// Adds other timers of the program.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if timers of the collector have the same name, because the label would be
    /// ambiguous.
    pub fn and(mut self, name: impl Into<String>, timers: &DurableTimers) -> Result<Self> {
        let name = name.into();
        if self.sources.iter().any(|(other, _)| *other == name) {
            return Err(Error::setting("name", name, "a name that no other collected timers have"));
        }
        self.sources.push((name, timers.metrics_source()));
        Ok(self)
    }
}

impl sealed::AddTo for DurableCollector {
    fn add_to(&self, exposition: &mut Exposition) -> Result {
        exposition.add(self.clone())
    }
}

impl MetricTables for DurableCollector {
    const LABEL: &'static str = "timers";

    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics: Vec<_> = self.sources.iter().map(|(_, source)| source.snapshot()).collect();
        let names = self.sources.iter().map(|(name, _)| name.as_str());
        let tables: Vec<_> = names.zip(metrics.iter().map(|metrics| metrics.rows())).collect();
        encode_tables(&mut encoder, Self::LABEL, &tables)
    }
}

#[cfg(feature = "prometheus-client-025")]
impl prometheus_client::collector::Collector for DurableCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        MetricTables::encode(self, encoder)
    }
}
