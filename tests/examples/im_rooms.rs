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
