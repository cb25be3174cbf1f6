//! The scripts of `RedisBroker` in Lua, and the closures in their places.
//!
//! Random calls have the same replies, the same events and the same keys.

use super::{client::Client, servers::Servers};
use crate::support::random::Random;
use bytes::Bytes;
use netwheel::codec::RespValue;

const TOPIC: &str = include_str!("../../../src/broker/redis/scripts/topic.lua");
const MAP: &str = include_str!("../../../src/broker/redis/scripts/map.lua");

macro_rules! script {
    ($name:literal) => {
        include_str!(concat!("../../../src/broker/redis/scripts/", $name, ".lua"))
    };
}

const METADATA: &str = "{p:1}:topic:";
const STREAM: &str = "{p:1}:stream:";
const MAPS: &str = "{p:1}:map:";
const OWNED: &str = "{p:1}:owned:";
const OWNERS: &str = "{p:1}:owners";
const SEQUENCE: &str = "{p:1}:sequence";
const ENDED: &str = "{p:1}:ended";
const CHANNEL: &str = "{p:1}:events";
const LEASES: [&str; 3] = ["{p}:leases", "{p}:incarnations", "{p}:ended"];

/// No time passes that matters.
const LONG: &str = "100000";

/// A call of a script: the source, the keys and the arguments.
struct Call {
    source: String,
    keys: Vec<String>,
    arguments: Vec<String>,
}

impl Call {
    fn command(&self) -> Vec<Bytes> {
        let number = self.keys.len().to_string();
        let begin = ["EVAL", &self.source, &number].map(|text| Bytes::copy_from_slice(text.as_bytes()));
        let rest =
            self.keys.iter().chain(&self.arguments).map(|text| Bytes::copy_from_slice(text.as_bytes()));
        begin.into_iter().chain(rest).collect()
    }
}

/// Draws calls.
struct Calls {
    random: Random,
    last_id: u64,
    run: u64,
    /// The last position in a reply of each topic.
    seen: [(String, String); 4],
}

