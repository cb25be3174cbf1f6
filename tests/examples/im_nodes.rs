//! Chat servers that keep the messages of rooms: several on one Redis server, and one in a file.

use crate::{
    im_process::{Member, Server},
    name::looks,
    support::{
        line_client::LineClient,
        loops::{end, one_loop},
        process::{Process, are_installed},
        tcp::connect,
        wait::{done, wait_until},
    },
};
use netwheel::{
    EventLoopGroup,
    broker::{RedisBroker, Topics},
    redis::RedisClient,
};
use serde_json::json;
use tempfile::TempDir;

/// A Redis server without persistence, on a Unix socket.
pub(crate) struct Redis {
    directory: TempDir,
    _process: Process,
}

impl Redis {
    /// Starts a server. `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        if !are_installed(&["redis-server"]) {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let process = Self::process(&directory);
        Some(Redis { directory, _process: process })
    }

    fn process(directory: &TempDir) -> Process {
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let (socket, path) = (path("redis"), path(""));
        let mut process = Process::start(&[
            "redis-server",
            "--port",
            "0",
            "--unixsocket",
            &socket,
            "--dir",
            &path,
            "--save",
            "",
        ]);
        process.stdout.wait_for("eady to accept connections");
        process
    }

    /// Kills the server.
    fn stop(self) -> TempDir {
        self.directory
    }

    /// Starts a server with the address of one that was stopped, and without its keys.
    fn start_in(directory: TempDir) -> Self {
        let process = Self::process(&directory);
        Redis { directory, _process: process }
    }

    /// Kills the server, and starts another one without its keys.
    fn replace(self) -> Self {
        Self::start_in(self.stop())
    }

    /// Starts a chat server on it.
    fn node(&self, name: &str) -> Server {
        self.node_with(name, &[])
    }

    /// Connects another node to the store of the servers, on the loop of a group.
    pub(crate) fn topics(&self, node: &str, group: &EventLoopGroup) -> Topics {
        let client = RedisClient::builder(group, self.url()).connect().unwrap();
        let broker = RedisBroker::new(client).prefix("netwheel-im");
        Topics::builder(group, broker).node(node).build().unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.directory.path().join("redis").display())
    }

    /// Starts a chat server with more options.
    pub(crate) fn node_with(&self, name: &str, options: &[&str]) -> Server {
        let url = self.url();
        let own = [
            "--http",
            "none",
            "--delivery-rate",
            "0",
            "--ack-timeout",
            "500ms",
            "--broker",
            &url,
            "--node",
            name,
        ];
        Server::start(&[&own, options].concat())
    }
}

#[test]
fn two_servers_share_rooms_in_one_order() {
    let Some(redis) = Redis::start() else { return };
    let (a, b) = (redis.node("a"), redis.node("b"));
    let (mut ann, mut bob) = (Member::join(&a, "ann"), Member::join(&b, "bob"));
    const EACH: u64 = 100;
    for n in 0..EACH {
        for member in [&mut ann, &mut bob] {
            member.lines.send(&json!({ "type": "say", "room": "lobby", "text": n.to_string(), "id": n }));
        }
    }
    let read = |member: &mut Member, own: &str| -> Vec<String> {
        let read = |_| {
            let message = member.next();
            assert_eq!(message["from"] == own, message.get("id").is_some(), "{message}");
            format!("{}: {}", message["from"], message["text"])
        };
        (0..2 * EACH).map(read).collect()
    };
    assert_eq!(read(&mut ann, "ann"), read(&mut bob, "bob"));
    a.stop();
    b.stop();
}

#[test]
fn a_client_resumes_on_the_other_server() {
    let Some(redis) = Redis::start() else { return };
    let (a, b) = (redis.node("a"), redis.node("b"));
    let (mut ann, mut bob) = (Member::join(&a, "ann"), Member::join(&b, "bob"));
    bob.say("seen");
    assert_eq!(ann.next_text(), "seen");
    a.kill();
    bob.say("missed");
    let (mut ann, recovered) = Member::resume(&b, "ann", &ann.token, ann.at);
    assert!(recovered);
    assert_eq!(ann.next_text(), "missed");
    bob.say("live");
    assert_eq!(ann.next_text(), "live");
    // A server that joins later has the same history.
    let a = redis.node("a");
    let (mut again, recovered) = Member::resume(&a, "ann", &ann.token, (ann.at.0, ann.at.1 - 1));
    assert!(recovered);
    assert_eq!(again.next_text(), "live");
    a.stop();
    b.stop();
}

