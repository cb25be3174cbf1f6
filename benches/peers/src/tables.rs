//! Results as Markdown.

use crate::{
    Pace,
    peer::PEERS,
    process::Cpus,
    results::{CPU, MEMORY, Results, Rounds, SYSTEM, USER},
    scenario::Scenario,
    versions::Versions,
};
use std::{fmt::Write, fs, process::Command, thread};

/// The beginning of the page with all measurements.
pub(crate) const INTRODUCTION: &str = "\
# Comparison with other servers

This page has all measurements of netwheel beside other servers. [performance.md](performance.md)
explains how they were made and what they show. The runner of [benches/peers](../benches/peers)
wrote this page, peers.csv, peers.svg and versions.csv.

";

/// Width of the lines of text.
const WIDTH: usize = 100;

/// Returns a description of the machine, the method and the versions.
pub(crate) fn preamble(pace: &Pace, cpus: &Cpus, versions: &Versions) -> String {
    let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let info = file("/proc/cpuinfo");
    let model =
        info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, name)| name);
    let kernel = rustix::system::uname();
    let release = kernel.release().to_string_lossy();
    let method = format!(
        "{}, {} cpus, Linux {}, load average {} at the start. Server on cpu {}, load on cpu {}. Medians of {} interleaved \
         rounds of {} s; the spread is (largest - smallest) / median. \"To the first\" is the median of the ratios to the first server \
         within each round, followed by the spread of these ratios.",
        model.unwrap_or("unknown cpu"),
        thread::available_parallelism().map_or(0, usize::from),
        // Without the suffix of the distribution.
        release.split('-').next().unwrap_or("unknown"),
        file("/proc/loadavg").split(' ').next().unwrap_or("unknown"),
        cpus.server[0],
        cpus.load,
        pace.rounds,
        pace.seconds,
    );
    format!(
        "{}\n{}",
        wrapped(&format!("Measured on {}. {method}", date())),
        wrapped(&format!("{}, and these versions: {}.", compiler(), versions.line()))
    )
}

/// Returns the date, or "an unknown day" without date(1).
fn date() -> String {
    let words = first_line(Command::new("date").args(["-u", "+%Y-%m-%d"]));
    words.unwrap_or("an unknown day".to_string())
}

/// Returns the version of rustc, without its commit.
fn compiler() -> String {
    let words = first_line(Command::new("rustc").arg("--version")).unwrap_or("an unknown rustc".to_string());
    words.split(" (").next().unwrap_or(&words).to_string()
}

fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(String::from)
}

/// Returns a paragraph in lines of the usual width.
fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        if used > 0 {
            let fits = used + 1 + word.len() <= WIDTH;
            lines.push(if fits { ' ' } else { '\n' });
            used = if fits { used + 1 } else { 0 };
        }
        lines.push_str(word);
        used += word.len();
    }
    lines.push('\n');
    lines
}

/// Formats the value of a column.
type Cell = fn(&Rounds<'_>, &Rounds<'_>) -> Option<String>;

const COMMON: [(&str, Cell); 13] = [
    ("ops/s", |own, _| own.median("per_s").map(thousands)),
    ("spread", |own, _| own.spread("per_s").map(percent)),
    ("CPU us/op", |own, _| own.median(CPU).map(micros)),
    ("spread", |own, _| own.spread(CPU).map(percent)),
    ("to the first", |own, base| own.ratio(CPU, base).map(|ratio| format!("{ratio:.2}"))),
    ("its spread", |own, base| own.ratio_spread(CPU, base).map(percent)),
    ("user us", |own, _| own.median(USER).map(micros)),
    ("system us", |own, _| own.median(SYSTEM).map(micros)),
    ("p50 us", |own, _| own.median("p50_us").map(|us| format!("{us:.0}"))),
    ("p99 us", |own, _| own.median("p99_us").map(|us| format!("{us:.0}"))),
    ("server CPU %", |own, _| own.median("server_cpu_pct").map(|pct| format!("{pct:.0}"))),
    ("load CPU %", |own, _| own.median("client_cpu_pct").map(|pct| format!("{pct:.0}"))),
    ("errors", |own, _| Some(format!("{:.0}", own.sum("errors")))),
];

const IDLE: [(&str, Cell); 7] = [
    ("bytes RSS/connection", |own, _| own.median(MEMORY).map(|bytes| format!("{bytes:.0}"))),
    ("spread", |own, _| own.spread(MEMORY).map(percent)),
    ("RSS before MiB", |own, _| own.median("server_base_rss_kib").map(|kib| format!("{:.1}", kib / 1024.0))),
    ("RSS with them MiB", |own, _| own.median("server_rss_kib").map(|kib| format!("{:.1}", kib / 1024.0))),
    ("CPU % while idle", |own, _| own.median("idle_cpu_pct").map(|pct| format!("{pct:.2}"))),
    ("opened/s", |own, _| own.median("opened_per_s").map(thousands)),
    ("errors", |own, _| Some(format!("{:.0}", own.sum("errors")))),
];

const STORM: [(&str, Cell); 8] = [
    ("p50 us", |own, _| own.median("p50_us").map(|us| format!("{us:.0}"))),
    ("p99 us", |own, _| own.median("p99_us").map(|us| format!("{us:.0}"))),
    ("spread", |own, _| own.spread("p99_us").map(percent)),
    ("max us", |own, _| own.median("max_us").map(|us| format!("{us:.0}"))),
    ("handshakes ms", |own, _| own.median("storm_ms").map(|ms| format!("{ms:.0}"))),
    ("spread", |own, _| own.spread("storm_ms").map(percent)),
    ("load CPU %", |own, _| own.median("client_cpu_pct").map(|pct| format!("{pct:.0}"))),
    ("errors", |own, _| Some(format!("{:.0}", own.sum("errors")))),
];

