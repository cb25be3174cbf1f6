//! Positions, history, and sessions that a client resumes: mostly with the server as a process.

use crate::{
    faulty::{Events, Faulty},
    im::{World, topics_on},
    im_process::{Member, Server, at, log_in, token_of},
    support::{line_client::LineClient, loops::one_loop, tcp::connect},
};
use netwheel::broker::MemoryBroker;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn start() -> Server {
    Server::start(&["--http", "none", "--delivery-rate", "0", "--input-rate", "0"])
}

#[test]
fn the_missed_messages_come_first_and_then_live_ones() {
    let server = start();
    let (mut ann, mut bob) = (Member::join(&server, "ann"), Member::join(&server, "bob"));
    assert_eq!(ann.at.1, 0, "the position in an empty room is the one before its first message");
    bob.say("seen");
    assert_eq!(ann.next_text(), "seen");
    let Member { token, at, lines } = ann;
    drop(lines);
    bob.say("missed");
    bob.say("missed too");
    let (mut ann, recovered) = Member::resume(&server, "ann", &token, at);
    assert!(recovered && ann.at == at);
    bob.say("live");
    assert_eq!([ann.next_text(), ann.next_text(), ann.next_text()], ["missed", "missed too", "live"]);

    // Twice without a message in between, with either token.
    for token in [token, ann.token.clone()] {
        let (mut again, recovered) = Member::resume(&server, "ann", &token, ann.at);
        assert!(recovered && again.at == ann.at);
        again.hear_nothing();
        ann = again;
    }
    bob.say("after all");
    assert_eq!(ann.next_text(), "after all");
    server.stop();
}

#[test]
fn a_new_connection_replaces_the_old_one_with_the_token_only() {
    let server = start();
    let (mut ann, mut bob) = (Member::join(&server, "ann"), Member::join(&server, "bob"));
    ann.hear_nothing();
    let mut other = LineClient::on(connect(server.address));
    for token in ["", "x", &bob.token] {
        let resume = json!({ "token": token, "rooms": { "lobby": [ann.at.0, ann.at.1] } });
        other.send(&json!({ "type": "login", "user": "ann", "resume": resume }));
        assert_eq!(other.next()["code"], "name_taken", "with {token:?}");
    }
    let (mut again, recovered) = Member::resume(&server, "ann", &ann.token, ann.at);
    assert!(recovered);
    assert_eq!(ann.lines.wait_for("bye")["reason"], "replaced");
    bob.say("hello");
    assert_eq!(again.next_text(), "hello");
    again.say("I am here");
    assert_eq!(bob.next_text(), "I am here");
    bob.lines.send(&json!({ "type": "who", "room": "lobby" }));
    assert_eq!(bob.lines.wait_for("members")["users"], json!(["ann", "bob"]));
    server.stop();
}

#[test]
fn a_token_is_not_accepted_when_another_client_has_the_name() {
    let server = start();
    let Member { token, at, lines } = Member::join(&server, "ann");
    drop(lines);
    let other = server.log_in_again("ann");
    let mut ann = LineClient::on(connect(server.address));
    let resume = json!({ "token": token, "rooms": { "lobby": [at.0, at.1] } });
    ann.send(&json!({ "type": "login", "user": "ann", "resume": resume }));
    assert_eq!(ann.next()["code"], "name_taken");
    drop(other);
    server.stop();
}

#[test]
fn positions_that_are_not_valid_are_not_recovered() {
    let server = start();
    let (mut ann, mut bob) = (Member::join(&server, "ann"), Member::join(&server, "bob"));
    for text in ["one", "two"] {
        bob.say(text);
        ann.next();
    }
    let top = ann.at;
    bob.lines.send(&json!({ "type": "join", "room": "attic" }));
    let other_room = at(&bob.lines.wait_for("joined"));
    let mut token = ann.token.clone();
    for (from, why) in [
        ((top.0, top.1 + 1), "ahead of the top"),
        ((top.0, u64::MAX), "far ahead of the top"),
        (other_room, "in another room"),
        ((0, 0), "no epoch"),
        ((u64::MAX, 1), "no epoch"),
    ] {
        let (mut again, recovered) = Member::resume(&server, "ann", &token, from);
        assert!(!recovered && again.at == top, "{why}: {recovered} {:?}", again.at);
        again.hear_nothing();
        token = again.token.clone();
        ann = again;
    }
    // Another user's position in the same room is one of the room.
    let (mut again, recovered) = Member::resume(&server, "ann", &token, (top.0, top.1 - 1));
    assert!(recovered);
    assert_eq!(again.next_text(), "two");

    // A token of another user is like none, also if the name is free.
    let (mut carl, recovered) = Member::resume(&server, "carl", &token, (top.0, 0));
    assert!(!recovered && carl.at == top);
    carl.hear_nothing();
    bob.say("three");
    assert_eq!((carl.next_text(), again.next_text()), ("three".to_owned(), "three".to_owned()));
    drop(ann);
    server.stop();
}

