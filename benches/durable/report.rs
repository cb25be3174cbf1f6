//! What was measured: rows of the CSV file, and lines of the picture.

use hdrhistogram::Histogram;
use std::{fmt::Write as _, time::Duration};

/// Minimum, median and maximum.
pub(crate) type Spread = [f64; 3];

pub(crate) fn spread(values: impl Iterator<Item = f64>) -> Spread {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    [values[0], values[values.len() / 2], values[values.len() - 1]]
}

/// A name, and points.
pub(crate) type Line = (String, Vec<(f64, f64)>);

/// One panel of the picture.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    /// Whether both axes are logarithmic.
    pub(crate) is_logarithmic: bool,
    pub(crate) lines: Vec<Line>,
}

#[derive(Default)]
pub(crate) struct Report {
    rows: String,
    pub(crate) panels: Vec<Panel>,
}

impl Report {
    /// Adds a row to the CSV file.
    pub(crate) fn add(&mut self, part: &str, case: impl ToString, round: usize, figure: &str, value: f64) {
        let row = writeln!(self.rows, "{part},{},{round},{figure},{value:.3}", case.to_string());
        row.expect("writing to a string succeeds");
    }

    /// Adds the percentiles of a histogram of microseconds.
    pub(crate) fn add_times(&mut self, part: &str, case: &str, times: &Histogram<u64>) {
        for (percentile, name) in [(50.0, "p50_us"), (99.0, "p99_us"), (99.9, "p99.9_us"), (100.0, "max_us")]
        {
            self.add(part, case, 0, name, times.value_at_percentile(percentile) as f64);
        }
    }

    pub(crate) fn csv(&self) -> String {
        format!("part,case,round,figure,value\n{}", self.rows)
    }
}

/// Creates a histogram of microseconds, up to a minute.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are valid")
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns milliseconds at a percentile.
pub(crate) fn ms_at(times: &Histogram<u64>, percentile: f64) -> f64 {
    times.value_at_percentile(percentile) as f64 / 1000.0
}

/// Returns a line from percentile to milliseconds, up to the 99th.
pub(crate) fn line(times: &Histogram<u64>) -> Vec<(f64, f64)> {
    (1..=198).map(|n| f64::from(n) / 2.0).map(|percent| (percent, ms_at(times, percent))).collect()
}

/// Returns two percentiles and the maximum as cells of a table, in milliseconds.
pub(crate) fn cells(times: &Histogram<u64>) -> String {
    format!("{:.2} | {:.2} | {:.2}", ms_at(times, 50.0), ms_at(times, 99.0), ms_at(times, 100.0))
}
