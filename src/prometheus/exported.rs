//! `Exported`: the sources of a text of metrics.

use super::collector::Collector;
use crate::{
    error::{Error, Result},
    group::EventLoopGroup,
};
use prometheus_client::{encoding::DescriptorEncoder, registry::Registry};
use std::fmt;

/// Something whose metrics [`encode`](super::encode) writes as text.
///
/// Implemented for [`EventLoopGroup`](crate::EventLoopGroup) and [`Collector`]. A pair has the
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

pub(super) mod sealed {
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

/// A collector of prometheus-client, also without the feature that makes [`Collector`] one.
#[derive(Debug)]
struct Registered(Collector);

impl prometheus_client::collector::Collector for Registered {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.encode_to(encoder)
    }
}

impl Exposition {
    /// Adds a collector, unless there is one with the same label. The format allows only one
    /// declaration of each metric.
    pub(super) fn add(&mut self, collector: Collector) -> Result {
        let label = collector.label;
        if self.labels.contains(&label) {
            let value = format!("two collectors with the label {label}");
            return Err(Error::setting("exported", value, "one collector for each label"));
        }
        self.labels.push(label);
        self.registry.register_collector(Box::new(Registered(collector)));
        Ok(())
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
