//! The bodies of the fuzz targets: functions of any bytes that panic if a property is violated.
//!
//! `fuzz_targets/` passes them to libFuzzer, and `tests/corpus.rs` replays `corpus/` as plain
//! tests. docs/fuzzing.md lists the targets and describes how to run them.

mod support;
mod targets;

pub use targets::{
    client_hello::client_hello, cron::cron, durable_file::durable_file, embedded_channel::embedded_channel,
    http_client::http_client, http_server::http_server, length_field::length_field, prometheus::prometheus,
    proxy::proxy, resp::resp, separators::separators, varint::varint, websocket::websocket,
};

/// A fuzz target.
pub type Target = fn(&[u8]);

/// All targets with their names.
pub const TARGETS: [(&str, Target); 13] = [
    ("client_hello", client_hello),
    ("cron", cron),
    ("durable_file", durable_file),
    ("embedded_channel", embedded_channel),
    ("http_client", http_client),
    ("http_server", http_server),
    ("length_field", length_field),
    ("prometheus", prometheus),
    ("proxy", proxy),
    ("resp", resp),
    ("separators", separators),
    ("varint", varint),
    ("websocket", websocket),
];
