//! `im_server` with a page, and a client of the protocol as lines.

use crate::support::{
    process::{Process, example},
    tcp::{ANY_PORT, connect, read_all},
};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
};

/// A running `im_server`.
pub(crate) struct Server {
    process: Process,
    /// The address for lines.
    lines: SocketAddr,
    /// The URL of the page.
    pub(crate) page: String,
}

impl Server {
    pub(crate) fn start(http: &str, arguments: &[&str]) -> Self {
        let program = example("im_server");
        let own = [program.to_str().unwrap(), "--listen", ANY_PORT, "--http", http, "--threads", "2"];
        let mut process = Process::start(&[&own, arguments].concat());
        let lines = process.stdout.wait_for("listening on ").parse().unwrap();
        let page = process.stdout.wait_for("chat in a browser: ");
        Server { process, lines, page }
    }

    /// Returns a counter of all loops, from their metrics.
    #[track_caller]
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let address = self.page.trim_start_matches("http://").trim_end_matches('/');
        let mut stream = connect(address.parse().unwrap());
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let text = String::from_utf8(read_all(&mut stream)).unwrap();
        let name = format!("netwheel_{name}_total{{");
        let counts = text.lines().filter(|line| line.starts_with(&name));
        let counts: Vec<u64> = counts.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
        assert_eq!(counts.len(), 2, "one for each loop: {text}");
        counts.iter().sum()
    }

    #[track_caller]
    pub(crate) fn stop(self) {
        self.process.signal("INT");
        self.process.succeed();
    }
}

/// A client of the protocol as lines.
pub(crate) struct LineClient(BufReader<TcpStream>);

impl LineClient {
    /// Logs in and joins the room "lobby".
    pub(crate) fn join(server: &Server, user: &str) -> Self {
        let mut client = LineClient(BufReader::new(connect(server.lines)));
        client.send(&json!({ "type": "login", "user": user }));
        client.send(&json!({ "type": "join", "room": "lobby" }));
        client.wait_for("joined");
        client
    }

    pub(crate) fn send(&mut self, request: &Value) {
        writeln!(self.0.get_mut(), "{request}").unwrap();
    }

    /// Sends a message to the room "lobby".
    pub(crate) fn say(&mut self, text: &str) {
        self.send(&json!({ "type": "say", "room": "lobby", "text": text }));
    }

    /// Returns the next object of this type.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, kind: &str) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the server closed the connection");
            let value: Value = serde_json::from_str(&line).unwrap();
            if value["type"] == kind {
                return value;
            }
        }
    }
}
