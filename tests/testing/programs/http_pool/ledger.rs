//! What has happened to each request, as all nodes have seen it.

use super::super::support::Violations;
use netwheel::testing::simulation::sometimes;
use std::collections::BTreeMap;

/// The number of times that a pool sends a safe request at most.
const MOST_ARRIVALS: u32 = 4;

pub(super) struct Ledger {
    violations: Violations,
    requests: BTreeMap<u64, Fate>,
    /// Rounds of calls that all succeeded while nothing failed.
    pub(super) calm_rounds: u32,
}

struct Fate {
    is_safe: bool,
    /// How often the request has arrived at a server.
    arrivals: u32,
    /// Whether its call has failed with `NotSent`.
    is_not_sent: bool,
}

impl Ledger {
    pub(super) fn new(violations: Violations) -> Self {
        Ledger { violations, requests: BTreeMap::new(), calm_rounds: 0 }
    }

    /// Returns the number of a new request.
    pub(super) fn begin(&mut self, is_safe: bool) -> u64 {
        let id = self.requests.len() as u64 + 1;
        self.requests.insert(id, Fate { is_safe, arrivals: 0, is_not_sent: false });
        id
    }

    /// Records that a request has arrived completely, with this target.
    pub(super) fn arrived(&mut self, target: &str) -> u64 {
        let id = target.strip_prefix("/").and_then(|id| id.parse().ok()).unwrap_or(0);
        let Some(fate) = self.requests.get_mut(&id) else {
            self.violations.add(format!("a server has received {target:?}, which nobody has sent"));
            return 0;
        };
        fate.arrivals += 1;
        if fate.arrivals > 1 {
            sometimes("repeated");
        }
        let most = if fate.is_safe { MOST_ARRIVALS } else { 1 };
        let arrivals = fate.arrivals;
        self.violations
            .unless(arrivals <= most, || format!("request {id} arrives for the {arrivals}th time"));
        let is_not_sent = fate.is_not_sent;
        self.violations.unless(!is_not_sent, || format!("request {id} arrives, but was not sent"));
        id
    }

    /// Records that a request has arrived while another one was answered on its connection.
    pub(super) fn overlaps(&self, id: u64) {
        self.violations.add(format!("request {id} arrives on a connection that is in use"));
    }

    /// Records that a call has failed with the error that its request was not sent.
    pub(super) fn not_sent(&mut self, id: u64) {
        sometimes("not sent");
        if let Some(fate) = self.requests.get_mut(&id) {
            fate.is_not_sent = true;
            let arrivals = fate.arrivals;
            self.violations.unless(arrivals == 0, || format!("request {id} was not sent, but has arrived"));
        }
    }
}