pub(crate) fn of_scenario(scenario: &Scenario, results: &Results) -> String {
    let servers = results.of(scenario.name);
    let Some((_, base)) = servers.first() else { return String::new() };
    let columns: &[(&str, Cell)] = match &scenario.load {
        load if load.is_idle() => &IDLE,
        load if load.is_storm() => &STORM,
        _ => &COMMON,
    };
    let about = format!(
        "{} (`{}`, `loadgen {}`).",
        upper(scenario.about),
        scenario.mode.name(),
        scenario.load.arguments().join(" ")
    );
    let mut table = format!("\n## {}\n\n{}\n", scenario.name, wrapped(&about));
    let _ = writeln!(
        table,
        "| server |{}",
        columns.iter().map(|(name, _)| format!(" {name} |")).collect::<String>()
    );
    let _ = writeln!(table, "|---|{}", "---:|".repeat(columns.len()));
    for (name, own) in &servers {
        let _ = write!(table, "| {name} |");
        for (_, cell) in columns {
            let _ = write!(table, " {} |", cell(own, base).unwrap_or_default());
        }
        table.push('\n');
    }
    let stolen: f64 = servers.iter().map(|(_, own)| own.sum("steal_s")).sum();
    if stolen > 0.0 {
        let _ = writeln!(table, "\nThe hypervisor took {stolen:.2} s of these runs.");
    }
    table
}

/// Returns a table with one row for each scenario and one column for each server.
pub(crate) fn summary(scenarios: &[Scenario], results: &Results) -> String {
    let seen =
        |name: &str| scenarios.iter().any(|s| results.of(s.name).iter().any(|(server, _)| *server == name));
    let servers: Vec<&str> = PEERS.iter().map(|peer| peer.name).filter(|name| seen(name)).collect();
    let mut table =
        "\n## Summary\n\nCPU time of the server in us per operation, bytes of resident memory per idle connection, or the p99\nof the echo in us during a storm. In brackets: the ratio to the first, and the spread of that ratio.\n\n| scenario |"
            .to_string();
    servers.iter().for_each(|name| table.push_str(&format!(" {name} |")));
    let _ = writeln!(table, "\n|---|{}", "---:|".repeat(servers.len()));
    for scenario in scenarios {
        if results.of(scenario.name).is_empty() {
            continue;
        }
        let _ = write!(table, "| {} |", scenario.name);
        for server in &servers {
            let _ = write!(table, " {} |", cost(scenario, server, results).unwrap_or_default());
        }
        table.push('\n');
    }
    table
}

/// Returns the cell of a server in a summary, or `None` if it was not measured.
pub(crate) fn cost(scenario: &Scenario, server: &str, results: &Results) -> Option<String> {
    let servers = results.of(scenario.name);
    let (_, base) = servers.first()?;
    servers.iter().find(|(name, _)| *name == server).and_then(|(_, own)| summed_up(scenario, own, base))
}

/// Returns the ratio of a server's CPU time to that of the first server.
pub(crate) fn ratio(scenario: &Scenario, server: &str, results: &Results) -> Option<String> {
    let servers = results.of(scenario.name);
    let (_, base) = servers.first()?;
    let (_, own) = servers.iter().find(|(name, _)| *name == server)?;
    own.ratio(CPU, base).map(|ratio| format!("{ratio:.2}"))
}

/// Returns the operations per second of a server.
pub(crate) fn rate(scenario: &Scenario, server: &str, results: &Results) -> Option<String> {
    let servers = results.of(scenario.name);
    let (_, own) = servers.iter().find(|(name, _)| *name == server)?;
    own.median("per_s").map(thousands)
}

/// Returns the compared value of a scenario, its ratio, and the spread of the ratios of single
/// rounds. The first server gets only its value.
fn summed_up(scenario: &Scenario, own: &Rounds<'_>, base: &Rounds<'_>) -> Option<String> {
    let value = value(scenario, own, base)?;
    let spread = own.ratio_spread(CPU, base).filter(|spread| *spread > 0.0);
    Some(match (value.strip_suffix(')'), spread) {
        (Some(open), Some(spread)) => format!("{open}, {})", percent(spread)),
        _ => value,
    })
}

/// Returns the compared value of a scenario, and its ratio.
pub(crate) fn value(scenario: &Scenario, own: &Rounds<'_>, base: &Rounds<'_>) -> Option<String> {
    if scenario.load.is_idle() {
        return own.median(MEMORY).map(thousands);
    }
    if scenario.load.is_storm() {
        return own.median("p99_us").map(|us| format!("p99 {us:.0}"));
    }
    let cpu = micros(own.median(CPU)?);
    Some(own.ratio(CPU, base).map_or(cpu.clone(), |ratio| format!("{cpu} ({ratio:.2})")))
}

fn micros(us: f64) -> String {
    if us < 1.0 { format!("{us:.3}") } else { format!("{us:.2}") }
}

fn percent(part: f64) -> String {
    format!("{:.0}%", part * 100.0)
}

pub(crate) fn upper(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.max(0.0));
    let mut grouped = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::{thousands, wrapped};

    #[test]
    fn lines_are_at_most_100_wide() {
        let (word, text) = ("word".repeat(10), "word".repeat(10) + " " + &"word".repeat(10));
        assert_eq!(wrapped(&format!("{text} {word}")), format!("{text}\n{word}\n"));
    }

    #[test]
    fn digits_are_grouped_from_the_right() {
        assert_eq!([0.0, 999.0, 1000.4, 1_234_567.0].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }
}
