//! Connections that the chat server refuses because a loop is overloaded: their last words.

use crate::{chat_server::ChatServer, login::resume_token::TokenKey, options::Options};
use bytes::Bytes;
use clap::Parser;
use netwheel::{
    codec::RawBytes,
    prelude::*,
    testing::simulation::{Journal, Simulation, sleep},
    time::Periodic,
};
use serde_json::{Value, json};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Runs a server whose loop is late all the time.
fn serve() -> Result {
    let options = Options::parse_from([
        "im_server",
        "--listen=10.0.0.1:9000",
        "--http=10.0.0.1:8080",
        "--threads=1",
        "--overload-target=50ms",
    ]);
    let server = ChatServer::start(&options, &TokenKey::new([7; 32], 0))?;
    let listeners = server.listen(&options)?;
    let work = || {
        sleep(60 * MS);
        Ok(())
    };
    drop(server.group.next().schedule_periodic(Periodic::fixed_delay(MS), work)?);
    listeners.into_iter().try_for_each(|listener| listener.wait())
}

/// Opens ten connections at once. Returns the bytes of each refused connection.
fn last_words(group: &EventLoopGroup, server: &'static str) -> Result<Vec<String>> {
    let open = |_| {
        let heard = Journal::new();
        let hears = heard.clone();
        let client = ClientBootstrap::new(group).pipeline(move |_peer| {
            let hears = hears.clone();
            Pipeline::codec(RawBytes).on_read(move |_, bytes: Bytes| {
                hears.push(bytes);
                Ok(())
            })
        });
        (client.connect(server), heard)
    };
    let mut all = Vec::new();
    for (connected, heard) in (0..10).map(open).collect::<Vec<_>>() {
        let channel = connected.wait()?;
        // The server waits for the first line of a client that it has admitted.
        if channel.closed().wait_timeout(SECOND).is_ok() {
            let bytes = heard.with(|all| all.concat());
            all.push(String::from_utf8(bytes).map_err(netwheel::Error::other)?);
        }
        channel.close_now();
    }
    Ok(all)
}

#[test]
fn refused_connections_get_the_words_of_their_protocol_and_a_hint() {
    let mut simulation = Simulation::new(1);
    simulation.node("server", "10.0.0.1", serve);
    let words = Journal::new();
    let told = words.clone();
    let client = simulation.node("client", "10.0.0.2", move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        // The loop becomes late.
        sleep(SECOND);
        for server in ["server:9000", "server:8080"] {
            told.push(last_words(&group, server)?);
        }
        Ok(())
    });
    simulation.run_until_ended(client, 300 * SECOND).unwrap_or_else(|failure| panic!("{failure}"));
    let words = words.with(<[_]>::to_vec);
    let [lines, responses] = &words[..] else { panic!("{words:?}") };
    assert!(lines.len() >= 7 && responses.len() >= 7, "{words:?}");
    for line in lines {
        let bye: Value = serde_json::from_str(line.strip_suffix('\n').expect(line)).expect(line);
        assert_eq!((&bye["type"], &bye["reason"]), (&json!("bye"), &json!("overloaded")));
        assert!((100..=60_000).contains(&bye["retry_after_ms"].as_u64().unwrap()), "{line}");
    }
    for response in responses {
        let hint = response
            .strip_prefix("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n")
            .and_then(|rest| rest.strip_prefix("Retry-After: ")?.strip_suffix("\r\n\r\n"));
        let seconds: u64 = hint.expect(response).parse().expect(response);
        assert!((1..=60).contains(&seconds), "{response}");
    }
}
