//! What a process leaves behind: after a failover, a kill, a crash of its disk, and when its server
//! is bound again.

use super::{
    super::scripts, ADDRESS, SECOND, one_loop, program_client::ProgramClient, redis_node, server, with_client,
};
use crate::support::loops;
use netwheel::testing::{
    redis::{Persistence, RedisDisk, RedisServer},
    simulation::{Journal, NodeId, Simulation, sleep},
};
use std::time::Duration;

#[test]
fn a_failover_loses_what_the_replica_lacks() {
    let server = server();
    let redis = server.clone();
    with_client(&server, move || {
        let group = one_loop()?;
        let client = ProgramClient::connect(&group)?;
        let run_id = client.text("INFO server");
        client.ask(&["SCRIPT", "LOAD", scripts::PUBLISH])?;
        for _ in 0..10 {
            client.ask(&["EVAL", scripts::PUBLISH, "3", "m", "s", "c", "e", "0", "x", "100"])?;
        }
        redis.fail_over(3);
        sleep(SECOND);
        assert!(!client.is_open());
        let client = ProgramClient::connect(&group)?;
        // A script is lost as a whole: the offset and the stream agree.
        assert_eq!(client.text("HGET m offset"), "7");
        assert_eq!(client.text("XLEN s"), "7");
        assert_eq!(client.text("HGET m epoch"), "e", "the epoch does not tell");
        assert_ne!(client.text("INFO server"), run_id);
        let exists = client.ask(&["EVALSHA", "0000000000000000000000000000000000000000", "0"])?;
        assert!(String::from_utf8_lossy(exists.as_bytes().unwrap()).starts_with("NOSCRIPT"));
        // The new master has its own file.
        client.text("SET k v EX 1000");
        let expiry = client.text("PEXPIRETIME k");
        let added = client.text("XADD automatic * f v");
        sleep(100 * SECOND);
        redis.fail_over(0);
        sleep(SECOND);
        let client = ProgramClient::connect(&group)?;
        assert_eq!(client.text("PEXPIRETIME k"), expiry, "commands are repeated at their time");
        assert!(client.text("XRANGE automatic - +").contains(&added));
        redis.fail_over(RedisDisk::MAX_LAG);
        sleep(SECOND);
        assert_eq!(ProgramClient::connect(&group)?.text("DBSIZE"), "0");
        Ok(())
    });
}

/// Kills Redis after three writes, and returns the number of keys afterwards.
fn keys_after_a_kill(persistence: Persistence, pause: Duration, seed: u64) -> String {
    let mut simulation = Simulation::new(seed);
    let server = server().persistence(persistence);
    let node = redis_node(&mut simulation, &server, &Journal::new());
    let keys = Journal::new();
    let counted = keys.clone();
    let writer = simulation.node("writer", "10.0.0.2", move || {
        let client = ProgramClient::connect(&one_loop()?)?;
        client.text("MSET a 1 b 2");
        client.text("SET c 3");
        client.ask(&["EVAL", scripts::CALL, "0", "SET", "d", "4"])?;
        sleep(pause);
        Ok(())
    });
    simulation.run_until_ended(writer, 60 * SECOND).unwrap();
    simulation.kill(node);
    simulation.restart(node);
    let reader = simulation.node("reader", "10.0.0.3", move || {
        sleep(SECOND);
        let client = ProgramClient::connect(&one_loop()?)?;
        counted.push(client.text("DBSIZE"));
        let sha = client.ask(&["SCRIPT", "LOAD", scripts::CALL])?;
        let sha = String::from_utf8_lossy(sha.as_bytes().unwrap()).into_owned();
        assert_eq!(client.text(&format!("EVALSHA {sha} 0 PING")), "PONG");
        client.text("SCRIPT FLUSH");
        assert!(client.text(&format!("EVALSHA {sha} 0 PING")).starts_with("NOSCRIPT"));
        Ok(())
    });
    simulation.run_until_ended(reader, 60 * SECOND).unwrap();
    keys.with(|keys| keys[0].clone())
}

#[test]
fn persistence_decides_what_a_kill_loses() {
    assert_eq!(keys_after_a_kill(Persistence::Always, Duration::ZERO, 1), "4");
    assert_eq!(keys_after_a_kill(Persistence::Never, Duration::ZERO, 1), "0");
    // After a second, everything is safe.
    assert_eq!(keys_after_a_kill(Persistence::EverySecond, SECOND * 11 / 10, 1), "4");
    let kept = |seed| keys_after_a_kill(Persistence::EverySecond, Duration::ZERO, seed);
    let kept: std::collections::BTreeSet<String> = (1..=12).map(kept).collect();
    let possible = ["0", "2", "3", "4"].map(str::to_owned);
    assert!(kept.iter().all(|keys| possible.contains(keys)), "{kept:?}: only whole commands are kept");
    assert!(kept.len() > 1, "the seed decides: {kept:?}");
}

