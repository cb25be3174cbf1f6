//! The description of a metric for exporters: a row of the table, with its current value.

use super::histogram::Histogram;
use std::time::Duration;

/// A number or histogram of a snapshot, such as [`LoopMetrics`](super::LoopMetrics), with the names
/// and the help text for exporters.
#[derive(Debug)]
pub(crate) struct Metric {
    /// The field of the snapshot.
    #[allow(dead_code, reason = "used by the table in the documentation, not by exporters")]
    pub(crate) field: &'static str,
    /// The name without the prefix of the crate, the unit, and the suffix of the kind. Consecutive
    /// rows with the same name form one family, and their labels differ.
    pub(crate) family: &'static str,
    pub(crate) label: Option<(&'static str, &'static str)>,
    pub(crate) unit: Option<&'static str>,
    /// The help text of the family, if this is its first row.
    pub(crate) help: &'static str,
    pub(crate) value: Value,
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Counter(u64),
    Gauge(u64),
    Time(Duration),
    Histogram(Box<Histogram>),
}

impl Metric {
    /// Creates a metric. `doc` is the field's rustdoc.
    pub(crate) fn new(field: &'static str, family: &'static str, doc: &'static str, value: Value) -> Self {
        let unit = match value {
            Value::Counter(_) | Value::Gauge(_) => None,
            Value::Time(_) | Value::Histogram(_) => Some("seconds"),
        };
        Metric { field, family, label: None, unit, help: doc.trim_ascii(), value }
    }

    pub(crate) fn unit(mut self, unit: &'static str) -> Self {
        self.unit = Some(unit);
        self
    }

    pub(crate) fn label(mut self, name: &'static str, value: &'static str) -> Self {
        self.label = Some((name, value));
        self
    }

    pub(crate) fn help(mut self, text: &'static str) -> Self {
        self.help = text;
        self
    }
}

/// What the documentation states about a metric.
#[cfg(test)]
impl Metric {
    /// Returns the name and labels in the Prometheus text, without the label of the table.
    pub(super) fn series(&self) -> String {
        let unit = self.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
        let suffix = if self.kind_name() == "counter" { "_total" } else { "" };
        let label = self.label.map(|(name, value)| format!("{{{name}=\"{value}\"}}")).unwrap_or_default();
        format!("netwheel_{}{unit}{suffix}{label}", self.family)
    }

    pub(super) fn kind_name(&self) -> &'static str {
        match self.value {
            Value::Counter(_) | Value::Time(_) => "counter",
            Value::Gauge(_) => "gauge",
            Value::Histogram(_) => "histogram",
        }
    }

    /// Asserts that docs/observability.md has a table of the rows. A failure prints it.
    #[track_caller]
    pub(crate) fn check_documentation(rows: &[Self]) {
        let mut table = String::from("| field | Prometheus | kind | help |\n|---|---|---|---|\n");
        for row in rows {
            table +=
                &format!("| `{}` | `{}` | {} | {} |\n", row.field, row.series(), row.kind_name(), row.help);
        }
        let page = include_str!("../../docs/observability.md");
        assert!(page.contains(&format!("\n\n{table}")), "docs/observability.md should have:\n\n{table}");
    }
}
