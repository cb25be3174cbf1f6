//! Counts per operation, as Markdown and as data.

use crate::{
    peer::{self, PEERS},
    scenario::{self, Scenario},
    tables::{thousands, upper},
    tool::{ALLOCATED, ALLOCATIONS, CALL, INSTRUCTIONS, Tool, Totals},
};
use std::{fmt::Write, io};

/// Maximum difference per operation between two equal runs, caused by an expired timer or a
/// connection that was accepted separately.
const NOISE: f64 = 0.0006;

/// By scenario and server, in the order of counting.
#[derive(Default)]
pub(crate) struct Counts(Vec<(&'static str, &'static str, Totals)>);

/// Returns a description of the method.
pub(crate) fn preamble(tools: &[Tool]) -> String {
    let tools: Vec<&str> = tools.iter().map(|tool| tool.name()).collect();
    let tools = if tools.is_empty() { "nothing: no tool works".to_string() } else { tools.join(", ") };
    format!(
        "Counted with {tools}: two runs, one with twice the operations; their difference per operation. The tool \
         slows the server down, so a poll returns more events than usual: nearly all connections are ready each time."
    )
}

impl Counts {
    pub(crate) fn add(&mut self, scenario: &'static str, server: &'static str, costs: Totals) {
        match self.0.iter_mut().find(|(of, by, _)| (*of, *by) == (scenario, server)) {
            Some((.., totals)) => totals.extend(costs),
            None => self.0.push((scenario, server, costs)),
        }
    }

    fn of(&self, scenario: &str) -> Vec<(&'static str, &Totals)> {
        let own = self.0.iter().filter(|(of, ..)| *of == scenario);
        own.map(|(_, server, totals)| (*server, totals)).collect()
    }

    pub(crate) fn table(&self, scenario: &Scenario) -> String {
        let servers = self.of(scenario.name);
        let Some((_, base)) = servers.first() else { return String::new() };
        let mut table = format!(
            "\n### {}\n\n{} ({} operations, then twice as many).\n\n",
            scenario.name,
            upper(scenario.about),
            thousands(scenario.load.operations as f64)
        );
        table.push_str(
            "| server | instructions | to the first | allocations | allocated bytes | system calls | to the first | calls by name |\n\
             |---|---:|---:|---:|---:|---:|---:|---|\n",
        );
        for (server, own) in &servers {
            let cell = |name: &str| own.get(name).map_or(String::new(), |value| number(*value));
            let (calls, base_calls) = (all_calls(own), all_calls(base));
            let _ = writeln!(
                table,
                "| {server} | {} | {} | {} | {} | {} | {} | {} |",
                cell(INSTRUCTIONS),
                ratio(own.get(INSTRUCTIONS).copied(), base.get(INSTRUCTIONS).copied()),
                cell(ALLOCATIONS),
                cell(ALLOCATED),
                calls.map_or(String::new(), number),
                ratio(calls, base_calls),
                which(own),
            );
        }
        table
    }

    /// Returns a table with one row for each scenario and one column for each server.
    pub(crate) fn summary(&self, scenarios: &[Scenario]) -> String {
        let seen = |name: &str| self.0.iter().any(|(_, server, _)| *server == name);
        let servers: Vec<&str> = PEERS.iter().map(|peer| peer.name).filter(|name| seen(name)).collect();
        let mut table =
            "\n### Summary\n\nInstructions in user space per operation, then system calls; in brackets the ratio to the \
             first.\n\n| scenario |"
                .to_string();
        servers.iter().for_each(|name| table.push_str(&format!(" {name} |")));
        let _ = writeln!(table, "\n|---|{}", "---:|".repeat(servers.len()));
        for scenario in scenarios {
            let rows = self.of(scenario.name);
            let Some((_, base)) = rows.first() else { continue };
            let _ = write!(table, "| {} |", scenario.name);
            for server in &servers {
                let own = rows.iter().find(|(name, _)| name == server);
                let cell = own.map_or(String::new(), |(_, own)| summed_up(own, base));
                let _ = write!(table, " {cell} |");
            }
            table.push('\n');
        }
        table
    }

    /// Returns the instructions per operation of a server.
    pub(crate) fn instructions(&self, scenario: &Scenario, server: &str) -> Option<String> {
        let (_, own) = *self.of(scenario.name).iter().find(|(name, _)| *name == server)?;
        own.get(INSTRUCTIONS).map(|value| number(*value))
    }

    /// Returns the instructions per operation of a server, their ratio, and the system calls.
    pub(crate) fn cost(&self, scenario: &Scenario, server: &str) -> Option<String> {
        let servers = self.of(scenario.name);
        let (_, base) = servers.first()?;
        servers.iter().find(|(name, _)| *name == server).map(|(_, own)| summed_up(own, base))
    }

