//! Output: progress on standard error, and the final table on standard output.

use crate::{
    directs::Summary,
    output::{self, say},
    passive::Counted,
    plan::{Plan, Role},
    slow::Fates,
};
use std::{
    fmt::Display,
    io::{IsTerminal, Write},
    time::{Duration, Instant},
};

/// On a terminal, one line that is updated in place; elsewhere, a line every few seconds.
pub(crate) struct Progress {
    terminal: bool,
    next: Instant,
    width: usize,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Progress { terminal: std::io::stderr().is_terminal(), next: Instant::now(), width: 0 }
    }

    /// Shows a line, at most once per period.
    pub(crate) fn show(&mut self, line: impl FnOnce() -> String) {
        let now = Instant::now();
        if now >= self.next {
            let period = if self.terminal { Duration::from_millis(200) } else { Duration::from_secs(5) };
            self.next = now + period;
            self.write(&line(), false);
        }
    }

    /// Shows the result of a phase.
    pub(crate) fn end_phase(&mut self, line: &str) {
        self.next = Instant::now();
        self.write(line, true);
    }

    fn write(&mut self, line: &str, last: bool) {
        let mut err = output::stderr();
        // A failure to show progress does not end the run.
        let _ = if self.terminal {
            // Pad with blanks to overwrite a longer previous line.
            let end = if last { "\n" } else { "" };
            err.write_all(format!("\r{line:<width$}{end}", width = self.width).as_bytes())
        } else {
            err.write_all(format!("{line}\n").as_bytes())
        };
        self.width = if last { 0 } else { line.chars().count() };
    }
}

/// Counters of the main thread.
pub(crate) struct Outcome {
    pub(crate) sent: u64,
    /// Messages said in each room.
    pub(crate) said: Vec<u64>,
    pub(crate) expected: u64,
    pub(crate) talked: Duration,
    /// Set when the user has ended the run early.
    pub(crate) interrupted: bool,
}

/// Prints the table and returns the list of faults.
pub(crate) fn print_table(plan: &Plan, outcome: &Outcome) -> Vec<String> {
    let tally = &plan.tally;
    let received = tally.received.read();
    let lost = outcome.expected.saturating_sub(received);
    row("clients", plan.roles.len());
    row("connected", tally.connected.read());
    row("logged in", tally.logged_in.read());
    row("in rooms", tally.joined.read());
    let rate = outcome.sent as f64 / outcome.talked.as_secs_f64().max(0.001);
    row("messages sent", format_args!("{}  ({rate:.1}/s)", outcome.sent));
    let rate = received as f64 / outcome.talked.as_secs_f64().max(0.001);
    row("deliveries expected", outcome.expected);
    row("deliveries received", format_args!("{received}  ({rate:.1}/s)"));
    row("lost", lost);
    row("duplicates", tally.doubled.read());
    row("out of order", tally.out_of_order.read());
    let latency = tally.latency();
    let millis = |micros: u64| format!("{:.1} ms", micros as f64 / 1000.0);
    row("latency p50", millis(latency.value_at_quantile(0.5)));
    row("latency p99", millis(latency.value_at_quantile(0.99)));
    row("latency max", millis(latency.max()));
    row("pings answered", tally.pings_answered.read());
    row("dropped, not silent", tally.dropped.read());
    let slow = print_slow(plan, &outcome.said);
    let counted = print_passive(plan, &outcome.said);
    let directs = print_directs(plan);
    print_silent(plan);

    let mut wrong = Vec::new();
    let mut check = |count: u64, what: &str| {
        if count > 0 {
            wrong.push(format!("{count} {what}"));
        }
    };
    check(lost, "deliveries lost");
    check(tally.doubled.read(), "duplicate deliveries");
    check(tally.out_of_order.read(), "deliveries out of order");
    check(tally.dropped.read(), "clients dropped that were not silent");
    for (count, what) in &directs.wrong {
        check(*count, what);
    }
    if !outcome.interrupted {
        check(directs.under_way, "direct messages without an outcome");
        check(plan.roles.len() as u64 - tally.logged_in.read(), "clients not logged in");
        check(counted.behind, "passive clients with a wrong number of messages");
        check(slow.left_to_guess, "slow clients lost messages and were not notified");
        check(slow.kept_up, "slow clients missed nothing: increase --rate or --size");
        wrong.extend(judge_silent(plan));
    }
    row("result", if wrong.is_empty() { "ok".to_owned() } else { wrong.join(", ") });
    wrong
}

fn row(name: &str, value: impl Display) {
    say!("{name:<20}  {value}");
}

fn print_slow(plan: &Plan, said: &[u64]) -> Fates {
    let fates = plan.slows.fates(said);
    row("slow", fates.slow);
    row("slow, closed", format_args!("{}  ({} with a goodbye)", fates.closed, fates.with_bye));
    row("slow, notified", format_args!("{}  (of {} lines missed)", fates.told, fates.missed));
    fates
}

fn print_passive(plan: &Plan, said: &[u64]) -> Counted {
    let counted = plan.passives.counted(said);
    row("passive", counted.bots);
    row("passive, numbers", counted.numbers);
    counted
}

fn print_directs(plan: &Plan) -> Summary {
    let directs = plan.directs.summary();
    row("direct, sent", directs.sent);
    row("direct, delivered", directs.delivered);
    row("direct, undelivered", directs.undelivered);
    row("direct, refused", directs.refused);
    row("direct, resent", directs.resent);
    row("direct, in flight", directs.under_way);
    directs
}

fn print_silent(plan: &Plan) {
    let silent = plan.tally.silent();
    row("silent", plan.count(|role| *role == Role::Silent));
    row("silent, dropped", silent.dropped);
    if let (Some(shortest), Some(longest)) = (silent.shortest, silent.longest) {
        let [shortest, longest, idle, allowed] =
            [shortest, longest, silent.idle, silent.allowed].map(|time| time.as_secs_f64());
        row(
            "silent, dropped after",
            format_args!("{shortest:.3} s to {longest:.3} s  (due {idle} s to {allowed} s)"),
        );
    }
}

/// Returns the faults in the treatment of the silent bots.
fn judge_silent(plan: &Plan) -> Vec<String> {
    let silent = plan.tally.silent();
    let mut wrong = Vec::new();
    if silent.dropped < silent.logged_in {
        wrong.push(format!("{} silent clients not dropped", silent.logged_in - silent.dropped));
    }
    if silent.without_bye > 0 {
        wrong.push(format!("{} silent clients dropped without a goodbye", silent.without_bye));
    }
    if silent.longest > Some(silent.allowed) {
        wrong.push("a silent client dropped too late".to_owned());
    }
    if silent.shortest.is_some_and(|shortest| shortest < silent.idle) {
        wrong.push("a silent client dropped too early".to_owned());
    }
    wrong
}
