//! Measurements, and statistics over several rounds.

use crate::{peer, scenario};
use std::{collections::BTreeMap, fmt, fmt::Write, io};

/// One server in one scenario in one round.
pub(crate) struct Sample {
    pub(crate) scenario: &'static str,
    pub(crate) server: &'static str,
    pub(crate) round: u32,
    /// By name, as the load generator prints them.
    pub(crate) figures: BTreeMap<String, f64>,
}

#[derive(Default)]
pub(crate) struct Results(Vec<Sample>);

/// The values that are compared.
pub(crate) const CPU: &str = "server_cpu_us_per_op";
pub(crate) const USER: &str = "server_user_us_per_op";
pub(crate) const SYSTEM: &str = "server_sys_us_per_op";
pub(crate) const MEMORY: &str = "rss_bytes_per_conn";

/// The columns of the data.
const COLUMNS: [&str; 20] = [
    "per_s",
    CPU,
    USER,
    SYSTEM,
    "p50_us",
    "p90_us",
    "p99_us",
    "p999_us",
    "max_us",
    "server_cpu_pct",
    "client_cpu_pct",
    "server_rss_kib",
    "server_peak_rss_kib",
    MEMORY,
    "server_base_rss_kib",
    "idle_cpu_pct",
    "opened_per_s",
    "storm_ms",
    "steal_s",
    "errors",
];

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.scenario, self.server)?;
        match (self.figures.get(CPU), self.figures.get(MEMORY)) {
            (Some(cpu), _) => write!(f, "{cpu:.3} us/op")?,
            (None, Some(bytes)) => write!(f, "{bytes:.0} bytes/connection")?,
            (None, None) => write!(f, "nothing")?,
        }
        match self.figures.get("errors") {
            Some(0.0) => Ok(()),
            errors => write!(f, ", {} ERRORS", errors.copied().unwrap_or(1.0)),
        }
    }
}

/// The rounds of one server in one scenario, each with its number.
pub(crate) struct Rounds<'a>(Vec<(u32, &'a BTreeMap<String, f64>)>);

impl Results {
    pub(crate) fn add(&mut self, sample: Sample) {
        self.0.push(sample);
    }

    /// Returns the servers that were measured in a scenario, in order. Ratios refer to the first.
    pub(crate) fn of(&self, scenario: &str) -> Vec<(&'static str, Rounds<'_>)> {
        let mut servers: Vec<(&'static str, Rounds<'_>)> = Vec::new();
        for sample in self.0.iter().filter(|sample| sample.scenario == scenario) {
            match servers.iter_mut().find(|(name, _)| *name == sample.server) {
                Some((_, rounds)) => rounds.0.push((sample.round, &sample.figures)),
                None => servers.push((sample.server, Rounds(vec![(sample.round, &sample.figures)]))),
            }
        }
        servers
    }

    pub(crate) fn errors(&self) -> u64 {
        self.0.iter().map(|sample| sample.figures.get("errors").map_or(1, |errors| *errors as u64)).sum()
    }

    /// Parses what `csv` returns, or an older form with fewer columns.
    ///
    /// # Errors
    /// If a line has an unknown scenario or server, or not a number.
    pub(crate) fn read(csv: &str) -> io::Result<Self> {
        let mut lines = csv.lines();
        let columns: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
        let unknown = |line: &str| io::Error::other(format!("not a sample: {line}"));
        lines
            .map(|line| sample(&columns, line).ok_or_else(|| unknown(line)))
            .collect::<io::Result<_>>()
            .map(Results)
    }

    pub(crate) fn csv(&self) -> String {
        let mut csv = format!("scenario,server,round,{}\n", COLUMNS.join(","));
        for Sample { scenario, server, round, figures } in &self.0 {
            let _ = write!(csv, "{scenario},{server},{round}");
            for column in COLUMNS {
                let value = figures.get(column).map_or(String::new(), |value| format!("{value:.4}"));
                let _ = write!(csv, ",{value}");
            }
            csv.push('\n');
        }
        csv
    }
}

/// Parses one row of the data. A column that is unknown or empty is not a figure.
fn sample(columns: &[&str], line: &str) -> Option<Sample> {
    let cells: Vec<&str> = line.split(',').collect();
    let [scenario, server, round, rest @ ..] = cells.as_slice() else { return None };
    let mut figures = BTreeMap::new();
    for (column, cell) in columns.iter().skip(3).zip(rest).filter(|(_, cell)| !cell.is_empty()) {
        figures.insert(column.to_string(), cell.parse().ok()?);
    }
    Some(Sample {
        scenario: scenario::name(scenario)?,
        server: peer::name(server)?,
        round: round.parse().ok()?,
        figures,
    })
}

