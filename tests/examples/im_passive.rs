//! Large rooms of the chat server: numbers of members instead of names, and passive members.

use crate::im::*;
use serde_json::{Value, json};

fn presence_count(count: usize) -> Value {
    json!({"type": "presence", "room": "lobby", "count": count})
}

fn of_room(kind: &str, total: u64) -> Value {
    json!({"type": kind, "room": "lobby", "total": total})
}

fn request(client: &mut Client, kind: &str) {
    client.say(json!({"type": kind, "room": "lobby"}));
}

fn say(client: &mut Client, text: &str) {
    client.say(json!({"type": "say", "room": "lobby", "text": text}));
}

/// Returns a client that has joined the lobby and has read everything.
fn member(world: &World, name: &str) -> Client {
    let mut client = world.login(name);
    client.join("lobby");
    world.announce();
    client.hear();
    client
}

#[test]
fn a_passive_member_receives_the_number_of_messages() {
    let world = World::new();
    let (mut ann, mut bob) = (member(&world, "ann"), member(&world, "bob"));
    ann.hear();
    say(&mut ann, "before");
    assert_eq!(bob.hear_one()["text"], "before");
    request(&mut bob, "passive");
    assert_eq!(bob.hear_one(), of_room("passive", 1));
    world.announce();
    bob.hear_nothing();
    for text in ["one", "two", "three"] {
        say(&mut ann, text);
    }
    bob.hear_nothing();
    world.announce();
    assert_eq!(bob.hear(), [of_room("unread", 4)]);
    world.announce();
    bob.hear_nothing();
    say(&mut bob, "own");
    assert_eq!(bob.hear_one()["text"], "own");
    world.announce();
    assert_eq!(bob.hear(), [of_room("unread", 5)]);
    ann.hear();

    let mut cy = member(&world, "cy");
    assert_eq!(ann.hear_one()["joined"], json!(["cy"]));
    bob.hear_nothing();
    request(&mut bob, "active");
    assert_eq!(bob.hear_one(), of_room("active", 5));
    say(&mut cy, "again");
    world.announce();
    assert_eq!(bob.hear_one()["text"], "again");
}

#[test]
fn becoming_passive_needs_a_membership_and_may_be_repeated() {
    let world = World::new();
    let mut ann = world.login("ann");
    for kind in ["passive", "active"] {
        request(&mut ann, kind);
        assert_eq!(ann.hear_error().0, "not_in_room");
        ann.say(json!({"type": kind}));
        assert_eq!(ann.hear_error().0, "bad_request");
    }
    ann.join("lobby");
    world.announce();
    ann.hear();
    for kind in ["active", "passive", "passive", "active", "active"] {
        request(&mut ann, kind);
        assert_eq!(ann.hear_one(), of_room(kind, 0));
    }
    request(&mut ann, "passive");
    ann.say(json!({"type": "leave", "room": "lobby"}));
    ann.hear();
    let mut bob = member(&world, "bob");
    say(&mut bob, "hello");
    world.announce();
    ann.hear_nothing();
    ann.join("lobby");
    ann.hear();
    say(&mut bob, "welcome back");
    assert_eq!(ann.hear_one()["text"], "welcome back", "active after a join");
}

#[test]
fn passive_members_are_counted_once_per_room() {
    let world = World::new();
    let mut others: Vec<Client> = (0..3).map(|n| member(&world, &format!("user-{n}"))).collect();
    assert_eq!(world.hub.rooms.passive_members(), 0);
    others.iter_mut().for_each(|other| request(other, "passive"));
    others[0].join("den");
    others[0].say(json!({"type": "passive", "room": "den"}));
    assert_eq!(world.hub.rooms.passive_members(), 4);
    request(&mut others[1], "active");
    others[2].leave();
    assert_eq!(world.hub.rooms.passive_members(), 2);
    others[0].leave();
    assert_eq!(world.hub.rooms.passive_members(), 0);
}

#[test]
fn a_passive_member_that_reads_slowly_receives_the_newest_number() {
    let world = World::new();
    let (mut ann, mut bob) = (member(&world, "ann"), member(&world, "bob"));
    request(&mut bob, "passive");
    bob.hear();
    bob.0.set_outbound_room(Some(0));
    for n in 0..200 {
        say(&mut ann, &n.to_string());
        world.announce();
        bob.0.run_pending();
        assert!(bob.0.pending_bytes() < 120, "two lines");
    }
    bob.0.set_outbound_room(None);
    assert_eq!(bob.hear(), [of_room("unread", 1), of_room("unread", 200)]);
}

/// Passive members of a room cost its senders nothing.
#[test]
fn a_message_is_delivered_to_active_members_only() {
    let world = World::new();
    let mut ann = member(&world, "ann");
    let mut others: Vec<Client> = (0..20).map(|n| member(&world, &format!("user-{n}"))).collect();
    others.iter_mut().for_each(|other| request(other, "passive"));
    let deliveries = || world.hub.counters.deliveries.load(std::sync::atomic::Ordering::Relaxed);
    let before = deliveries();
    say(&mut ann, "hello");
    assert_eq!(deliveries() - before, 1);
    request(&mut others[0], "active");
    say(&mut ann, "hello");
    assert_eq!(deliveries() - before, 3);
}

#[test]
fn a_large_room_announces_the_number_of_its_members() {
    let world = World::new();
    let mut ann = member(&world, "ann");
    let mut others: Vec<Client> = (0..1000).map(|n| world.login(&format!("user-{n}"))).collect();
    others.iter_mut().for_each(|other| other.join("lobby"));
    world.announce();
    assert_eq!(ann.hear(), [presence_count(1001)], "no names");
    others.drain(..10).for_each(|mut other| other.leave());
    world.announce();
    assert_eq!(ann.hear(), [presence_count(991)], "it is still a large room");

    // A member that reads slowly receives the newest number.
    ann.0.set_outbound_room(Some(0));
    for n in 0..100 {
        others.pop().unwrap().leave();
        world.announce();
        ann.0.run_pending();
        assert_eq!(n == 0, ann.0.pending_bytes() < 60, "at most two lines");
    }
    ann.0.set_outbound_room(None);
    assert_eq!(ann.hear(), [presence_count(990), presence_count(891)]);

    others.drain(..141).for_each(|mut other| other.leave());
    world.announce();
    assert_eq!(ann.hear(), [presence_count(750)], "the last number");
    let mut zoe = world.login("zoe");
    zoe.join("lobby");
    world.announce();
    let names = json!({"type": "presence", "room": "lobby", "joined": ["zoe"]});
    assert_eq!(ann.hear(), [names], "names follow");
    request(&mut ann, "who");
    assert_eq!(ann.hear_one()["users"].as_array().unwrap().len(), 751);
}