#[test]
fn messages_that_were_trimmed_are_not_recovered() {
    let server = start();
    let (ann, mut bob) = (Member::join(&server, "ann"), Member::join(&server, "bob"));
    let Member { token, at, lines } = ann;
    drop(lines);
    // The bytes of the history end before their number.
    let long = "x".repeat(50_000);
    for n in 0..10 {
        bob.say(&format!("{n} {long}"));
    }
    let (mut ann, recovered) = Member::resume(&server, "ann", &token, at);
    assert!(!recovered && ann.at == bob.at);
    // The last ones are there.
    let from = (bob.at.0, bob.at.1 - 3);
    let (mut again, recovered) = Member::resume(&server, "ann", &ann.token, from);
    assert!(recovered);
    for n in 7..10 {
        assert!(again.next_text().starts_with(&format!("{n} ")));
    }
    bob.say("short");
    assert_eq!(again.next_text(), "short");
    assert_eq!(ann.lines.wait_for("bye")["reason"], "replaced");
    server.stop();
}

#[test]
fn a_server_that_was_restarted_begins_a_new_epoch() {
    let server = start();
    let mut ann = Member::join(&server, "ann");
    ann.say("lost");
    server.kill();
    let server = start();
    let (mut again, recovered) = Member::resume(&server, "ann", &ann.token, ann.at);
    assert!(!recovered && again.at.0 != ann.at.0 && again.at.1 == 0);
    again.say("new");
    server.stop();
}

#[test]
fn a_member_that_joins_may_ask_for_earlier_messages() {
    let server = start();
    let mut ann = Member::join(&server, "ann");
    for n in 1..=5 {
        ann.say(&n.to_string());
    }
    let mut bob = server.log_in("bob");
    for (history, first) in [(json!(2), 4), (json!(100), 1), (Value::Null, 6), (json!(0), 6)] {
        bob.send(&json!({ "type": "join", "room": "lobby", "history": history }));
        let joined = bob.wait_for("joined");
        assert_eq!(at(&joined), (ann.at.0, first - 1), "{history}");
        for n in first..=5 {
            let message = bob.wait_for("message");
            assert_eq!((at(&message).1, message["text"].as_str()), (n, Some(&*n.to_string())));
        }
        bob.send(&json!({ "type": "leave", "room": "lobby" }));
        bob.wait_for("left");
    }
    for history in [json!(101), json!(-1), json!("x")] {
        bob.send(&json!({ "type": "join", "room": "lobby", "history": history }));
        assert_eq!(bob.wait_for("error")["code"], "bad_request", "{history}");
    }
    // The messages stay when the room is empty.
    drop(ann);
    bob.send(&json!({ "type": "join", "room": "lobby", "history": 1 }));
    assert_eq!(bob.wait_for("message")["text"], "5");
    server.stop();
}

#[test]
fn own_copies_have_the_id_and_are_in_order() {
    let server = start();
    let mut members: Vec<Member> =
        ["ann", "bob", "carl"].iter().map(|user| Member::join(&server, user)).collect();
    const EACH: u64 = 200;
    for n in 0..EACH {
        for member in &mut members {
            member.lines.send(&json!({ "type": "say", "room": "lobby", "text": n.to_string(), "id": n }));
        }
    }
    let mut orders = BTreeSet::new();
    for (member, own) in members.iter_mut().zip(["ann", "bob", "carl"]) {
        let (mut order, mut next_own) = (Vec::new(), 0);
        for _ in 0..3 * EACH {
            // In the order of the offsets, without gaps.
            let message = member.next();
            let from = message["from"].as_str().unwrap();
            if from == own {
                assert_eq!(message["id"], next_own);
                next_own += 1;
            } else {
                assert!(message.get("id").is_none(), "{message}");
            }
            order.push(format!("{from} {}", message["text"]));
        }
        orders.insert(order);
    }
    assert_eq!(orders.len(), 1, "all members have the same order");
    server.stop();
}

#[test]
fn replies_wait_for_the_copies_of_earlier_messages() {
    let server = start();
    let mut ann = Member::join(&server, "ann");
    let mut lines = String::new();
    for n in 0..50 {
        lines += &format!("{}\n", json!({ "type": "say", "room": "lobby", "text": n.to_string() }));
        lines += &format!("{}\n", json!({ "type": "ping" }));
    }
    ann.lines.send_text(lines.trim_end());
    for n in 0..50 {
        assert_eq!(ann.next_text(), n.to_string());
        assert_eq!(ann.lines.next_but_presence()["type"], "pong");
    }
    server.stop();
}

