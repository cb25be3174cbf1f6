//! The measured time of a run, its counters, and their output.

use crate::{
    Options,
    sys::{Usage, own_cpu, usage},
};
use hdrhistogram::Histogram;
use std::{io, time::Instant};

/// Named numbers, in the order of output.
#[derive(Default)]
pub(crate) struct Report(Vec<(&'static str, f64)>);

impl Report {
    pub(crate) fn put(&mut self, name: &'static str, value: f64) {
        self.0.push((name, value));
    }

    pub(crate) fn get(&self, name: &str) -> f64 {
        self.0.iter().find(|(n, _)| *n == name).map_or(0.0, |(_, value)| *value)
    }

    pub(crate) fn json(&self) -> String {
        let fields: Vec<String> =
            self.0.iter().map(|(name, value)| format!("\"{name}\": {value:.4}")).collect();
        format!("{{{}}}", fields.join(", "))
    }

    pub(crate) fn text(&self) -> String {
        let lines: Vec<String> =
            self.0.iter().map(|(name, value)| format!("{name:<22} {value:>16.3}")).collect();
        lines.join("\n")
    }
}

/// A limit for runs that end by themselves.
const A_DAY: f64 = 86_400.0;

/// Clock, warm-up, latencies and CPU time of one run. Times are nanoseconds since its start.
pub(crate) struct Window {
    origin: Instant,
    begin: u64,
    end: u64,
    opened_at: Option<u64>,
    pid: Option<u32>,
    server: Usage,
    own_cpu: f64,
    progress_at: u64,
    /// Number of operations to do, if the run is not limited by time.
    operations: Option<u64>,
    /// Number of these operations that have not been started.
    left: u64,
    latencies: Histogram<u64>,
    count: u64,
    pub(crate) errors: u64,
}

/// Time without progress after which a run ends and missing replies are errors. The server may be
/// slowed down by a tool or by other work on the machine.
const STALL: u64 = 30_000_000_000;

impl Window {
    pub(crate) fn new(options: &Options) -> io::Result<Self> {
        let begin = if options.operations.is_some() { 0 } else { (options.warmup * 1e9) as u64 };
        let seconds = options.operations.map_or(options.seconds, |_| A_DAY);
        Ok(Window {
            origin: Instant::now(),
            begin,
            end: begin + (seconds * 1e9) as u64,
            opened_at: None,
            pid: options.pid,
            server: Usage::default(),
            own_cpu: 0.0,
            progress_at: 0,
            operations: options.operations,
            left: options.operations.unwrap_or(u64::MAX),
            latencies: Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(io::Error::other)?,
            count: 0,
            errors: 0,
        })
    }

    pub(crate) fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Returns how many of the `wanted` operations the caller may start, and counts them as
    /// started: all of them, unless the run is limited by their number.
    #[must_use]
    pub(crate) fn begin(&mut self, wanted: usize) -> usize {
        let granted = self.left.min(wanted as u64);
        if self.operations.is_some() {
            self.left -= granted;
        }
        granted as usize
    }

    /// Starts the measurement after the warm-up. Returns `false` when the measured time has passed,
    /// or all operations are done.
    pub(crate) fn tick(&mut self) -> bool {
        let now = self.now();
        if self.opened_at.is_none() && now >= self.begin {
            self.open();
        }
        now < self.end && self.operations.is_none_or(|operations| self.count < operations)
    }

    /// Starts the measurement now, without those of the warm-up.
    pub(crate) fn open(&mut self) {
        self.server = usage(self.pid);
        self.own_cpu = own_cpu();
        self.latencies.reset();
        self.count = 0;
        self.opened_at = Some(self.now());
    }

    #[inline]
    pub(crate) fn record(&mut self, latency: u64) {
        self.latencies.saturating_record(latency);
        self.count += 1;
    }

    /// Records whether there was progress. Returns `true` if there was none for too long.
    pub(crate) fn stalled(&mut self, progress: bool) -> bool {
        let now = self.now();
        if progress {
            self.progress_at = now;
        }
        now - self.progress_at > STALL
    }

    /// Returns the measured numbers. An operation transfers `bytes` of payload.
    pub(crate) fn report(&self, bytes: usize) -> Report {
        let seconds = (self.now() - self.opened_at.unwrap_or(0)) as f64 / 1e9;
        let server = usage(self.pid);
        let cpu = server.cpu_s - self.server.cpu_s;
        let own = own_cpu() - self.own_cpu;
        let per_s = self.count as f64 / seconds;
        let (user, sys) = (server.user_s - self.server.user_s, server.sys_s - self.server.sys_s);
        let per_op = |seconds: f64| seconds * 1e6 / (self.count as f64).max(1.0);
        let quantile = |q: f64| self.latencies.value_at_quantile(q) as f64 / 1e3;
        let mut report = Report::default();
        report.put("operations", self.count as f64);
        report.put("per_s", per_s);
        report.put("bytes_per_s", per_s * bytes as f64);
        report.put("p50_us", quantile(0.5));
        report.put("p90_us", quantile(0.9));
        report.put("p99_us", quantile(0.99));
        report.put("p999_us", quantile(0.999));
        report.put("max_us", self.latencies.max() as f64 / 1e3);
        if self.pid.is_some() {
            report.put("server_user_us_per_op", per_op(user));
            report.put("server_sys_us_per_op", per_op(sys));
            report.put("server_cpu_us_per_op", per_op(cpu));
            report.put("server_cpu_pct", cpu / seconds * 100.0);
            report.put("server_rss_kib", server.rss_kib);
            report.put("server_peak_rss_kib", server.peak_rss_kib);
        }
        report.put("client_cpu_pct", own / seconds * 100.0);
        report.put("seconds", seconds);
        report
    }
}

#[cfg(test)]
mod tests {
    use super::Window;
    use crate::Options;
    use clap::Parser;

    fn window(arguments: &[&str]) -> Window {
        let common = ["loadgen", "echo", "--addr", "127.0.0.1:1"];
        Window::new(&Options::parse_from(common.iter().chain(arguments))).unwrap()
    }

    #[test]
    fn a_limited_number_of_operations_starts_and_the_last_reply_ends_the_run() {
        let mut window = window(&["--operations", "5", "--seconds", "0", "--warmup", "9"]);
        assert!(window.tick());
        assert_eq!([window.begin(3), window.begin(3), window.begin(3)], [3, 2, 0]);
        for _ in 0..5 {
            assert!(window.tick());
            window.record(1);
        }
        assert!(!window.tick());
        assert_eq!(window.report(1).get("operations"), 5.0);
    }

    #[test]
    fn a_timed_run_has_no_limit_of_operations() {
        let mut window = window(&["--seconds", "0", "--warmup", "0"]);
        assert_eq!([window.begin(1000), window.begin(1000)], [1000; 2]);
        assert!(!window.tick());
    }
}
