//! What was measured, and what can be said about several rounds of it.

use std::{collections::BTreeMap, fmt, fmt::Write};

/// One server in one scenario in one round.
pub(crate) struct Sample {
    pub(crate) scenario: &'static str,
    pub(crate) server: &'static str,
    pub(crate) round: u32,
    /// By name, as the load generator gives them.
    pub(crate) figures: BTreeMap<String, f64>,
}

#[derive(Default)]
pub(crate) struct Results(Vec<Sample>);

/// What is compared.
pub(crate) const CPU: &str = "server_cpu_us_per_op";
pub(crate) const USER: &str = "server_user_us_per_op";
pub(crate) const SYSTEM: &str = "server_sys_us_per_op";
pub(crate) const MEMORY: &str = "rss_bytes_per_conn";

/// The columns of the data.
const COLUMNS: [&str; 19] = [
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

/// The rounds of one server in one scenario.
pub(crate) struct Rounds<'a>(Vec<&'a BTreeMap<String, f64>>);

impl Results {
    pub(crate) fn add(&mut self, sample: Sample) {
        self.0.push(sample);
    }

    /// Who was measured in a scenario, in order; the first is what ratios refer to.
    pub(crate) fn of(&self, scenario: &str) -> Vec<(&'static str, Rounds<'_>)> {
        let mut servers: Vec<(&'static str, Rounds<'_>)> = Vec::new();
        for sample in self.0.iter().filter(|sample| sample.scenario == scenario) {
            match servers.iter_mut().find(|(name, _)| *name == sample.server) {
                Some((_, rounds)) => rounds.0.push(&sample.figures),
                None => servers.push((sample.server, Rounds(vec![&sample.figures]))),
            }
        }
        servers
    }

    pub(crate) fn errors(&self) -> u64 {
        self.0.iter().map(|sample| sample.figures.get("errors").map_or(1, |errors| *errors as u64)).sum()
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

impl Rounds<'_> {
    fn sorted(&self, figure: &str) -> Vec<f64> {
        let mut values: Vec<f64> = self.0.iter().filter_map(|figures| figures.get(figure).copied()).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    /// `None` if no round brought it.
    pub(crate) fn median(&self, figure: &str) -> Option<f64> {
        let values = self.sorted(figure);
        let middle = values.len() / 2;
        if values.len() % 2 == 1 {
            values.get(middle).copied()
        } else {
            Some((values.get(middle.checked_sub(1)?)? + values.get(middle)?) / 2.0)
        }
    }

    /// Largest less smallest, as a part of the median.
    pub(crate) fn spread(&self, figure: &str) -> Option<f64> {
        let values = self.sorted(figure);
        let median = self.median(figure).filter(|median| *median > 0.0)?;
        Some((values.last()? - values.first()?) / median)
    }

    /// This median to that of others.
    pub(crate) fn ratio(&self, figure: &str, to: &Rounds<'_>) -> Option<f64> {
        let base = to.median(figure).filter(|median| *median > 0.0)?;
        Some(self.median(figure)? / base)
    }

    /// Of all rounds.
    pub(crate) fn sum(&self, figure: &str) -> f64 {
        self.sorted(figure).iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::{Results, Sample};
    use std::collections::BTreeMap;

    fn results(values: &[(&'static str, f64)]) -> Results {
        let mut results = Results::default();
        for (n, (server, value)) in values.iter().enumerate() {
            let figures = BTreeMap::from([("per_s".to_string(), *value), ("errors".to_string(), 0.0)]);
            results.add(Sample { scenario: "raw", server, round: n as u32, figures });
        }
        results
    }

    #[test]
    fn median_spread_and_ratio_are_those_of_the_rounds() {
        let results = results(&[("a", 4.0), ("b", 12.0), ("a", 2.0), ("b", 4.0), ("a", 3.0)]);
        let all = results.of("raw");
        let (a, b) = (&all[0].1, &all[1].1);
        assert_eq!((all[0].0, all[1].0), ("a", "b"));
        assert_eq!((a.median("per_s"), b.median("per_s")), (Some(3.0), Some(8.0)));
        assert_eq!((a.spread("per_s"), b.spread("per_s")), (Some(2.0 / 3.0), Some(1.0)));
        assert_eq!(b.ratio("per_s", a), Some(8.0 / 3.0));
        assert_eq!(a.median("p50_us"), None);
    }

    #[test]
    fn a_run_that_brought_no_figures_is_an_error() {
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
        assert!(csv.contains("raw,a,0,1.0000,"));
    }
}
