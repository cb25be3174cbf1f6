//! Conditions that a test brings about, restarts, and expiry in virtual time.

use super::{super::scripts, ADDRESS, SECOND, program_client::ProgramClient, redis_node, with_client};
use netwheel::{
    EventLoopGroup, Result,
    codec::RespValue,
    testing::{
        redis::{Persistence, RedisDisk, RedisServer},
        simulation::{Journal, Simulation, sleep},
    },
};
use std::time::Duration;

fn server() -> RedisServer {
    scripts::register(RedisServer::new(RedisDisk::new()))
}

fn one_loop() -> Result<EventLoopGroup> {
    EventLoopGroup::builder().threads(1).build()
}

#[test]
fn a_server_that_loads_refuses_most_commands() {
    let server = server().loading_time(60 * SECOND);
    let redis = server.clone();
    with_client(&server, move || {
        let client = ProgramClient::connect(&one_loop()?)?;
        assert!(client.text("PING").starts_with("LOADING"), "after the start");
        sleep(60 * SECOND);
        assert_eq!(client.text("PING"), "PONG");
        redis.load_for(2 * SECOND);
        assert_eq!(client.text("GET k"), "LOADING Redis is loading the dataset in memory");
        assert_eq!(client.text("PING"), "LOADING Redis is loading the dataset in memory");
        assert_eq!(client.text("SELECT 1"), "OK");
        assert!(client.text("INFO persistence").contains("loading:1\r\n"));
        sleep(2 * SECOND);
        assert_eq!(client.text("GET k"), "nil");
        assert!(client.text("INFO persistence").contains("loading:0\r\n"));
        Ok(())
    });
}

#[test]
fn a_busy_server_refuses_most_commands() {
    let server = server();
    let redis = server.clone();
    with_client(&server, move || {
        let client = ProgramClient::connect(&one_loop()?)?;
        redis.busy_for(SECOND);
        assert!(client.text("GET k").starts_with("BUSY Redis is busy running a script."));
        assert_eq!(client.text("UNWATCH"), "OK");
        // The condition begins again, so its first end does not count.
        sleep(SECOND / 2);
        redis.busy_for(SECOND);
        sleep(SECOND * 3 / 4);
        assert!(client.text("PING").starts_with("BUSY"));
        sleep(SECOND);
        assert_eq!(client.text("PING"), "PONG");
        Ok(())
    });
}

#[test]
fn held_commands_run_in_order_when_the_hold_ends() {
    let server = server();
    let redis = server.clone();
    let simulation = with_client(&server, move || {
        let group = one_loop()?;
        let client = ProgramClient::connect(&group)?;
        let other = ProgramClient::connect(&group)?;
        redis.hold_for(10 * SECOND);
        let pushed = client.ask(&["SET", "k", "1"])?;
        assert_eq!(pushed, RespValue::Simple("OK".into()));
        assert_eq!(other.text("GET k"), "1");
        Ok(())
    });
    assert!((10 * SECOND..11 * SECOND).contains(&simulation.elapsed()), "{:?}", simulation.elapsed());
}

#[test]
fn keys_expire_in_virtual_time() {
    with_client(&server(), || {
        let group = one_loop()?;
        let (client, other) = (ProgramClient::connect(&group)?, ProgramClient::connect(&group)?);
        client.text("SET k v EX 3600");
        client.text("SET watched v PX 1800000");
        sleep(1000 * SECOND);
        assert_eq!(client.text("TTL k"), "2600");
        assert_eq!(client.text("WATCH watched"), "OK");
        assert_eq!(client.text("MULTI"), "OK");
        assert_eq!(client.text("GET k"), "QUEUED");
        sleep(1000 * SECOND);
        // The watched key has expired in between, although nothing has removed it yet.
        assert_eq!(client.text("EXEC"), "nil");
        assert_eq!(client.text("WATCH watched"), "OK");
        assert_eq!(other.text("EXISTS watched"), "0");
        assert_eq!(client.text("MULTI"), "OK");
        assert_eq!(client.text("PING"), "QUEUED");
        assert!(client.text("EXEC").contains("PONG"), "the key had expired before it was watched");
        sleep(1600 * SECOND + Duration::from_millis(1));
        assert_eq!(client.text("GET k"), "nil");
        assert_eq!(client.text("DBSIZE"), "0");
        Ok(())
    });
}

