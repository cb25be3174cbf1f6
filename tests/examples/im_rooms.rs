//! Rooms of the chat server: membership and broadcasts.

use crate::im::*;
use serde_json::{Value, json};

fn joined(user: &str) -> Value {
    json!({"type": "joined", "room": "lobby", "user": user})
}

fn presence(joined: &[&str], left: &[&str]) -> Value {
    let mut presence = json!({"type": "presence", "room": "lobby"});
    for (name, users) in [("joined", joined), ("left", left)] {
        if !users.is_empty() {
            presence[name] = json!(users);
        }
    }
    presence
}

fn left(user: &str) -> Value {
    json!({"type": "left", "room": "lobby", "user": user})
}

fn message(from: &str, text: &str) -> Value {
    json!({"type": "message", "room": "lobby", "from": from, "text": text})
}

fn say(client: &mut Client, text: &str) {
    client.say(json!({"type": "say", "room": "lobby", "text": text}));
}

#[track_caller]
fn who(client: &mut Client) -> Value {
    client.say(json!({"type": "who", "room": "lobby"}));
    let mut members = client.hear_one();
    assert_eq!(members["type"], "members");
    members["users"].take()
}

#[test]
fn members_receive_joins_messages_and_leaves() {
    let world = World::new();
    let (mut ann, mut bob, mut cy) = (world.login("ann"), world.login("bob"), world.login("cy"));
    ann.join("lobby");
    bob.join("lobby");
    assert_eq!(ann.hear(), [joined("ann")]);
    world.announce();
    assert_eq!(ann.hear(), [presence(&["ann", "bob"], &[])]);
    assert_eq!(bob.hear(), [joined("bob"), presence(&["ann", "bob"], &[])]);
    bob.join("lobby");
    world.announce();
    assert_eq!(bob.hear(), [joined("bob")], "a repeated join is not announced");
    say(&mut ann, "one");
    say(&mut ann, "two");
    assert_eq!(ann.hear(), [message("ann", "one"), message("ann", "two")]);
    assert_eq!(bob.hear(), [message("ann", "one"), message("ann", "two")], "each message once, in order");
    assert_eq!(who(&mut cy), json!(["ann", "bob"]));
    cy.hear_nothing();

    bob.say(json!({"type": "leave", "room": "lobby"}));
    world.announce();
    assert_eq!(bob.hear(), [left("bob")]);
    assert_eq!(ann.hear(), [presence(&[], &["bob"])]);
    say(&mut ann, "three");
    assert_eq!(ann.hear(), [message("ann", "three")]);
    bob.hear_nothing();
    say(&mut bob, "four");
    assert_eq!(bob.hear_error().0, "not_in_room");
    assert_eq!(who(&mut cy), json!(["ann"]));
}

#[test]
fn a_connection_that_ends_leaves_its_rooms() {
    let world = World::new();
    let (mut ann, mut bob) = (world.login("ann"), world.login("bob"));
    ann.join("lobby");
    bob.join("lobby");
    world.announce();
    ann.hear();
    bob.leave();
    world.announce();
    assert_eq!(ann.hear(), [presence(&[], &["bob"])]);
    assert_eq!(who(&mut ann), json!(["ann"]));
    say(&mut ann, "alone");
    assert_eq!(ann.hear(), [message("ann", "alone")]);
    ann.leave();
    let mut cy = world.login("cy");
    assert_eq!(who(&mut cy), json!([]), "the room is empty");
    cy.join("lobby");
    assert_eq!(cy.hear(), [joined("cy")], "the room can be joined again");
}

#[test]
fn a_room_that_was_empty_is_a_room_like_any_other() {
    let world = World::new();
    let (mut ann, mut bob) = (world.login("ann"), world.login("bob"));
    for _ in 0..2 {
        ann.join("lobby");
        bob.join("lobby");
        assert_eq!((ann.hear_one(), bob.hear_one()), (joined("ann"), joined("bob")));
        bob.say(json!({"type": "passive", "room": "lobby"}));
        bob.hear();
        ann.say(json!({"type": "say", "room": "lobby", "text": "hello", "id": 7}));
        ann.say(json!({"type": "ping"}));
        let mut own = message("ann", "hello");
        own["id"] = json!(7);
        assert_eq!(ann.hear(), [own, json!({"type": "pong"})]);
        world.announce();
        assert_eq!(bob.hear(), [json!({"type": "unread", "room": "lobby", "total": 1})]);
        for client in [&mut ann, &mut bob] {
            client.say(json!({"type": "leave", "room": "lobby"}));
            client.hear();
        }
        world.announce();
    }
}