    /// Parses what `csv` returns.
    ///
    /// # Errors
    /// If a line has an unknown scenario or server, or not a number.
    pub(crate) fn read(csv: &str) -> io::Result<Self> {
        let mut counts = Counts::default();
        for line in csv.lines().skip(1) {
            let (scenario, server, totals) =
                parsed(line).ok_or_else(|| io::Error::other(format!("not a count: {line}")))?;
            counts.add(scenario, server, totals);
        }
        Ok(counts)
    }

    pub(crate) fn csv(&self) -> String {
        let mut csv = "scenario,server,count,per_operation\n".to_string();
        for (scenario, server, totals) in &self.0 {
            for (name, value) in totals.iter().filter(|(_, value)| value.abs() > NOISE) {
                let _ = writeln!(csv, "{scenario},{server},{name},{value:.4}");
            }
        }
        csv
    }
}

fn parsed(line: &str) -> Option<(&'static str, &'static str, Totals)> {
    let cells: Vec<&str> = line.split(',').collect();
    let [scenario, server, count, value] = cells.as_slice() else { return None };
    let totals = Totals::from([(count.to_string(), value.parse().ok()?)]);
    Some((scenario::name(scenario)?, peer::name(server)?, totals))
}

fn summed_up(own: &Totals, base: &Totals) -> String {
    let instructions = own.get(INSTRUCTIONS).map(|value| {
        let ratio = ratio(Some(*value), base.get(INSTRUCTIONS).copied());
        format!("{} ({ratio})", number(*value))
    });
    let calls = all_calls(own).map(|calls| format!("{calls:.2}"));
    instructions.into_iter().chain(calls).collect::<Vec<_>>().join(", ")
}

/// Returns the number of all system calls, or `None` if they were not counted.
fn all_calls(totals: &Totals) -> Option<f64> {
    let calls = totals.iter().filter(|(name, _)| name.starts_with(CALL)).map(|(_, value)| *value);
    calls.reduce(|a, b| a + b)
}

/// Returns the system calls by name, the most frequent ones first.
fn which(totals: &Totals) -> String {
    let mut calls: Vec<(&str, f64)> = totals
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(CALL)?, *value)))
        .filter(|(_, value)| value.abs() > NOISE)
        .collect();
    calls.sort_by(|a, b| b.1.total_cmp(&a.1));
    calls.iter().map(|(name, value)| format!("{name} {value:.3}")).collect::<Vec<_>>().join(", ")
}

fn ratio(own: Option<f64>, base: Option<f64>) -> String {
    match (own, base.filter(|base| *base > 0.0)) {
        (Some(own), Some(base)) => format!("{:.2}", own / base),
        _ => String::new(),
    }
}

fn number(value: f64) -> String {
    match value.abs() {
        small if small < NOISE => "0".to_string(),
        small if small < 10.0 => format!("{value:.3}"),
        small if small < 100.0 => format!("{value:.1}"),
        _ => thousands(value),
    }
}

#[cfg(test)]
mod tests {
    use super::Counts;
    use crate::{
        scenario::SCENARIOS,
        tool::{ALLOCATIONS, INSTRUCTIONS, Totals},
    };

    fn totals(values: &[(&str, f64)]) -> Totals {
        values.iter().map(|(name, value)| (name.to_string(), *value)).collect()
    }

    /// Returns counts of two servers in the first scenario.
    fn counts() -> Counts {
        let mut counts = Counts::default();
        let name = SCENARIOS[0].name;
        counts.add(name, "epoll", totals(&[(INSTRUCTIONS, 200.0)]));
        counts.add(
            name,
            "epoll",
            totals(&[
                ("call read", 1.0),
                ("call write", 1.0),
                ("call epoll_wait", 0.25),
                ("call mmap", 0.0001),
            ]),
        );
        counts.add(name, "netwheel", totals(&[(INSTRUCTIONS, 1300.0), (ALLOCATIONS, 0.0)]));
        counts
    }

    #[test]
    fn a_row_has_ratios_to_the_first_server_and_the_calls_by_name() {
        let table = counts().table(&SCENARIOS[0]);
        assert!(
            table.contains(
                "| epoll | 200 | 1.00 |  |  | 2.250 | 1.00 | read 1.000, write 1.000, epoll_wait 0.250 |"
            ),
            "{table}"
        );
        // An uncounted value is empty, not 0.
        assert!(table.contains("| netwheel | 1,300 | 6.50 | 0 |  |  |  |  |"), "{table}");
    }

    #[test]
    fn the_summary_lists_the_counted_servers() {
        let summary = counts().summary(SCENARIOS);
        let row = format!("| {} | 200 (1.00), 2.25 | 1,300 (6.50) |", SCENARIOS[0].name);
        assert!(summary.contains(&row), "{summary}");
        assert!(!summary.contains("tokio"));
    }

    #[test]
    fn the_data_has_a_line_for_each_count_above_the_noise() {
        let csv = counts().csv();
        assert_eq!(csv.lines().count(), 1 + 4 + 1, "{csv}");
        assert!(csv.contains("raw-64B-c1,epoll,call epoll_wait,0.2500\n"));
        assert_eq!(Counts::read(&csv).unwrap().csv(), csv);
    }
}
