//! The chat server with abusive clients: rate limits, deadlines, budgets, names, malformed
//! requests.

use crate::im::{pace::Rates, *};
use crate::support::{
    tcp::connect,
    wait::{PATIENCE, SECOND, done},
};
use netwheel::{Peer, channel::TimeLimits, prelude::*, shutdown::ShutdownOptions};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::Shutdown,
    time::Duration,
};

fn limited(requests: u32, deliveries: u32) -> World {
    let rates = Rates { requests, deliveries, congestion: Duration::ZERO };
    World::with_settings(session::Settings { rates, ..SETTINGS })
}

fn count(replies: &[Value], kind: &str) -> usize {
    replies.iter().filter(|reply| reply["type"] == kind).count()
}

fn say_in(client: &mut Client, room: &str, text: &str) {
    client.say(json!({"type": "say", "room": room, "text": text}));
}

// ---- rates -------------------------------------------------------------------------------------

#[test]
fn a_client_above_its_rate_is_throttled_without_losing_requests() {
    let world = limited(10, 0);
    let (mut ann, mut bob) = (world.login("ann"), world.login("bob"));
    let requests: String = "{\"type\":\"ping\"}\n".repeat(100);
    ann.0.write_inbound(requests.as_bytes()).unwrap();
    let mut pongs = count(&ann.hear(), "pong");
    // The burst covers two seconds, including the login, which costs 5. The request that exceeds it
    // is answered as well.
    assert_eq!(pongs, 16);
    bob.say(json!({"type": "ping"}));
    assert_eq!(bob.hear_one(), json!({"type": "pong"}), "others are not affected");
    let mut seconds = 0;
    while pongs < 100 {
        ann.0.advance(SECOND);
        let more = count(&ann.hear(), "pong");
        assert!((9..=11).contains(&more) || pongs + more == 100, "{more} replies in a second");
        pongs += more;
        seconds += 1;
        assert!(seconds < 20);
    }
    assert_eq!(pongs, 100, "each request has one reply");
    assert!(ann.0.is_open());
}

#[test]
fn a_join_that_creates_a_room_costs_more() {
    let world = limited(10, 0);
    let (mut ann, mut bob) = (world.login("ann"), world.login("bob"));
    bob.join("lobby");
    bob.hear_one();
    let join = |room: String| format!("{}\n", json!({"type": "join", "room": room}));
    let new_rooms = (0..20).map(|n| join(format!("room-{n}")));
    let requests: String = [join("lobby".to_owned())].into_iter().chain(new_rooms).collect();
    ann.0.write_inbound(requests.as_bytes()).unwrap();
    // The burst without the login and the first room covers 14 requests.
    assert_eq!(count(&ann.hear(), "joined"), 1 + 3);
    ann.0.advance(SECOND);
    assert_eq!(count(&ann.hear(), "joined"), 2);
}

#[test]
fn a_message_is_charged_per_delivery() {
    let world = limited(0, 100);
    let mut talker = world.login("talker");
    talker.join("few");
    talker.join("many");
    let mut members: Vec<Client> = (0..49).map(|n| world.login(&format!("member-{n}"))).collect();
    members.iter_mut().for_each(|member| member.join("many"));
    talker.0.advance(10 * SECOND);
    talker.hear();
    for _ in 0..300 {
        say_in(&mut talker, "few", "x");
    }
    assert_eq!(count(&talker.hear(), "message"), 201, "one delivery each");
    talker.0.advance(100 * SECOND);
    talker.hear();
    for _ in 0..300 {
        say_in(&mut talker, "many", "x");
    }
    assert_eq!(count(&talker.hear(), "message"), 5, "fifty deliveries each");
}