#[test]
fn members_are_notified_when_redis_has_lost_messages() {
    let Some(redis) = Redis::start() else { return };
    let server = redis.node("a");
    let (mut ann, mut bob) = (Member::join(&server, "ann"), Member::join(&server, "bob"));
    ann.say("lost");
    assert_eq!(bob.next_text(), "lost");
    let redis = redis.replace();
    let gap = ann.lines.wait_for("gap");
    assert_eq!((&gap["room"], &gap["cause"]), (&json!("lobby"), &json!("rewound")));
    let next = crate::im_process::at(&gap);
    assert!(next.0 != ann.at.0 && next.1 == 0, "{gap}");
    let (seen, token) = (ann.at, ann.token.clone());
    ann.at = next;
    ann.say("new");
    // Without a lease, a login is refused.
    server.log_in_again("cy");
    let (_again, recovered) = Member::resume(&server, "ann", &token, seen);
    assert!(!recovered);
    assert_eq!(bob.lines.wait_for("gap"), gap);
    server.stop();
    drop(redis);
}

#[test]
fn a_member_that_speaks_and_leaves_at_once_gets_all_replies() {
    let Some(redis) = Redis::start() else { return };
    let server = redis.node("a");
    let mut ann = server.log_in("ann");
    for _ in 0..3 {
        ann.send(&json!({ "type": "join", "room": "lobby" }));
        ann.wait_for("joined");
        let [say, leave, ping] = [
            json!({ "type": "say", "room": "lobby", "text": "good bye" }),
            json!({ "type": "leave", "room": "lobby" }),
            json!({ "type": "ping" }),
        ];
        ann.send_text(&format!("{say}\n{leave}\n{ping}"));
        ann.wait_for("left");
        ann.wait_for("pong");
    }
    server.stop();
}

#[test]
fn requests_about_a_room_may_follow_its_join_at_once() {
    let Some(redis) = Redis::start() else { return };
    let server = redis.node("a");
    let mut ann = server.log_in("ann");
    let request = |kind: &str, room: &str| json!({ "type": kind, "room": room }).to_string();
    for (n, requests) in [
        &["join", "passive", "who"][..],
        &["join", "leave", "join", "who"],
        &["join", "passive", "active", "passive", "active", "who"],
    ]
    .iter()
    .enumerate()
    {
        let room = format!("room-{n}");
        let lines: Vec<String> = requests.iter().map(|kind| request(kind, &room)).collect();
        ann.send_text(&lines.join("\n"));
        for kind in *requests {
            let reply = ann.next_but_presence();
            let expected = match *kind {
                "join" => "joined",
                "leave" => "left",
                "who" => "members",
                kind => kind,
            };
            assert_eq!(reply["type"], expected, "{requests:?}: {reply}");
            assert!(*kind != "who" || reply["users"] == json!(["ann"]), "{reply}");
            let has_position = reply["offset"].is_u64();
            assert_eq!(has_position, ["join", "active"].contains(kind), "{reply}");
        }
    }
    server.stop();
}

#[test]
fn a_message_that_is_sent_behind_a_join_comes_behind_the_joined() {
    let Some(redis) = Redis::start() else { return };
    let server = redis.node("a");
    for n in 0..50 {
        // Nobody has been in the room, so its messages are not followed yet.
        let (mut ann, room) = (server.log_in(&format!("ann-{n}")), format!("room-{n}"));
        let join = json!({ "type": "join", "room": room, "history": 10 });
        let say = json!({ "type": "say", "room": room, "text": "hello", "id": 5 });
        let ping = json!({ "type": "ping" });
        ann.send_text(&format!("{join}\n{say}\n{ping}"));
        let lines = [(); 3].map(|()| ann.next_but_presence());
        let kinds = lines.each_ref().map(|line| line["type"].as_str().unwrap());
        assert_eq!((kinds, &lines[1]["id"]), (["joined", "message", "pong"], &json!(5)), "{lines:?}");
    }
    server.stop();
}

