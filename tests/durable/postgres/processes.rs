//! Several nodes on one schema, and the oracle of their effects.

use super::{
    node::{Node, NodeSettings, tally},
    server::{Server, server},
};
use crate::support::wait::{PATIENCE, ms};
use netwheel::durable::postgres::Client;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// The lease of the nodes.
pub(crate) const LEASE: Duration = ms(1500);

/// The longest time without fewer timers, at the end of a test. The ends of hundreds of timers are
/// stored in one transaction, which takes longer than [`PATIENCE`] on a machine that is overloaded.
const WITHOUT_PROGRESS: Duration = PATIENCE.saturating_mul(5);

/// A schema with a table for the effects of handlers.
pub(crate) struct Cluster {
    server: &'static Server,
    schema: &'static str,
    pub(crate) client: Client,
}

impl Cluster {
    pub(crate) fn new(schema: &'static str) -> Option<Self> {
        Some(Self::on(server()?, schema))
    }

    pub(crate) fn on(server: &'static Server, schema: &'static str) -> Self {
        let mut client = server.client();
        // No constraint: a double would be a row.
        let table = format!(
            "CREATE SCHEMA {schema};
            CREATE TABLE {schema}.effects (payload text NOT NULL, run bigint NOT NULL, node text NOT NULL)"
        );
        client.batch_execute(&table).unwrap();
        Cluster { server, schema, client }
    }

    /// Connects again, after a restart of the server.
    pub(crate) fn connect(&mut self) {
        self.client = self.server.client();
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.port()
    }

    pub(crate) fn node(&self, name: &str) -> Node {
        self.node_at(name, &self.server.config())
    }

    /// Starts a node that connects elsewhere, for example to a proxy.
    pub(crate) fn node_at(&self, name: &str, config: &str) -> Node {
        Node::start(&NodeSettings {
            config: config.to_owned(),
            schema: self.schema.to_owned(),
            name: name.to_owned(),
            lease: LEASE,
        })
    }

    /// Starts nodes "0", "1", … and waits until they share the partitions.
    pub(crate) fn nodes(&mut self, count: usize) -> Vec<Node> {
        let nodes = (0..count).map(|n| self.node(&n.to_string())).collect();
        self.wait_for_owners(count);
        nodes
    }

    /// Waits until this number of nodes own all partitions in equal shares.
    pub(crate) fn wait_for_owners(&mut self, nodes: usize) {
        let share = 16usize.div_ceil(nodes) as i64;
        self.wait_until(
            "the nodes share the partitions",
            &format!(
                "SELECT count(*) = {nodes} AND sum(n) = 16 AND max(n) <= {share} FROM (
                    SELECT count(*) AS n FROM $.partitions
                    WHERE owner IS NOT NULL AND lease_until > clock_timestamp() GROUP BY owner
                ) o"
            ),
        );
    }

    /// Waits until a query returns true. `$` stands for the schema.
    #[track_caller]
    pub(crate) fn wait_until(&mut self, what: &str, sql: &str) {
        let sql = sql.replace('$', self.schema);
        let end = Instant::now() + PATIENCE;
        while self.client.query_one(&sql, &[]).unwrap().get::<_, Option<bool>>(0) != Some(true) {
            assert!(Instant::now() < end, "waiting until {what}");
            // Leaves the processor to the nodes.
            self.client.batch_execute("SELECT pg_sleep(0.01)").unwrap();
        }
    }

    /// Returns the number of rows of a query whose first column is true.
    pub(crate) fn count_true(&mut self, sql: &str) -> usize {
        let rows = self.client.query(&sql.replace('$', self.schema), &[]).unwrap();
        rows.iter().filter(|row| row.get::<_, Option<bool>>(0) == Some(true)).count()
    }

    pub(crate) fn execute(&mut self, sql: &str) {
        self.client.batch_execute(&sql.replace('$', self.schema)).unwrap();
    }

    /// Waits until there are no timers, as long as there are fewer and fewer.
    #[track_caller]
    pub(crate) fn wait_for_all(&mut self) {
        self.release_all(&mut []);
    }

    /// Releases held runs until there are no timers.
    #[track_caller]
    pub(crate) fn release_all(&mut self, nodes: &mut [Node]) {
        let (mut fewest, mut end) = (i64::MAX, Instant::now() + WITHOUT_PROGRESS);
        let sql = format!("SELECT count(*) FROM {}.timers", self.schema);
        loop {
            let left: i64 = self.client.query_one(&sql, &[]).unwrap().get(0);
            if left == 0 {
                return;
            }
            if left < fewest {
                (fewest, end) = (left, Instant::now() + WITHOUT_PROGRESS);
            }
            assert!(Instant::now() < end, "{left} timers are left: {:#?}", self.first_timers());
            for node in &mut *nodes {
                node.ask("release", "released");
            }
            // Leaves the processor to the nodes.
            self.client.batch_execute("SELECT pg_sleep(0.01)").unwrap();
        }
    }

    /// Returns up to five remaining timers, with the owners of their partitions.
    fn first_timers(&mut self) -> Vec<String> {
        let sql = "SELECT t.*, p.owner, p.epoch, p.lease_until::text, clock_timestamp()::text AS now
            FROM $.timers t JOIN $.partitions p ON p.id = t.partition LIMIT 5";
        let sql = format!("SELECT row_to_json(left_over)::text FROM ({sql}) left_over");
        let rows = self.client.query(&sql.replace('$', self.schema), &[]).unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Returns the effects: payload and run, and how often each was stored.
    pub(crate) fn effects(&mut self) -> BTreeMap<(String, i64), usize> {
        let sql = format!("SELECT payload, run FROM {}.effects", self.schema);
        tally(self.client.query(&sql, &[]).unwrap().iter().map(|row| (row.get(0), row.get(1))))
    }

    /// Returns the run of each effect, and when it was committed, in microseconds since 1970.
    pub(crate) fn commit_times(&mut self) -> Vec<(i64, i64)> {
        let time = "(extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::bigint";
        let sql = format!("SELECT run, {time} FROM {}.effects", self.schema);
        self.client.query(&sql, &[]).unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// Asserts that each of `count` timers had its effect once: none was lost, none doubled.
    #[track_caller]
    pub(crate) fn assert_exactly_once(&mut self, count: usize) {
        let effects = self.effects();
        let doubled: Vec<_> = effects.iter().filter(|(_, times)| **times != 1).collect();
        assert_eq!((effects.len(), doubled), (count, Vec::new()));
        let sql = "SELECT coalesce(sum(pending), 0) = 0 AND coalesce(sum(dead), 0) = 0 FROM $.counts";
        self.wait_until("the counts agree", sql);
    }
}
