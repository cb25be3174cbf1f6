//! The results: a table in Markdown, the same as CSV, and a picture.

pub(crate) mod picture;
pub(crate) mod progress;

use crate::play::Outcome;
use std::{fmt::Write, time::Duration};

/// The name of a column, and the function for its cells.
type Column = (&'static str, fn(&Outcome) -> String);

const COLUMNS: [Column; 19] = [
    ("accepted", |o| o.verdict.accepted.to_string()),
    ("deliveries", |o| o.verdict.deliveries.to_string()),
    ("lost", |o| o.verdict.lost.to_string()),
    ("lost by the store, no notice", |o| o.verdict.without_notice.to_string()),
    ("missed, with a notice", |o| o.verdict.noticed.to_string()),
    ("notices", |o| o.verdict.notices.to_string()),
    ("doubled", |o| o.verdict.doubled.to_string()),
    ("out of order", |o| o.verdict.out_of_order.to_string()),
    ("users wrongly absent", |o| or_none(o.verdict.absent)),
    ("absent for, s", |o| or_none(o.verdict.absent_for.map(seconds))),
    ("ghosts gone after, s", |o| or_none(o.verdict.ghosts.map(seconds))),
    ("no list for, s", |o| or_none(o.verdict.no_list_for.map(seconds))),
    ("longest gap p99, s", |o| seconds(o.verdict.gap(0.99))),
    ("longest gap max, s", |o| seconds(o.verdict.gap(1.0))),
    ("all back after, s", |o| seconds(o.settled_after)),
    ("not back", |o| o.unsettled.to_string()),
    ("seen and lost by the store, no notice", |o| o.verdict.untold.to_string()),
    ("planned resumes", |o| or_none(o.verdict.resumes)),
    ("resumes with a wrong answer", |o| o.verdict.wrong_resumes.to_string()),
];

fn or_none(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn seconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64())
}

/// Returns the table in Markdown.
pub(crate) fn markdown(outcomes: &[Outcome]) -> String {
    let mut text = String::from("| fault |");
    for (name, _) in COLUMNS {
        let _ = write!(text, " {name} |");
    }
    let _ = writeln!(text, "\n|---|{}", "---:|".repeat(COLUMNS.len()));
    for outcome in outcomes {
        let _ = write!(text, "| {} |", outcome.fault.title());
        for (_, cell) in COLUMNS {
            let _ = write!(text, " {} |", cell(outcome));
        }
        text.push('\n');
    }
    text
}

/// Returns the table as CSV.
pub(crate) fn csv(outcomes: &[Outcome]) -> String {
    let mut text = String::from("fault");
    for (name, _) in COLUMNS {
        let _ = write!(text, ",\"{name}\"");
    }
    text.push('\n');
    for outcome in outcomes {
        text.push_str(&outcome.fault.name());
        for (_, cell) in COLUMNS {
            let _ = write!(text, ",{}", cell(outcome));
        }
        text.push('\n');
    }
    text
}
