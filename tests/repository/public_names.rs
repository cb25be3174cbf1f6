//! Checks of the names and idioms of the public API (docs/architecture.md), in the snapshot
//! docs/api/public-api.txt.

use super::{path, read};
use std::collections::{BTreeMap, BTreeSet};

/// Operations that take `self` and can fail, with the reason.
const FALLIBLE: [(&str, &str); 11] = [
    ("Collector::and", "adds to a collection in which the name must be unique"),
    ("ProxyHeader::crc32c", "appends to a header, which has a limit"),
    ("ProxyHeader::tlv", "appends to a header, which has a limit"),
    ("ProxyProtocol::trust", "parses a text"),
    ("Resp::limits", "uses settings, so it checks them"),
    ("TlsClient::with_server_name", "parses a text"),
    ("WebSocketClient::deflate", "uses settings, so it checks them"),
    ("WebSocketClient::protocols", "parses texts"),
    ("WebSocketClient::with", "uses settings, so it checks them"),
    ("WebSocketServer::deflate", "uses settings, so it checks them"),
    ("WebSocketServer::protocols", "parses texts"),
];

/// Names of two public types, with the reason.
const SHARED_NAMES: [(&str, &str); 2] = [
    ("NodeId", "a node of a simulation, and a node of topics: programs do not import both"),
    ("Topic", "a kind of durable timers, and a topic of messages: the term of both fields"),
];

/// Returns the lines of the snapshot, without attributes in front and features behind.
fn items() -> Vec<String> {
    let text = read(&path("docs/api/public-api.txt"));
    let lines = text.lines().map(|line| {
        let line = line.split_once("] pub ").map_or(line, |(_, rest)| rest);
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let line = line.strip_prefix("const ").unwrap_or(line);
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.rsplit_once(" [").filter(|_| line.ends_with(']')).map_or(line, |(item, _)| item).to_owned()
    });
    lines.collect()
}

/// Returns the path of the type that a line declares. Associated types are not types.
fn declared_type(item: &str) -> Option<Vec<&str>> {
    let (kind, rest) = item.split_once(' ')?;
    if !["struct", "enum", "trait", "type", "union"].contains(&kind) {
        return None;
    }
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let name = rest.split(|c| !is_path(c)).next()?.trim_end_matches(':');
    let path: Vec<&str> = name.split("::").collect();
    let [crate_name, modules @ .., _] = &path[..] else { return None };
    let are_modules = modules.iter().all(|module| module.starts_with(|c: char| c.is_lowercase()));
    (*crate_name == "netwheel" && are_modules).then_some(path)
}

/// Returns the type, the name and the rest of a function.
fn function(item: &str) -> Option<(String, String)> {
    let item = item.strip_prefix("fn ")?;
    let (name, rest) = item.split_once('(')?;
    let mut plain = String::new();
    let mut depth = 0;
    for c in name.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let parts: Vec<&str> = plain.split("::").collect();
    let [.., owner, name] = &parts[..] else { return None };
    Some((format!("{owner}::{name}"), rest.to_owned()))
}

#[test]
fn no_two_public_types_have_one_name() {
    let items = items();
    let mut named: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for path in items.iter().filter_map(|item| declared_type(item)) {
        let [_, modules @ .., name] = &path[..] else { continue };
        // The prelude has the items of the root, and `durable` and `broker` those of their stores.
        match modules {
            ["prelude"] => continue,
            ["durable", "store"] => named.entry(name).or_default().insert("durable".to_owned()),
            ["broker", "store"] => named.entry(name).or_default().insert("broker".to_owned()),
            modules => named.entry(name).or_default().insert(modules.join("::")),
        };
    }
    assert!(named.len() > 200, "the types are found");
    named.retain(|name, modules| modules.len() > 1 && !SHARED_NAMES.iter().any(|(shared, _)| shared == name));
    assert!(named.is_empty(), "{named:#?}");
}

#[test]
fn builders_begin_without_errors_and_setters_do_not_fail() {
    let mut failing = BTreeSet::new();
    let mut builders = 0;
    for (name, rest) in items().iter().filter_map(|item| function(item)) {
        let Some((_, returned)) = rest.rsplit_once(" -> ") else { continue };
        if name.ends_with("::builder") {
            builders += 1;
            assert!(!returned.contains("Result<"), "{name} returns {returned}");
            assert!(returned.contains("Builder"), "{name} returns {returned}");
        }
        let takes_itself = rest.starts_with("self") || rest.starts_with("mut self");
        if takes_itself && returned.contains("Result<Self") {
            failing.insert(name);
        }
    }
    assert!(builders >= 10, "the builders are found");
    let allowed: BTreeSet<String> = FALLIBLE.map(|(name, _)| name.to_owned()).into();
    assert_eq!(failing, allowed, "check settings when they are used");
}

#[test]
fn settings_that_limit_are_called_max_or_timeout() {
    // `time_limits` takes a group of settings, `TimeLimits`.
    let wrong =
        |name: &str| name.ends_with("_limit") || ["_within", "limit_"].iter().any(|part| name.contains(part));
    let mut setters = 0;
    for (name, rest) in items().iter().filter_map(|item| function(item)) {
        if rest.starts_with("self, ") && rest.ends_with("-> Self") {
            setters += 1;
            assert!(!wrong(&name), "{name}");
        }
    }
    assert!(setters > 200, "the setters are found: {setters}");
}