/// The store answers a repetition, while the copy of another message has not come.
#[test]
fn the_reply_to_a_repetition_is_in_the_order_of_the_requests() {
    let faulty = Faulty::new(&MemoryBroker::new(), one_loop().next());
    let world = World::on(topics_on(faulty.clone(), "a"), "a");
    let mut ann = world.connect();
    ann.say(json!({ "type": "login", "user": "ann", "unique_ids": true }));
    ann.join("lobby");
    let say = |id| json!({ "type": "say", "room": "lobby", "text": "hello", "id": id });
    let kinds = |replies: Vec<Value>| replies.into_iter().map(|mut reply| reply["type"].take()).collect();
    ann.say(say(0));
    let replies: Vec<Value> = kinds(ann.hear());
    assert_eq!(replies, ["welcome", "joined", "message"]);
    let ping = || json!({ "type": "ping" });
    for (requests, early, late) in [
        ([say(1), ping(), say(0)], &[][..], &["message", "pong", "said"][..]),
        ([say(0), ping(), say(2)], &["said", "pong"], &["message"]),
    ] {
        faulty.set_events(Events::Hold);
        requests.into_iter().for_each(|request| ann.say(request));
        let replies: Vec<Value> = kinds(ann.hear());
        assert_eq!(replies, early);
        faulty.release_reversed();
        let replies: Vec<Value> = kinds(ann.hear());
        assert_eq!(replies, late);
    }
}

#[test]
fn a_message_that_is_sent_again_appears_once() {
    let server = start();
    let mut bob = Member::join(&server, "bob");
    let login = json!({ "type": "login", "user": "ann", "unique_ids": true });
    let (mut ann, welcome) = log_in(&server, &login);
    ann.send(&json!({ "type": "join", "room": "lobby" }));
    let say = |id: Value| json!({ "type": "say", "room": "lobby", "text": "hello", "id": id });
    ann.send(&say(json!("a")));
    let first = ann.wait_for("message");
    assert_eq!(bob.next_text(), "hello");
    let said = json!({ "type": "said", "room": "lobby", "id": "a", "epoch": first["epoch"], "offset": first["offset"] });
    ann.send(&say(json!("a")));
    assert_eq!(ann.next_but_presence(), said);
    // Also after the client has resumed.
    let resume =
        json!({ "token": token_of(&welcome), "rooms": { "lobby": [first["epoch"], first["offset"]] } });
    let (mut again, _) =
        log_in(&server, &json!({ "type": "login", "user": "ann", "unique_ids": true, "resume": resume }));
    again.send(&say(json!("a")));
    assert_eq!(again.wait_for("said"), said);
    again.send(&say(json!("b")));
    assert_eq!(again.wait_for("message")["id"], "b");
    assert_eq!(bob.next_text(), "hello");
    again.send(&say(json!("x".repeat(63))));
    assert_eq!(again.wait_for("error")["code"], "bad_request", "65 bytes with the quotes");

    // Without the promise, an id may be used twice.
    bob.lines.send(&say(json!(1)));
    bob.lines.send(&say(json!(1)));
    assert_eq!((bob.next()["id"].clone(), bob.next()["id"].clone()), (json!(1), json!(1)));
    server.stop();
}

#[test]
fn a_client_resumes_in_many_rooms() {
    let server = start();
    let (mut ann, welcome) = log_in(&server, &json!({ "type": "login", "user": "ann" }));
    let mut bob = server.log_in("bob");
    let mut rooms = serde_json::Map::new();
    for n in 0..32 {
        let room = format!("room-{n}");
        for client in [&mut ann, &mut bob] {
            client.send(&json!({ "type": "join", "room": room }));
            let joined = client.wait_for("joined");
            rooms.insert(room.clone(), json!([joined["epoch"], joined["offset"]]));
        }
    }
    drop(ann);
    // More than the server queues for a client that reads slowly.
    let long = "x".repeat(60_000);
    for room in rooms.keys() {
        for _ in 0..4 {
            bob.send(&json!({ "type": "say", "room": room, "text": long }));
            bob.wait_for("message");
        }
    }
    let resume = json!({ "token": token_of(&welcome), "rooms": rooms });
    let (mut ann, _) = log_in(&server, &json!({ "type": "login", "user": "ann", "resume": resume }));
    let mut missed = 0;
    let mut resumed = BTreeSet::new();
    while resumed.len() < rooms.len() || missed < 4 * rooms.len() {
        let line = ann.next();
        match line["type"].as_str() {
            Some("joined") => {
                assert_eq!(line["recovered"], true, "{line}");
                resumed.insert(line["room"].as_str().unwrap().to_owned());
            }
            Some("message") => missed += 1,
            Some("presence") => {}
            _ => panic!("{line}"),
        }
    }
    assert_eq!(missed, 4 * rooms.len());

    rooms.insert("one-more".to_owned(), json!([1, 1]));
    let mut other = LineClient::on(connect(server.address));
    other.send(&json!({ "type": "login", "user": "carl", "resume": { "token": "", "rooms": rooms } }));
    assert_eq!(other.next()["code"], "bad_request");
    // A room whose name is not allowed is refused, and the others are joined.
    let resume = json!({ "token": "", "rooms": { "a b": [1, 1], "attic": [1, 1] } });
    other.send(&json!({ "type": "login", "user": "carl", "resume": resume }));
    let kinds: Vec<Value> = (0..3).map(|_| other.next()["type"].clone()).collect();
    assert_eq!(kinds, ["welcome", "error", "joined"]);
    server.stop();
}
