//! The tables of docs/storms.md.

use crate::figures::Results;
use std::fmt::Write;

/// Name of a column, the figure in it, its decimal places, and whether the largest value of the
/// rounds counts instead of the median.
const COLUMNS: [(&str, &str, usize, bool); 12] = [
    ("capacity, logins/s", "capacity, logins/s", 0, false),
    ("offered, times", "offered load, times the capacity", 1, false),
    ("goodput, % of capacity", "goodput, % of the capacity", 0, false),
    ("all in after, s", "all in after, s", 1, false),
    ("normal after, times the drain time", "normal after, times the drain time", 2, false),
    ("login p99, ms", "login p99, ms", 0, false),
    ("chat p99 before, ms", "chat p99 before, ms", 1, false),
    ("chat p99, ms", "chat p99, ms", 1, false),
    ("chat max, ms", "chat max, ms", 0, false),
    ("established lost", "established lost", 0, true),
    ("wrongly dropped", "wrongly dropped", 0, true),
    ("attempts given up", "gave up", 0, false),
];

/// Returns a table for each storm.
pub(crate) fn markdown(results: &Results) -> String {
    let mut text = String::new();
    for storm in &results.storms {
        let _ = writeln!(text, "Storm of {storm}:\n");
        let names = COLUMNS.map(|(name, ..)| name).join(" | ");
        let _ = writeln!(text, "| server | {names} |");
        let _ = writeln!(text, "|---|{}", "---:|".repeat(COLUMNS.len()));
        for server in results.servers.iter().filter(|server| results.has(storm, server)) {
            let cell = |(_, figure, places, largest): (&str, &str, usize, bool)| {
                let value = if largest {
                    results.largest(storm, server, figure)
                } else {
                    results.median(storm, server, figure)
                };
                value.map_or("never".to_owned(), |value| format!("{value:.places$}"))
            };
            let _ = writeln!(text, "| {server} | {} |", COLUMNS.map(cell).join(" | "));
        }
        text.push('\n');
    }
    text
}
