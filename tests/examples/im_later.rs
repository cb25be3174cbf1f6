//! Reminders, and direct messages to users that are not connected: the server as a process.

use crate::{
    im::{
        World,
        later::{
            mailbox::Mailbox,
            quota::{Exhausted, Quota},
        },
        refused,
    },
    im_process::Server,
    support::{
        line_client::LineClient,
        loops::{end, one_loop},
        tcp::{ANY_PORT, connect, read_all, read_n},
        wait::{HOUR, done},
    },
};
use netwheel::durable::{Due, DurableTimers, Late, Retry, SqliteStore, Topic};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
};
use tempfile::TempDir;
use tungstenite::{WebSocket, protocol::Role};

struct File(TempDir);

impl File {
    fn new() -> Self {
        File(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }
}

/// Starts a server that keeps reminders and messages in files.
fn keeping(file: &File, arguments: &[&str]) -> Server {
    let [timers, store] = ["timers.db", "rooms.db"].map(|name| file.path(name));
    Server::start(&[&["--http", "none", "--timers", &timers, "--store", &store], arguments].concat())
}

fn metrics(page: SocketAddr) -> String {
    let mut stream = connect(page);
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    String::from_utf8(read_all(&mut stream)).unwrap()
}

/// Sets a reminder. Returns its number.
fn remind(client: &mut LineClient, after: &str, text: &str) -> u64 {
    client.send(&json!({ "type": "remind", "in": after, "text": text, "id": "mine" }));
    // A short reminder may overtake the reply.
    let set = client.wait_for("reminder_set");
    assert_eq!(set["id"], "mine", "{set}");
    set["reminder"].as_u64().unwrap()
}

/// Returns the numbers of a user's reminders.
fn reminders(client: &mut LineClient) -> Vec<u64> {
    client.send(&json!({ "type": "reminders" }));
    let list = client.wait_for("reminders");
    let list = list["reminders"].as_array().unwrap();
    list.iter().map(|reminder| reminder["reminder"].as_u64().unwrap()).collect()
}

/// Sends a direct message, and returns the reply.
fn direct(client: &mut LineClient, to: &str, text: &str, id: Value) -> Value {
    client.send(&json!({ "type": "direct", "to": to, "text": text, "id": id }));
    client.next()
}

fn ack(client: &mut LineClient, message: &Value) {
    client.send(&json!({ "type": "ack", "id": message["id"] }));
}

/// Returns the type of the next object after a `ping`: `pong` if the server had sent nothing.
fn next_type(client: &mut LineClient) -> Value {
    client.send(&json!({ "type": "ping" }));
    client.next()["type"].clone()
}

#[test]
fn a_reminder_arrives_at_its_time_and_once() {
    let server = Server::start(&["--http", "none"]);
    let mut ann = server.log_in("ann");
    let number = remind(&mut ann, "50ms", "tea");
    let reminder = ann.next();
    let (kind, text) = (reminder["type"].as_str(), reminder["text"].as_str());
    assert_eq!((kind, text, reminder["reminder"].as_u64()), (Some("reminder"), Some("tea"), Some(number)));
    ack(&mut ann, &reminder);
    assert!(reminders(&mut ann).is_empty());
    drop(ann);
    let mut ann = server.log_in_again("ann");
    assert_eq!(next_type(&mut ann), "pong");
    server.stop();
}

#[test]
fn reminders_survive_the_death_of_the_server() {
    let file = File::new();
    let server = keeping(&file, &[]);
    let mut ann = server.log_in("ann");
    let (later, much_later) = (remind(&mut ann, "3d", "later"), remind(&mut ann, "366d", "much later"));
    let soon = remind(&mut ann, "50ms", "soon");
    server.kill();

    let server = keeping(&file, &[]);
    let mut ann = server.log_in("ann");
    let reminder = ann.wait_for("reminder");
    assert_eq!((reminder["text"].as_str(), reminder["reminder"].as_u64()), (Some("soon"), Some(soon)));
    ack(&mut ann, &reminder);
    assert_eq!(reminders(&mut ann), [later, much_later]);
    ann.send(&json!({ "type": "forget", "id": later }));
    assert_eq!(ann.next(), json!({ "type": "forgotten", "reminder": later }));
    assert!(remind(&mut ann, "1h", "new") > much_later, "numbers are not used again");
    server.kill();

    let server = keeping(&file, &[]);
    let mut ann = server.log_in("ann");
    let left = reminders(&mut ann);
    assert_eq!((left.len(), left[1]), (2, much_later));
    server.stop();
}

#[test]
fn a_reminder_waits_for_its_user_and_for_the_acknowledgement() {
    let file = File::new();
    let server = keeping(&file, &["--ack-timeout", "1h"]);
    let mut ann = server.log_in("ann");
    remind(&mut ann, "1ms", "first");
    drop(ann);
    // At the latest after this login it is due.
    let mut ann = server.log_in_again("ann");
    assert_eq!(ann.wait_for("reminder")["text"], "first");
    // Not acknowledged.
    server.kill();
    let server = keeping(&file, &[]);
    let mut ann = server.log_in("ann");
    let reminder = ann.wait_for("reminder");
    assert_eq!(reminder["text"], "first");
    ack(&mut ann, &reminder);
    assert_eq!(next_type(&mut ann), "pong");
    server.stop();
    let server = keeping(&file, &[]);
    assert_eq!(next_type(&mut server.log_in("ann")), "pong", "acknowledged");
    server.stop();
}

#[test]
fn reminders_belong_to_their_user() {
    let server = Server::start(&["--http", "none"]);
    let (mut ann, mut bob) = (server.log_in("ann"), server.log_in("bob"));
    let number = remind(&mut ann, "1h", "mine");
    assert!(reminders(&mut bob).is_empty());
    bob.send(&json!({ "type": "forget", "id": number }));
    let error = bob.next();
    assert_eq!((&error["code"], &error["id"]), (&json!("no_such_reminder"), &json!(number)));
    assert_eq!(reminders(&mut ann), [number]);
    for other in [0, number + 1, u64::MAX] {
        ann.send(&json!({ "type": "forget", "id": other }));
        assert_eq!(ann.next()["code"], "no_such_reminder");
    }
    ann.send(&json!({ "type": "forget", "id": number }));
    assert_eq!(ann.next()["type"], "forgotten");
    ann.send(&json!({ "type": "forget", "id": number }));
    assert_eq!(ann.next()["code"], "no_such_reminder");
    assert!(reminders(&mut ann).is_empty());
    server.stop();
}

#[test]
fn reminders_have_limits() {
    let server = Server::start(&["--http", "none"]);
    let mut ann = server.log_in("ann");
    let long = "x".repeat(2001);
    let endless = "1h ".repeat(100);
    for (after, text) in [
        ("soon", "x"),
        ("", "x"),
        ("0s", "x"),
        ("367d", "x"),
        ("99999999999999y", "x"),
        (&endless, "x"),
        ("1h", &long),
    ] {
        ann.send(&json!({ "type": "remind", "in": after, "text": text, "id": 1 }));
        let error = ann.next();
        assert_eq!((&error["code"], &error["id"]), (&json!("bad_request"), &json!(1)), "{after}");
    }
    for request in [json!({ "type": "remind", "text": "x" }), json!({ "type": "forget", "id": "1" })] {
        ann.send(&request);
        assert_eq!(ann.next()["code"], "bad_request");
    }
    let numbers: Vec<u64> = (0..50).map(|n| remind(&mut ann, &format!("{}h", 50 - n), "x")).collect();
    ann.send(&json!({ "type": "remind", "in": "1h", "text": "x" }));
    assert_eq!(ann.next()["code"], "too_many_reminders");
    let in_order: Vec<u64> = numbers.iter().rev().copied().collect();
    assert_eq!(reminders(&mut ann), in_order);
    ann.send(&json!({ "type": "forget", "id": numbers[0] }));
    assert_eq!(ann.next()["type"], "forgotten");
    remind(&mut ann, "1h", "x");
    remind(&mut server.log_in("bob"), "1h", "x");
    server.stop();
}

#[test]
fn a_direct_message_is_kept_for_a_user_that_is_not_connected() {
    let file = File::new();
    let server = keeping(&file, &[]);
    let mut ann = server.log_in("ann");
    // The spelling of the sender's id survives too.
    ann.send_text("{\"type\":\"direct\",\"to\":\"bob\",\"text\":\"first\",\"id\":1e2}");
    let kept = ann.next();
    assert_eq!((&kept["type"], &kept["to"]), (&json!("kept"), &json!("bob")), "{kept}");
    assert!(kept["expires"].as_u64().unwrap() > 1_700_000_000_000);
    assert_eq!(direct(&mut ann, "bob", "second", json!("b"))["type"], "kept");

    let mut bob = server.log_in("bob");
    let (first, second) = (bob.next(), bob.next());
    assert_eq!(
        (&first["type"], &first["from"], &first["text"]),
        (&json!("direct"), &json!("ann"), &json!("first"))
    );
    assert_eq!(second["text"], "second");
    ack(&mut bob, &first);
    assert_eq!(ann.next_text().trim(), "{\"type\":\"delivered\",\"to\":\"bob\",\"id\":1e2}");
    drop(bob);
    server.kill();

    // What was not acknowledged is sent after the restart. The first one may be sent again, if the
    // server died before that was stored.
    let server = keeping(&file, &[]);
    let mut ann = server.log_in("ann");
    let mut bob = server.log_in("bob");
    let mut message = bob.next();
    if message["text"] == "first" {
        ack(&mut bob, &message);
        message = bob.next();
    }
    assert_eq!(message["text"], "second");
    ack(&mut bob, &message);
    while ann.next()["id"] != "b" {}
    server.stop();
    let server = keeping(&file, &[]);
    assert_eq!(next_type(&mut server.log_in("bob")), "pong", "acknowledged");
    server.stop();
}

#[test]
fn without_a_file_direct_messages_are_kept_until_the_server_ends() {
    let server = Server::start(&["--http", "none"]);
    let mut ann = server.log_in("ann");
    assert_eq!(direct(&mut ann, "bob", "psst", json!(1))["type"], "kept");
    let mut bob = server.log_in("bob");
    let message = bob.next();
    assert_eq!(message["text"], "psst");
    ack(&mut bob, &message);
    assert_eq!(ann.next(), json!({ "type": "delivered", "to": "bob", "id": 1 }));
    server.stop();
    let server = Server::start(&["--http", "none"]);
    assert_eq!(next_type(&mut server.log_in("bob")), "pong");
    server.stop();
}

#[test]
fn the_sender_is_notified_when_a_kept_message_expires() {
    let file = File::new();
    let server = keeping(&file, &["--expiry", "100ms"]);
    let mut ann = server.log_in("ann");
    assert_eq!(direct(&mut ann, "bob", "psst", json!(7))["type"], "kept");
    let error = ann.next();
    assert_eq!((&error["code"], &error["to"], &error["id"]), (&json!("expired"), &json!("bob"), &json!(7)));
    assert_eq!(next_type(&mut server.log_in("bob")), "pong");
    assert_eq!(next_type(&mut ann), "pong", "one outcome");
    server.stop();
}

#[test]
fn a_message_that_is_not_acknowledged_is_sent_after_the_next_login() {
    let file = File::new();
    let server = keeping(&file, &["--ack-timeout", "10ms"]);
    let mut ann = server.log_in("ann");
    assert_eq!(direct(&mut ann, "bob", "psst", json!(1))["type"], "kept");
    let mut bob = server.log_in("bob");
    for _ in 0..4 {
        assert_eq!(bob.next()["text"], "psst", "first, and sent again three times");
    }
    // This one is given up after the first one.
    bob.send(&json!({ "type": "direct", "to": "bob", "text": "mine" }));
    assert_eq!(bob.wait_for("error")["code"], "undelivered");
    assert_eq!(next_type(&mut bob), "pong", "not again on this connection");
    assert_eq!(next_type(&mut ann), "pong", "no outcome");
    drop(bob);
    let mut bob = server.log_in_again("bob");
    let message = bob.next();
    assert_eq!(message["text"], "psst");
    ack(&mut bob, &message);
    assert_eq!(ann.wait_for("delivered")["id"], 1);
    server.stop();
}

#[test]
fn a_message_expires_although_the_server_was_not_running() {
    let file = File::new();
    let server = keeping(&file, &["--expiry", "1ms"]);
    // Nobody is notified if the sender has disconnected.
    direct(&mut server.log_in("ann"), "bob", "psst", json!(7));
    server.kill();
    let server = keeping(&file, &[]);
    let mut ann = server.log_in("ann");
    ann.send(&json!({ "type": "direct", "to": "bob", "text": "later", "id": 8 }));
    // Behind the outcome of the first one, if it has expired after the login.
    ann.wait_for("kept");
    let mut bob = server.log_in("bob");
    assert_eq!(bob.next()["text"], "later");
    server.stop();
}

#[test]
fn kept_messages_have_limits() {
    let file = File::new();
    let server = keeping(&file, &["--ack-timeout", "1h"]);
    let mut ann = server.log_in("ann");
    let error = direct(&mut ann, "bob", &"x".repeat(16 * 1024), json!(1));
    assert_eq!(error["code"], "undelivered", "too long");
    for n in 0..50 {
        assert_eq!(direct(&mut ann, "bob", "x", json!(n))["type"], "kept");
        assert_eq!(direct(&mut ann, "cy", "x", json!(n))["type"], "kept");
    }
    let error = direct(&mut ann, "dan", "x", json!("more"));
    assert_eq!((&error["code"], &error["id"]), (&json!("undelivered"), &json!("more")), "from one user");
    let mut eve = server.log_in("eve");
    for n in 0..50 {
        assert_eq!(direct(&mut eve, "bob", "y", json!(n))["type"], "kept");
    }
    assert_eq!(direct(&mut eve, "bob", "y", json!("more"))["code"], "undelivered", "to one user");
    assert_eq!(direct(&mut eve, "dan", "y", json!("more"))["type"], "kept");

    // They are sent in order, 16 at a time.
    let mut bob = server.log_in("bob");
    let first: Vec<Value> = (0..16).map(|_| bob.next()).collect();
    assert_eq!(next_type(&mut bob), "pong", "the others wait");
    first.iter().for_each(|message| ack(&mut bob, message));
    for n in 16..100 {
        let message = bob.next();
        assert_eq!(message["from"], if n < 50 { "ann" } else { "eve" });
        ack(&mut bob, &message);
    }
    assert_eq!(next_type(&mut bob), "pong");
    server.stop();
}

#[cfg(unix)]
#[test]
fn reminders_work_on_a_unix_socket() {
    let file = File::new();
    let socket = file.0.path().join("socket");
    let server = Server::start(&["--http", "none", "--unix", socket.to_str().unwrap()]);
    let stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let mut ann = LineClient::over(stream, "ann");
    ann.send(&json!({ "type": "remind", "in": "1ms", "text": "tea" }));
    assert_eq!(ann.wait_for("reminder")["text"], "tea");
    server.stop();
}

#[test]
fn reminders_work_over_websocket() {
    let mut server = Server::start(&["--http", ANY_PORT]);
    let mut stream = connect(server.page());
    let handshake = "GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(handshake.as_bytes()).unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\n") {
        response.extend(read_n(&mut stream, 1));
    }
    assert!(response.starts_with(b"HTTP/1.1 101 "));
    let mut socket = WebSocket::from_raw_socket(stream, Role::Client, None);
    let send = |socket: &mut WebSocket<TcpStream>, request: Value| {
        socket.send(request.to_string().into()).unwrap();
    };
    let next = |socket: &mut WebSocket<TcpStream>| -> Value {
        serde_json::from_str(socket.read().unwrap().to_text().unwrap()).unwrap()
    };
    send(&mut socket, json!({ "type": "login", "user": "ann" }));
    assert_eq!(next(&mut socket)["type"], "welcome");
    send(&mut socket, json!({ "type": "remind", "in": "1ms", "text": "tea" }));
    // So short a reminder may overtake the reply.
    let mut replies = [next(&mut socket), next(&mut socket)];
    replies.sort_by_key(|reply| reply["type"] != "reminder_set");
    let [set, reminder] = replies;
    assert_eq!(set["type"], "reminder_set");
    assert_eq!((&reminder["type"], &reminder["text"]), (&json!("reminder"), &json!("tea")));
    send(&mut socket, json!({ "type": "ack", "id": reminder["id"] }));
    send(&mut socket, json!({ "type": "reminders" }));
    assert_eq!(next(&mut socket), json!({ "type": "reminders", "reminders": [] }));
    server.stop();
}

