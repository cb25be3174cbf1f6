//! Two nodes of the program `guide_orders`, one of which is killed.

#[path = "../durable/postgres/server.rs"]
#[allow(dead_code, reason = "the tests of durable timers use all of it")]
mod server;

use crate::{
    guide::programs::Program,
    support::{
        tcp::{ANY_PORT, ask},
        wait::PATIENCE,
    },
};
use netwheel::durable::postgres::{Client, NoTls};
use server::server;
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Instant,
};

/// How often the webhook was called, by the body.
type Calls = Arc<Mutex<BTreeMap<String, u32>>>;

/// A server that is unavailable for the first call about each order.
fn webhook() -> (SocketAddr, Calls) {
    let listener = TcpListener::bind(ANY_PORT).unwrap();
    let address = listener.local_addr().unwrap();
    let calls = Calls::default();
    let shared = calls.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let calls = shared.clone();
            thread::spawn(move || answer(stream.unwrap(), &calls));
        }
    });
    (address, calls)
}

/// Answers the calls of a connection until it ends.
fn answer(stream: TcpStream, calls: &Calls) {
    let mut reader = BufReader::new(&stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let mut calls = calls.lock().unwrap();
            let count = calls.entry(String::from_utf8(body).unwrap()).or_default();
            *count += 1;
            let status = if *count == 1 { "503 Service Unavailable" } else { "200 OK" };
            let response = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            // The node may have been killed.
            let _ = (&stream).write_all(response.as_bytes());
        }
    }
}

#[test]
fn orders_that_are_not_paid_are_reminded_of_although_a_node_is_killed() {
    let Some(server) = server() else { return };
    server.client().batch_execute("CREATE DATABASE guide_orders").unwrap();
    let config = server.config().replace("dbname=postgres", "dbname=guide_orders");
    let (webhook, calls) = webhook();
    let webhook = webhook.to_string();
    let node = || Program::start("guide_orders", &[&config, ANY_PORT, &webhook, "1500"]);
    let (killed, node) = (node(), node());
    let mut streams = [killed.connect(), node.connect()];
    for order in 1..=6 {
        ask(&mut streams[order % 2], &format!("ORDER {order}\n"), "placed\n");
    }
    let [_, stream] = &mut streams;
    // A client that has got no answer asks again.
    ask(stream, "ORDER 1\n", "known\n");
    ask(stream, "PAY 2\n", "paid\n");
    ask(stream, "PAY 2\n", "nothing to pay\n");
    drop(killed); // kill -9

    let mut database = Client::connect(&config, NoTls).unwrap();
    let end = Instant::now() + PATIENCE;
    let states = "SELECT string_agg(state, ' ' ORDER BY id) FROM orders";
    loop {
        let states: String = database.query_one(states, &[]).unwrap().get(0);
        if states == "reminded paid reminded reminded reminded reminded" {
            break;
        }
        assert!(Instant::now() < end, "{states}");
    }
    node.stop();
    let calls = calls.lock().unwrap();
    assert!(calls.values().all(|count| *count >= 2), "{calls:?}");
    let called: Vec<&str> = calls.keys().map(String::as_str).collect();
    let expected = [1, 3, 4, 5, 6].map(|order| format!("{{\"order\":{order}}}"));
    assert_eq!(called, expected);
}
