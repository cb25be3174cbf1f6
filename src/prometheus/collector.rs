//! `Collector`: the metrics of event loops.

use super::{
    exported::{Exposition, MetricTables, sealed},
    tables::encode_tables,
};
use crate::{
    error::{Error, Result},
    event_loop::EventLoop,
    group::EventLoopGroup,
    metrics::LoopMetrics,
};
use prometheus_client::encoding::DescriptorEncoder;
use std::fmt;

/// The metrics of the loops of one or more groups, which are read when a text is encoded.
///
/// A text has one collector for all groups of a program, because the format allows only one
/// declaration of each metric.
///
/// ```
/// use netwheel::{EventLoopGroup, prometheus::{self, Collector}};
///
/// let acceptors = EventLoopGroup::builder().threads(1).name("acceptor").build()?;
/// let workers = EventLoopGroup::builder().threads(2).name("worker").build()?;
/// let text = prometheus::encode(&Collector::new(&acceptors).and(&workers)?)?;
/// assert!(text.contains(r#"netwheel_turns_total{event_loop="worker-1"} 0"#));
/// # Ok::<(), netwheel::Error>(())
/// ```
///
/// With the feature `prometheus-client-025` it implements that crate's trait `Collector`, for a
/// program that has a registry.
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
    /// [`Error::Setting`] if a loop has the same name as a loop of the collector, because the label
    /// would be ambiguous. Give the groups different names.
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

impl sealed::AddTo for EventLoopGroup {
    fn add_to(&self, exposition: &mut Exposition) -> Result {
        exposition.add(Collector::new(self))
    }
}

impl sealed::AddTo for Collector {
    fn add_to(&self, exposition: &mut Exposition) -> Result {
        exposition.add(self.clone())
    }
}

impl MetricTables for Collector {
    const LABEL: &'static str = "event_loop";

    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics: Vec<_> = self.loops.iter().map(EventLoop::metrics).collect();
        let names = self.loops.iter().map(EventLoop::name);
        let tables: Vec<_> = names.zip(metrics.iter().map(LoopMetrics::rows)).collect();
        encode_tables(&mut encoder, Self::LABEL, &tables)
    }
}

#[cfg(feature = "prometheus-client-025")]
impl prometheus_client::collector::Collector for Collector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        MetricTables::encode(self, encoder)
    }
}
