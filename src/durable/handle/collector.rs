//! `DurableCollector`: the metrics of durable timers in the text format of Prometheus.

use super::timers::DurableTimers;
use crate::{
    durable::metrics::Metrics,
    error::{Error, Result},
    prometheus::encode_tables,
};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use std::{fmt, sync::Arc};

/// A collector that reads the metrics of durable timers when a
/// [`Registry`](prometheus_client::registry::Registry) is encoded.
///
/// Every field of [`DurableMetrics`](crate::durable::DurableMetrics) is exported under a name that
/// begins with `netwheel_durable_`, with the given name as the label `timers`. Times are in
/// seconds. `docs/observability.md` lists all names. Encoding runs on the calling thread, without a
/// lock.
///
/// Register one collector for all timers of a program, because the format allows only one
/// declaration of each metric. A collector does not keep timers open.
///
/// ```
/// use netwheel::{EventLoopGroup, durable::{DurableCollector, DurableTimers, MemoryDisk}};
/// use prometheus_client::registry::Registry;
///
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let timers = DurableTimers::on(MemoryDisk::new().open()?).start(&group)?;
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(DurableCollector::new("orders", &timers)));
///
/// let mut text = String::new();
/// prometheus_client::encoding::text::encode(&mut text, &registry).expect("infallible");
/// assert!(text.contains(r#"netwheel_durable_fired_total{timers="orders"} 0"#));
/// # Ok::<(), netwheel::Error>(())
/// ```
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
    /// Fails if timers of the collector have the same name, because the label would be ambiguous.
    pub fn and(mut self, name: impl Into<String>, timers: &DurableTimers) -> Result<Self> {
        let name = name.into();
        if self.sources.iter().any(|(other, _)| *other == name) {
            return Err(Error::setting("name", name, "a name that no other collected timers have"));
        }
        self.sources.push((name, timers.metrics_source()));
        Ok(self)
    }
}

impl Collector for DurableCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics: Vec<_> = self.sources.iter().map(|(_, source)| source.snapshot()).collect();
        let names = self.sources.iter().map(|(name, _)| name.as_str());
        let tables: Vec<_> = names.zip(metrics.iter().map(|metrics| metrics.rows())).collect();
        encode_tables(&mut encoder, "timers", &tables)
    }
}
