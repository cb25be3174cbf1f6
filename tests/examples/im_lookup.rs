//! Lookups of the chat server. They run on the worker pool, so only the requesting client waits for
//! them.

use crate::im::*;
use crate::support::{
    tcp::connect,
    wait::{PATIENCE, done},
};
use netwheel::{prelude::*, shutdown::ShutdownOptions, worker_pool::WorkerPool};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    sync::mpsc::channel,
    time::Duration,
};

fn lookup(user: &str, id: impl Into<Value>) -> Value {
    json!({"type": "lookup", "user": user, "id": id.into()})
}

fn online(user: &str, rooms: &[&str], id: impl Into<Value>) -> Value {
    json!({"type": "profile", "user": user, "online": true, "rooms": rooms, "id": id.into()})
}

fn offline(user: &str, id: impl Into<Value>) -> Value {
    json!({"type": "profile", "user": user, "online": false, "rooms": [], "id": id.into()})
}

#[test]
fn a_profile_shows_presence_and_rooms() {
    let world = World::new();
    let (mut ann, mut bob) = (world.login("ann"), world.login("bob"));
    ann.say(lookup("bob", 1));
    assert_eq!(ann.hear_one(), online("bob", &[], 1));
    bob.join("lobby");
    bob.join("attic");
    bob.hear();
    ann.say(json!({"type": "lookup", "user": "bob"}));
    let without_id = json!({"type": "profile", "user": "bob", "online": true, "rooms": ["attic", "lobby"]});
    assert_eq!(ann.hear_one(), without_id);
    bob.say(json!({"type": "leave", "room": "lobby"}));
    bob.hear();
    bob.say(lookup("bob", "me"));
    assert_eq!(bob.hear_one(), online("bob", &["attic"], "me"), "a user's own profile");
    bob.leave();
    drop(bob);
    ann.say(lookup("bob", 2));
    assert_eq!(ann.hear_one(), offline("bob", 2));
    let _bob = world.login("bob");
    ann.say(lookup("bob", 3));
    assert_eq!(ann.hear_one(), online("bob", &[], 3), "a new session");
}

#[test]
fn the_session_handles_other_requests_during_a_lookup() {
    let mut ann = World::new().login("ann");
    ann.say(lookup("ann", 1));
    ann.say(json!({"type": "ping"}));
    ann.join("lobby");
    let joined = json!({"type": "joined", "room": "lobby", "user": "ann"});
    assert_eq!(ann.hear_so_far(), [json!({"type": "pong"}), joined], "later requests are answered first");
    assert_eq!(ann.hear_one(), online("ann", &["lobby"], 1), "the state at the time of the reply");
}

#[test]
fn lookups_in_flight_are_limited_per_client() {
    let world = World::new();
    let (mut ann, mut bob) = (world.login("ann"), world.login("bob"));
    for id in 1..=3 {
        ann.say(lookup("cy", id));
    }
    bob.say(lookup("cy", "others may"));
    let refusals = ann.hear_so_far();
    assert_eq!(refusals.iter().map(error_of).collect::<Vec<_>>(), [refused("too_many_lookups", 3)]);
    assert_eq!(ann.hear(), [offline("cy", 1), offline("cy", 2)]);
    assert_eq!(bob.hear(), [offline("cy", "others may")]);
    ann.say(lookup("cy", 4));
    assert_eq!(ann.hear(), [offline("cy", 4)], "answered lookups no longer count");
}

#[test]
fn an_invalid_lookup_is_refused_with_its_id() {
    let world = World::new();
    let (mut ann, mut bob) = (world.connect(), world.login("bob"));
    ann.say(lookup("bob", 1));
    assert_eq!(ann.hear_error(), refused("not_logged_in", 1));
    bob.say(lookup("a name with blanks", 2));
    assert_eq!(bob.hear_error(), refused("bad_request", 2));
}

#[test]
fn a_client_that_leaves_during_a_lookup_gets_no_reply() {
    let world = World::new();
    let (mut ann, mut bob) = (world.login("ann"), world.login("bob"));
    ann.say(lookup("bob", 1));
    ann.leave();
    assert_eq!(ann.hear(), [] as [Value; 0]);
    assert!(!ann.0.has_pending());
    drop(ann);
    bob.say(lookup("ann", 2));
    assert_eq!(bob.hear_one(), offline("ann", 2));
}

#[test]
fn a_lookup_is_refused_when_the_pool_is_full() {
    let pool = WorkerPool::builder().threads(1).max_pending(1).build().unwrap();
    let (release, released) = channel::<()>();
    let (begun, begins) = channel();
    let hold = move || {
        begun.send(()).unwrap();
        let _ = released.recv_timeout(PATIENCE);
    };
    pool.execute(hold).unwrap();
    begins.recv_timeout(PATIENCE).expect("the only thread is blocked");

    let group = EventLoopGroup::builder().threads(1).workers(&pool).build().unwrap();
    let hub = new_hub(hub::MAX_UNACKED_BYTES);
    let bootstrap = ServerBootstrap::new(&group).pipeline(move |_peer| session(&hub, IdleTimeouts::new()));
    let server = bootstrap.bind("127.0.0.1:0").unwrap();
    let mut ann = connect(server.local_address());
    let mut lines = BufReader::new(ann.try_clone().unwrap()).lines();
    let mut hear = move || -> Value {
        let mut reply: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        reply.as_object_mut().unwrap().remove("since");
        reply
    };
    let mut say = |request: Value| writeln!(ann, "{request}").unwrap();
    say(json!({"type": "login", "user": "ann"}));
    assert_eq!(hear()["type"], "welcome");
    say(lookup("ann", 1));
    for id in 2..=4 {
        say(lookup("ann", id));
    }
    say(json!({"type": "ping"}));
    for id in 2..=4 {
        assert_eq!(error_of(&hear()), refused("busy", id), "a refused lookup is not in flight");
    }
    assert_eq!(hear(), json!({"type": "pong"}), "other requests are answered during the first lookup");
    drop(release);
    assert_eq!(hear(), online("ann", &[], 1));
    say(lookup("ann", 5));
    assert_eq!(hear(), online("ann", &[], 5));
    done(group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(PATIENCE))).unwrap();
}
