//! Fills the tables of the repository's pages from the data of a run.
//!
//! A table is between two comments, of which the first lists its columns and rows:
//!
//! ```text
//! <!-- peers: netwheel tokio netty
//! ratio raw-64B-c64: echo of 64 bytes
//! -->
//! <!-- end of peers -->
//! ```
//!
//! A row is a figure, a scenario and an optional label. Rows and columns without any data are left
//! out, so a table may list servers that have not been measured yet.

use crate::{counts::Counts, results::Results, scenario::SCENARIOS, tables, versions::Versions};
use std::{fmt::Write, fs, io, path::Path};

const BEGIN: &str = "<!-- peers: ";
const END: &str = "<!-- end of peers -->";

/// Pages with tables, in the folder of the repository.
const PAGES: [&str; 2] = ["README.md", "docs/performance.md"];

/// The data of a run.
pub(crate) struct Data {
    results: Results,
    counts: Counts,
    versions: Versions,
}

impl Data {
    /// Reads the files of a run. A file that does not exist is empty.
    ///
    /// # Errors
    /// If a file has an unknown server, scenario or number.
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        let file = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        Ok(Data {
            results: Results::read(&file("peers.csv"))?,
            counts: Counts::read(&file("counts.csv"))?,
            versions: Versions::read(&file("versions.csv")),
        })
    }

    /// Fills the tables of all pages in the repository `root`.
    ///
    /// # Errors
    /// If a page cannot be read or written, or a table is not specified correctly.
    pub(crate) fn fill(&self, root: &Path) -> io::Result<()> {
        for page in PAGES {
            let path = root.join(page);
            let within = |e: io::Error| io::Error::other(format!("{page}: {e}"));
            let filled = fs::read_to_string(&path).and_then(|text| self.filled(&text)).map_err(within)?;
            fs::write(&path, filled).map_err(within)?;
        }
        Ok(())
    }

    fn filled(&self, text: &str) -> io::Result<String> {
        let mut parts = text.split(BEGIN);
        let mut filled = parts.next().unwrap_or_default().to_string();
        for part in parts {
            let (form, rest) =
                part.split_once("-->").ok_or_else(|| io::Error::other("a comment has no end"))?;
            let (_, rest) =
                rest.split_once(END).ok_or_else(|| io::Error::other(format!("a table has no {END}")))?;
            let _ = write!(filled, "{BEGIN}{form}-->\n{}{END}{rest}", self.table(form)?);
        }
        Ok(filled)
    }

    fn table(&self, form: &str) -> io::Result<String> {
        let mut lines = form.lines();
        let servers: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
        let rows = lines.map(|line| self.row(line, &servers)).collect::<io::Result<Vec<Row>>>()?;
        let rows: Vec<&Row> = rows.iter().filter(|row| row.cells.iter().any(Option::is_some)).collect();
        if rows.is_empty() {
            return Ok(String::new());
        }
        let seen: Vec<usize> =
            (0..servers.len()).filter(|n| rows.iter().any(|row| row.cells[*n].is_some())).collect();
        let labelled = rows.iter().any(|row| row.figure.is_some());
        let mut table = if labelled { "| |" } else { "| scenario |" }.to_string();
        seen.iter().for_each(|n| table.push_str(&format!(" {} |", self.versions.heading(servers[*n]))));
        table.push_str(if labelled { " figure |\n|---|" } else { "\n|---|" });
        table.push_str(&"---:|".repeat(seen.len()));
        table.push_str(if labelled { "---|\n" } else { "\n" });
        for row in rows {
            let _ = write!(table, "| {} |", row.label);
            for n in &seen {
                let _ = write!(table, " {} |", row.cells[*n].as_deref().unwrap_or_default());
            }
            row.figure.iter().for_each(|figure| table.push_str(&format!(" {figure} |")));
            table.push('\n');
        }
        Ok(table)
    }

    fn row(&self, line: &str, servers: &[&str]) -> io::Result<Row> {
        let (what, label) = line.split_once(": ").unzip();
        let what = what.unwrap_or(line);
        let unknown = || io::Error::other(format!("{line:?} is not a figure and a scenario"));
        let (figure, name) = what.split_once(' ').ok_or_else(unknown)?;
        let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name).ok_or_else(unknown)?;
        let (cell, unit): (Cell<'_>, _) = match figure {
            "cost" => (&|server| tables::cost(scenario, server, &self.results), "CPU us per operation"),
            "ratio" => (
                &|server| tables::ratio(scenario, server, &self.results),
                "CPU per operation, raw epoll is 1",
            ),
            "rate" => (&|server| tables::rate(scenario, server, &self.results), "operations per second"),
            "memory" => (&|server| tables::cost(scenario, server, &self.results), "bytes of memory"),
            "instructions" => (
                &|server| self.counts.instructions(scenario, server),
                "instructions per operation in user space",
            ),
            "counts" => (&|server| self.counts.cost(scenario, server), "instructions, system calls"),
            _ => return Err(unknown()),
        };
        Ok(Row {
            label: label.unwrap_or(name).to_string(),
            cells: servers.iter().map(|server| cell(server)).collect(),
            figure: label.map(|_| unit),
        })
    }
}