#[test]
fn requests_before_the_end_of_the_stream_are_all_answered() {
    let rates = Rates { requests: 1000, deliveries: 0, congestion: Duration::ZERO };
    let settings = session::Settings { rates, ..SETTINGS };
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let hub = new_hub(hub::MAX_UNACKED_BYTES);
    let pipeline = move |_peer: &Peer| session_with(&hub, IdleTimeouts::new(), settings, TimeLimits::new());
    let server = ServerBootstrap::new(&group).pipeline(pipeline).bind("127.0.0.1:0").unwrap();
    let mut ann = connect(server.local_address());
    // More requests than the burst, followed by the end of the stream: the server must not drop
    // undecoded requests.
    ann.write_all("{\"type\":\"ping\"}\n".repeat(2500).as_bytes()).unwrap();
    ann.shutdown(Shutdown::Write).unwrap();
    let mut answers = String::new();
    ann.read_to_string(&mut answers).unwrap();
    assert_eq!(answers.lines().count(), 2500);
    assert!(answers.lines().all(|line| line == "{\"type\":\"pong\"}"));
    done(group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(PATIENCE))).unwrap();
}

#[test]
fn a_sender_is_throttled_while_a_member_does_not_keep_up() {
    let rates = Rates { requests: 0, deliveries: 0, congestion: Duration::from_millis(100) };
    let world = World::with_settings(session::Settings { rates, ..SETTINGS });
    let (mut ann, mut bob, mut cy) = (world.login("ann"), world.login("bob"), world.login("cy"));
    for client in [&mut ann, &mut bob, &mut cy] {
        client.join("lobby");
        client.hear();
    }
    bob.0.set_outbound_room(Some(0));
    let text = "x".repeat(900);
    let mut said = 0;
    // Senders are not throttled until more than the high water mark is pending for bob.
    while bob.0.pending_bytes() < 64 * 1024 {
        say_in(&mut ann, "lobby", &text);
        said += count(&ann.hear(), "message");
        bob.0.run_pending();
        cy.hear();
    }
    assert!(said > 60, "{said}");
    for _ in 0..50 {
        say_in(&mut ann, "lobby", &text);
    }
    assert_eq!(count(&ann.hear(), "message"), 1, "the other requests wait in the socket");
    bob.0.run_pending();
    ann.0.advance(SECOND);
    assert_eq!(count(&ann.hear(), "message"), 10, "ten a second");
    bob.0.run_pending();
    bob.0.set_outbound_room(None);
    bob.hear();
    ann.0.advance(SECOND);
    assert_eq!(count(&ann.hear(), "message"), 39, "bob has caught up");
    assert!(bob.0.is_open());
    // A slow member that has left does not throttle senders.
    bob.0.set_outbound_room(Some(0));
    while bob.0.pending_bytes() < 64 * 1024 {
        say_in(&mut ann, "lobby", &text);
        ann.hear();
        bob.0.run_pending();
    }
    bob.0.fail_inbound(std::io::ErrorKind::ConnectionReset.into());
    ann.0.advance(SECOND);
    ann.hear();
    for _ in 0..50 {
        say_in(&mut ann, "lobby", &text);
    }
    assert_eq!(count(&ann.hear(), "message"), 50);
}

// ---- joins and leaves --------------------------------------------------------------------------

#[test]
fn a_flood_of_joins_and_leaves_is_announced_once_with_the_last_state() {
    let world = World::new();
    let (mut ann, mut bob) = (world.login("ann"), world.login("bob"));
    ann.join("lobby");
    world.announce();
    ann.hear();
    for _ in 0..1000 {
        bob.join("lobby");
        bob.say(json!({"type": "leave", "room": "lobby"}));
    }
    bob.join("lobby");
    assert_eq!(bob.hear().len(), 2001, "each request has a reply");
    ann.hear_nothing();
    world.announce();
    assert_eq!(ann.hear_one(), json!({"type": "presence", "room": "lobby", "joined": ["bob"]}));
    bob.say(json!({"type": "leave", "room": "lobby"}));
    bob.join("lobby");
    bob.say(json!({"type": "leave", "room": "lobby"}));
    world.announce();
    assert_eq!(ann.hear_one(), json!({"type": "presence", "room": "lobby", "left": ["bob"]}));
    world.announce();
    ann.hear_nothing();
}

