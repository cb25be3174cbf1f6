//! Conversations: commands of several clients, and the replies of both servers.
//!
//! A file of conversations has these lines:
//!
//! | line | meaning |
//! |---|---|
//! | `# name` | begins a conversation, with new clients and an empty keyspace |
//! | `a: SET k "a b"` | client `a` sends a command and receives a reply |
//! | `a: <` | client `a` receives another value |
//! | `a: closed` | the server has closed the connection of `a` |
//! | `until a: EXISTS k` | client `a` repeats a command until the reply is 0 or absent |
//! | `server: full` | `maxmemory` is reached; `free`: no longer |
//! | `server: replica` | the server is a replica; `master`: no longer |
//!
//! `$publish` is the source of a script, and `$sha:publish` its SHA-1; that of `$SHA:publish` is in
//! capitals.

use super::{client::Client, differences::comparable, scripts::SCRIPTS, servers::Servers};
use crate::support::wait::PATIENCE;
use bytes::Bytes;
use netwheel::codec::RespValue;
use sha1_smol::Sha1;
use std::{collections::BTreeMap, time::Instant};

/// One of both servers.
trait Server {
    fn connect(&self) -> Client;
    /// Brings about a condition.
    fn set(&self, condition: &str);
}

impl Server for super::servers::Real {
    fn connect(&self) -> Client {
        self.connect()
    }

    fn set(&self, condition: &str) {
        let command = match condition {
            "full" => "CONFIG SET maxmemory 1",
            "free" => "CONFIG SET maxmemory 0",
            "replica" => "REPLICAOF 127.0.0.1 1",
            "master" => "REPLICAOF NO ONE",
            other => panic!("no condition is named {other}"),
        };
        assert_eq!(self.connect().ask(command), RespValue::Simple("OK".into()));
    }
}

impl Server for super::servers::Double {
    fn connect(&self) -> Client {
        self.connect()
    }

    fn set(&self, condition: &str) {
        match condition {
            "full" | "free" => self.server.set_out_of_memory(condition == "full"),
            "replica" | "master" => self.server.set_read_only(condition == "replica"),
            other => panic!("no condition is named {other}"),
        }
    }
}

/// Splits a line into arguments. Quoted ones may contain spaces, `\r`, `\n` and `\"`.
fn arguments(text: &str) -> Vec<Bytes> {
    let (mut args, mut chars) = (Vec::new(), text.trim().chars().peekable());
    while let Some(first) = chars.next() {
        let mut arg = String::new();
        match first {
            ' ' => continue,
            '"' => {
                while let Some(char) = chars.next().filter(|char| *char != '"') {
                    let escaped = |chars: &mut std::iter::Peekable<_>| match chars.next() {
                        Some('r') => '\r',
                        Some('n') => '\n',
                        Some(other) => other,
                        None => '\\',
                    };
                    arg.push(if char == '\\' { escaped(&mut chars) } else { char });
                }
            }
            _ => {
                arg.push(first);
                while let Some(char) = chars.next_if(|char| *char != ' ') {
                    arg.push(char);
                }
            }
        }
        for (name, source, _) in SCRIPTS {
            if arg == format!("${name}") {
                arg = source.to_owned();
            } else if arg.eq_ignore_ascii_case(&format!("$sha:{name}")) {
                let sha = Sha1::from(source).digest().to_string();
                arg = if arg.starts_with("$SHA") { sha.to_ascii_uppercase() } else { sha };
            }
        }
        args.push(arg.into());
    }
    args
}

/// Plays the lines of a conversation with one server. Returns a line for each reply.
fn play(server: &dyn Server, hello: &str, lines: &[&str]) -> Vec<String> {
    let mut clients: BTreeMap<&str, Client> = BTreeMap::new();
    let mut transcript = Vec::new();
    for line in lines {
        let (who, what) = line.split_once(": ").unwrap_or_else(|| panic!("{line}"));
        if who == "server" {
            server.set(what);
            continue;
        }
        let (repeats, who) = match who.strip_prefix("until ") {
            Some(who) => (true, who),
            None => (false, who),
        };
        let client = clients.entry(who).or_insert_with(|| {
            let mut client = server.connect();
            if !hello.is_empty() {
                client.ask(hello);
            }
            client
        });
        let reply = match what {
            "<" => client.receive(),
            "closed" => {
                assert_eq!(client.try_receive().unwrap(), None, "{line}");
                continue;
            }
            _ => {
                let (command, begun) = (arguments(what), Instant::now());
                loop {
                    assert!(begun.elapsed() < PATIENCE, "{line}");
                    client.send([command.clone()]);
                    let reply = client.receive();
                    if !repeats || reply.is_null() || reply == RespValue::Integer(0) {
                        break reply;
                    }
                }
            }
        };
        transcript.push(format!("{line}\n    {:?}", comparable(what, reply)));
    }
    // The next conversation may have the same channels.
    clients.into_values().for_each(Client::quit);
    transcript
}

/// Plays all conversations of a file with both servers, which must reply the same.
#[track_caller]
pub(super) fn compare(servers: &Servers, file: &str, hellos: &[&str]) {
    let (mut count, mut different) = (0, Vec::new());
    for conversation in file.split("\n# ").skip(1) {
        let mut lines = conversation.lines().map(str::trim).filter(|line| !line.is_empty());
        let name = lines.next().unwrap();
        let lines: Vec<&str> = lines.collect();
        for hello in hellos {
            for server in [&servers.real as &dyn Server, &servers.double] {
                // A server with a password refuses this. Its conversations expect the keys of
                // earlier ones.
                server.connect().ask("FLUSHALL");
                server.connect().ask("SCRIPT FLUSH");
            }
            let real = play(&servers.real, hello, &lines);
            let double = play(&servers.double, hello, &lines);
            assert_eq!(real.len(), double.len(), "conversation {name:?}");
            let differing = real.iter().zip(&double).filter(|(real, double)| real != double);
            different.extend(differing.map(|(real, double)| {
                format!("{name} {hello}: {real}\n    {}", double.lines().last().unwrap_or_default())
            }));
            count += real.len();
        }
    }
    assert!(different.is_empty(), "Redis replies, and then the double:\n{}", different.join("\n"));
    assert!(count > 0, "the file has no conversations");
}