/// Formats the figure of a server.
type Cell<'a> = &'a dyn Fn(&str) -> Option<String>;

struct Row {
    label: String,
    cells: Vec<Option<String>>,
    /// Unit, in a table with labels.
    figure: Option<&'static str>,
}

#[cfg(test)]
mod tests {
    use super::Data;
    use crate::{counts::Counts, results::Results, versions::Versions};

    fn data() -> Data {
        let results = "scenario,server,round,server_cpu_us_per_op,errors\n\
                       raw-64B-c1,epoll,1,2.0000,0.0000\nraw-64B-c1,netty,1,5.0000,0.0000\n";
        Data {
            results: Results::read(results).unwrap(),
            counts: Counts::read(
                "scenario,server,count,per_operation\nraw-64B-c1,epoll,instructions,129.0000\n",
            )
            .unwrap(),
            versions: Versions::read("server,version\nnetty,4.2.13\n"),
        }
    }

    #[test]
    fn a_table_is_replaced_and_the_text_around_it_stays() {
        let form = "<!-- peers: epoll tokio netty\ncost raw-64B-c1\ncost churn\n-->";
        let page = format!("before\n{form}\n| old |\n<!-- end of peers -->\nafter\n");
        let table = "| scenario | epoll | netty 4.2.13 |\n|---|---:|---:|\n| raw-64B-c1 | 2.00 (1.00) | 5.00 (2.50) |\n";
        let filled = data().filled(&page).unwrap();
        assert_eq!(filled, format!("before\n{form}\n{table}<!-- end of peers -->\nafter\n"));
        assert_eq!(data().filled(&filled).unwrap(), filled, "filling again changes nothing");
    }

    #[test]
    fn a_row_with_a_label_says_its_figure() {
        let page = "<!-- peers: netty\nratio raw-64B-c1: one: two\n-->\n<!-- end of peers -->";
        let row = "| one: two | 2.50 | CPU per operation, raw epoll is 1 |\n";
        assert!(data().filled(page).unwrap().contains(row));
    }

    #[test]
    fn a_table_without_data_is_empty() {
        let page = "<!-- peers: netty\ncost churn\n-->\n<!-- end of peers -->";
        assert_eq!(data().filled(page).unwrap(), page);
    }

    #[test]
    fn a_wrong_specification_is_an_error() {
        for page in [
            "<!-- peers: netty\n",
            "<!-- peers: netty\n-->\n",
            "<!-- peers: netty\ncost nothing\n-->\n<!-- end of peers -->",
            "<!-- peers: netty\nspeed churn\n-->\n<!-- end of peers -->",
        ] {
            assert!(data().filled(page).is_err(), "{page}");
        }
    }
}