#[test]
fn no_request_is_read_behind_a_long_reply_that_waits() {
    let Some(redis) = Redis::start() else { return };
    let server = redis.node("a");
    let mut ann = server.log_in("ann");
    ann.send(&json!({ "type": "join", "room": "lobby" }));
    ann.wait_for("joined");
    let say = json!({ "type": "say", "room": "lobby", "text": "hello" });
    let who = json!({ "type": "who", "room": "lobby" });
    // Refused, and the reply has the id.
    let refused = json!({ "type": "say", "room": "attic", "text": "hello", "id": "x".repeat(2000) });
    // A direct message does not wait for earlier replies.
    let direct = json!({ "type": "direct", "to": "ann", "text": "psst" });
    for (request, reply) in [(who, "members"), (refused, "error")] {
        ann.send_text(&format!("{say}\n{request}\n{direct}"));
        for kind in ["message", reply, "direct"] {
            let line = ann.next_but_presence();
            assert_eq!(line["type"], kind, "{line}");
        }
    }
    server.stop();
}

#[test]
fn names_and_members_are_those_of_all_servers() {
    let Some(redis) = Redis::start() else { return };
    let (a, b) = (redis.node("a"), redis.node("b"));
    let (mut ann, mut bob) = (Member::join(&a, "ann"), Member::join(&b, "bob"));
    until_members(&mut ann.lines, &["ann", "bob"]);
    until_members(&mut bob.lines, &["ann", "bob"]);
    assert_eq!(login_error(&b, "ann"), "name_taken");
    // A server that is killed takes its users with it when its lease has ended.
    b.kill();
    until_left(&mut ann.lines, "bob");
    until_members(&mut ann.lines, &["ann"]);
    a.log_in_again("bob");
    a.stop();
}

#[test]
fn a_client_takes_its_name_over_and_does_not_leave_its_rooms() {
    let Some(redis) = Redis::start() else { return };
    let (a, b) = (redis.node("a"), redis.node("b"));
    let (mut ann, mut bob) = (Member::join(&a, "ann"), Member::join(&b, "bob"));
    until_members(&mut bob.lines, &["ann", "bob"]);
    let (mut again, recovered) = Member::resume(&b, "ann", &ann.token, ann.at);
    assert!(recovered);
    assert_eq!(ann.lines.wait_for("bye")["reason"], "replaced");
    again.say("hello");
    // Announcements may come before the message.
    loop {
        match bob.lines.next() {
            line if line["type"] == "message" => break,
            line => assert!(line.get("left").is_none(), "{line}"),
        }
    }
    until_members(&mut bob.lines, &["ann", "bob"]);
    a.stop();
    b.stop();
}

#[test]
fn direct_messages_reach_users_of_other_servers() {
    let Some(redis) = Redis::start() else { return };
    let (a, b) = (redis.node("a"), redis.node("b"));
    let (mut ann, mut bob) = (a.log_in("ann"), b.log_in("bob"));
    until_known(&mut ann, "bob");
    const MESSAGES: u64 = 50;
    for n in 1..=MESSAGES {
        ann.send(&json!({ "type": "direct", "to": "bob", "text": n.to_string(), "id": n }));
    }
    for n in 1..=MESSAGES {
        let direct = bob.wait_for("direct");
        assert_eq!((&direct["text"], &direct["id"]), (&json!(n.to_string()), &json!(n)));
        bob.send(&json!({ "type": "ack", "id": n }));
    }
    for n in 1..=MESSAGES {
        assert_eq!(ann.wait_for("delivered")["id"], n);
    }
    // The receiver leaves before the acknowledgement.
    ann.send(&json!({ "type": "direct", "to": "bob", "text": "hello?", "id": "left" }));
    bob.wait_for("direct");
    drop(bob);
    let error = ann.wait_for("error");
    assert_eq!((&error["code"], &error["id"]), (&json!("undelivered"), &json!("left")), "{error}");
    // So does its server.
    let mut bob = b.log_in_again("bob");
    until_known(&mut ann, "bob");
    ann.send(&json!({ "type": "direct", "to": "bob", "text": "hello?", "id": "killed" }));
    bob.wait_for("direct");
    b.kill();
    let error = ann.wait_for("error");
    assert_eq!((&error["code"], &error["id"]), (&json!("undelivered"), &json!("killed")), "{error}");
    a.stop();
}

