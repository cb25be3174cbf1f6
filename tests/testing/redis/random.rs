//! Random commands with few keys and values, on both servers.

use super::{client::Client, differences::comparable, servers::Servers};
use crate::support::random::Random;
use bytes::Bytes;
use std::hash::{BuildHasher, RandomState};

/// The forms of commands. In each, `K` is a key, `F` a field or member, `N` a small number, `S` a
/// score, `V` a value, `I` an id of a stream, `P` a position, and `E` a number of seconds. Words in
/// small letters are taken as they are.
const FORMS: &[&str] = &[
    "SET K V",
    "SET K V NX",
    "SET K V XX GET",
    "SET K N",
    "GET K",
    "MGET K K K",
    "APPEND K V",
    "STRLEN K",
    "INCR K",
    "INCRBY K N",
    "DECRBY K N",
    "MSET K V K V",
    "DEL K K",
    "EXISTS K K",
    "TYPE K",
    "EXPIRE K E",
    "EXPIRE K -1",
    "PERSIST K",
    "TTL K",
    "HSET K F V",
    "HSET K F N F V",
    "HGET K F",
    "HMGET K F F",
    "HDEL K F F",
    "HGETALL K",
    "HLEN K",
    "HEXISTS K F",
    "HINCRBY K F N",
    "HSETNX K F V",
    "SADD K F F",
    "SREM K F F",
    "SMEMBERS K",
    "SCARD K",
    "SISMEMBER K F",
    "ZADD K S F",
    "ZADD K S F S F",
    "ZINCRBY K S F",
    "ZREM K F F",
    "ZSCORE K F",
    "ZCARD K",
    "ZRANGE K P P",
    "ZRANGE K P P REV WITHSCORES",
    "ZRANGE K S S BYSCORE WITHSCORES",
    "ZRANGE K S S BYSCORE REV LIMIT N N",
    "ZRANGEBYSCORE K (S S",
    "ZRANGEBYSCORE K S +inf LIMIT 1 2",
    "ZREMRANGEBYSCORE K S S",
    "RPUSH K V V",
    "LPUSH K V",
    "LPOP K",
    "RPOP K N",
    "LRANGE K P P",
    "LLEN K",
    "XADD K I F V",
    "XADD K MAXLEN 3 I F V",
    "XADD K MINID I I F V",
    "XLEN K",
    "XRANGE K - +",
    "XRANGE K I I",
    "XRANGE K (I + COUNT N",
    "XREAD COUNT 2 STREAMS K K I I",
    "XDEL K I I",
    "MULTI",
    "EXEC",
    "EXEC",
    "DISCARD",
    "WATCH K",
    "UNWATCH",
    "SELECT N",
    "DBSIZE",
    "KEYS *",
    "FLUSHALL",
    "PING V",
    "GET",
    "INCR K K",
    "HSET K F",
    "ZADD K V F",
    "XADD K V F V",
];

/// Draws a command.
fn command(random: &mut Random) -> Vec<Bytes> {
    let form = FORMS[random.between(0, FORMS.len() - 1)];
    let one = |random: &mut Random, of: &[&str]| of[random.between(0, of.len() - 1)].to_owned();
    let argument = |word: &str| match word {
        "K" => format!("k{}", random.between(1, 5)),
        "F" => one(random, &["a", "b", "c", "d", "e"]),
        "N" => one(random, &["0", "1", "2", "3", "-1", "-2"]),
        "P" => one(random, &["0", "1", "2", "-1", "-2", "-9", "9", "x"]),
        // So many that two of them are hardly ever equal: then the millisecond in which a server
        // got the commands would decide which one is greater.
        "E" => random.between(1_000, 1_000_000_000).to_string(),
        "S" | "(S" => {
            let score = one(random, &["0", "1", "2", "1.5", "-1", "3e2", "inf", "-inf"]);
            word.replace('S', &score)
        }
        "I" | "(I" => {
            let id = format!("{}-{}", random.between(0, 9), random.between(0, 3));
            word.replace('I', &id)
        }
        "V" => one(random, &["", "v", "w", "10", "-7", "longer than the others", "a\r\nb"]),
        word => word.to_owned(),
    };
    form.split(' ').map(argument).map(Bytes::from).collect()
}

/// Sends the same commands to both servers, and compares the replies.
#[track_caller]
fn exchange(real: &mut Client, double: &mut Client, commands: &[Vec<Bytes>], seed: u64) {
    real.send(commands.iter().cloned());
    double.send(commands.iter().cloned());
    for (n, command) in commands.iter().enumerate() {
        let text = String::from_utf8_lossy(&command.join(&b' ')).into_owned();
        let [real, double] = [real.receive(), double.receive()].map(|reply| in_order(&text, reply));
        assert_eq!(
            double,
            real,
            "NETWHEEL_REDIS_SEED={seed}: the double, then Redis, after {text} ({n} of the batch {:?})",
            commands[..n].iter().map(|command| command.join(&b' ')).rev().take(40).collect::<Vec<_>>()
        );
    }
}

/// The replies of a transaction have no commands, so all arrays are compared without their order
/// there.
fn in_order(command: &str, reply: netwheel::codec::RespValue) -> netwheel::codec::RespValue {
    let command = if command == "EXEC" { "KEYS" } else { command };
    comparable(command, reply)
}

/// Returns commands that read everything that random commands may have written.
fn contents() -> Vec<Vec<Bytes>> {
    const READS: [&str; 8] =
        ["TYPE", "TTL", "GET", "HGETALL", "SMEMBERS", "ZRANGE 0 -1 WITHSCORES", "LRANGE 0 -1", "XRANGE - +"];
    let mut commands = Vec::new();
    for database in 0..4 {
        commands.push(format!("SELECT {database}"));
        for key in 1..=5 {
            commands.extend(READS.iter().map(|read| match read.split_once(' ') {
                Some((name, rest)) => format!("{name} k{key} {rest}"),
                None => format!("{read} k{key}"),
            }));
        }
        commands.push("KEYS *".to_owned());
    }
    commands
        .iter()
        .map(|command| command.split(' ').map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect())
        .collect()
}

fn seeds() -> Vec<u64> {
    match std::env::var("NETWHEEL_REDIS_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => {
            let fresh = RandomState::new().hash_one("seed") >> 32;
            let count = Random::cases() as u64 / 2500;
            (0..count).map(|n| fresh + n * 0x1_0000_0000).collect()
        }
    }
}

/// Two connections run batches of random commands in turn, so that transactions meet.
#[test]
fn random_commands_have_the_replies_of_redis() {
    let Some(servers) = Servers::start() else { return };
    for seed in seeds() {
        let mut random = Random::new(seed);
        for hello in ["HELLO 2", "HELLO 3"] {
            let mut pairs = [(); 2].map(|()| (servers.real.connect(), servers.double.connect()));
            for (real, double) in &mut pairs {
                real.ask(hello);
                double.ask(hello);
            }
            for _ in 0..60 {
                let commands: Vec<_> = (0..random.between(1, 40)).map(|_| command(&mut random)).collect();
                let (real, double) = &mut pairs[random.between(0, 1)];
                exchange(real, double, &commands, seed);
            }
            // The double restores its keys by repeating the commands that have changed them.
            servers.double.server.fail_over(0);
            let (mut real, mut double) = (servers.real.connect(), servers.double.connect());
            exchange(&mut real, &mut double, &contents(), seed);
            real.ask("FLUSHALL");
            double.ask("FLUSHALL");
        }
    }
}
