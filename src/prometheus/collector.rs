//! `Collector`: metrics of things with names.

use super::tables::encode_tables;
use crate::{
    error::{Error, Result},
    event_loop::EventLoop,
    group::EventLoopGroup,
    metrics::Metric,
};
use prometheus_client::encoding::DescriptorEncoder;
use std::{fmt, sync::Arc};

/// The metrics of event loops, of durable timers (`DurableTimers::collector`) or of topics
/// (`Topics::collector`). They are read when a text is encoded.
///
/// A text has one collector for all groups of a program, one for all durable timers and one for all
/// topics, because the format allows only one declaration of each metric.
///
/// ```
/// use netwheel::{EventLoopGroup, prometheus::{self, Collector}};
///
/// let acceptors = EventLoopGroup::builder().threads(1).name("acceptor").build()?;
/// let workers = EventLoopGroup::builder().threads(2).name("worker").build()?;
/// let text = prometheus::encode(&Collector::new(&acceptors).and(Collector::new(&workers))?)?;
/// assert!(text.contains(r#"netwheel_turns_total{event_loop="worker-1"} 0"#));
/// # Ok::<(), netwheel::Error>(())
/// ```
///
/// With the feature `prometheus-client-025` it implements that crate's trait `Collector`, for a
/// program that has a registry.
#[derive(Clone)]
pub struct Collector {
    /// The label that has the names.
    pub(super) label: &'static str,
    sources: Vec<(String, Arc<ReadRows>)>,
}

type ReadRows = dyn Fn() -> Vec<Metric> + Send + Sync;

impl Collector {
    /// Creates a collector for the loops of a group.
    pub fn new(group: &EventLoopGroup) -> Self {
        let source = |event_loop: &EventLoop| -> (String, Arc<ReadRows>) {
            let event_loop = event_loop.clone();
            (event_loop.name().to_owned(), Arc::new(move || event_loop.metrics().rows()))
        };
        Collector { label: "event_loop", sources: group.event_loops().iter().map(source).collect() }
    }

    /// Creates a collector for one source of metrics. Its rows have the label with the name.
    #[cfg(any(feature = "broker", feature = "durable"))]
    pub(crate) fn of(
        label: &'static str,
        name: String,
        rows: impl Fn() -> Vec<Metric> + Send + Sync + 'static,
    ) -> Self {
        Collector { label, sources: vec![(name, Arc::new(rows))] }
    }

    /// Adds other metrics of the same kind.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if both have a loop, timers or topics of the same name, because the label
    /// would be ambiguous, or if they have metrics of different kinds.
    pub fn and(mut self, other: Collector) -> Result<Self> {
        if other.label != self.label {
            let value = format!("metrics with the label {}", other.label);
            return Err(Error::setting("other", value, "metrics of the same kind"));
        }
        for (name, rows) in other.sources {
            if self.sources.iter().any(|(other, _)| *other == name) {
                return Err(Error::setting("name", name, "a name that is collected once"));
            }
            self.sources.push((name, rows));
        }
        Ok(self)
    }

    pub(super) fn encode_to(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let tables = self.sources.iter().map(|(name, rows)| (name.as_str(), rows()));
        encode_tables(&mut encoder, self.label, &tables.collect::<Vec<_>>())
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.sources.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Collector").field(self.label, &names).finish()
    }
}

#[cfg(feature = "prometheus-client-025")]
impl prometheus_client::collector::Collector for Collector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.encode_to(encoder)
    }
}
