//! Errors of the server that last until an operator has repaired something.

use super::server::{Server, server};
use crate::support::{
    loops::{end, one_loop},
    wait::{done, receive, wait_until},
};
use netwheel::{
    Error, EventLoopGroup, Result,
    durable::{Due, DurableTimers, Late, PostgresStore, Retry, StoreError, TimerId, Topic, postgres::Client},
};
use std::{
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

const NOW: Duration = Duration::ZERO;
/// The default.
const LEASE: Duration = Duration::from_secs(6);

struct Node {
    group: EventLoopGroup,
    timers: DurableTimers,
    fired: Receiver<String>,
}

impl Node {
    fn on(store: PostgresStore) -> Self {
        let group = one_loop();
        let (sender, fired) = channel();
        let timers = DurableTimers::builder(store)
            .topic(Topic::new("topic", Late::RunOnce, Retry::backoff(5), move |due: Due<String>| {
                sender.send(due.payload().clone()).unwrap();
                due.done();
            }))
            .start(&group)
            .unwrap();
        Node { group, timers, fired }
    }

    fn start(&self, payload: &str, delay: Duration) -> Result<TimerId> {
        done(self.timers.at("topic", delay, &payload.to_owned()).start())
    }

    fn close(self) {
        done(self.timers.close()).unwrap();
        end(&self.group);
    }
}

/// Returns a store in a schema of the test, with a role of its own that does not own the tables.
fn store_of_clerk(server: &Server, schema: &str, lease: Duration) -> PostgresStore {
    drop(server.builder(schema).open().unwrap());
    let grants = format!(
        "CREATE ROLE {schema} LOGIN;
        GRANT USAGE ON SCHEMA {schema} TO {schema};
        GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {schema};
        GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {schema}"
    );
    server.client().batch_execute(&grants).unwrap();
    let config = server.config().replace("user=postgres", &format!("user={schema}"));
    PostgresStore::builder(&config).schema(schema).lease(lease).open().unwrap()
}

#[track_caller]
fn assert_refused(result: Result<TimerId>, text: &str) {
    let Err(Error::Other(cause)) = &result else { panic!("{result:?}") };
    let Some(StoreError::Server(message)) = cause.downcast_ref::<StoreError>() else { panic!("{cause}") };
    assert!(message.contains(text), "{message}");
}

#[test]
fn a_permission_that_is_missing_for_a_while_fails_starts_and_stops_nothing() {
    let Some(server) = server() else { return };
    let node = Node::on(store_of_clerk(server, "revoked", LEASE));
    node.start("before", Duration::from_secs(1)).unwrap();
    let mut client = server.client();
    client.batch_execute("REVOKE INSERT, DELETE ON revoked.timers FROM revoked").unwrap();
    assert_refused(node.start("refused", NOW), "permission denied");
    // The end of this run is refused too, and waits.
    assert_eq!(receive(&node.fired), "before");
    wait_until("the end has failed", || node.timers.metrics().commit_failures >= 2);
    assert!(!node.timers.metrics().is_stopped);
    client.batch_execute("GRANT INSERT, DELETE ON revoked.timers TO revoked").unwrap();
    node.start("after", NOW).unwrap();
    assert_eq!(receive(&node.fired), "after", "and the first one is not repeated");
    node.close();
    let left: i64 = client.query_one("SELECT count(*) FROM revoked.timers", &[]).unwrap().get(0);
    assert_eq!(left, 0);
}

#[test]
fn a_lease_that_cannot_be_renewed_is_renewed_after_the_repair() {
    let Some(server) = server() else { return };
    let node = Node::on(store_of_clerk(server, "unrenewed", LEASE));
    let mut client = server.client();
    client.batch_execute("REVOKE UPDATE ON unrenewed.partitions FROM unrenewed").unwrap();
    wait_until("a renewal has failed", || node.timers.metrics().renewal_failures >= 2);
    client.batch_execute("GRANT UPDATE ON unrenewed.partitions TO unrenewed").unwrap();
    node.start("after", NOW).unwrap();
    assert_eq!(receive(&node.fired), "after");
    assert!(!node.timers.metrics().is_stopped);
    node.close();
}

/// The lease is renewed, so no other node would fire the timers.
#[test]
fn a_store_that_cannot_be_cleaned_fires() {
    let Some(server) = server() else { return };
    let node = Node::on(store_of_clerk(server, "uncleaned", Duration::from_millis(300)));
    server.client().batch_execute("REVOKE DELETE ON uncleaned.ended_keys FROM uncleaned").unwrap();
    // 60 renewals later. Each thirtieth cleans.
    node.start("late", Duration::from_secs(3)).unwrap();
    assert_eq!(receive(&node.fired), "late");
    node.close();
}

/// Refuses starts of "bad" timers, and ends of "kept" ones.
fn refuse_some(client: &mut Client, schema: &str) {
    let rules = format!(
        "ALTER TABLE {schema}.timers ADD CONSTRAINT good CHECK (payload <> '\"bad\"');
        CREATE FUNCTION {schema}.keep() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF OLD.payload = '\"kept\"' THEN RAISE EXCEPTION 'it is kept'; END IF;
            RETURN OLD;
        END $$;
        CREATE TRIGGER keep BEFORE DELETE ON {schema}.timers
            FOR EACH ROW EXECUTE FUNCTION {schema}.keep()"
    );
    client.batch_execute(&rules).unwrap();
}

#[test]
fn a_change_that_is_refused_does_not_fail_the_others_of_its_transaction() {
    let Some(server) = server() else { return };
    let node = Node::on(server.builder("one_bad").open().unwrap());
    refuse_some(&mut server.client(), "one_bad");
    let payload = |n: usize| if n == 33 { "bad".to_owned() } else { n.to_string() };
    let starts: Vec<_> =
        (0..100).map(|n| node.timers.at("topic", Duration::from_secs(3600), &payload(n)).start()).collect();
    for (n, start) in starts.into_iter().enumerate() {
        match n {
            33 => assert_refused(done(start), "good"),
            _ => drop(done(start).unwrap()),
        }
    }
    assert_eq!(node.timers.metrics().started, 99);
    node.close();
}

#[test]
fn an_end_that_is_refused_waits_beside_the_others() {
    let Some(server) = server() else { return };
    let node = Node::on(server.builder("one_kept").open().unwrap());
    let mut client = server.client();
    refuse_some(&mut client, "one_kept");
    node.start("kept", NOW).unwrap();
    assert_eq!(receive(&node.fired), "kept");
    for n in 0..20 {
        node.start(&n.to_string(), NOW).unwrap();
        assert_eq!(receive(&node.fired), n.to_string());
    }
    wait_until("the others have ended", || node.timers.metrics().ended == 20);
    // The store's thread counts ends; the loop counts runs, a little later.
    wait_until("it alone runs", || node.timers.metrics().running == 1);
    client.batch_execute("DROP TRIGGER keep ON one_kept.timers").unwrap();
    wait_until("it has ended", || node.timers.metrics().ended == 21);
    assert_eq!(node.timers.metrics().fired, 21, "no handler was called twice");
    node.close();
}
