//! The chat server as a process, and clients that resume.

use crate::{
    chat_server::ChatServer,
    login::resume_token::TokenKey,
    options::Options,
    support::{
        line_client::LineClient,
        process::{Process, example},
        tcp::{ANY_PORT, connect},
    },
};
use clap::Parser;
use serde_json::{Value, json};
use std::{io::Write, net::SocketAddr};

/// A position in a room: the epoch and the offset.
pub(crate) type At = (u64, u64);

pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts a server without rate limits.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let program = example("im_server");
        let own = [program.to_str().unwrap(), "--listen", ANY_PORT, "--threads", "2", "--rate", "0"];
        let mut process = Process::start(&[&own, arguments].concat());
        let address = process.stdout.wait_for("listening on ").parse().unwrap();
        Server { process, address }
    }

    pub(crate) fn log_in(&self, user: &str) -> LineClient {
        LineClient::log_in(self.address, user)
    }

    /// Logs in with a name that the server may not have released yet.
    pub(crate) fn log_in_again(&self, user: &str) -> LineClient {
        loop {
            let mut stream = connect(self.address);
            let login = json!({ "type": "login", "user": user });
            stream.write_all(format!("{login}\n").as_bytes()).unwrap();
            let mut client = LineClient::on(stream);
            if client.next()["type"] == "welcome" {
                return client;
            }
        }
    }

    /// Returns the address for browsers.
    pub(crate) fn page(&mut self) -> SocketAddr {
        let page = self.process.stdout.wait_for("chat in a browser: http://");
        page.trim_end_matches('/').parse().unwrap()
    }

    /// Kills the process at once, and waits for its end.
    pub(crate) fn kill(self) {
        self.process.signal("KILL");
    }

    pub(crate) fn stop(self) {
        self.process.signal("INT");
        self.process.succeed();
    }
}

pub(crate) fn at(reply: &Value) -> At {
    (reply["epoch"].as_u64().unwrap(), reply["offset"].as_u64().unwrap())
}

/// A client that remembers its token and its position.
pub(crate) struct Member {
    pub(crate) lines: LineClient,
    pub(crate) token: String,
    /// The position of the last reply.
    pub(crate) at: At,
}

impl Member {
    /// Logs in and joins the lobby.
    pub(crate) fn join(server: &Server, user: &str) -> Self {
        let (mut lines, welcome) = log_in(server, &json!({ "type": "login", "user": user }));
        lines.send(&json!({ "type": "join", "room": "lobby" }));
        let joined = lines.wait_for("joined");
        assert!(joined.get("recovered").is_none(), "{joined}");
        Member { lines, token: token_of(&welcome), at: at(&joined) }
    }

    /// Resumes in the lobby on another connection. Returns whether all messages follow.
    pub(crate) fn resume(server: &Server, user: &str, token: &str, from: At) -> (Self, bool) {
        let resume = json!({ "token": token, "rooms": { "lobby": [from.0, from.1] } });
        let login = json!({ "type": "login", "user": user, "resume": resume });
        let (mut lines, welcome) = log_in(server, &login);
        let joined = lines.next();
        assert_eq!(joined["type"], "joined", "the first line after the welcome: {joined}");
        let recovered = joined["recovered"].as_bool().unwrap();
        (Member { lines, token: token_of(&welcome), at: at(&joined) }, recovered)
    }

    /// Says something, and returns the own copy.
    pub(crate) fn say(&mut self, text: &str) -> Value {
        self.lines.say(text);
        self.next()
    }

    /// Returns the next message, which must be the one behind the last one.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Value {
        let message = self.lines.wait_for("message");
        let next = at(&message);
        assert_eq!(next, (self.at.0, self.at.1 + 1), "{message}");
        self.at = next;
        message
    }

    #[track_caller]
    pub(crate) fn next_text(&mut self) -> String {
        self.next()["text"].as_str().unwrap().to_owned()
    }

    /// Checks that no message has arrived so far.
    #[track_caller]
    pub(crate) fn hear_nothing(&mut self) {
        self.lines.send(&json!({ "type": "ping" }));
        let line = self.lines.next_but_presence();
        assert_eq!(line["type"], "pong", "{line}");
    }
}

pub(crate) fn log_in(server: &Server, login: &Value) -> (LineClient, Value) {
    let mut lines = LineClient::on(connect(server.address));
    lines.send(login);
    let welcome = lines.next();
    assert_eq!((&welcome["type"], &welcome["version"]), (&json!("welcome"), &json!(5)), "{welcome}");
    (lines, welcome)
}

pub(crate) fn token_of(welcome: &Value) -> String {
    welcome["resume_token"].as_str().unwrap().to_owned()
}

#[test]
fn a_heartbeat_that_is_not_shorter_than_the_idle_timeout_is_refused() {
    let start = |heartbeat| {
        let options = Options::parse_from(["im_server", "--heartbeat", heartbeat, "--threads=1"]);
        ChatServer::start(&options, &TokenKey::new([7; 32], 0)).err().map(|error| format!("{error:#}"))
    };
    assert_eq!(start("59999ms"), None);
    assert_eq!(
        start("1m").as_deref(),
        Some("--heartbeat is 60s; it must be shorter than --idle-timeout, which is 60s")
    );
}
