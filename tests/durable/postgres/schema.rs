//! Opening stores: settings, versions, other tables.

use super::server::{config, server};
use netwheel::{
    Error,
    durable::{PostgresStore, PostgresStoreBuilder, StoreError, TimerStore},
};
use std::{thread, time::Duration};

/// Returns the error of the store.
#[track_caller]
fn refused(builder: PostgresStoreBuilder) -> StoreError {
    match builder.open() {
        Err(Error::Other(cause)) => cause.downcast_ref::<StoreError>().unwrap().clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    let builder = || PostgresStore::builder("host=127.0.0.1 port=1 user=u");
    let ms = Duration::from_millis;
    for (setting, builder) in [
        ("schema", builder().schema("Big")),
        ("schema", builder().schema("a;b")),
        ("schema", builder().schema("")),
        ("schema", builder().schema("x".repeat(64))),
        ("schema", builder().schema("pg_mine")),
        ("partitions", builder().partitions(0)),
        ("partitions", builder().partitions(4097)),
        ("lease", builder().lease(ms(299))),
        ("lease", builder().lease(Duration::from_secs(601))),
        ("connect_timeout", builder().connect_timeout(ms(49))),
        ("connect_timeout", builder().connect_timeout(Duration::from_secs(7))),
        ("request_timeout", builder().request_timeout(ms(49))),
        ("request_timeout", builder().request_timeout(Duration::from_secs(7))),
        ("node", builder().node("n".repeat(129))),
    ] {
        match builder.open() {
            Err(Error::Setting(refused)) => assert_eq!(refused.setting(), setting),
            other => panic!("{setting}: {other:?}"),
        }
    }
    let tls = PostgresStore::builder("host=localhost sslmode=require").open();
    assert!(matches!(&tls, Err(Error::Setting(refused)) if refused.setting() == "sslmode"), "{tls:?}");
    let nonsense = PostgresStore::builder("password=secret nonsense").open().unwrap_err();
    assert!(!nonsense.to_string().contains("secret"));
}

#[test]
fn a_server_that_is_not_there_is_busy() {
    let error = refused(PostgresStore::builder("host=127.0.0.1 port=1 user=u"));
    assert!(matches!(error, StoreError::Busy(_)), "{error}");
}

#[test]
fn nodes_may_create_a_store_at_the_same_time() {
    let Some(server) = server() else { return };
    let nodes = [0; 6].map(|_| {
        thread::spawn(move || {
            let mut store = server.builder("together").partitions(8).open().unwrap();
            store.attach(&["a".to_owned(), "b".to_owned()]).unwrap().len()
        })
    });
    assert_eq!(nodes.map(|node| node.join().unwrap()), [2; 6]);
    let row = server.client().query_one("SELECT count(*) FROM together.partitions", &[]).unwrap();
    assert_eq!(row.get::<_, i64>(0), 8);
}

#[test]
fn a_newer_version_is_refused() {
    let Some(server) = server() else { return };
    server.builder("newer").open().unwrap();
    server.client().batch_execute("UPDATE newer.store SET version = 99").unwrap();
    let error = refused(server.builder("newer"));
    assert!(matches!(error, StoreError::Version { found: 99, .. }), "{error}");
}

/// Version 1 had no memory of ended keys.
#[test]
fn a_store_of_version_1_is_migrated_with_its_timers() {
    let Some(server) = server() else { return };
    let mut store = super::stores::node(server, "older", Duration::from_secs(60));
    let row = super::stores::start(&mut store, super::stores::keyed(5, "k"));
    store.release().unwrap();
    drop(store);
    let mut client = server.client();
    client
        .batch_execute(
            "DROP TABLE older.ended_keys;
        ALTER TABLE older.timers DROP COLUMN begun;
        ALTER TABLE older.timers DROP COLUMN moved;
        DROP INDEX older.timers_periodic;
        ALTER TABLE older.topics DROP COLUMN paused;
        ALTER TABLE older.store DROP COLUMN id;
        DROP INDEX older.timers_dead_due;
        UPDATE older.store SET version = 1",
        )
        .unwrap();
    let mut store = super::stores::node(server, "older", Duration::from_secs(60));
    super::stores::renewed(&mut store);
    let loaded = super::stores::load(&mut store);
    assert_eq!((loaded.len(), loaded[0].key), (1, row.key));
    super::stores::commit(&mut store, super::stores::end(loaded[0].held()));
    let version: i64 = client.query_one("SELECT version FROM older.store", &[]).unwrap().get(0);
    let keys: i64 = client.query_one("SELECT count(*) FROM older.ended_keys", &[]).unwrap().get(0);
    assert_eq!((version, keys), (3, 1));
}

/// An index of a large store takes longer than any request of a node.
#[test]
fn a_migration_may_take_longer_than_a_request() {
    let Some(server) = server() else { return };
    drop(server.builder("slowly").open().unwrap());
    let mut client = server.client();
    client
        .batch_execute(
            "DROP INDEX slowly.timers_dead_due;
            DROP INDEX slowly.timers_periodic;
            ALTER TABLE slowly.timers DROP COLUMN begun;
            ALTER TABLE slowly.timers DROP COLUMN moved;
            ALTER TABLE slowly.topics DROP COLUMN paused;
            ALTER TABLE slowly.store DROP COLUMN id;
            UPDATE slowly.store SET version = 2;
            CREATE FUNCTION slowly.wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                PERFORM pg_sleep(1.2);
                RETURN NULL;
            END $$;
            CREATE TRIGGER slow AFTER UPDATE ON slowly.store EXECUTE FUNCTION slowly.wait()",
        )
        .unwrap();
    server.builder("slowly").request_timeout(Duration::from_secs(1)).open().unwrap();
    let version: i64 = client.query_one("SELECT version FROM slowly.store", &[]).unwrap().get(0);
    assert_eq!(version, 3);
}

#[test]
fn tables_of_other_programs_are_left_alone() {
    let Some(server) = server() else { return };
    let mut client = server.client();
    client
        .batch_execute(
            "CREATE SCHEMA other; CREATE TABLE other.timers (x text); INSERT INTO other.timers VALUES ('x')",
        )
        .unwrap();
    let error = refused(server.builder("other"));
    assert!(matches!(error, StoreError::NotAStore), "{error}");
    assert_eq!(client.query("SELECT x FROM other.timers", &[]).unwrap().len(), 1);
}

/// Not all keys could be stored, and one of the others would stop the store.
#[test]
fn a_database_with_another_encoding_is_refused() {
    let Some(server) = server() else { return };
    let create = "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    server.client().batch_execute(create).unwrap();
    let config = config(server.port()).replace("dbname=postgres", "dbname=latin");
    let error = refused(PostgresStore::builder(&config));
    assert!(error.to_string().contains("LATIN1"), "{error}");
}
