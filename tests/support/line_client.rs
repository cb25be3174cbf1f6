//! A client of the chat protocol as lines, over blocking streams.

use super::tcp::connect;
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
};

pub(crate) struct LineClient<S: Read + Write = TcpStream>(BufReader<S>);

impl LineClient {
    /// Connects over TCP and logs in.
    pub(crate) fn log_in(server: SocketAddr, user: &str) -> Self {
        Self::over(connect(server), user)
    }

    /// Connects over TCP, logs in and joins the room "lobby".
    pub(crate) fn join(server: SocketAddr, user: &str) -> Self {
        let mut client = Self::log_in(server, user);
        client.send(&json!({ "type": "join", "room": "lobby" }));
        client.wait_for("joined");
        client
    }
}

impl<S: Read + Write> LineClient<S> {
    /// Logs in on a connected stream.
    pub(crate) fn over(stream: S, user: &str) -> Self {
        let mut client = Self::on(stream);
        client.send(&json!({ "type": "login", "user": user }));
        client.wait_for("welcome");
        client
    }

    /// Uses a connected stream, without a login.
    pub(crate) fn on(stream: S) -> Self {
        LineClient(BufReader::new(stream))
    }

    pub(crate) fn send(&mut self, request: &Value) {
        self.send_text(&request.to_string());
    }

    /// Sends a request with the spelling of its JSON.
    pub(crate) fn send_text(&mut self, request: &str) {
        self.0.get_mut().write_all(format!("{request}\n").as_bytes()).unwrap();
    }

    /// Sends a message to the room "lobby".
    pub(crate) fn say(&mut self, text: &str) {
        self.send(&json!({ "type": "say", "room": "lobby", "text": text }));
    }

    /// Returns the next object.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Value {
        serde_json::from_str(&self.next_text()).unwrap()
    }

    /// Returns the next object, and skips each `presence`: a member gets it at any time.
    #[track_caller]
    pub(crate) fn next_but_presence(&mut self) -> Value {
        loop {
            let value = self.next();
            if value["type"] != "presence" {
                return value;
            }
        }
    }

    /// Returns the next line.
    #[track_caller]
    pub(crate) fn next_text(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the server closed the connection");
        line
    }

    /// Returns the next object of this type.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, kind: &str) -> Value {
        loop {
            let value = self.next();
            if value["type"] == kind {
                return value;
            }
        }
    }
}
