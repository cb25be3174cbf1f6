//! An HTTP server with 40 kinds of misbehaviour, and calls through a pool.

use super::start;
use crate::support::wait::{PATIENCE, SECOND, done, wait_until};
use netwheel::{
    error::PeerError,
    http::{Call, FullMessage, HttpClient, HttpError, HttpSettings, Request, Response},
    pool::ChannelPool,
    prelude::*,
};
use std::time::Duration;

/// What becomes of the connection.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Connection {
    Kept,
    Ended,
}
use Connection::{Ended, Kept};

/// The time of a call.
#[derive(Debug, Clone, Copy)]
enum Time {
    /// The server gives it an end.
    Plenty,
    /// The server would keep it forever.
    Limited,
}
use Time::{Limited, Plenty};

/// The kind, the time and the outcome of the call, and the end of its connection.
const TABLE: [(&str, Time, &str, Connection); 40] = [
    ("close_at_once", Plenty, "closed", Ended),
    ("half_head", Plenty, "truncated", Ended),
    ("short_body", Plenty, "truncated", Ended),
    ("extra_response", Plenty, "200 first", Ended),
    ("extra_response_later", Plenty, "200 first", Ended),
    ("extra_line", Plenty, "200 first", Ended),
    ("extra_byte", Plenty, "200 first", Ended),
    ("half_extra_head", Plenty, "200 first", Ended),
    ("long_body", Plenty, "200 abc", Ended),
    ("body_of_204", Plenty, "204 ", Ended),
    ("body_of_304", Plenty, "304 ", Ended),
    ("two_framings", Plenty, "malformed head: Transfer-Encoding and Content-Length", Ended),
    ("two_lengths", Plenty, "malformed head: several Content-Length headers", Ended),
    ("bad_chunk", Plenty, "malformed chunk: no CRLF behind the data", Ended),
    ("no_last_chunk", Plenty, "truncated", Ended),
    ("huge_chunk", Plenty, "the body is too long", Ended),
    ("huge_length", Plenty, "the body is too long", Ended),
    ("interim_storm", Plenty, "200 storm", Kept),
    ("endless_interim", Limited, "timed out", Ended),
    ("many_headers", Plenty, "the head is too long", Ended),
    ("endless_header", Plenty, "the head is too long", Ended),
    ("slow_head", Limited, "timed out", Ended),
    ("slow_body", Limited, "timed out", Ended),
    ("body_that_stops", Limited, "timed out", Ended),
    ("silence", Limited, "timed out", Ended),
    ("endless_body", Plenty, "the body is too long", Ended),
    ("many_trailers", Plenty, "the head is too long", Ended),
    ("bare_lf", Plenty, "malformed", Ended),
    ("status_000", Plenty, "malformed start line: the status code", Ended),
    ("another_protocol", Limited, "timed out", Ended),
    ("unasked_101", Plenty, "a switch of protocols without a request for it", Ended),
    ("unasked_101_and_close", Plenty, "a switch of protocols without a request for it", Ended),
    ("interim_only", Plenty, "closed", Ended),
    ("close_header_but_open", Plenty, "200 bye", Ended),
    ("close_without_header", Plenty, "200 bye", Ended),
    ("http_1_0", Plenty, "200 bye", Ended),
    ("reset", Plenty, "reset", Ended),
    ("unasked_gzip", Plenty, "200 ", Kept),
    ("folded_header", Plenty, "malformed head", Ended),
    ("late_408", Plenty, "200 first", Ended),
];

fn outcome(result: Result<FullMessage<Response>>) -> String {
    let error = match result {
        Ok(response) => {
            return format!("{} {}", response.head.status(), String::from_utf8_lossy(&response.body));
        }
        Err(error) => error,
    };
    match (HttpError::of(&error), &error) {
        (Some(cause), _) => cause.to_string(),
        (None, Error::Closed) => "closed".into(),
        (None, Error::TimedOut { operation: "a call", .. }) => "timed out".into(),
        (None, Error::Peer(PeerError::Truncated)) => "truncated".into(),
        (None, Error::Io { .. }) => "reset".into(),
        (None, error) => format!("{error:#}"),
    }
}

fn pool(group: &EventLoopGroup, address: std::net::SocketAddr) -> ChannelPool<Call> {
    // Longer than the test, so that only the server ends a connection.
    let times = HttpSettings::new().response_timeout(Duration::ZERO).reuse_timeout(PATIENCE * 2);
    let http = HttpClient::with(times).unwrap().host("localhost");
    let client = ClientBootstrap::new(group).pipeline(move |_peer| http.calls(1 << 20));
    client.pool().size(1).build(address).unwrap()
}

#[test]
fn a_misbehaving_server_fails_its_own_call_only() {
    let Some((_server, address)) = start(include_str!("http_server.py")) else { return };
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let started: Vec<_> = TABLE
        .iter()
        .map(|row| {
            let pool = pool(&group, address);
            let limit = if matches!(row.1, Limited) { SECOND } else { PATIENCE };
            let call = pool.request(Request::get(&format!("/{}?n=first", row.0))).timeout(limit).send();
            (row, pool, call)
        })
        .collect();
    let mut wrong = Vec::new();
    for ((kind, _, expected, connection), pool, call) in started {
        let seen = outcome(done(call));
        if !seen.starts_with(expected) {
            wrong.push(format!("{kind}: {seen:?} instead of {expected:?}"));
        }
        if *connection == Ended {
            wait_until(kind, || pool.acquired() + pool.free() == 0);
        }
        for token in ["a", "b", "c"] {
            let seen = outcome(done(pool.request(Request::get(&format!("/ok?n={token}"))).send()));
            if seen != format!("200 ok {token}") {
                wrong.push(format!("{kind}, then {token}: {seen:?}"));
            }
        }
        assert_eq!((pool.acquired(), pool.free()), (0, 1), "{kind}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