#[test]
fn names_and_members_come_back_when_redis_has_lost_them() {
    let Some(redis) = Redis::start() else { return };
    let (a, b) = (redis.node("a"), redis.node("b"));
    let (mut ann, mut bob) = (Member::join(&a, "ann"), Member::join(&a, "bob"));
    let mut cy = Member::join(&b, "cy");
    until_members(&mut cy.lines, &["ann", "bob", "cy"]);
    let directory = redis.stop();
    // The members of this server go on, and new ones are refused.
    bob.lines.send(&json!({ "type": "leave", "room": "lobby" }));
    bob.lines.wait_for("left");
    until_left(&mut ann.lines, "bob");
    assert_eq!(login_error(&a, "dan"), "busy");
    let redis = Redis::start_in(directory);
    until_members(&mut cy.lines, &["ann", "cy"]);
    until_members(&mut ann.lines, &["ann", "cy"]);
    until_names(&redis, &["ann", "bob", "cy"]);
    assert_eq!(login_error(&b, "ann"), "name_taken");
    assert_eq!(login_error(&b, "bob"), "name_taken");
    a.log_in_again("dan");
    a.stop();
    b.stop();
    drop(redis);
}

/// Returns the code of the error with which a login is refused.
fn login_error(server: &Server, user: &str) -> String {
    let mut client = LineClient::on(connect(server.address));
    client.send(&json!({ "type": "login", "user": user }));
    client.next()["code"].as_str().unwrap_or_else(|| panic!("{user} is logged in")).to_owned()
}

/// Asks for the members of the lobby until they are these.
#[track_caller]
fn until_members(client: &mut LineClient, users: &[&str]) {
    loop {
        client.send(&json!({ "type": "who", "room": "lobby" }));
        if client.wait_for("members")["users"] == json!(users) {
            return;
        }
    }
}

/// Waits until these names are in use. The map of names and those of rooms are restored one after
/// the other.
fn until_names(redis: &Redis, users: &[&str]) {
    let group = one_loop();
    let topics = redis.topics("observer", &group);
    let names = topics.map("users").open().unwrap();
    done(names.ready()).unwrap();
    wait_until("the names are restored", || users.iter().all(|user| names.get(looks(user)).is_some()));
    done(topics.close()).unwrap();
    end(&group);
}

/// Waits until a user has left the lobby.
#[track_caller]
fn until_left(client: &mut LineClient, user: &str) {
    loop {
        let presence = client.wait_for("presence");
        if presence["left"].as_array().is_some_and(|left| left.contains(&json!(user))) {
            return;
        }
    }
}

/// Looks a user up until the server knows it.
#[track_caller]
fn until_known(client: &mut LineClient, user: &str) {
    loop {
        client.send(&json!({ "type": "lookup", "user": user }));
        if client.wait_for("profile")["online"] == true {
            return;
        }
    }
}

#[test]
fn rooms_in_a_file_survive_the_death_of_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rooms.db");
    let start = || Server::start(&["--http", "none", "--store", file.to_str().unwrap()]);
    let server = start();
    let (ann, mut bob) = (Member::join(&server, "ann"), Member::join(&server, "bob"));
    bob.say("before the crash");
    server.kill();
    let server = start();
    let (mut again, recovered) = Member::resume(&server, "ann", &ann.token, ann.at);
    assert!(recovered, "the key for tokens is in the file, too");
    server.log_in("bob");
    assert_eq!(again.next_text(), "before the crash");
    assert_eq!(again.say("after it")["offset"], 2);
    server.stop();
}
