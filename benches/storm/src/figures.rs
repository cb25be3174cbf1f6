//! The figures of all rounds, and the seconds of one storm.

use std::{collections::BTreeMap, fmt::Write, io};

/// Storm, server and figure.
type Key = (String, String, String);

/// Figures of all rounds, in the order in which they were measured.
#[derive(Default)]
pub(crate) struct Results {
    values: BTreeMap<Key, Vec<Option<f64>>>,
    pub(crate) storms: Vec<String>,
    pub(crate) servers: Vec<String>,
    csv: String,
}

fn invalid(line: &str) -> io::Error {
    io::Error::other(format!("not a line of a result: {line}"))
}

/// Returns a value, or `None` if there is none.
///
/// # Errors
/// If it is not a number.
fn number(text: &str) -> io::Result<Option<f64>> {
    match text.trim() {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| invalid(text)),
    }
}

impl Results {
    /// Adds a `storm.csv`.
    ///
    /// # Errors
    /// If a line is not a name and a value.
    pub(crate) fn add(&mut self, storm: &str, server: &str, round: u32, text: &str) -> io::Result<()> {
        for (list, name) in [(&mut self.storms, storm), (&mut self.servers, server)] {
            if !list.iter().any(|known| known == name) {
                list.push(name.to_owned());
            }
        }
        for line in text.lines().skip(1) {
            let (name, value) = line.rsplit_once(',').ok_or_else(|| invalid(line))?;
            let name = name.trim_matches('"');
            let key = (storm.to_owned(), server.to_owned(), name.to_owned());
            self.values.entry(key).or_default().push(number(value)?);
            let _ = writeln!(self.csv, "\"{storm}\",{server},{round},\"{name}\",{value}");
        }
        Ok(())
    }

    /// Returns all rounds as CSV.
    pub(crate) fn csv(&self) -> String {
        format!("storm,server,round,figure,value\n{}", self.csv)
    }

    /// Returns the median of the rounds, where a round without a value counts as the largest one.
    /// `None` if the figure is missing or the median is without a value.
    pub(crate) fn median(&self, storm: &str, server: &str, figure: &str) -> Option<f64> {
        let key = (storm.to_owned(), server.to_owned(), figure.to_owned());
        let values = self.values.get(&key)?;
        let mut sorted: Vec<f64> = values.iter().map(|value| value.unwrap_or(f64::INFINITY)).collect();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().filter(|value| value.is_finite())
    }

    /// Returns the largest value of the rounds.
    pub(crate) fn largest(&self, storm: &str, server: &str, figure: &str) -> Option<f64> {
        let key = (storm.to_owned(), server.to_owned(), figure.to_owned());
        self.values.get(&key)?.iter().copied().collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::max)
    }

    pub(crate) fn has(&self, storm: &str, server: &str) -> bool {
        self.values.keys().any(|(known, of, _)| known == storm && of == server)
    }
}

/// A `storm-seconds.csv`.
pub(crate) struct Seconds {
    columns: Vec<String>,
    rows: Vec<Vec<Option<f64>>>,
}

impl Seconds {
    /// # Errors
    /// If a value is not a number.
    pub(crate) fn parse(text: &str) -> io::Result<Self> {
        let mut lines = text.lines();
        let columns = lines.next().unwrap_or_default().split(',').map(str::to_owned).collect();
        let row = |line: &str| line.split(',').map(number).collect::<io::Result<Vec<_>>>();
        Ok(Seconds { columns, rows: lines.map(row).collect::<io::Result<Vec<_>>>()? })
    }

    /// Returns the points of a column over the seconds, from `first` on. Seconds without a value
    /// are left out.
    pub(crate) fn points(&self, column: &str, first: f64) -> Vec<(f64, f64)> {
        let Some(at) = self.columns.iter().position(|name| name == column) else { return Vec::new() };
        let point = |row: &Vec<Option<f64>>| Some((row.first().copied()??, row.get(at).copied()??));
        self.rows.iter().filter_map(point).filter(|(second, _)| *second >= first).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_counts_a_round_that_did_not_end_as_the_largest() {
        let mut results = Results::default();
        for (round, value) in ["2.0", "", "1.0"].into_iter().enumerate() {
            results.add("s", "a", round as u32, &format!("figure,value\n\"x, y\",{value}\n")).unwrap();
        }
        assert_eq!(results.median("s", "a", "x, y"), Some(2.0));
        assert_eq!(results.largest("s", "a", "x, y"), None);
        assert!(results.has("s", "a") && !results.has("s", "b"));
        assert!(results.csv().contains("\"s\",a,2,\"x, y\",1.0\n"));
        assert!(results.add("s", "a", 3, "figure,value\nnothing").is_err());
    }

    #[test]
    fn points_leave_out_seconds_without_a_value() {
        let seconds = Seconds::parse("second,a,b\n-2,1,\n-1,2,7\n0,3,\n1,4,9\n").unwrap();
        assert_eq!(seconds.points("b", -1.0), [(-1.0, 7.0), (1.0, 9.0)]);
        assert_eq!(seconds.points("a", 0.0).len(), 2);
        assert!(seconds.points("c", 0.0).is_empty());
    }
}