#[test]
fn later_requests_wait_until_a_client_has_resumed_in_all_rooms() {
    let world = World::new();
    let mut bob = world.login("bob");
    bob.join("lobby");
    bob.hear();
    let mut ann = world.connect();
    let rooms = json!({"attic": [1, 1], "den": [1, 1], "lobby": [1, 1]});
    let requests = [
        json!({"type": "login", "user": "ann", "resume": {"token": "", "rooms": rooms}}),
        json!({"type": "ping"}),
        json!({"type": "say", "room": "lobby", "text": "hello", "id": 1}),
        json!({"type": "leave", "room": "den"}),
    ];
    let lines: String = requests.iter().map(|request| format!("{request}\n")).collect();
    ann.0.write_inbound(lines.as_bytes()).unwrap();
    let heard = ann.hear();
    let kinds: Vec<&str> = heard.iter().map(|reply| reply["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["welcome", "joined", "joined", "joined", "pong", "message", "left"]);
    assert_eq!((&heard[5]["id"], &heard[6]["room"]), (&json!(1), &json!("den")));
    assert_eq!(bob.hear(), [message("ann", "hello")]);
}

#[test]
fn a_user_that_resumes_on_another_connection_does_not_leave_its_rooms() {
    let world = World::new();
    let mut bob = world.login("bob");
    let mut old = world.connect();
    old.say(json!({"type": "login", "user": "ann"}));
    let welcome: Value = serde_json::from_slice(&old.0.read_outbound()).unwrap();
    let mut rooms = json!({});
    for room in ["attic", "lobby"] {
        bob.join(room);
        old.join(room);
        let joined: Value = serde_json::from_slice(&old.0.read_outbound()).unwrap();
        rooms[room] = json!([joined["epoch"], joined["offset"]]);
    }
    for _ in 0..100 {
        bob.say(json!({"type": "say", "room": "attic", "text": "x".repeat(800)}));
    }
    world.announce();
    bob.hear();
    let mut new = world.connect();
    // It does not read the messages of the first room, so those of the second one wait.
    new.0.set_outbound_room(Some(0));
    let resume = json!({"token": welcome["resume_token"], "rooms": rooms});
    new.say(json!({"type": "login", "user": "ann", "resume": resume}));
    new.0.run_pending();
    assert_eq!(old.hear().last(), Some(&json!({"type": "bye", "reason": "replaced"})));
    world.announce();
    bob.hear_nothing();
    new.0.set_outbound_room(None);
    assert_eq!(
        new.hear().last(),
        Some(&json!({"type": "joined", "room": "lobby", "user": "ann", "recovered": true}))
    );
    assert_eq!(who(&mut new), json!(["ann", "bob"]));
    world.announce();
    bob.hear_nothing();
}

#[test]
fn an_own_copy_does_not_come_before_the_joined() {
    let world = World::new();
    let mut bob = world.login("bob");
    let mut old = world.connect();
    old.say(json!({"type": "login", "user": "ann"}));
    let welcome: Value = serde_json::from_slice(&old.0.read_outbound()).unwrap();
    let mut rooms = json!({});
    for room in ["attic", "lobby"] {
        bob.join(room);
        old.join(room);
        let joined: Value = serde_json::from_slice(&old.0.read_outbound()).unwrap();
        rooms[room] = json!([joined["epoch"], joined["offset"]]);
    }
    for _ in 0..100 {
        bob.say(json!({"type": "say", "room": "attic", "text": "x".repeat(800)}));
    }
    let mut new = world.connect();
    // It does not read the messages of the first room, so those of the second one wait.
    new.0.set_outbound_room(Some(0));
    let resume = json!({"token": welcome["resume_token"], "rooms": rooms});
    new.say(json!({"type": "login", "user": "ann", "resume": resume}));
    new.0.run_pending();
    // Sent by the earlier session, and delivered when the user is a member by the new one.
    let room = world.hub.rooms.find("lobby").unwrap();
    let stored = room.publish("ann", "late".to_owned(), world.hub.unix_ms(), Some(7.into()), None);
    assert!(stored.wait().is_ok());
    new.0.set_outbound_room(None);
    let heard = new.hear();
    let of_lobby: Vec<_> = heard.iter().filter(|reply| reply["room"] == "lobby").collect();
    let resumed = json!({"type": "joined", "room": "lobby", "user": "ann", "recovered": true});
    assert_eq!(of_lobby, [&resumed, &message("ann", "late")]);
    new.say(json!({"type": "say", "room": "lobby", "text": "live", "id": 8}));
    assert_eq!(new.hear_one()["id"], 8);
}

#[test]
fn a_refused_request_about_a_room_names_the_room() {
    let world = World::new();
    let mut ann = world.login("ann");
    for kind in ["leave", "passive", "active"] {
        ann.say(json!({"type": kind, "room": "lobby"}));
        let refused = ann.hear_one();
        assert_eq!((&refused["code"], &refused["room"]), (&json!("not_in_room"), &json!("lobby")), "{kind}");
    }
    ann.say(json!({"type": "join", "room": "lobby", "history": 101}));
    assert_eq!(ann.hear_one()["room"], "lobby");
    say(&mut ann, "hello");
    assert!(ann.hear_one().get("room").is_none());
    let mut bob = world.connect();
    bob.say(json!({"type": "login", "user": "bob", "resume": {"token": "", "rooms": {"a b": [1, 1]}}}));
    assert_eq!(bob.hear()[1]["room"], "a b");
}
