//! The result of a storm: figures, table and files.

use super::timeline::{Second, quantile};
use crate::output::say;
use netwheel::{Error, Result};
use std::{fmt::Write, fs, path::Path, time::Duration};

/// The records of a run, from which the figures are computed.
pub(crate) struct Records {
    /// Clients of the storm.
    pub(crate) clients: usize,
    pub(crate) established: usize,
    /// Logins per second that the server can do.
    pub(crate) capacity: f64,
    /// Time after which a client gives up an attempt.
    pub(crate) give_up: Duration,
    /// Number of the second in which the storm began.
    pub(crate) began: usize,
    /// Duration of the storm, until all clients were in or its limit.
    pub(crate) lasted: Duration,
    /// Times at which clients got in, since the beginning of the storm.
    pub(crate) entered: Vec<Duration>,
    /// Durations of the attempts that ended inside, in microseconds, in ascending order.
    pub(crate) entry_times: Vec<u32>,
    /// Clients of the storm that are in at the end.
    pub(crate) inside: usize,
    /// Round trip up to which a second is normal.
    pub(crate) normal: Duration,
    /// Complete seconds.
    pub(crate) seconds: Vec<Second>,
}

/// A line of the result. Times are in milliseconds unless the name says otherwise.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    /// `None` if the run ended before.
    pub(crate) value: Option<f64>,
}

impl Records {
    /// Seconds of the storm and after it.
    fn stormy(&self) -> &[Second] {
        self.seconds.get(self.began..).unwrap_or_default()
    }

    /// Returns the time in which the server could let all clients in.
    pub(crate) fn drain_time(&self) -> Duration {
        Duration::from_secs_f64(self.clients as f64 / self.capacity.max(0.001))
    }

    /// Attempts per second of all clients if each gives up after its time limit, as a multiple of
    /// the capacity.
    fn offered(&self) -> f64 {
        self.clients as f64 / self.give_up.as_secs_f64().max(0.001) / self.capacity.max(0.001)
    }

    /// Returns the time for which the clients outside offer more than the server can do, and how
    /// many got in. If they never do, that is until all are in.
    fn overload(&self) -> (Duration, usize) {
        let offered = self.offered();
        let share = if offered > 1.0 { 1.0 - 1.0 / offered } else { 1.0 };
        let needed = ((self.clients as f64 * share).ceil() as usize).max(1);
        match self.entered.get(needed - 1) {
            Some(until) => (*until, needed),
            None => (self.lasted, self.entered.len()),
        }
    }

    /// Returns the time until all clients are in.
    fn all_in(&self) -> Option<Duration> {
        if self.inside < self.clients { None } else { self.entered.last().copied() }
    }

    /// Returns the time from which all clients are in and every second is normal.
    fn normal_again(&self) -> Option<Duration> {
        let normal = u32::try_from(self.normal.as_micros()).unwrap_or(u32::MAX);
        let is_normal = |second: &Second| {
            second.said == 0
                || quantile(&second.round_trips, second.said, 0.99).is_some_and(|p99| p99 <= normal)
        };
        let stormy = self.stormy();
        let abnormal = stormy.iter().rposition(|second| !is_normal(second)).map_or(0, |last| last + 1);
        if abnormal == stormy.len() {
            return None;
        }
        Some(self.all_in()?.max(Duration::from_secs(abnormal as u64)))
    }

    /// Returns quantiles of the round trips of the established clients in some seconds, in
    /// milliseconds.
    fn round_trips<const N: usize>(seconds: &[Second], quantiles: [f64; N]) -> [Option<f64>; N] {
        let mut all: Vec<u32> = seconds.iter().flat_map(|second| &second.round_trips).copied().collect();
        all.sort_unstable();
        let said = seconds.iter().map(|second| second.said).sum();
        quantiles.map(|wanted| quantile(&all, said, wanted).map(|micros| f64::from(micros) / 1000.0))
    }

    pub(crate) fn figures(&self) -> Vec<Figure> {
        let seconds = |time: Duration| time.as_secs_f64();
        let sum = |part: fn(&Second) -> u64| Some(self.stormy().iter().map(part).sum::<u64>() as f64);
        let storm_seconds = (self.lasted.as_secs() as usize + 1).min(self.stormy().len());
        let during = &self.stormy()[..storm_seconds];
        let calm = self.seconds.get(self.began.saturating_sub(3)..self.began).unwrap_or_default();
        let [calm_p99] = Self::round_trips(calm, [0.99]);
        let [p50, p99, max] = Self::round_trips(during, [0.5, 0.99, 1.0]);
        let entry = |wanted| {
            let micros = quantile(&self.entry_times, self.entry_times.len() as u64, wanted)?;
            Some(f64::from(micros) / 1000.0)
        };
        let (overload, goodput) = self.overload();
        let attempts: u64 = during.iter().map(|second| second.attempts).sum();
        let drain = seconds(self.drain_time());
        let normal = self.normal_again().map(seconds);
        let figure = |name, value| Figure { name, value };
        vec![
            figure("clients", Some(self.clients as f64)),
            figure("established", Some(self.established as f64)),
            figure("capacity, logins/s", Some(self.capacity)),
            figure("clients give up after, s", Some(seconds(self.give_up))),
            figure("offered load, times the capacity", Some(self.offered())),
            figure("attempts/s", Some(attempts as f64 / seconds(self.lasted).max(0.001))),
            figure(
                "goodput, % of the capacity",
                Some(goodput as f64 / seconds(overload).max(0.001) / self.capacity.max(0.001) * 100.0),
            ),
            figure("in at the end", Some(self.inside as f64)),
            figure("all in after, s", self.all_in().map(seconds)),
            figure("drain time, s", Some(drain)),
            figure("normal after, s", normal),
            figure("normal after, times the drain time", normal.map(|normal| normal / drain)),
            figure("login p50, ms", entry(0.5)),
            figure("login p99, ms", entry(0.99)),
            figure("chat p99 before, ms", calm_p99),
            figure("chat p50, ms", p50),
            figure("chat p99, ms", p99),
            figure("chat max, ms", max),
            figure("established lost", sum(|second| second.lost)),
            figure("wrongly dropped", sum(|second| second.dropped)),
            figure("refused with a hint", sum(|second| second.refused_with_hint)),
            figure("refused", sum(|second| second.refused)),
            figure("gave up", sum(|second| second.gave_up)),
        ]
    }