/// Ends the process of a silent subscriber, which sees the end of its connection.
fn cut(client: &ProgramClient, end: impl FnOnce()) {
    client.subscribe("c").unwrap();
    sleep(SECOND);
    end();
    assert!(client.is_open());
    sleep(SECOND);
    assert!(!client.is_open(), "the process has ended");
}

const OTHER: &str = "10.0.0.2:6380";

#[test]
fn a_server_that_is_bound_again_cuts_silent_connections() {
    let server = server();
    let redis = server.clone();
    with_client(&server, move || {
        let group = one_loop()?;
        let client = ProgramClient::connect(&group)?;
        let sha = client.ask(&["SCRIPT", "LOAD", scripts::CALL])?;
        let sha = String::from_utf8_lossy(sha.as_bytes().unwrap()).into_owned();
        client.text("SET k v");
        cut(&client, || drop(redis.bind(&group, OTHER).unwrap()));
        // The listener of the earlier process is still there.
        assert!(ProgramClient::connect(&group).is_err(), "{ADDRESS} has no process");
        let client = ProgramClient::connect_to(&group, OTHER)?;
        assert_eq!(client.text("GET k"), "v");
        assert!(client.text(&format!("EVALSHA {sha} 0 PING")).starts_with("NOSCRIPT"));
        Ok(())
    });
}

#[test]
fn a_crash_of_the_disk_cuts_connections_until_the_server_is_bound_again() {
    let disk = RedisDisk::new();
    let server = RedisServer::new(disk.clone());
    let redis = server.clone();
    with_client(&server, move || {
        let group = one_loop()?;
        let client = ProgramClient::connect(&group)?;
        client.text("SET k v");
        cut(&client, || assert_eq!(disk.crash(1), 0));
        assert!(ProgramClient::connect(&group).is_err(), "no process reads the keys");
        redis.bind(&group, OTHER)?;
        assert_eq!(ProgramClient::connect_to(&group, OTHER)?.text("GET k"), "v");
        Ok(())
    });
}

#[test]
fn the_second_server_on_a_disk_ends_the_first_one() {
    let disk = RedisDisk::new();
    let next = RedisServer::new(disk.clone());
    with_client(&RedisServer::new(disk), move || {
        let group = one_loop()?;
        let client = ProgramClient::connect(&group)?;
        assert_eq!(client.text("SET k v"), "OK");
        cut(&client, || drop(next.bind(&group, OTHER).unwrap()));
        assert!(ProgramClient::connect(&group).is_err(), "the file belongs to the second server");
        assert_eq!(ProgramClient::connect_to(&group, OTHER)?.text("GET k"), "v");
        Ok(())
    });
}

/// Returns a simulation whose Redis is idle and has five keys that are safe, with the node.
fn with_five_keys(server: &RedisServer) -> (Simulation, NodeId) {
    let mut simulation = Simulation::new(5);
    let node = redis_node(&mut simulation, server, &Journal::new());
    let writer = simulation.node("writer", "10.0.0.2", || {
        ProgramClient::connect(&one_loop()?)?.text("MSET a 1 b 2 c 3 d 4 e 5");
        Ok(())
    });
    simulation.run_until_ended(writer, 60 * SECOND).unwrap();
    simulation.run_for(2 * SECOND).unwrap();
    (simulation, node)
}

#[test]
fn changes_by_the_test_are_safe_after_a_second_of_quiet() {
    let disk = RedisDisk::new();
    let server = RedisServer::new(disk.clone()).persistence(Persistence::EverySecond);
    let (mut simulation, _) = with_five_keys(&server);
    assert_eq!(disk.unsynced(), 0);
    server.remove_key(0, "a");
    server.flush_all();
    assert_eq!(disk.unsynced(), 2);
    simulation.run_for(SECOND * 11 / 10).unwrap();
    assert_eq!(disk.unsynced(), 0, "nothing else was written");
}

#[test]
fn a_sync_follows_a_write_of_each_life() {
    let disk = RedisDisk::new();
    let server = RedisServer::new(disk.clone()).persistence(Persistence::EverySecond);
    let (mut simulation, node) = with_five_keys(&server);
    for _ in 0..3 {
        // The sync of this write dies with the process.
        server.remove_key(0, "a");
        simulation.run_for(SECOND / 2).unwrap();
        simulation.kill(node);
        simulation.restart(node);
        simulation.run_for(SECOND / 10).unwrap();
        assert_eq!(disk.unsynced(), 0, "what a start finds is safe");
        server.flush_all();
        assert_eq!(disk.unsynced(), 1);
        simulation.run_for(SECOND * 11 / 10).unwrap();
        assert_eq!(disk.unsynced(), 0);
    }
}

/// A loop that has ended cannot sync later.
#[test]
fn a_write_without_a_loop_is_safe_at_once() {
    let disk = RedisDisk::new();
    let server = RedisServer::new(disk.clone()).persistence(Persistence::EverySecond);
    let group = loops::one_loop();
    server.bind(&group, "127.0.0.1:0").unwrap();
    loops::end(&group);
    server.flush_all();
    assert_eq!(disk.unsynced(), 0);
}
