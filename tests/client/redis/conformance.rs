//! The conformance table: calls and their outcomes, with `redis-server` and with the simulated
//! Redis.

use super::{
    outcome,
    servers::{TestServer, add, with_each},
    text_of,
};
use crate::support::wait::{done, wait_until};
use netwheel::{
    codec::RespValue,
    redis::{RedisClient, RedisCommand, RedisRole, ServerInfo},
};
use std::sync::{Arc, Mutex};

/// A command, whose arguments are separated by spaces, and its outcome.
const TABLE: [(&str, &str); 26] = [
    ("FLUSHALL", "OK"),
    ("PING", "PONG"),
    ("ECHO hello", "hello"),
    ("SET k v", "OK"),
    ("GET k", "v"),
    ("GET nothing", "nil"),
    ("SET k other NX", "nil"),
    ("INCR n", "1"),
    ("INCRBY n 41", "42"),
    ("INCR k", "-ERR value is not an integer or out of range"),
    ("LPUSH k x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("RPUSH list a b c", "3"),
    ("LRANGE list 0 -1", "[a b c]"),
    ("HSET hash f 1", "1"),
    ("HGETALL hash", "{f:1}"),
    ("SADD set a", "1"),
    ("SMEMBERS set", "[a]"),
    ("XADD stream 1-1 f v", "1-1"),
    ("XRANGE stream - +", "[[1-1 [f v]]]"),
    ("MGET k nothing n", "[v nil 42]"),
    ("GET", "-ERR wrong number of arguments for 'get' command"),
    ("SUBSCRIBE c", "not sent: Encode"),
    ("MULTI", "not sent: Encode"),
    ("BLPOP list 0", "not sent: Encode"),
    ("CLIENT GETNAME", "nil"),
    ("DBSIZE", "6"),
];

fn command(text: &str) -> RedisCommand {
    text.split(' ').map(str::to_owned).collect::<Vec<_>>().into()
}

fn said(redis: &RedisClient, text: &str) -> String {
    outcome(done(redis.call(command(text))))
}

#[test]
fn calls_have_the_outcomes_of_the_table() {
    with_each(|server| {
        let redis = server.client();
        for (text, expected) in TABLE {
            assert_eq!(said(&redis, text), expected, "{text} with {}", server.name);
        }
        // All commands at once.
        let replies: Vec<_> = TABLE.iter().map(|(text, _)| (text, redis.call(command(text)))).collect();
        for ((text, reply), (_, expected)) in replies.into_iter().zip(TABLE) {
            assert_eq!(outcome(done(reply)), expected, "{text}, pipelined, with {}", server.name);
        }
        let stats = redis.stats();
        assert_eq!((stats.pending, stats.pending_bytes, stats.uncertain), (0, 0, 0));
        assert_eq!((stats.sent, stats.connects, stats.connected), (2 * (26 - 3), 1, 1));
    });
}

#[test]
fn the_server_of_a_connection_is_known() {
    with_each(|server| {
        let redis = server.client();
        let info = done(redis.connected()).unwrap();
        assert_eq!(info.role(), Some(RedisRole::Master));
        assert_eq!(info.maxmemory_policy(), Some("noeviction"));
        assert!(info.version().is_some_and(|version| version.contains('.')), "{info:?}");
        let told = done(redis.call(["INFO", "server"])).unwrap();
        let run_id = format!("run_id:{}\r\n", info.run_id().unwrap());
        assert!(text_of(&told).contains(&run_id), "{info:?}");
        assert_eq!(
            redis.server_info().and_then(|info| info.run_id().map(str::to_owned)),
            info.run_id().map(str::to_owned)
        );
        let echoed = done(redis.call_with(|server: &ServerInfo| {
            RedisCommand::new("ECHO").arg(server.run_id().unwrap_or("unknown").to_owned())
        }));
        assert_eq!(outcome(echoed), info.run_id().unwrap());
    });
}

fn add_to(redis: &RedisClient, by: i64, token: &str) -> String {
    outcome(done(redis.call(add().command(["sum"], [by.to_string(), token.to_owned()]))))
}

#[test]
fn scripts_are_called_by_digest_and_survive_a_flush_of_the_scripts() {
    with_each(|server| {
        let redis = server.client();
        assert_eq!(add_to(&redis, 1, "first"), "[1 first]");
        assert_eq!(add_to(&redis, 2, "by digest"), "[3 by digest]");
        assert_eq!(said(&redis, "SCRIPT FLUSH"), "OK");
        // All of these are refused and sent again, in their order.
        let calls: Vec<_> =
            (0..50).map(|n| redis.call(add().command(["sum"], ["1".to_owned(), format!("t{n}")]))).collect();
        let mut sums = Vec::new();
        for (n, call) in calls.into_iter().enumerate() {
            let reply = outcome(done(call));
            assert!(reply.ends_with(&format!(" t{n}]")), "{reply} with {}", server.name);
            sums.push(reply);
        }
        assert_eq!(add_to(&redis, 0, "end"), "[53 end]", "each was executed once");
        assert_eq!(said(&redis, "SET sum text"), "OK");
        assert!(add_to(&redis, 1, "x").starts_with("-ERR value is not an integer"), "with {}", server.name);
    });
}

#[test]
fn a_transaction_is_executed_as_a_whole_or_refused() {
    with_each(|server| {
        let redis = server.client();
        let transaction = |commands: &[&str]| {
            let commands: Vec<RedisCommand> = commands.iter().map(|text| command(text)).collect();
            outcome(done(redis.call(RedisCommand::transaction(commands))))
        };
        assert_eq!(transaction(&["INCR a", "INCR a", "GET a"]), "[1 2 2]", "{}", server.name);
        let failed = transaction(&["SET k v", "INCR k", "GET k"]);
        assert_eq!(failed, "[OK -ERR value is not an integer or out of range v]");
        let refused = transaction(&["SET k other", "GET"]);
        assert_eq!(refused, "-ERR wrong number of arguments for 'get' command");
        assert_eq!(said(&redis, "GET k"), "v");
        let calls = vec![command("SET sum 5"), add().command(["sum"], ["1", "t"])];
        assert_eq!(outcome(done(redis.call(RedisCommand::transaction(calls)))), "[OK [6 t]]");
    });
}

#[test]
fn commands_of_one_affinity_keep_their_order_on_several_connections() {
    with_each(|server| {
        let redis = RedisClient::builder(&server.group, &server.url)
            .settings(netwheel::redis::RedisSettings::new().connections(4))
            .database(3)
            .client_name("pipeline")
            .connect()
            .unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let pushes: Vec<_> = (0..500i64)
            .map(|n| {
                let push =
                    RedisCommand::new("RPUSH").arg(format!("list{}", n % 5)).number(n).affinity(n as u64 % 5);
                (n, redis.call(push))
            })
            .collect();
        for (n, push) in pushes {
            let order = order.clone();
            push.on_complete(move |reply| order.lock().unwrap().push((n, reply.is_ok())));
        }
        for key in 0..5i64 {
            // Behind the others of its affinity.
            let range = RedisCommand::new("LRANGE").arg(format!("list{key}")).arg("0").arg("-1");
            let list = done(redis.call(range.affinity(key as u64))).unwrap();
            let expected: Vec<String> =
                (0..500).filter(|n| n % 5 == key).map(|n: i64| n.to_string()).collect();
            assert_eq!(text_of(&list), format!("[{}]", expected.join(" ")), "with {}", server.name);
        }
        assert_eq!(said(&redis, "CLIENT GETNAME"), "pipeline");
        assert_eq!(redis.stats().connects, 4);
        assert_eq!(said(&RedisClient::clone(&redis), "DBSIZE"), "5");
        assert_eq!(said(&server.client(), "DBSIZE"), "0", "another database");
    });
}

#[test]
fn a_closed_client_completes_what_was_accepted() {
    with_each(|server: &TestServer| {
        let redis = server.client();
        done(redis.connected()).unwrap();
        let calls: Vec<_> = (0..2000).map(|_| redis.call(["INCR", "closing"])).collect();
        redis.close();
        assert_eq!(said(&redis, "PING"), "closed");
        assert!(redis.try_call(["PING"]).unwrap_err().is_closed());
        assert!(redis.subscribe("c", |_| ()).is_err());
        done(redis.closed()).unwrap();
        assert!(redis.is_closed() && redis.server_info().is_none());
        assert!(done(redis.connected()).is_err());
        for (n, call) in calls.into_iter().enumerate() {
            assert_eq!(done(call).unwrap(), RespValue::Integer(n as i64 + 1), "with {}", server.name);
        }
    });
}

#[test]
fn a_closed_client_leaves_nothing_behind() {
    with_each(|server| {
        let held = Arc::new(());
        let (of_hook, of_sink) = (held.clone(), held.clone());
        let redis = RedisClient::builder(&server.group, &server.url)
            .on_event(move |_| drop(of_hook.clone()))
            .connect()
            .unwrap();
        let news = redis.subscribe("news", move |_| drop(of_sink.clone())).unwrap();
        assert_eq!(said(&redis, "PING"), "PONG");
        redis.close();
        done(redis.closed()).unwrap();
        drop((redis, news));
        wait_until("the hook and the sink are dropped", || Arc::strong_count(&held) == 1);
    });
}

#[test]
fn the_last_handle_closes_the_client() {
    with_each(|server| {
        let redis = server.client();
        let second = redis.clone();
        let closed = redis.closed();
        drop(redis);
        assert_eq!(said(&second, "PING"), "PONG");
        let last = second.call(["PING"]);
        drop(second);
        assert_eq!(outcome(done(last)), "PONG");
        done(closed).unwrap();
    });
}
