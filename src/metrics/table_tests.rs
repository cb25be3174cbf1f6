use super::*;
use std::collections::BTreeSet;

#[test]
fn the_documentation_lists_all_metrics() {
    Metric::check_documentation(&LoopMetrics::default().rows());
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
            assert!(all_series.insert(row.series()), "{} is exported twice", row.series());
            assert_eq!((row.kind_name(), row.unit), (first.kind_name(), first.unit), "{}", row.field);
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
        match &rows.iter().find(|row| row.field == field).expect("a row").value {
            Value::Counter(n) => ("counter", *n),
            Value::Gauge(n) => ("gauge", *n),
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
