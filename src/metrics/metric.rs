//! The description of a metric for exporters: a row of the table, with its current value.

use super::histogram::Histogram;
use std::time::Duration;

/// A number or histogram of [`LoopMetrics`](super::LoopMetrics), with the names and the help text
/// for exporters.
#[derive(Debug)]
pub(crate) struct Metric<'a> {
    /// The field of `LoopMetrics`.
    #[allow(dead_code, reason = "used by the table in the documentation, not by exporters")]
    pub(crate) field: &'static str,
    /// The name without the prefix of the crate, the unit, and the suffix of the kind. Consecutive
    /// rows with the same name form one family, and their labels differ.
    pub(crate) family: &'static str,
    pub(crate) label: Option<(&'static str, &'static str)>,
    pub(crate) unit: Option<&'static str>,
    /// The help text of the family, if this is its first row.
    pub(crate) help: &'static str,
    pub(crate) value: Value<'a>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Counter(u64),
    Gauge(u64),
    Time(Duration),
    Histogram(&'a Histogram),
}

impl<'a> Metric<'a> {
    /// Creates a metric named like its field. `doc` is the field's rustdoc.
    pub(crate) fn new(field: &'static str, doc: &'static str, value: Value<'a>) -> Self {
        let unit = match value {
            Value::Counter(_) | Value::Gauge(_) => None,
            Value::Time(_) | Value::Histogram(_) => Some("seconds"),
        };
        Metric { field, family: field, label: None, unit, help: doc.trim_ascii(), value }
    }

    pub(crate) fn family(mut self, name: &'static str) -> Self {
        self.family = name;
        self
    }

    pub(super) fn unit(mut self, unit: &'static str) -> Self {
        self.unit = Some(unit);
        self
    }

    pub(super) fn label(mut self, name: &'static str, value: &'static str) -> Self {
        self.label = Some((name, value));
        self
    }

    pub(super) fn help(mut self, text: &'static str) -> Self {
        self.help = text;
        self
    }
}
