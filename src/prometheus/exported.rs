//! `Exported`: the sources of a text of metrics.

use crate::error::{Error, Result};
use prometheus_client::{encoding::DescriptorEncoder, registry::Registry};
use std::fmt;

/// Something whose metrics [`encode`](super::encode) writes as text.
///
/// Implemented for [`EventLoopGroup`](crate::EventLoopGroup), [`Collector`](super::Collector),
/// `DurableCollector` of the feature `durable`, and `BrokerCollector` of `broker`. A pair has the
/// metrics of both parts, and `None` has none:
///
/// ```
/// use netwheel::{EventLoopGroup, prometheus};
///
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let more: Option<prometheus::Collector> = None;
/// let text = prometheus::encode(&(&group, more))?;
/// assert!(text.ends_with("# EOF\n"));
/// # Ok::<(), netwheel::Error>(())
/// ```
pub trait Exported: sealed::AddTo {}

impl<T: sealed::AddTo + ?Sized> Exported for T {}

pub(crate) mod sealed {
    use super::Exposition;
    use crate::error::Result;

    pub trait AddTo {
        fn add_to(&self, exposition: &mut Exposition) -> Result;
    }
}

/// The metrics of one text.
#[derive(Default)]
pub struct Exposition {
    pub(super) registry: Registry,
    labels: Vec<&'static str>,
}

/// Tables of metrics, of which a text has one for each label. Readable from any thread.
pub(crate) trait MetricTables: fmt::Debug + Send + Sync + 'static {
    /// The label by which the tables are distinguished.
    const LABEL: &'static str;

    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result;
}

/// Tables as a collector of prometheus-client.
#[derive(Debug)]
struct Registered<T>(T);

impl<T: MetricTables> prometheus_client::collector::Collector for Registered<T> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.encode(encoder)
    }
}

impl Exposition {
    /// Adds tables, unless there are some with the same label. The format allows only one
    /// declaration of each metric.
    pub(crate) fn add<T: MetricTables>(&mut self, tables: T) -> Result {
        if self.labels.contains(&T::LABEL) {
            let value = format!("two collectors with the label {}", T::LABEL);
            return Err(Error::setting("exported", value, "one collector for each label"));
        }
        self.labels.push(T::LABEL);
        self.registry.register_collector(Box::new(Registered(tables)));
        Ok(())
    }
}

impl<T: sealed::AddTo + ?Sized> sealed::AddTo for &T {
    fn add_to(&self, exposition: &mut Exposition) -> Result {
        (**self).add_to(exposition)
    }
}

impl<T: sealed::AddTo> sealed::AddTo for Option<T> {
    fn add_to(&self, exposition: &mut Exposition) -> Result {
        self.iter().try_for_each(|exported| exported.add_to(exposition))
    }
}

impl<A: sealed::AddTo, B: sealed::AddTo> sealed::AddTo for (A, B) {
    fn add_to(&self, exposition: &mut Exposition) -> Result {
        self.0.add_to(exposition)?;
        self.1.add_to(exposition)
    }
}
