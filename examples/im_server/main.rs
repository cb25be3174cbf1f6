//! A chat server with rooms, direct messages, heartbeats and idle timeouts. It speaks JSON lines
//! over TCP or a Unix socket, and the same objects over WebSocket to its page for browsers.
//!
//! ```text
//! cargo run --features full --example im_server
//! nc 127.0.0.1 9000            # in two other terminals, and type:
//! {"type":"login","user":"ann"}
//! {"type":"join","room":"lobby"}
//! {"type":"say","room":"lobby","text":"hello"}
//! ```
//!
//! Both clients see each message. With `--unix PATH` the server also listens on a Unix socket (`nc
//! -U PATH`); clients on all listeners share the same rooms. docs/im-protocol.md describes all
//! messages. The page is at the link that the server prints (`--http ADDRESS`, `--https ADDRESS`);
//! `/dashboard` shows the activity of the loops, and `/metrics` has their metrics. `im_client` is a
//! terminal client, `im_bots` is a load test. With the feature `tls`, `--tls-cert FILE --tls-key
//! FILE` encrypts the TCP connections.
//!
//! Ctrl-C shuts the server down: every client receives a `bye`. By default all clients receive it
//! at once. With `--drain 30s` the closes are spread over that time, so that clients do not all
//! reconnect at the same instant. At the end the server prints a summary of the closed connections.
//!
//! Clients are not trusted, so every client is bounded. It has to log in within a time limit,
//! `pace.rs` slows down expensive clients, and unacknowledged direct messages count against a
//! budget. The `attack` example tests these bounds.
//!
//! Reading order: `options.rs`, `chat_server.rs` (the loops and their end), `listeners.rs` (what
//! listens, and its limits), `web/` (pages, dashboard, frames), `wire.rs` (bytes to requests),
//! `store.rs` (where messages are kept), `session.rs` (one client), `ordered_replies.rs`, `pace.rs`
//! (rate limits of a client), `login/` (names, tokens, and how a client resumes), `name.rs` (rules
//! for names), `nodes/` (the other servers), `rooms/` (messages with a history, members,
//! announcements of joins and leaves), `direct.rs` (direct messages waiting for an
//! acknowledgement), `directory.rs` (a blocking lookup), `hub.rs` (shared state),
//! `slow_consumer.rs` (clients that do not keep up), `later/` (reminders, and messages for users
//! that are not connected). This file connects the parts.

mod byte_budget;
mod chat_server;
#[path = "../support/cpu_work.rs"]
mod cpu_work;
#[path = "../im/descriptors.rs"]
mod descriptors;
mod direct;
mod directory;
mod hub;
mod latency;
mod later;
mod listeners;
mod login;
#[path = "../im/message_id.rs"]
mod message_id;
mod name;
mod nodes;
mod options;
mod ordered_replies;
#[path = "../support/output.rs"]
mod output;
mod pace;
#[path = "../im/protocol.rs"]
mod protocol;
#[path = "../im/request.rs"]
mod request;
mod retry_pause;
mod rooms;
mod session;
mod slow_consumer;
mod store;
#[path = "../support/token_bucket.rs"]
mod token_bucket;
mod web;
mod wire;

use chat_server::ChatServer;
use clap::Parser;
use later::Later;
use login::resume_token::TokenKey;
use netwheel::prelude::*;
use options::Options;
use output::{Output, complain, say};
use std::{process::ExitCode, sync::mpsc};

fn main() -> ExitCode {
    let options = Options::parse();
    let output = Output::start();
    let result = run(options);
    if let Err(error) = &result {
        complain!("im_server: {error:#}");
    }
    output.finish();
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(mut options: Options) -> Result {
    // Install the handler before the address is printed, because a script may then send the signal
    // immediately.
    let (end, ended) = mpsc::channel();
    let interrupted = end.clone();
    ctrlc::set_handler(move || drop(interrupted.send(Ok(())))).map_err(Error::other)?;
    let limit = descriptors::raise_limit();
    say!("{limit}");
    if options.max_connections.is_none() && limit.connections() == Some(0) {
        return Err("too few descriptors (`ulimit -n`): set --max-connections to start regardless".into());
    }
    let connections = limit.connections().and_then(|n| usize::try_from(n).ok());
    options.max_connections = options.max_connections.or(connections);
    let server = ChatServer::start(&options, &TokenKey::random()?)?;
    let later = Later::start(options.timers.as_deref(), options.expiry, &server.hub, &server.group)?;
    server.hub.set_later(later.clone());
    match (&options.store, options.broker.as_str()) {
        (Some(file), _) => say!("messages are kept in {}", file.display()),
        (None, "memory") => {}
        (None, url) => say!("messages are kept by {}", without_password(url)),
    }
    match &options.timers {
        Some(file) => say!("reminders are kept in {}", file.display()),
        None => say!("reminders are kept in memory; --timers FILE keeps them on disk"),
    }
    for closed in server.listen(&options)? {
        let failed = end.clone();
        closed.on_complete(move |result| drop(failed.send(result)));
    }
    // Received on Ctrl-C, or when a listener has failed.
    let result = ended.recv().unwrap_or(Ok(()));
    say!("stopping");
    // Before the loops, so that handlers can answer.
    let closed = later.close();
    say!("{}", server.shut_down(&options)?);
    closed?;
    result
}

/// Returns the URL without a name and a password.
fn without_password(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, server))) => format!("{scheme}://{server}"),
        _ => url.to_owned(),
    }
}
