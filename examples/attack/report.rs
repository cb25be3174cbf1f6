//! The result: a Markdown table on standard output, notes on standard error.

use crate::{
    innocents::Measured,
    output::{complain, say},
    server::Ending,
};
use std::time::Duration;

/// Result of one attack.
pub(crate) struct Row {
    pub(crate) attack: &'static str,
    /// Whether the bounds apply; `false` for a baseline.
    pub(crate) is_bound: bool,
    pub(crate) measured: Measured,
    pub(crate) rss_mb: u64,
    pub(crate) remark: String,
    pub(crate) ending: Ending,
}

/// Bounds that every attack has to meet.
pub(crate) struct Bounds {
    /// Upper bound for the 99th percentile of the innocent clients' latency.
    pub(crate) latency: Duration,
    pub(crate) rss_mb: u64,
}

pub(crate) struct Report {
    bounds: Bounds,
    broken: Vec<String>,
}

impl Report {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Report { bounds, broken: Vec::new() }
    }

    pub(crate) fn print_header(&self) {
        say!(
            "| attack | build | p50 ms | p99 ms | max ms | received | lost | duplicates | disconnected | RSS MB | SIGTERM | remark |"
        );
        say!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    }

    /// Prints the row and records the bounds that it breaks.
    pub(crate) fn add(&mut self, row: Row) {
        let Row { attack, is_bound, measured, rss_mb, remark, ending } = row;
        let Measured { p50, p99, max, received, lost, doubled, disconnected, farewells } = measured;
        let [p50_ms, p99_ms, max_ms] = [p50, p99, max].map(|time| time.as_secs_f64() * 1000.0);
        let build = if is_bound { "after" } else { "before" };
        let ending_text = match ending {
            Ending::Drained => format!("drained, {farewells} farewells"),
            Ending::Failed => "failed".to_owned(),
            Ending::Killed => "had to be killed".to_owned(),
        };
        say!(
            "| {attack} | {build} | {p50_ms:.1} | {p99_ms:.1} | {max_ms:.1} | {received} | {lost} | {doubled} | \
             {disconnected} | {rss_mb} | {ending_text} | {remark} |"
        );
        if !is_bound {
            return;
        }
        let mut check = |holds: bool, what: &str| {
            if !holds {
                self.broken.push(format!("{attack}: {what}"));
            }
        };
        check(p99 <= self.bounds.latency, &format!("p99 {p99:.1?} is above {:?}", self.bounds.latency));
        check(lost + doubled == 0, &format!("{lost} messages lost, {doubled} duplicated"));
        check(disconnected == 0, &format!("{disconnected} innocent clients disconnected"));
        check(received > 0, "no innocent client received anything");
        check(rss_mb <= self.bounds.rss_mb, &format!("{rss_mb} MB resident memory"));
        check(ending == Ending::Drained, "SIGTERM did not end the server with exit status 0");
    }

    /// Prints the broken bounds. Returns whether all bounds hold.
    pub(crate) fn print_verdict(&self) -> bool {
        for broken in &self.broken {
            complain!("bound broken: {broken}");
        }
        self.broken.is_empty()
    }
}
