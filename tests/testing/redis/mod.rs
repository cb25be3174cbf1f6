//! The simulated Redis, compared with `redis-server`, and amid faults.
//!
//! The comparison needs `redis-server` 7.0. Without it, those tests are skipped, except in CI.

#[cfg(feature = "broker-redis")]
mod broker_scripts;
mod client;
mod conversation;
mod differences;
mod large_values;
mod random;
mod scripts;
mod servers;
mod simulated;

use conversation::compare;
use netwheel::codec::RespValue;
use servers::Servers;

/// Plays the conversations of a file with RESP2 and RESP3.
fn both_versions(file: &str) {
    if let Some(servers) = Servers::start() {
        compare(&servers, file, &["", "HELLO 3"]);
    }
}

#[test]
fn keys_and_strings_are_those_of_redis() {
    both_versions(include_str!("conversations/keys.txt"));
}

#[test]
fn collections_are_those_of_redis() {
    both_versions(include_str!("conversations/collections.txt"));
}

#[test]
fn streams_are_those_of_redis() {
    both_versions(include_str!("conversations/streams.txt"));
}

#[test]
fn connections_transactions_and_scripts_are_those_of_redis() {
    both_versions(include_str!("conversations/connections.txt"));
}

#[test]
fn messages_are_those_of_redis() {
    both_versions(include_str!("conversations/messages.txt"));
}

#[test]
fn a_full_memory_and_a_replica_refuse_as_redis_does() {
    both_versions(include_str!("conversations/conditions.txt"));
}

#[test]
fn passwords_and_permissions_are_those_of_redis() {
    if let Some(servers) = Servers::with_users() {
        // `HELLO 3` is a part of the conversations.
        compare(&servers, include_str!("conversations/users.txt"), &[""]);
    }
}

/// Arity, flags and keys decide about errors, permissions and transactions.
#[test]
fn the_table_of_commands_is_that_of_redis() {
    let Some(servers) = Servers::start() else { return };
    let [mut real, mut double] = [servers.real.connect(), servers.double.connect()];
    let listed = include_str!("../../../src/testing/redis/command/table.rs");
    let names: Vec<&str> =
        listed.lines().filter_map(|line| line.split("row(\"").nth(1)?.split('"').next()).collect();
    assert!(names.len() > 90, "{names:?}");
    for name in names {
        let mut fields = [&mut real, &mut double].map(|client| {
            let RespValue::Array(mut reply) = client.ask(&format!("COMMAND INFO {name}")) else {
                panic!("COMMAND INFO replies an array");
            };
            let Some(RespValue::Array(fields)) = reply.pop() else { panic!("{name} is a command") };
            fields[..6].to_vec()
        });
        for fields in &mut fields {
            if let RespValue::Array(flags) = &mut fields[2] {
                flags.sort_by_key(|flag| format!("{flag:?}"));
            }
        }
        assert_eq!(fields[0], fields[1], "{name}");
    }
}
