//! Measurements at one setting, and the charts of all settings.

use hdrhistogram::Histogram;
use netwheel::{EventLoop, metrics::LoopMetrics};
use std::{
    collections::BTreeMap,
    fmt::Write,
    time::{Duration, Instant},
};

/// Latencies, and the loop's activity during the measurement.
pub(crate) struct Record {
    latencies: Histogram<u64>,
    elapsed: Duration,
    turns: u64,
    tasks: u64,
    bytes_read: u64,
    io: Duration,
    task_time: Duration,
}

impl Record {
    pub(crate) const HEADER: &str = "chart,setting,load,samples,p50_us,p99_us,max_us,turns_per_s,tasks_per_s,\
                                     mib_read_per_s,percent_io_and_flush,percent_tasks";

    pub(crate) fn new(latencies: Histogram<u64>, begin: &Snapshot, end: &Snapshot) -> Self {
        let elapsed = end.time - begin.time;
        let (begin, end) = (&begin.metrics, &end.metrics);
        let io = |metrics: &LoopMetrics| metrics.time_io + metrics.time_flushing;
        Record {
            latencies,
            elapsed,
            turns: end.turns - begin.turns,
            tasks: end.tasks_run - begin.tasks_run,
            bytes_read: end.bytes_read - begin.bytes_read,
            io: io(end) - io(begin),
            task_time: end.time_tasks - begin.time_tasks,
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.latencies.len()
    }

    /// Returns a quantile in microseconds.
    pub(crate) fn quantile(&self, q: f64) -> u64 {
        self.latencies.value_at_quantile(q)
    }

    /// Returns the bytes read per second, or the tasks run per second if no bytes were read.
    fn work(&self) -> f64 {
        let work = if self.bytes_read > 0 { self.bytes_read } else { self.tasks };
        work as f64 / self.elapsed.as_secs_f64()
    }

    fn row(&self) -> String {
        let seconds = self.elapsed.as_secs_f64();
        let percent = |time: Duration| 100.0 * time.as_secs_f64() / seconds;
        format!(
            "{},{},{},{},{:.0},{:.0},{:.1},{:.1},{:.1}",
            self.count(),
            self.quantile(0.5),
            self.quantile(0.99),
            self.latencies.max(),
            self.turns as f64 / seconds,
            self.tasks as f64 / seconds,
            self.bytes_read as f64 / seconds / 1024.0 / 1024.0,
            percent(self.io),
            percent(self.task_time),
        )
    }
}

/// Time and metrics at one moment.
pub(crate) struct Snapshot {
    time: Instant,
    metrics: LoopMetrics,
}

impl Snapshot {
    pub(crate) fn take(event_loop: &EventLoop) -> Self {
        Snapshot { time: Instant::now(), metrics: event_loop.metrics() }
    }
}

/// Returns a histogram of microseconds, up to a minute.
pub(crate) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("bounds in range")
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The records of all rounds, by setting and load.
#[derive(Default)]
pub(crate) struct Chart(BTreeMap<u32, BTreeMap<u32, Vec<Record>>>);

impl Chart {
    pub(crate) fn add(&mut self, ratio: u32, load: u32, record: Record) {
        self.0.entry(ratio).or_default().entry(load).or_default().push(record);
    }

    /// Returns the least disturbed round of each setting and load. Other activity on the machine
    /// takes time from the loop or from its load. So only the rounds that did the most work count,
    /// and of these the one with the lowest p99.
    fn best(&self) -> impl Iterator<Item = (u32, Vec<(u32, &Record)>)> {
        fn of(rounds: &[Record]) -> &Record {
            let most = rounds.iter().map(Record::work).fold(0.0, f64::max);
            let full = rounds.iter().filter(|record| record.work() >= most * 0.75);
            full.min_by_key(|record| record.quantile(0.99)).expect("the round with the most work is included")
        }
        self.0.iter().map(|(ratio, line)| (*ratio, line.iter().map(|(load, all)| (*load, of(all))).collect()))
    }

    /// Returns the load and the 99th percentile in milliseconds, for each setting.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (u32, Vec<(u32, f64)>)> {
        self.best().map(|(ratio, line)| {
            let point = |(load, record): (u32, &Record)| (load, record.quantile(0.99) as f64 / 1000.0);
            (ratio, line.into_iter().map(point).collect())
        })
    }

    pub(crate) fn rows(&self, name: &str) -> String {
        let mut rows = String::new();
        for (ratio, line) in self.best() {
            for (load, record) in line {
                writeln!(rows, "{name},{ratio},{load},{}", record.row())
                    .expect("writing to a string succeeds");
            }
        }
        rows
    }
}
