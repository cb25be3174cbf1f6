//! A server that is restarted, or replaced by another one, which lacks its last transactions.

use super::{
    proxy::Proxy,
    server::{Server, config, server},
    stores::{Nodes, changed, commit, load, node, renewed, start, timer},
};
use netwheel::durable::{
    MemoryDatabase, PostgresStore, TimerStore,
    postgres::Client,
    store::{Change, Outcome},
};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(60);

const INSERT: &str = "INSERT INTO failover.timers
    (partition, topic, state, due, scheduled, attempts, payload, changed_by, changed_in)
    VALUES (0, 1, 0, 7, 7, 0, 'null', 0, pg_current_xact_id()::text::bigint) RETURNING id";

fn number(client: &mut Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).unwrap().get(0)
}

/// A timer of the new server has a transaction number that the old server gave to another
/// transaction, which the node has seen.
#[test]
fn a_standby_whose_transaction_numbers_are_lower_hides_no_change() {
    let Some(primary) = server() else { return };
    let standby = Server::start().unwrap();
    let proxy = Proxy::to(primary.port());
    let mut owner = PostgresStore::builder(&config(proxy.port))
        .schema("failover")
        .partitions(8)
        .lease(LEASE)
        .request_timeout(LEASE)
        .open()
        .unwrap();
    owner.attach(&["topic".to_owned()]).unwrap();
    let lease = renewed(&mut owner);
    assert!(!lease.needs_reload);

    // The standby has the tables and the leases, and no timers.
    drop(node(&standby, "failover", LEASE));
    let (mut of_primary, mut of_standby) = (primary.client(), standby.client());
    let id = number(&mut of_primary, "SELECT owner FROM failover.partitions WHERE id = 0");
    let leases = format!("UPDATE failover.partitions SET owner = {id}, epoch = 1, lease_until = 'infinity'");
    of_standby.batch_execute(&leases).unwrap();
    let numbers = "SELECT pg_current_xact_id()::text::bigint";
    let last = number(&mut of_standby, numbers);
    while number(&mut of_primary, numbers) < last + 100 {}
    let lost = start(&mut owner, timer(7));
    assert_eq!(changed(&mut owner, 1000), []);

    proxy.lead_to(standby.port());
    let stored = number(&mut of_standby, INSERT);
    let replaced = renewed(&mut owner);
    assert_eq!(replaced.partitions, lease.partitions, "nothing else makes the engine load again");
    assert!(replaced.needs_reload);
    assert_eq!(changed(&mut owner, 1000), []);
    let loaded: Vec<i64> = load(&mut owner).iter().map(|row| row.key.id.get()).collect();
    assert_eq!(loaded, [stored]);
    assert_eq!(lost.key.id.get(), stored, "the number of a timer that was lost is given again");

    assert!(!renewed(&mut owner).needs_reload, "once");
    let later = number(&mut of_standby, INSERT);
    assert!(number(&mut of_standby, numbers) < number(&mut of_primary, numbers));
    let found: Vec<i64> = changed(&mut owner, 1000).iter().map(|row| row.key.id.get()).collect();
    assert_eq!(found, [later]);
}

/// The node keeps its partitions, and may have missed changes of the other one.
fn a_restart_makes_nodes_load_again(nodes: &Nodes, restart: impl FnOnce()) {
    let [mut owner, mut other] = [(); 2].map(|()| nodes.node(LEASE));
    let lease = renewed(&mut *owner);
    changed(&mut *owner, 1000);
    let row = start(&mut *owner, timer(1));
    assert!(matches!(commit(&mut *owner, Change::Claim { held: row.held() }), Outcome::Done(None)));
    restart();
    let by_other = start(&mut *other, timer(2));
    let again = renewed(&mut *owner);
    assert_eq!((&again.partitions, again.needs_reload), (&lease.partitions, true));
    let loaded: Vec<_> = load(&mut *owner).iter().map(|row| row.key).collect();
    assert_eq!(loaded, [row.key, by_other.key]);
    // The earlier claim counts: no other node has taken over.
    assert!(matches!(commit(&mut *owner, super::stores::end(row.held())), Outcome::Done(None)));
    assert!(!renewed(&mut *owner).needs_reload, "once");
}

#[test]
fn a_restart_of_the_server_makes_nodes_load_again() {
    let Some(server) = Server::start() else { return };
    // The supervisor ends with this process.
    let server = Box::leak(Box::new(server));
    a_restart_makes_nodes_load_again(&Nodes::Postgres(server, "restarted"), || server.restart());
}

#[test]
fn a_crash_of_a_database_in_memory_makes_nodes_load_again() {
    let database = MemoryDatabase::new();
    let disk = database.disk().clone();
    a_restart_makes_nodes_load_again(&Nodes::Memory(database), || assert_eq!(disk.crash(1), 0));
}