    /// Returns the faults of the server.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut check = |count: u64, what: &str| {
            if count > 0 {
                faults.push(format!("{count} {what}"));
            }
        };
        let stormy = self.stormy();
        check(stormy.iter().map(|second| second.lost).sum(), "established clients lost");
        check(stormy.iter().map(|second| second.dropped).sum(), "clients dropped that were in");
        check((self.clients - self.inside) as u64, "clients not in");
        if self.normal_again().is_none() {
            faults.push("not normal again".to_owned());
        }
        faults
    }
}

/// Prints the table.
pub(crate) fn print(figures: &[Figure], faults: &[String]) {
    for Figure { name, value } in figures {
        match value {
            Some(value) => say!("{name:<36}{value:>12.1}"),
            None => say!("{name:<36}{:>12}", "never"),
        }
    }
    let result = if faults.is_empty() { "ok".to_owned() } else { faults.join(", ") };
    say!("{:<36}{result:>12}", "result");
}

/// Writes `storm.csv` and `storm-seconds.csv`.
///
/// # Errors
/// If a file cannot be written.
pub(crate) fn write(folder: &Path, records: &Records, figures: &[Figure]) -> Result {
    let failed = |e| Error::other(format!("writing to {}: {e}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    let mut text = "figure,value\n".to_owned();
    for Figure { name, value } in figures {
        let value = value.map_or(String::new(), |value| format!("{value:.3}"));
        let _ = writeln!(text, "\"{name}\",{value}");
    }
    fs::write(folder.join("storm.csv"), text).map_err(failed)?;
    fs::write(folder.join("storm-seconds.csv"), seconds_csv(records)).map_err(failed)
}

/// One line for each second. Second 0 is the first one of the storm. A round trip is empty if the
/// message that has it was not answered.
fn seconds_csv(records: &Records) -> String {
    let mut text = "second,attempts,entered,refused_with_hint,refused,gave_up,dropped,lost,waiting,said,\
                    chat_p50_ms,chat_p99_ms,chat_max_ms\n"
        .to_owned();
    for (n, second) in records.seconds.iter().enumerate() {
        let Second { attempts, entered, refused_with_hint, refused, gave_up, dropped, .. } = second;
        let Second { lost, waiting, said, .. } = second;
        let number = n as i64 - records.began as i64;
        let _ =
            write!(text, "{number},{attempts},{entered},{refused_with_hint},{refused},{gave_up},{dropped},");
        let _ = write!(text, "{lost},{waiting},{said}");
        for wanted in [0.5, 0.99, 1.0] {
            let value = quantile(&second.round_trips, second.said, wanted);
            let value = value.map_or(String::new(), |micros| format!("{:.3}", f64::from(micros) / 1000.0));
            let _ = write!(text, ",{value}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the records of a storm of 100 clients at a server that does 10 logins per second. It
    /// lets one client in each tenth of a second, and the chat is slow in the first `slow` seconds.
    fn records(inside: usize, slow: usize) -> Records {
        let second = |n: usize| Second {
            said: 1,
            round_trips: vec![if (3..3 + slow).contains(&n) { 900_000 } else { 1000 }],
            ..Second::default()
        };
        Records {
            clients: 100,
            established: 10,
            capacity: 10.0,
            give_up: Duration::from_secs(2),
            began: 3,
            lasted: Duration::from_secs(20),
            entered: (1..=inside as u64).map(|n| Duration::from_millis(100 * n)).collect(),
            entry_times: vec![5000; inside],
            inside,
            normal: Duration::from_millis(50),
            seconds: (0..30).map(second).collect(),
        }
    }

    fn value(records: &Records, name: &str) -> Option<f64> {
        records.figures().iter().find(|figure| figure.name == name).expect("a figure").value
    }

    #[test]
    fn goodput_is_measured_while_the_clients_offer_more_than_the_capacity() {
        let all = records(100, 0);
        assert_eq!(value(&all, "offered load, times the capacity"), Some(5.0));
        assert_eq!(value(&all, "goodput, % of the capacity"), Some(100.0));
        assert_eq!(value(&all, "all in after, s"), Some(10.0));
        assert_eq!(value(&all, "normal after, times the drain time"), Some(1.0));
        assert!(all.faults().is_empty());
        let few = records(20, 0);
        assert_eq!(value(&few, "goodput, % of the capacity"), Some(10.0));
        assert_eq!(value(&few, "all in after, s"), None);
        assert_eq!(few.faults(), ["80 clients not in", "not normal again"]);
    }

    #[test]
    fn the_server_is_normal_when_all_are_in_and_the_chat_is_quick() {
        assert_eq!(value(&records(100, 10), "normal after, s"), Some(10.0));
        assert_eq!(value(&records(100, 15), "normal after, s"), Some(15.0));
        assert_eq!(value(&records(100, 27), "normal after, s"), None);
        assert_eq!(value(&records(100, 15), "chat p99 before, ms"), Some(1.0));
        assert_eq!(value(&records(100, 15), "chat max, ms"), Some(900.0));
    }
}
