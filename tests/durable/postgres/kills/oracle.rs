//! The checks of the nodes' output and of the tables.

use super::super::processes::Cluster;
use crate::support::wait::PATIENCE;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Condvar, Mutex},
};

/// An oracle that several threads feed.
#[derive(Debug, Default)]
pub(super) struct SharedOracle {
    oracle: Mutex<Oracle>,
    is_fed: Condvar,
}

impl SharedOracle {
    /// Adds a line of the output of a node.
    pub(super) fn add(&self, node: &str, line: &str) {
        self.oracle.lock().unwrap().add(node, line);
        self.is_fed.notify_all();
    }

    pub(super) fn with<T>(&self, f: impl FnOnce(&Oracle) -> T) -> T {
        f(&self.oracle.lock().unwrap())
    }

    /// Waits until enough output was read.
    #[track_caller]
    pub(super) fn wait_until(&self, what: &str, is_enough: impl Fn(&Oracle) -> bool) {
        let oracle = self.oracle.lock().unwrap();
        let waited = self.is_fed.wait_timeout_while(oracle, PATIENCE, |oracle| !is_enough(oracle)).unwrap();
        assert!(!waited.1.timed_out(), "waiting until {what}");
    }
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    submitted: BTreeSet<i64>,
    pub(super) stored: BTreeSet<i64>,
    /// When the handler of each timer was called, in microseconds since 1970.
    calls: BTreeMap<i64, Vec<i64>>,
    early: Vec<String>,
    /// Nodes with a handler that does not answer.
    pub(super) held: BTreeSet<String>,
}

impl Oracle {
    fn add(&mut self, node: &str, line: &str) {
        let number = |word: &str| word.parse::<i64>().unwrap();
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["start", n] => drop(self.submitted.insert(number(n))),
            ["started", n] => drop(self.stored.insert(number(n))),
            ["ran", n, at] => self.calls.entry(number(n)).or_default().push(number(at)),
            ["early", _] => self.early.push(format!("{line} on {node}")),
            ["held"] => drop(self.held.insert(node.to_owned())),
            _ => panic!("{line:?}"),
        }
    }

    /// Returns the number of calls of handlers beyond the first one of each timer.
    fn repeated(&self) -> usize {
        self.calls.values().map(|calls| calls.len() - 1).sum()
    }

    /// Checks everything, when no timer is pending.
    pub(super) fn check(&self, cluster: &mut Cluster) {
        assert!(self.early.is_empty(), "early by the clock of the server: {:?}", self.early);
        let mut ended = BTreeMap::new();
        for (number, at) in cluster.commit_times() {
            assert_eq!(ended.insert(number, at), None, "{number} has two effects");
        }
        let lost: Vec<_> = self.stored.iter().filter(|number| !ended.contains_key(number)).collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
        let unknown: Vec<_> = ended.keys().filter(|number| !self.submitted.contains(number)).collect();
        assert!(unknown.is_empty(), "not started: {unknown:?}");
        for (number, at) in &ended {
            let calls = self.calls.get(number).map_or(&[][..], Vec::as_slice);
            assert!(!calls.is_empty(), "{number} has an effect and did not run");
            let late = calls.iter().find(|call| *call > at);
            assert_eq!(late, None, "{number} ran after its end was stored at {at}");
        }
        cluster.assert_exactly_once(ended.len());
        let (stored, calls, repeated) = (self.stored.len(), self.calls.len(), self.repeated());
        eprintln!("{stored} acknowledged starts, {calls} timers ran, {repeated} calls were repeated");
    }
}