#[test]
fn announcements_add_up_to_the_list_of_members() {
    let world = World::new();
    let mut watcher = world.login("watcher");
    watcher.join("lobby");
    let mut others: Vec<Client> = (0..600).map(|n| world.login(&format!("user-{n}"))).collect();
    others.iter_mut().for_each(|other| other.join("lobby"));
    others.drain(..100).for_each(|mut other| other.leave());
    let mut known = std::collections::BTreeSet::new();
    // Each announcement contains a bounded number of names.
    for _ in 0..10 {
        world.announce();
        for reply in watcher.hear().iter().filter(|reply| reply["type"] == "presence") {
            let names = |list: &str| reply[list].as_array().cloned().unwrap_or_default();
            assert!(names("joined").len() + names("left").len() <= 256);
            known.extend(names("joined").iter().map(Value::to_string));
            for name in names("left") {
                known.remove(&name.to_string());
            }
        }
    }
    assert_eq!(known.len(), 501);
    watcher.say(json!({"type": "who", "room": "lobby"}));
    let members = watcher.hear_one()["users"].as_array().unwrap().len();
    assert_eq!(members, known.len());
}

#[test]
fn a_refused_announcement_is_repeated() {
    let world = World::new();
    let (mut ann, mut bob, mut cy) = (world.login("ann"), world.login("bob"), world.login("cy"));
    ann.join("lobby");
    bob.join("lobby");
    world.announce();
    ann.hear();
    bob.hear();
    // The room's limit of pending broadcasts is reached, so an announcement is refused.
    let waiting = 16_384;
    for _ in 0..waiting {
        say_in(&mut bob, "lobby", "x");
        bob.hear_one();
    }
    cy.join("lobby");
    world.announce();
    bob.hear_nothing();
    assert_eq!(ann.hear().len(), waiting, "all messages, and no announcement");
    bob.leave();
    world.announce();
    let presence = json!({"type": "presence", "room": "lobby", "joined": ["cy"], "left": ["bob"]});
    assert_eq!(ann.hear_one(), presence, "the later announcement includes all changes");
}

// ---- deadlines ---------------------------------------------------------------------------------

#[test]
fn a_client_that_does_not_log_in_is_closed_with_the_reason() {
    let world = World::with_settings(session::Settings { login_timeout: 10 * SECOND, ..SETTINGS });
    let (mut ann, mut bob) = (world.login("ann"), world.connect());
    let bye = json!({"type": "bye", "reason": "too_slow"});
    for _ in 0..9 {
        bob.say(json!({"type": "ping"}));
        bob.0.advance(SECOND);
        assert_eq!(bob.hear_one(), json!({"type": "pong"}));
    }
    bob.0.advance(2 * SECOND);
    assert_eq!(bob.hear_one(), bye);
    assert!(bob.0.is_closed());
    ann.0.advance(100 * SECOND);
    ann.hear_nothing();
    assert!(ann.0.is_open(), "a logged-in client stays");
}

#[test]
fn a_client_that_sends_too_slowly_is_closed_with_the_reason() {
    let limits = TimeLimits::new().first_message(10 * SECOND).progress(64, 10 * SECOND);
    let world = World::new().time_limits(limits);
    let bye = json!({"type": "bye", "reason": "too_slow"});
    let (mut before, mut after) = (world.connect(), world.login("ann"));
    for client in [&mut before, &mut after] {
        for _ in 0..12 {
            if client.0.is_open() {
                client.0.write_inbound(b" ").unwrap();
                client.0.advance(SECOND);
            }
        }
        assert_eq!(client.hear_one(), bye);
        assert!(client.0.is_closed());
    }
    let mut quiet = world.login("bob");
    quiet.0.advance(100 * SECOND);
    assert!(quiet.0.is_open(), "a client that has not started a line has no deadline");
}

// ---- direct messages ---------------------------------------------------------------------------

fn direct(client: &mut Client, to: &str, length: usize, id: u64) {
    client.say(json!({"type": "direct", "to": to, "text": "x".repeat(length), "id": id}));
}