#[test]
fn other_clients_interfere() {
    let server = server();
    let redis = server.clone();
    with_client(&server, move || {
        let client = ProgramClient::connect(&one_loop()?)?;
        client.text("MSET a 1 b 2 c 3");
        client.text("WATCH a");
        redis.remove_key(0, "a");
        assert_eq!(client.text("EXISTS a b"), "1");
        client.text("MULTI");
        assert_eq!(client.text("EXEC"), "nil");
        redis.remove_key(3, "b");
        assert_eq!(client.text("GET b"), "2", "the key is in another database");
        redis.flush_all();
        assert_eq!(client.text("DBSIZE"), "0");
        Ok(())
    });
}

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

#[test]
fn two_servers_on_one_disk_are_two_lives() {
    let disk = RedisDisk::new();
    let mut simulation = Simulation::new(1);
    redis_node(&mut simulation, &server_on(&disk), &Journal::new());
    let next = server_on(&disk);
    let client = simulation.node("client", "10.0.0.2", move || {
        let group = one_loop()?;
        let client = ProgramClient::connect(&group)?;
        assert_eq!(client.text("SET k v"), "OK");
        let bound = next.bind(&group, "10.0.0.2:6379")?;
        // The file belongs to the second server, so the first one must not acknowledge a write.
        assert!(client.ask(&["SET", "k", "w"]).is_err());
        assert_eq!(ProgramClient::connect(&group)?.text("PING"), "PONG", "{ADDRESS} still reads");
        drop(bound);
        Ok(())
    });
    simulation.run_until_ended(client, 60 * SECOND).unwrap_or_else(|failure| panic!("{failure}"));
}

fn server_on(disk: &RedisDisk) -> RedisServer {
    RedisServer::new(disk.clone())
}

#[test]
fn a_test_brings_about_conditions_between_runs() {
    let server = server();
    let mut simulation = Simulation::new(1);
    redis_node(&mut simulation, &server, &Journal::new());
    let replies = Journal::new();
    let heard = replies.clone();
    simulation.node("client", "10.0.0.2", move || {
        let group = one_loop()?;
        loop {
            if let Ok(client) = ProgramClient::connect(&group) {
                while let Ok(reply) = client.ask(&["INCR", "n"]) {
                    heard.push(reply);
                    sleep(SECOND / 10);
                }
            }
            sleep(SECOND / 10);
        }
    });
    simulation.run_for(SECOND).unwrap();
    let before = replies.len();
    assert!(before > 5, "{before}");
    server.hold_for(5 * SECOND);
    simulation.run_for(4 * SECOND).unwrap();
    assert!(replies.len() <= before + 1);
    simulation.run_for(2 * SECOND).unwrap();
    let held = replies.len();
    assert!(held > before + 5, "{held}");
    server.fail_over(2);
    simulation.run_for(2 * SECOND).unwrap();
    let numbers = replies.with(|replies| {
        let number = |reply: &RespValue| match reply {
            RespValue::Integer(number) => *number,
            other => panic!("{other:?}"),
        };
        replies.iter().map(number).collect::<Vec<_>>()
    });
    assert!(numbers.len() > held + 5, "the client has connected again");
    let rewinds = numbers.windows(2).filter(|pair| pair[1] != pair[0] + 1).collect::<Vec<_>>();
    assert_eq!(rewinds.len(), 1, "{numbers:?}");
    assert_eq!(rewinds[0][1], rewinds[0][0] - 1, "two writes are lost: {numbers:?}");
}