impl Calls {
    fn below(&mut self, limit: usize) -> usize {
        self.random.between(0, limit - 1)
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    /// The arguments that the scripts of a topic have in common.
    fn common(&mut self, topic: usize) -> Vec<String> {
        self.last_id += 1;
        let (epoch, offset) = self.seen[topic].clone();
        let seen = match self.below(8) {
            0..4 => [epoch, offset],
            4 => [epoch, (offset.parse::<u64>().unwrap() + 3).to_string()],
            _ => ["0", "0"].map(str::to_owned),
        };
        let fixed = [format!("r{}", self.run), self.last_id.to_string(), LONG.into(), CHANNEL.into()];
        [&fixed[..], &[format!("t{topic}")], &seen].concat()
    }

    fn topic_call(&mut self, topic: usize) -> Call {
        let name = format!("t{topic}");
        let keys =
            |kind: &str| vec![format!("{METADATA}{name}"), SEQUENCE.to_owned(), format!("{kind}{name}")];
        let mut arguments = self.common(topic);
        match self.below(10) {
            0..3 => {
                let mut keys = keys(STREAM);
                if self.below(2) == 0 {
                    keys.push(format!("{{p:1}}:id:{name}{}", self.below(4)));
                }
                let payload = "x".repeat(self.below(12));
                let (messages, bytes) =
                    (self.pick(&["0", "1", "3", "50"]), self.pick(&["0", "9", "30", "1000"]));
                arguments.extend([&payload, messages, bytes, LONG, LONG].map(str::to_owned));
                Call { source: [TOPIC, script!("publish")].concat(), keys, arguments }
            }
            3..5 => {
                let from = self.pick(&["-", "0", "1", "2", "5", "9000"]);
                let (messages, bytes) = (self.pick(&["0", "1", "2", "40"]), self.pick(&["0", "9", "1000"]));
                arguments.extend([from, messages, bytes].map(str::to_owned));
                Call { source: [TOPIC, script!("read")].concat(), keys: keys(STREAM), arguments }
            }
            5..8 => {
                let mut keys = keys(MAPS);
                keys.extend([ENDED, OWNERS].map(str::to_owned));
                let owner = self.pick(&["", "", "a:1", "b:1", "b:2"]);
                let most = self.pick(&["0", "3", "100"]);
                arguments.extend([owner, most, OWNED].map(str::to_owned));
                for _ in 0..self.below(5) {
                    let kind = self.pick(&["=", "=", "=", "-"]);
                    let (epoch, offset) = self.seen[topic].clone();
                    let condition = match self.below(6) {
                        0 => "!".to_owned(),
                        1 => format!("{epoch} {offset}"),
                        _ => String::new(),
                    };
                    let (key, value) =
                        (self.pick(&["k", "l", "m n", "o:\n"]), self.pick(&["", "v", "w w\n"]));
                    arguments.extend([kind, key, value, &condition].map(str::to_owned));
                }
                Call { source: [TOPIC, MAP, script!("change")].concat(), keys, arguments }
            }
            _ => {
                let (entries, bytes) = (self.pick(&["0", "2", LONG]), self.pick(&["0", "90", LONG]));
                arguments.extend([entries, bytes].map(str::to_owned));
                Call { source: [TOPIC, script!("snapshot")].concat(), keys: keys(MAPS), arguments }
            }
        }
    }

    fn tops(&mut self) -> Call {
        let mut keys = vec![SEQUENCE.to_owned()];
        self.last_id += 1;
        let run = format!("r{}", self.run);
        let mut arguments = vec![run, self.last_id.to_string(), LONG.into(), CHANNEL.into()];
        for topic in 0..self.below(5) {
            let common = self.common(topic);
            keys.extend([METADATA, MAPS].map(|begin| format!("{begin}t{topic}")));
            arguments.extend([&common[4..], &common[1..2]].concat());
        }
        Call { source: [TOPIC, script!("tops")].concat(), keys, arguments }
    }

    fn lease_call(&mut self) -> Call {
        let node = self.pick(&["a:1", "b:1", "b:2"]);
        let keys = LEASES.map(str::to_owned).to_vec();
        match self.below(4) {
            0 => {
                self.last_id += 1;
                let mut keys = vec![format!("{OWNED}{node}")];
                keys.extend([SEQUENCE, ENDED, OWNERS].map(str::to_owned));
                let run = format!("r{}", self.run);
                let most = self.pick(&["1", "2", "100"]);
                let id = self.last_id.to_string();
                let bytes = self.pick(&["0", "40", LONG]);
                let arguments = [&run, &id, LONG, CHANNEL, node, most, METADATA, MAPS, LONG, bytes];
                let arguments = arguments.map(str::to_owned).to_vec();
                Call { source: [TOPIC, MAP, script!("sweep")].concat(), keys, arguments }
            }
            1 => {
                let mut arguments = vec![self.pick(&["end", "lost"]).to_owned()];
                if self.below(2) == 0 {
                    arguments.push(node.to_owned());
                }
                Call { source: script!("lost").to_owned(), keys, arguments }
            }
            _ => {
                let name = node.split(':').next().unwrap();
                let arguments =
                    [node, name, LONG, self.pick(&["begin", "again", "renew"])].map(str::to_owned).to_vec();
                Call { source: script!("renew").to_owned(), keys, arguments }
            }
        }
    }

    /// A command of another client.
    fn interference(&mut self) -> Vec<Bytes> {
        let topic = self.below(4);
        let command = match self.below(6) {
            0 => format!("DEL {METADATA}t{topic}"),
            1 => format!("DEL {STREAM}t{topic}"),
            2 => format!("DEL {MAPS}t{topic}"),
            3 => format!("HDEL {MAPS}t{topic} k"),
            4 => format!("DEL {OWNED}{}", self.pick(&["a:1", "b:1", "b:2"])),
            _ => format!("SET {STREAM}t{topic} x"),
        };
        command.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
    }

    fn next(&mut self) -> (Vec<Bytes>, Option<usize>) {
        match self.below(40) {
            0 => (self.interference(), None),
            1 => {
                self.run = 1 + self.below(3) as u64;
                (self.tops().command(), None)
            }
            2..5 => (self.tops().command(), None),
            5..9 => (self.lease_call().command(), None),
            _ => {
                let topic = self.below(4);
                (self.topic_call(topic).command(), Some(topic))
            }
        }
    }

    /// Notes the position in a reply, so that later calls refer to it.
    fn note(&mut self, topic: usize, reply: &RespValue) {
        let RespValue::Array(items) = reply else { return };
        let text = |index: usize| {
            items
                .get(index)
                .and_then(RespValue::as_bytes)
                .map(|text| String::from_utf8_lossy(text).into_owned())
        };
        // `epoch offset` of a change, `is_duplicate epoch offset` of a message.
        let at = usize::from(matches!(items.first(), Some(RespValue::Integer(_))));
        if let (Some(epoch), Some(offset)) = (text(at), text(at + 1))
            && [&epoch, &offset].iter().all(|text| text.parse::<u64>().is_ok())
        {
            self.seen[topic] = (epoch, offset);
        }
    }
}

/// Returns a reply without the order of sets, and without the places of errors in Lua.
fn comparable(reply: RespValue) -> String {
    match reply {
        RespValue::Array(items)
            if items.iter().all(|item| item.as_bytes().is_some_and(|text| text.contains(&b':'))) =>
        {
            let mut items: Vec<_> = items.iter().map(|item| format!("{item:?}")).collect();
            items.sort();
            items.join(" ")
        }
        RespValue::Error(text) => {
            let text = String::from_utf8_lossy(&text).into_owned();
            text.split(" script: ").next().unwrap_or_default().trim_end().to_owned()
        }
        other => format!("{other:?}"),
    }
}

/// Returns all keys with their values, without times.
fn keys(client: &mut Client) -> Vec<String> {
    let RespValue::Array(mut names) = client.ask("KEYS *") else { panic!("KEYS replies an array") };
    let mut names: Vec<String> =
        names.drain(..).map(|name| String::from_utf8_lossy(name.as_bytes().unwrap()).into_owned()).collect();
    names.sort();
    let mut found = Vec::new();
    for name in names {
        let kind = client.ask(&format!("TYPE {name}"));
        let value = match &kind.as_bytes().unwrap()[..] {
            b"string" => client.ask(&format!("GET {name}")),
            b"hash" if name.starts_with(METADATA) => {
                client.ask(&format!("HMGET {name} kind top epochs run sum low_sum length"))
            }
            b"hash" => client.ask(&format!("HGETALL {name}")),
            b"stream" => {
                let entries = format!("{:?}", client.ask(&format!("XRANGE {name} - +")));
                RespValue::Bulk(without_times(&entries).into())
            }
            b"zset" => client.ask(&format!("ZRANGE {name} 0 -1")),
            b"set" => client.ask(&format!("SMEMBERS {name}")),
            other => panic!("{other:?}"),
        };
        let is_transient = matches!(client.ask(&format!("TTL {name}")), RespValue::Integer(left) if left > 0);
        found.push(format!("{name} {is_transient} {}", comparable(value)));
    }
    found
}

/// Removes the last field of each entry.
fn without_times(entries: &str) -> String {
    entries
        .split("Bulk(b\"t\"), Bulk(b\"")
        .map(|part| part.trim_start_matches(|digit: char| digit.is_ascii_digit()))
        .collect()
}

#[test]
fn closures_do_what_the_scripts_do() {
    let Some(servers) = Servers::with_broker_scripts() else { return };
    for seed in 1..=8 {
        let connections = || [servers.real.connect(), servers.double.connect()];
        let (mut clients, mut listeners) = (connections(), connections());
        for client in &mut clients {
            client.ask("FLUSHALL");
        }
        for listener in &mut listeners {
            listener.ask(&format!("SUBSCRIBE {CHANNEL}"));
        }
        let seen = std::array::from_fn(|_| ("0".to_owned(), "0".to_owned()));
        let mut calls = Calls { random: Random::new(seed), last_id: 100, run: 1, seen };
        for number in 0..300 {
            let (command, topic) = calls.next();
            let [real, double] = clients.each_mut().map(|client| {
                client.send([command.clone()]);
                client.receive()
            });
            if let Some(topic) = topic {
                calls.note(topic, &real);
            }
            let shown: Vec<_> = command.iter().skip(2).map(|arg| String::from_utf8_lossy(arg)).collect();
            assert_eq!(comparable(real), comparable(double), "seed {seed}, call {number}: {shown:?}");
        }
        let [real, double] = clients.each_mut().map(keys);
        assert_eq!(real, double, "seed {seed}");
        for client in &mut clients {
            client.ask(&format!("PUBLISH {CHANNEL} end"));
        }
        loop {
            let [real, double] = listeners.each_mut().map(|listener| format!("{:?}", listener.receive()));
            assert_eq!(real, double, "seed {seed}");
            if real.contains("end") {
                break;
            }
        }
    }
}