#[test]
fn unacknowledged_bytes_of_a_client_are_limited_and_released() {
    let settings = session::Settings { max_unacked: 100, max_unacked_bytes: 4000, ..SETTINGS };
    let world = World::with_settings(settings);
    let (mut ann, mut bob, mut cy) = (world.login("ann"), world.login("bob"), world.login("cy"));
    for id in 1..=4 {
        direct(&mut ann, "bob", 700, id);
    }
    assert_eq!(ann.hear_error(), refused("too_many_unacked", 4));
    assert_eq!(bob.hear().len(), 3, "accepted messages are delivered");
    direct(&mut cy, "bob", 800, 1);
    bob.hear_nothing();
    assert_eq!(cy.hear_error(), refused("too_many_unacked", 1), "the receiver's bytes count as well");
    direct(&mut cy, "ann", 800, 2);
    assert_eq!(ann.hear().len(), 1, "other receivers are not affected");
    bob.ack(1);
    assert_eq!(ann.hear_one()["type"], "delivered");
    direct(&mut ann, "bob", 700, 5);
    assert_eq!(bob.hear().len(), 1);
    bob.leave();
    assert_eq!(ann.hear().len(), 3, "undelivered");
    for id in 6..=8 {
        direct(&mut ann, "cy", 700, id);
    }
    assert_eq!(cy.hear().len(), 3, "the whole budget is available again");
}

#[test]
fn unacknowledged_bytes_of_all_clients_are_limited() {
    let world = World::with_hub(new_hub(3000));
    let (mut ann, mut bob) = (world.login("ann"), world.login("bob"));
    direct(&mut ann, "bob", 800, 1);
    direct(&mut bob, "ann", 800, 2);
    assert_eq!((bob.hear().len(), ann.hear().len()), (1, 1));
    direct(&mut ann, "bob", 800, 3);
    assert_eq!(ann.hear_error(), refused("busy", 3));
    bob.ack(1);
    assert_eq!(ann.hear_one()["type"], "delivered");
    direct(&mut ann, "bob", 800, 4);
    assert_eq!(bob.hear_one()["id"], 2);
    ann.leave();
    bob.ack(2);
    bob.hear();
    assert_eq!(world.hub.unacked_bytes.used(), 0, "nothing leaks");
}

// ---- names -------------------------------------------------------------------------------------

#[test]
fn names_with_deceptive_characters_are_refused() {
    let world = World::new();
    let mut ann = world.login("ann");
    let names = [
        ("", "empty"),
        ("a b", "blank"),
        ("a\u{7}", "control"),
        ("a\u{200B}b", "zero width space"),
        ("a\u{202E}b", "right-to-left override"),
        ("\u{3164}", "Hangul filler"),
        ("a\u{E0041}", "tag"),
        ("a\u{2066}b", "isolate"),
        ("a\u{FE0F}", "variation selector"),
        ("a\u{AD}b", "soft hyphen"),
        ("p\u{430}ypal", "Latin and Cyrillic"),
        ("\u{301}a", "combining mark first"),
        ("a\u{323}\u{328}\u{331}\u{330}", "marks upon marks"),
        ("\u{1D4DE}", "mathematical letter"),
    ];
    for (name, what) in names {
        let mut client = world.connect();
        client.say(json!({"type": "login", "user": name}));
        assert_eq!(client.hear_error().0, "bad_request", "{what}");
        for request in ["join", "leave", "who"] {
            ann.say(json!({"type": request, "room": name}));
            assert_eq!(ann.hear_error().0, "bad_request", "{what}");
        }
        ann.say(json!({"type": "lookup", "user": name}));
        assert_eq!(ann.hear_error().0, "bad_request", "{what}");
    }
    for name in ["zoë", "Łukasz", "日本語テスト", "Мария", "محمد", "नमस्ते", "bot-12_3.x", "한국어", "o'neil:2"]
    {
        world.login(name).leave();
    }
}

#[test]
fn names_are_normalized() {
    let world = World::new();
    let mut zoe = world.connect();
    zoe.say(json!({"type": "login", "user": "zoe\u{308}"}));
    assert_eq!(zoe.hear_one()["user"], "zo\u{EB}");
    zoe.join("cafe\u{301}");
    assert_eq!(zoe.hear_one()["room"], "caf\u{E9}");
    say_in(&mut zoe, "caf\u{E9}", "hello");
    assert_eq!(zoe.hear_one()["type"], "message");
    let mut other = world.connect();
    other.say(json!({"type": "login", "user": "zo\u{EB}"}));
    assert_eq!(other.hear_error().0, "name_taken");
}

#[test]
fn a_name_that_looks_like_one_in_use_is_refused() {
    let world = World::new();
    let ann = world.login("paypal");
    for name in ["paypa1", "\u{440}\u{430}\u{443}\u{440}\u{430}\u{4CF}"] {
        let mut other = world.connect();
        other.say(json!({"type": "login", "user": name}));
        assert_eq!(other.hear_error().0, "name_taken", "{name}");
    }
    drop(ann);
    world.login("paypa1");
}

