//! Chat servers that keep the messages of rooms: several on one Redis server, and one in a file.

use crate::{
    im_process::{Member, Server},
    support::process::{Process, are_installed},
};
use serde_json::json;
use tempfile::TempDir;

/// A Redis server without persistence, on a Unix socket.
struct Redis {
    directory: TempDir,
    _process: Process,
}

impl Redis {
    /// Starts a server. `None` if it is not installed.
    fn start() -> Option<Self> {
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

    /// Kills the server, and starts another one without its keys.
    fn replace(self) -> Self {
        let Redis { directory, _process } = self;
        drop(_process);
        let process = Self::process(&directory);
        Redis { directory, _process: process }
    }

    /// Starts a chat server on it.
    fn node(&self, name: &str) -> Server {
        let url = format!("unix://{}", self.directory.path().join("redis").display());
        Server::start(&["--http", "none", "--delivery-rate", "0", "--broker", &url, "--node", name])
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
    // Each server has its own users, so this is another one.
    let mut other = Member::join(&b, "ann");
    ann.lines.send(&json!({ "type": "say", "room": "lobby", "text": "hello", "id": "mine" }));
    assert_eq!(ann.next()["id"], "mine");
    assert!(other.next().get("id").is_none());
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
fn members_are_told_when_redis_has_lost_messages() {
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
fn a_passive_member_gets_no_copy_of_what_its_namesake_says() {
    let Some(redis) = Redis::start() else { return };
    let (a, b) = (redis.node("a"), redis.node("b"));
    let mut namesake = Member::join(&a, "ann");
    let mut ann = b.log_in("ann");
    ann.send(&json!({ "type": "join", "room": "lobby" }));
    ann.wait_for("joined");
    ann.send(&json!({ "type": "passive", "room": "lobby" }));
    ann.wait_for("passive");
    namesake.say("hello");
    let line = ann.next_but_presence();
    assert_eq!((&line["type"], &line["total"]), (&json!("unread"), &json!(1)), "{line}");
    a.stop();
    b.stop();
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
    assert_eq!(again.next_text(), "before the crash");
    assert_eq!(again.say("after it")["offset"], 2);
    server.stop();
}
