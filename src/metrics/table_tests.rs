use super::*;
use std::collections::BTreeSet;

/// Returns the name and labels of a metric in the Prometheus text, without the loop's name.
fn series(row: &Metric<'_>) -> String {
    let unit = row.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
    let suffix = if kind(row) == "counter" { "_total" } else { "" };
    let label = row.label.map(|(name, value)| format!("{{{name}=\"{value}\"}}")).unwrap_or_default();
    format!("netwheel_{}{unit}{suffix}{label}", row.family)
}

fn kind(row: &Metric<'_>) -> &'static str {
    match row.value {
        Value::Counter(_) | Value::Time(_) => "counter",
        Value::Gauge(_) => "gauge",
        Value::Histogram(_) => "histogram",
    }
}

/// Compares the table in docs/observability.md with the rows. A failure prints the expected table.
#[test]
fn the_documentation_lists_all_metrics() {
    let metrics = LoopMetrics::default();
    let mut table = String::from("| field | Prometheus | kind | help |\n|---|---|---|---|\n");
    for row in metrics.rows() {
        table += &format!("| `{}` | `{}` | {} | {} |\n", row.field, series(&row), kind(&row), row.help);
    }
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/observability.md"));
    assert!(page.contains(&format!("\n\n{table}\n")), "docs/observability.md should have:\n\n{table}");
}

#[test]
fn rows_are_well_formed() {
    let metrics = LoopMetrics::default();
    let rows = metrics.rows();
    let (mut families, mut all_series) = (BTreeSet::new(), BTreeSet::new());
    for family in rows.chunk_by(|a, b| a.family == b.family) {
        let first = &family[0];
        assert!(families.insert(first.family), "the rows of {} are not consecutive", first.family);
        for row in family {
            assert!(all_series.insert(series(row)), "{} is exported twice", series(row));
            assert_eq!((kind(row), row.unit), (kind(first), first.unit), "{}", row.field);
            assert_eq!(row.label.map(|(name, _)| name), first.label.map(|(name, _)| name), "{}", row.field);
            assert_eq!(row.label.is_some(), family.len() > 1, "{}", row.field);
            // Plain text: a doc comment with links or code needs a help text beside it.
            assert!(
                row.help.ends_with('.') && !row.help.contains(['`', '[', '\n']),
                "{}: {}",
                row.field,
                row.help
            );
        }
    }
}

#[test]
fn a_folded_tally_is_counted_once() {
    let metrics = Metrics::default();
    let mut tally = Tally { messages_read: 5, timers_cancelled: 3, reads_held: 1, ..Tally::default() };
    metrics.fold(&mut tally);
    metrics.fold(&mut tally);
    let snapshot = metrics.snapshot();
    let counts = (snapshot.messages_read, snapshot.timers_cancelled, snapshot.reads_held);
    assert_eq!(counts, (5, 3, 1));
}

#[test]
fn a_row_has_the_value_of_its_field() {
    let metrics = Metrics::default();
    metrics.turns.add(2);
    metrics.channels.set(3);
    metrics.time_io.add(4);
    metrics.lag.record(5);
    let snapshot = LoopMetrics { tasks_pending: 6, ..metrics.snapshot() };
    let value = |field| {
        let rows = snapshot.rows();
        match rows.iter().find(|row| row.field == field).expect("a row").value {
            Value::Counter(n) => ("counter", n),
            Value::Gauge(n) => ("gauge", n),
            Value::Time(time) => ("time", time.as_nanos() as u64),
            Value::Histogram(histogram) => ("histogram", histogram.count()),
        }
    };
    assert_eq!(value("turns"), ("counter", 2));
    assert_eq!(value("channels"), ("gauge", 3));
    assert_eq!(value("time_io"), ("time", 4));
    assert_eq!(value("lag"), ("histogram", 1));
    assert_eq!(value("tasks_pending"), ("gauge", 6));
}
