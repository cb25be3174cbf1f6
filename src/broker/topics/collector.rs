//! `BrokerCollector`: the metrics of topics in the text format of Prometheus.

use super::handle::Topics;
use crate::{
    broker::node::Metrics,
    error::{Error, Result},
    prometheus::{Exposition, MetricTables, encode_tables, sealed},
};
use prometheus_client::encoding::DescriptorEncoder;
use std::{fmt, sync::Arc};

/// The metrics of topics, which are read when [`prometheus::encode`](crate::prometheus::encode)
/// encodes a text.
///
/// Every field of [`BrokerMetrics`](crate::broker::BrokerMetrics) is exported under a name that
/// begins with `netwheel_broker_`, with the given name as the label `broker`.
/// `docs/observability.md` lists all names. Encoding runs on the calling thread, without a lock.
///
/// A text has one collector for all [`Topics`] of a program, because the format allows only one
/// declaration of each metric. A collector does not keep the node alive.
///
/// ```
/// use netwheel::{EventLoopGroup, broker::{BrokerCollector, MemoryBroker, Topics}, prometheus};
///
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let topics = Topics::builder(&group, MemoryBroker::new()).build()?;
/// let text = prometheus::encode(&(&group, BrokerCollector::new("rooms", &topics)))?;
/// assert!(text.contains(r#"netwheel_broker_published_total{broker="rooms"} 0"#));
/// # Ok::<(), netwheel::Error>(())
/// ```
///
/// With the feature `prometheus-client-025` it implements that crate's trait `Collector`, for a
/// program that has a registry.
#[derive(Debug, Clone)]
pub struct BrokerCollector {
    sources: Vec<(String, Arc<Metrics>)>,
}

impl BrokerCollector {
    /// Creates a collector for topics, with the value of their label.
    pub fn new(name: impl Into<String>, topics: &Topics) -> Self {
        BrokerCollector { sources: vec![(name.into(), topics.metrics_source())] }
    }

    /// Adds other topics of the program.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if topics of the collector have the same name, because the label would be
    /// ambiguous.
    pub fn and(mut self, name: impl Into<String>, topics: &Topics) -> Result<Self> {
        let name = name.into();
        if self.sources.iter().any(|(other, _)| *other == name) {
            return Err(Error::setting("name", name, "a name that no other collected topics have"));
        }
        self.sources.push((name, topics.metrics_source()));
        Ok(self)
    }
}

impl sealed::AddTo for BrokerCollector {
    fn add_to(&self, exposition: &mut Exposition) -> Result {
        exposition.add(self.clone())
    }
}

impl MetricTables for BrokerCollector {
    const LABEL: &'static str = "broker";

    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let tables = self.sources.iter().map(|(name, source)| (name.as_str(), source.snapshot().rows()));
        encode_tables(&mut encoder, Self::LABEL, &tables.collect::<Vec<_>>())
    }
}

#[cfg(feature = "prometheus-client-025")]
impl prometheus_client::collector::Collector for BrokerCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        MetricTables::encode(self, encoder)
    }
}