impl Rounds<'_> {
    fn values(&self, figure: &str) -> Vec<f64> {
        self.0.iter().filter_map(|(_, figures)| figures.get(figure).copied()).collect()
    }

    /// Returns the median, or `None` if no round has the value.
    pub(crate) fn median(&self, figure: &str) -> Option<f64> {
        median(self.values(figure))
    }

    /// Returns the range, as a fraction of the median.
    pub(crate) fn spread(&self, figure: &str) -> Option<f64> {
        spread(self.values(figure))
    }

    /// Returns the median of the ratios within each round. A disturbance of the machine during a
    /// round slows both servers down.
    pub(crate) fn ratio(&self, figure: &str, to: &Rounds<'_>) -> Option<f64> {
        median(self.ratios(figure, to))
    }

    /// Returns the range of the ratios within each round, as a fraction of their median.
    pub(crate) fn ratio_spread(&self, figure: &str, to: &Rounds<'_>) -> Option<f64> {
        spread(self.ratios(figure, to))
    }

    /// Returns one ratio for each round in which both have the value.
    fn ratios(&self, figure: &str, to: &Rounds<'_>) -> Vec<f64> {
        let base = |round: u32| {
            let (_, figures) = to.0.iter().find(|(other, _)| *other == round)?;
            figures.get(figure).copied().filter(|base| *base > 0.0)
        };
        self.0.iter().filter_map(|(round, figures)| Some(figures.get(figure)? / base(*round)?)).collect()
    }

    /// Returns the sum of all rounds.
    pub(crate) fn sum(&self, figure: &str) -> f64 {
        self.values(figure).iter().sum()
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values.get(middle).copied()
    } else {
        Some((values.get(middle.checked_sub(1)?)? + values.get(middle)?) / 2.0)
    }
}

fn spread(values: Vec<f64>) -> Option<f64> {
    let largest = values.iter().copied().reduce(f64::max)?;
    let smallest = values.iter().copied().reduce(f64::min)?;
    let median = median(values).filter(|median| *median > 0.0)?;
    Some((largest - smallest) / median)
}

#[cfg(test)]
mod tests {
    use super::{Results, Sample};
    use std::collections::BTreeMap;

    /// Returns results in which each further value of a server is another round.
    fn results(values: &[(&'static str, f64)]) -> Results {
        let mut results = Results::default();
        for (server, value) in values {
            let round = results.0.iter().filter(|sample| sample.server == *server).count() as u32 + 1;
            let figures = BTreeMap::from([("per_s".to_string(), *value), ("errors".to_string(), 0.0)]);
            results.add(Sample { scenario: "raw", server, round, figures });
        }
        results
    }

    #[test]
    fn median_and_spread_are_over_the_rounds() {
        let results = results(&[("a", 4.0), ("b", 12.0), ("a", 2.0), ("b", 4.0), ("a", 3.0)]);
        let all = results.of("raw");
        let (a, b) = (&all[0].1, &all[1].1);
        assert_eq!((all[0].0, all[1].0), ("a", "b"));
        assert_eq!((a.median("per_s"), b.median("per_s")), (Some(3.0), Some(8.0)));
        assert_eq!((a.spread("per_s"), b.spread("per_s")), (Some(2.0 / 3.0), Some(1.0)));
        assert_eq!((a.median("p50_us"), a.spread("p50_us")), (None, None));
    }

    #[test]
    fn ratios_are_taken_within_a_round_so_drift_cancels_out() {
        // The machine becomes four times slower from the first round to the third. The value of b
        // stays at about twice that of a.
        let results = results(&[("a", 1.0), ("b", 2.0), ("a", 2.0), ("b", 4.4), ("a", 4.0), ("b", 8.0)]);
        let all = results.of("raw");
        let (a, b) = (&all[0].1, &all[1].1);
        assert_eq!(b.ratio("per_s", a), Some(2.0));
        assert!((b.ratio_spread("per_s", a).unwrap() - 0.1).abs() < 1e-9);
        assert_eq!((a.ratio("per_s", a), a.ratio_spread("per_s", a)), (Some(1.0), Some(0.0)));
        assert_eq!(b.spread("per_s"), Some(6.0 / 4.4));
    }

    #[test]
    fn a_round_that_only_one_server_has_adds_no_ratio() {
        let results = results(&[("a", 1.0), ("b", 3.0), ("b", 400.0), ("c", 0.0)]);
        let all = results.of("raw");
        let (a, b, c) = (&all[0].1, &all[1].1, &all[2].1);
        assert_eq!((b.ratio("per_s", a), b.ratio_spread("per_s", a)), (Some(3.0), Some(0.0)));
        assert_eq!(
            (a.ratio("per_s", c), a.ratio("p50_us", b)),
            (None, None),
            "a ratio to zero or to a missing value"
        );
    }

    #[test]
    fn a_run_without_results_is_an_error() {
        let mut results = results(&[("a", 1.0)]);
        assert_eq!(results.errors(), 0);
        results.add(Sample { scenario: "raw", server: "a", round: 2, figures: BTreeMap::new() });
        assert_eq!(results.errors(), 1);
    }

    #[test]
    fn every_row_of_the_data_has_every_column() {
        let csv = results(&[("a", 1.0)]).csv();
        let columns: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [columns[0]; 2]);
        assert!(csv.contains("raw,a,1,1.0000,"));
    }

    #[test]
    fn the_data_is_read_as_it_was_written() {
        let csv = "scenario,server,round,per_s,errors\nchurn,epoll,1,2.5000,\nchurn,epoll,2,3.5000,0.0000\n";
        let results = Results::read(csv).unwrap();
        assert_eq!(results.of("churn")[0].1.median("per_s"), Some(3.0));
        assert_eq!(Results::read(&results.csv()).unwrap().csv(), results.csv());
        for line in ["churn,nobody,1,2.5,", "churn,epoll,1,fast,", "churn"] {
            assert!(
                Results::read(&format!("scenario,server,round,per_s,errors\n{line}\n")).is_err(),
                "{line}"
            );
        }
    }
}
