//! The terminal client, with a server that the test plays.

use crate::support::{
    line_client::LineClient,
    process::{Process, example},
    tcp::patient,
};
use serde_json::{Value, json};
use std::net::TcpListener;

struct Terminal {
    listener: TcpListener,
    client: Process,
}

impl Terminal {
    /// Starts a client that connects again.
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let program = example("im_client");
        let client = Process::start(&[
            program.to_str().unwrap(),
            "--connect",
            &address,
            "--user",
            "ann",
            "--room",
            "lobby",
            "--reconnect",
        ]);
        Terminal { listener, client }
    }

    /// Accepts the next connection. Returns it with the login.
    fn accept(&self) -> (LineClient, Value) {
        let stream = self.listener.accept().unwrap().0;
        patient(&stream);
        let mut connection = LineClient::on(stream);
        let login = connection.next();
        assert_eq!(login["type"], "login", "{login}");
        (connection, login)
    }

    fn type_line(&mut self, line: &str) {
        self.client.say(&format!("{line}\n"));
    }

    #[track_caller]
    fn shows(&mut self, line: &str) {
        assert_eq!(self.client.stdout.wait_for(line), "");
    }
}

fn welcome(connection: &mut LineClient, token: &str) {
    let mut welcome = json!({ "type": "welcome", "user": "ann", "version": 5, "resume_token": token });
    for time in ["heartbeat_ms", "idle_ms", "ack_timeout_ms"] {
        welcome[time] = json!(1_000_000);
    }
    connection.send(&welcome);
}

fn joined(connection: &mut LineClient, room: &str, offset: u64) {
    let joined = json!({ "type": "joined", "room": room, "user": "ann", "epoch": 1, "offset": offset });
    connection.send(&joined);
}

fn message(connection: &mut LineClient, room: &str, offset: u64) {
    let message = json!({ "type": "message", "room": room, "from": "bob", "text": "hi", "ts": 0 });
    let mut message = message;
    (message["epoch"], message["offset"]) = (json!(1), json!(offset));
    connection.send(&message);
}

fn about(kind: &str, room: &str) -> Value {
    json!({ "type": kind, "room": room })
}

#[test]
fn a_client_resumes_in_the_rooms_that_it_has_not_left() {
    let mut terminal = Terminal::start();
    let (mut connection, login) = terminal.accept();
    assert_eq!(login.get("resume"), None);
    assert_eq!(connection.next(), about("join", "lobby"));
    welcome(&mut connection, "first");
    joined(&mut connection, "lobby", 5);
    terminal.shows("* ann joined lobby");
    terminal.type_line("/join attic");
    assert_eq!(connection.next(), about("join", "attic"));
    joined(&mut connection, "attic", 7);
    terminal.type_line("/leave");
    assert_eq!(connection.next(), about("leave", "attic"));
    connection.send(&json!({ "type": "left", "room": "attic", "user": "ann" }));
    // Sent while the client was leaving.
    message(&mut connection, "attic", 8);
    terminal.type_line("hello");
    assert_eq!(connection.next(), json!({ "type": "say", "room": "lobby", "text": "hello" }));
    terminal.type_line("/leave");
    assert_eq!(connection.next(), about("leave", "lobby"));
    connection.send(&json!({ "type": "left", "room": "lobby", "user": "ann" }));
    terminal.type_line("hello?");
    terminal.shows("! you are in no room: /join ROOM");
    terminal.type_line("/join den");
    assert_eq!(connection.next(), about("join", "den"));
    joined(&mut connection, "den", 1);
    message(&mut connection, "den", 2);
    connection.send(&json!({ "type": "ping", "resume_token": "second" }));
    assert_eq!(connection.next()["type"], "pong");
    drop(connection);

    let (mut connection, login) = terminal.accept();
    assert_eq!(login["resume"], json!({ "token": "second", "rooms": { "den": [1, 2] } }));
    welcome(&mut connection, "third");
    terminal.type_line("/who");
    assert_eq!(connection.next(), about("who", "den"), "the first request behind the login");
}

#[test]
fn a_client_is_away_from_each_room_by_itself() {
    let mut terminal = Terminal::start();
    let (mut connection, _) = terminal.accept();
    assert_eq!(connection.next(), about("join", "lobby"));
    welcome(&mut connection, "first");
    joined(&mut connection, "lobby", 5);
    terminal.type_line("/away");
    assert_eq!(connection.next(), about("passive", "lobby"));
    connection.send(&json!({ "type": "passive", "room": "lobby", "total": 10 }));
    terminal.type_line("/join attic");
    assert_eq!(connection.next(), about("join", "attic"));
    joined(&mut connection, "attic", 7);
    terminal.type_line("/away");
    assert_eq!(connection.next(), about("passive", "attic"));
    connection.send(&json!({ "type": "passive", "room": "attic", "total": 100 }));
    connection.send(&json!({ "type": "unread", "room": "lobby", "total": 12 }));
    terminal.shows("* 2 unread messages in lobby");
    connection.send(&json!({ "type": "unread", "room": "attic", "total": 103 }));
    terminal.shows("* 3 unread messages in attic");
    terminal.type_line("/back");
    assert_eq!(connection.next(), about("active", "attic"));
    let active = json!({ "type": "active", "room": "attic", "total": 103, "epoch": 1, "offset": 10 });
    connection.send(&active);
    terminal.shows("* you are back in attic");
    drop(connection);

    let (mut connection, login) = terminal.accept();
    assert_eq!(
        login["resume"]["rooms"],
        json!({ "attic": [1, 10] }),
        "without the messages that it has not wanted"
    );
    assert_eq!(connection.next(), about("join", "lobby"));
    assert_eq!(connection.next(), about("passive", "lobby"));
}

/// The second message is not a copy. Its line was lost, so it is sent again behind a later one.
#[test]
fn direct_messages_are_shown_once_in_any_order() {
    let mut terminal = Terminal::start();
    let (mut connection, _) = terminal.accept();
    assert_eq!(connection.next(), about("join", "lobby"));
    welcome(&mut connection, "first");
    joined(&mut connection, "lobby", 5);
    for (id, text) in [(2, "two"), (1, "one"), (2, "two"), (1, "one"), (3, "three")] {
        connection.send(&json!({ "type": "direct", "from": "bob", "text": text, "ts": 0, "id": id }));
        assert_eq!(connection.next(), json!({ "type": "ack", "id": id }));
    }
    for text in ["two", "one", "three"] {
        let line = terminal.client.stdout.wait_for("bob, to you: ");
        assert_eq!(line, text);
    }
}