#[test]
fn the_metrics_have_those_of_the_topics_and_timers() {
    let mut server = Server::start(&["--http", ANY_PORT]);
    let page = server.page();
    remind(&mut server.log_in("ann"), "1h", "tea");
    let text = metrics(page);
    assert!(text.contains("netwheel_durable_started_total{timers=\"chat\"} 1\n"), "{text}");
    assert!(text.contains("netwheel_broker_map_updates_total{broker=\"chat\"} "), "{text}");
    assert!(text.contains("netwheel_turns_total{event_loop=\"im-0\"}"), "{text}");
    server.stop();
}

#[test]
fn the_dashboard_lists_topics_and_the_next_timers() {
    let mut server = Server::start(&["--http", ANY_PORT]);
    let page = server.page();
    let mut ann = server.log_in("ann");
    remind(&mut ann, "2h", "tea");
    remind(&mut ann, "1h", "secret");
    ann.send(&json!({ "type": "join", "room": "lobby" }));
    ann.send(&json!({ "type": "passive", "room": "lobby" }));
    ann.wait_for("passive");
    let mut events = connect(page);
    events.write_all(b"GET /dashboard/events HTTP/1.1\r\nHost: chat\r\n\r\n").unwrap();
    let events = BufReader::new(events).lines().map(|line| line.unwrap());
    let states = events.filter_map(|line| {
        let json = line.strip_prefix("data: ")?.to_owned();
        assert!(!json.contains("secret"), "{json}");
        Some(serde_json::from_str::<Value>(&json).unwrap())
    });
    // The lists of an event are the store's lists at the time of the previous event.
    let state = { states }.find(|state| state["durable"]["next"][1].is_object()).unwrap();
    assert_eq!((&state["passive_members"], &state["replaced_per_second"]), (&json!(1), &json!(0.0)));
    let durable = &state["durable"];
    let topics: Vec<_> =
        durable["topics"].as_array().unwrap().iter().map(|t| (&t["name"], &t["pending"])).collect();
    assert_eq!(topics, [(&json!("remind"), &json!(2))]);
    assert_eq!(durable["topics"][0]["is_paused"], json!(false));
    assert_eq!((&durable["next"][0]["id"], &durable["next"][1]["id"]), (&json!(2), &json!(1)));
    assert_eq!(durable["dead_letters"], json!([]));
    server.stop();
}

