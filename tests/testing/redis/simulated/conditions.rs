//! Conditions that a test brings about, and expiry in virtual time.

use super::{SECOND, one_loop, program_client::ProgramClient, redis_node, server, with_client};
use netwheel::{
    codec::RespValue,
    testing::simulation::{Journal, Simulation, sleep},
};
use std::time::Duration;

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
fn a_transaction_with_keys_is_refused_while_a_server_loads() {
    let server = server();
    let redis = server.clone();
    with_client(&server, move || {
        let client = ProgramClient::connect(&one_loop()?)?;
        client.text("MULTI");
        client.text("GET k");
        redis.load_for(SECOND);
        let reply = client.text("EXEC");
        assert_eq!(
            reply,
            "EXECABORT Transaction discarded because of: LOADING Redis is loading the dataset in memory"
        );
        client.text("MULTI");
        client.text("SELECT 1");
        assert!(client.text("EXEC").contains("OK"), "SELECT has the flag `loading`");
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