/// A digit before a letter that is written from right to left is drawn behind it.
#[test]
fn names_that_are_drawn_alike_are_not_both_allowed() {
    let world = World::new();
    for name in
        ["\u{5D0}1", "\u{5D3}\u{5D5}\u{5D3}-7", "\u{627}\u{628}\u{64B}", "\u{5D0}_\u{5D1}", "\u{5D2}\u{5F3}"]
    {
        world.login(name);
    }
    for name in ["1\u{5D0}", "-\u{5D0}", "\u{5D0}-", "7-\u{5D3}\u{5D5}\u{5D3}"] {
        let mut other = world.connect();
        other.say(json!({"type": "login", "user": name}));
        assert_eq!(other.hear_error().0, "bad_request", "{name}");
    }
}

// ---- requests ----------------------------------------------------------------------------------

#[test]
fn an_id_is_returned_unchanged() {
    let mut ann = World::new().login("ann");
    ann.join("lobby");
    ann.hear();
    for id in ["1e2", "-0", "1.50", "123456789012345678901234567890", "0.1e-5", "\"a\\u0062\"", "\"\""] {
        let request = format!("{{\"id\":{id}, \"text\":\"x\",\"room\":\"lobby\",\"type\":\"say\"}}\n");
        ann.0.write_inbound(request.as_bytes()).unwrap();
        ann.0.run_pending();
        let line = String::from_utf8(ann.0.read_outbound().to_vec()).unwrap();
        assert!(line.ends_with(&format!(",\"id\":{id}}}\n")), "{id}: {line}");
    }
}

#[test]
fn malformed_requests_are_refused_with_their_position() {
    let mut ann = World::new().login("ann");
    let mut complaint = |line: &str| {
        ann.0.write_inbound(format!("{line}\n").as_bytes()).unwrap();
        let reply = ann.hear_one();
        assert_eq!(reply["code"], "bad_request", "{line}: {reply}");
        reply["message"].as_str().unwrap().to_owned()
    };
    for line in [r#"["join","lobby"]"#, r#"["ping"]"#, "[]", "1", "null", r#""ping""#] {
        assert!(complaint(line).contains("a JSON object with a type"), "{line}");
    }
    for (line, place) in [
        (r#"{"type":"jump","room":"x"}"#, "line 1 column 14"),
        (r#"{"type":"join","room":5}"#, "line 1 column 23"),
        (r#"{"type":"join"}"#, "line 1 column 15"),
        (r#"{"type":"say","room":"x","text":"y","id":[1]}"#, "line 1 column 45"),
        (r#"{"type":"ack","id":"1"}"#, "line 1 column 23"),
        (r#"{"room":"x"}"#, "line 1 column 12"),
        (r#"{"type":"join","room":"x","room":"y"}"#, "line 1 column"),
    ] {
        let message = complaint(line);
        assert!(message.contains(place), "{line}: {message}");
    }
    ann.say(json!({"room": "lobby", "type": "join", "unknown": {"field": [1, 2]}}));
    assert_eq!(ann.hear_one()["type"], "joined", "fields in any order, with unknown ones");
}

// ---- overload ----------------------------------------------------------------------------------

#[test]
fn an_overloaded_server_refuses_logins_with_a_hint_and_serves_clients_that_are_logged_in() {
    let world = World::new();
    let (mut ann, mut bob) = (world.login("ann"), world.connect());
    ann.join("room");
    ann.hear_one();
    ann.0.set_overloaded(true);
    bob.0.set_overloaded(true);
    bob.say(json!({"type": "login", "user": "bob"}));
    let bye = bob.hear_one();
    assert_eq!((&bye["type"], &bye["reason"]), (&json!("bye"), &json!("overloaded")));
    assert!((100..300).contains(&bye["retry_after_ms"].as_u64().unwrap()), "{bye}");
    assert!(bob.0.is_closed());
    say_in(&mut ann, "room", "still here");
    assert_eq!(ann.hear_one()["text"], "still here");
    let mut again = world.login("bob");
    again.join("room");
    assert_eq!(again.hear_one()["type"], "joined");
}