#[test]
fn requests_about_reminders_require_a_login_and_timers() {
    let world = World::new();
    let remind = json!({ "type": "remind", "in": "1h", "text": "tea", "id": 1 });
    let forget = json!({ "type": "forget", "id": 2 });
    let list = json!({ "type": "reminders" });
    for (mut client, code) in [(world.connect(), "not_logged_in"), (world.login("ann"), "busy")] {
        client.say(remind.clone());
        assert_eq!(client.hear_error(), refused(code, 1));
        client.say(forget.clone());
        assert_eq!(client.hear_error(), refused(code, 2));
        client.say(list.clone());
        assert_eq!(client.hear_error(), refused(code, Value::Null));
    }
}

#[test]
fn items_of_all_users_are_limited() {
    let quota = Quota::new(2, 3);
    let first = quota.take("ann").unwrap();
    let _second = quota.take("ann").unwrap();
    assert_eq!(quota.take("ann").err(), Some(Exhausted::User));
    let _third = quota.take("bob").unwrap();
    assert_eq!(quota.take("bob").err(), Some(Exhausted::All));
    let beyond = quota.force("ann");
    drop(first);
    assert_eq!(quota.take("cy").err(), Some(Exhausted::All));
    drop(beyond);
    assert!(quota.take("ann").is_ok());

    let mailbox = Mailbox::new();
    let much = mailbox.reserve("ann", "bob", 64 * 1024 * 1024).unwrap();
    assert!(mailbox.reserve("ann", "cy", 1).is_err());
    drop(much);
    assert!(mailbox.reserve("ann", "cy", 1).is_ok());
}

#[test]
fn a_store_with_too_many_reminders_is_read_up_to_the_limit() {
    let file = File::new();
    let group = one_loop();
    let topic = Topic::new("remind", Late::RunOnce, Retry::never(), |due: Due<Value>| due.done());
    let timers = DurableTimers::builder(SqliteStore::open(file.path("timers.db")).unwrap())
        .topic(topic)
        .paused()
        .start(&group)
        .unwrap();
    let stored: Vec<_> = (0..10_001)
        .map(|n| {
            let user = format!("user-{}", n % 500);
            let reminder = json!({ "number": n, "server": 9, "user": user, "text": "tea", "due": n });
            timers.at("remind", HOUR, &reminder).start()
        })
        .collect();
    for stored in stored {
        done(stored).unwrap();
    }
    done(timers.close()).unwrap();
    end(&group);
    let mut server = keeping(&file, &[]);
    server.process.stderr.wait_for("only 10000 timers of the topic remind fit into memory");
    assert_eq!(reminders(&mut server.log_in("user-1")).len(), 20);
    server.stop();
}
