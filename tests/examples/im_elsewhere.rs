//! Chat servers that share a store in memory: names, members of rooms, and direct messages to users
//! of another server.

use crate::{
    faulty::{Events, Faulty},
    im::*,
    login::users::Login,
    session::Settings,
    support::{
        logs,
        loops::one_loop,
        wait::{SECOND, done, wait_until},
    },
};
use netwheel::{
    broker::{
        MapTopic, MemoryBroker, TopicName, Topics,
        store::{MapChange, Position, Publication},
    },
    prelude::*,
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = SETTINGS.ack_timeout;

/// Two servers, with their connections to the store.
struct Servers {
    store: MemoryBroker,
    a: World,
    b: World,
    topics_of_b: Topics,
}

impl Servers {
    fn new() -> Self {
        let store = MemoryBroker::new();
        let topics_of_b = topics_on(store.clone(), "b");
        let a = World::on(topics_on(store.clone(), "a"), "a");
        Servers { a, b: World::on(topics_of_b.clone(), "b"), topics_of_b, store }
    }

    fn announce(&self) {
        self.a.announce();
        self.b.announce();
    }
}

/// A client that has logged in, with its token.
fn log_in(world: &World, user: &str) -> (Client, String) {
    let mut client = world.connect();
    client.say(json!({ "type": "login", "user": user }));
    client.0.run_pending();
    let welcome: Value = serde_json::from_slice(&client.0.read_outbound()).unwrap();
    (client, welcome["resume_token"].as_str().unwrap().to_owned())
}

/// A client that logs in with the token of an earlier one.
fn resume(world: &World, user: &str, token: &str, rooms: Value) -> Client {
    let mut client = world.connect();
    let resume = json!({ "token": token, "rooms": rooms });
    client.say(json!({ "type": "login", "user": user, "resume": resume }));
    client
}

/// A server whose connection to the store has faults.
fn faulty(store: &MemoryBroker, node: &str) -> (Faulty, Topics, World) {
    let faulty = Faulty::new(store, one_loop().next());
    let topics = topics_on(faulty.clone(), node);
    (faulty, topics.clone(), World::on(topics, node))
}

/// Adds operations to a map that the store does not answer, until the map accepts no more.
fn fill(faulty: &Faulty, map: &MapTopic) {
    faulty.hold_changes();
    let changes = |count| vec![MapChange::set("x", vec![b'x'; (64 << 10) - 1]); count];
    map.update(changes(1000)).detach();
    map.update(changes(24)).detach();
}

fn kinds(replies: &[Value]) -> Vec<&str> {
    replies.iter().map(|reply| reply["type"].as_str().unwrap()).collect()
}

fn members(users: &[&str]) -> Value {
    json!({ "type": "members", "room": "lobby", "users": users })
}

fn who(client: &mut Client) -> Value {
    client.say(json!({ "type": "who", "room": "lobby" }));
    client.hear_one()
}

// ---- direct messages ------------------------------------------------------------------------

#[test]
fn a_direct_message_to_another_server_may_wait_forever() {
    let Servers { a, b, .. } = Servers::new();
    let settings = Settings { ack_timeout: Duration::MAX, ..SETTINGS };
    let (a, b) = (a.settings(settings), b.settings(settings));
    let ((mut ann, _), (mut bob, _)) = (log_in(&a, "ann"), log_in(&b, "bob"));
    ann.direct("bob", 1);
    assert_eq!(bob.hear_one(), psst("ann", 1));
    bob.ack(1);
    assert_eq!(ann.hear_one(), delivered("bob", 1));
}

#[test]
fn a_direct_message_to_a_user_of_another_server_is_acknowledged() {
    let servers = Servers::new();
    let (mut ann, mut bob) = (servers.a.login("ann"), servers.b.login("bob"));
    ann.direct("bob", "mine");
    ann.hear_nothing();
    assert_eq!(bob.hear_one(), psst("ann", 1));
    bob.0.advance(TIMEOUT);
    assert_eq!(bob.hear_one(), psst("ann", 1), "it is sent again");
    bob.ack(1);
    bob.hear_nothing();
    assert_eq!(ann.hear_one(), delivered("bob", "mine"));
    bob.direct("ann", "answer");
    assert_eq!(ann.hear_one(), psst("bob", 1));
    ann.ack(1);
    assert_eq!(bob.hear_one(), delivered("ann", "answer"));
}

#[test]
fn a_message_without_an_acknowledgement_is_undelivered() {
    let servers = Servers::new();
    let (mut ann, mut bob) = (servers.a.login("ann"), servers.b.login("bob"));
    ann.direct("bob", 1);
    assert_eq!(bob.hear_one(), psst("ann", 1));
    bob.0.advance(4 * TIMEOUT);
    assert_eq!(bob.hear().len(), 3);
    assert_eq!(ann.hear_error(), refused("undelivered", 1));
    bob.ack(1);
    ann.hear_nothing();
}

#[test]
fn a_receiver_that_leaves_before_the_acknowledgement_has_not_got_it() {
    let servers = Servers::new();
    let (mut ann, mut bob) = (servers.a.login("ann"), servers.b.login("bob"));
    ann.direct("bob", 1);
    assert_eq!(bob.hear_one(), psst("ann", 1));
    bob.leave();
    assert_eq!(ann.hear_error(), refused("undelivered", 1));
    drop(bob);
    ann.direct("bob", 2);
    assert_eq!(ann.hear_error(), refused("undelivered", 2), "no user has that name");
}

#[test]
fn limits_of_the_receiver_hold_for_messages_from_other_servers() {
    let servers = Servers::new();
    let (mut ann, mut bob, mut cy) = (servers.a.login("ann"), servers.b.login("bob"), servers.a.login("cy"));
    for id in 1..=SETTINGS.max_unacked {
        ann.direct("bob", id);
    }
    ann.direct("bob", "own");
    assert_eq!(ann.hear_error(), refused("too_many_unacked", "own"));
    cy.direct("bob", "theirs");
    assert_eq!(bob.hear().len(), SETTINGS.max_unacked);
    assert_eq!(cy.hear_error(), refused("too_many_unacked", "theirs"));
    bob.ack(1);
    assert_eq!(ann.hear_one(), delivered("bob", 1));
    ann.direct("bob", "next");
    assert_eq!(bob.hear_one(), psst("ann", 4));
}

#[test]
fn a_sender_is_notified_when_the_other_server_is_silent() {
    let servers = Servers::new();
    let mut ann = servers.a.login("ann");
    // A server that has a user, and does not receive messages.
    let silent = topics_on(servers.store.clone(), "silent");
    let users = silent.map("users").open().unwrap();
    let entry = json!({ "name": "bob", "claim": "", "since": 0 }).to_string();
    assert!(users.hold("bob", entry, None).wait().unwrap().is_some());
    let now = Instant::now();
    for id in 0..SETTINGS.max_unacked {
        ann.direct("bob", id);
    }
    ann.direct("bob", "more");
    assert_eq!(ann.hear_error(), refused("too_many_unacked", "more"));
    servers.a.hub.nodes.tick(now + 4 * TIMEOUT);
    ann.hear_nothing();
    servers.a.hub.nodes.tick(now + 6 * TIMEOUT);
    let failed: Vec<_> = ann.hear().iter().map(error_of).collect();
    assert_eq!(failed, [0, 1, 2].map(|id| refused("undelivered", id)));
    // The server has never had the user, or not any more.
    let _c = World::on(silent.clone(), "silent");
    ann.direct("bob", "later");
    let failed: Vec<_> = ann.hear().iter().map(error_of).collect();
    assert_eq!(failed.last(), Some(&refused("undelivered", "later")));
}

#[test]
fn a_server_without_its_lease_delivers_no_direct_message() {
    let servers = Servers::new();
    let (mut bob, mut dan) = (servers.b.login("bob"), servers.b.login("dan"));
    servers.topics_of_b.close().detach();
    bob.direct("dan", 1);
    assert_eq!(bob.hear_error(), refused("busy", 1));
    dan.hear_nothing();
}

#[test]
fn a_direct_message_from_another_server_is_not_delivered_without_the_lease() {
    let store = MemoryBroker::new();
    let leased = Leased::new(&store, "b");
    let (a, b) = (World::on(topics_on(store, "a"), "a"), World::on(leased.topics.clone(), "b"));
    let (mut ann, mut bob) = (a.login("ann"), b.login("bob"));
    leased.end_lease();
    ann.direct("bob", 1);
    let mut outcomes = Vec::new();
    wait_until("the message has ended", || {
        outcomes = ann.hear();
        !outcomes.is_empty()
    });
    assert_eq!(outcomes.iter().map(error_of).collect::<Vec<_>>(), [refused("undelivered", 1)]);
    bob.hear_nothing();
    leased.begin_lease();
    ann.direct("bob", 2);
    wait_until("the next one has arrived", || bob.hear().contains(&psst("ann", 1)));
}

// ---- names ----------------------------------------------------------------------------------

#[test]
fn a_name_belongs_to_one_user_of_all_servers() {
    let servers = Servers::new();
    let ann = servers.a.login("paypal");
    let mut other = servers.b.connect();
    for name in ["paypal", "paypa1"] {
        other.say(json!({ "type": "login", "user": name }));
        let refused = other.hear_one();
        assert_eq!(
            (&refused["type"], &refused["code"]),
            (&json!("error"), &json!("name_taken")),
            "{refused}"
        );
        assert!(refused["message"].as_str().unwrap().contains("paypal"), "{refused}");
    }
    other.say(json!({ "type": "ping" }));
    assert_eq!(other.hear_one()["type"], "pong");
    drop(ann);
    other.say(json!({ "type": "login", "user": "paypa1" }));
    assert_eq!(other.hear_one()["type"], "welcome");
    let mut again = servers.a.connect();
    again.say(json!({ "type": "login", "user": "paypal" }));
    assert_eq!(again.hear_error().0, "name_taken");
}

#[test]
fn a_client_that_resumes_at_another_server_replaces_its_session() {
    let servers = Servers::new();
    let (mut ann, token) = log_in(&servers.a, "ann");
    let mut bob = servers.a.login("bob");
    ann.join("lobby");
    bob.join("lobby");
    servers.announce();
    ann.hear();
    bob.hear();
    let mut again = servers.b.connect();
    let resume = json!({ "token": token, "rooms": { "lobby": [1, 1] } });
    again.say(json!({ "type": "login", "user": "ann", "resume": resume }));
    let kinds: Vec<_> = again.hear().iter().map(|reply| reply["type"].clone()).collect();
    assert_eq!(kinds, ["welcome", "joined"]);
    ann.hear();
    ann.0.advance(Duration::from_secs(1));
    let bye = ann.hear_one();
    assert_eq!((&bye["type"], &bye["reason"]), (&json!("bye"), &json!("replaced")));
    assert!(ann.0.is_closed());
    drop(ann);
    servers.announce();
    // The user has not left in the meantime.
    bob.hear().iter().for_each(|reply| assert!(reply.get("left").is_none(), "{reply}"));
    assert_eq!(who(&mut bob), members(&["ann", "bob"]));
    bob.direct("ann", 1);
    assert_eq!(again.hear().last(), Some(&psst("bob", 1)));
    again.ack(1);
    assert_eq!(bob.hear_one(), delivered("ann", 1));
    // And back again, while a client without the token does not get the name.
    let mut thief = servers.a.connect();
    thief.say(json!({ "type": "login", "user": "ann" }));
    assert_eq!(thief.hear_error().0, "name_taken");
    let mut back = servers.a.connect();
    back.say(json!({ "type": "login", "user": "ann", "resume": { "token": token } }));
    assert_eq!(back.hear_one()["type"], "welcome");
    again.hear();
    again.0.advance(Duration::from_secs(1));
    assert_eq!(again.hear_one()["reason"], "replaced");
}

#[test]
fn a_client_that_resumes_while_the_store_is_closed_is_busy_and_keeps_its_session() {
    let servers = Servers::new();
    let (mut ann, token) = log_in(&servers.b, "ann");
    ann.join("lobby");
    ann.hear();
    servers.topics_of_b.close().detach();
    let _eve = servers.a.login("ann");
    let mut again = resume(&servers.b, "ann", &token, json!({}));
    assert_eq!(again.hear_error().0, "busy");
    ann.say(json!({ "type": "ping" }));
    assert_eq!(ann.hear_one()["type"], "pong");
    assert_eq!(servers.b.hub.profile("ann").rooms, ["lobby"]);
}

#[test]
fn a_client_that_comes_back_before_its_server_knows_that_it_was_away_has_its_name() {
    let store = MemoryBroker::new();
    let (faulty, _, a) = faulty(&store, "a");
    let b = World::on(topics_on(store, "b"), "b");
    let (mut ann, token) = log_in(&a, "ann");
    faulty.set_events(Events::Hold);
    let mut away = resume(&b, "ann", &token, json!({}));
    assert_eq!(kinds(&away.hear()), ["welcome"]);
    let mut back = resume(&a, "ann", &token, json!({}));
    faulty.release_reversed();
    wait_until("the name is granted again", || {
        back.0.advance(SECOND);
        kinds(&back.hear()) == ["welcome"]
    });
    for earlier in [&mut ann, &mut away] {
        earlier.hear();
        earlier.0.advance(SECOND);
        assert_eq!(earlier.hear_one()["reason"], "replaced");
    }
    back.0.advance(SECOND);
    back.direct("ann", 1);
    assert_eq!(back.hear_one(), psst("ann", 1));
}

#[test]
fn a_client_that_leaves_while_the_store_is_asked_leaves_nothing_behind() {
    let store = MemoryBroker::new();
    let (faulty, _, a) = faulty(&store, "a");
    let b = World::on(topics_on(store, "b"), "b");
    let ((mut ann, token), mut cy) = (log_in(&a, "ann"), a.login("cy"));
    faulty.hold_changes();
    let mut again = resume(&a, "ann", &token, json!({}));
    let mut dan = a.connect();
    dan.say(json!({ "type": "login", "user": "dan" }));
    for client in [&mut again, &mut dan] {
        client.hear_nothing();
    }
    // The earlier session has the name until it is granted to the other one, or after that has
    // gone.
    cy.direct("ann", 1);
    assert_eq!(ann.hear_one(), psst("cy", 1));
    drop((again, dan));
    faulty.release_changes();
    wait_until("the other name is free", || {
        let mut dan = b.connect();
        dan.say(json!({ "type": "login", "user": "dan" }));
        dan.0.advance(SECOND);
        kinds(&dan.hear()) == ["welcome"]
    });
    cy.direct("ann", 2);
    assert_eq!(ann.hear_one(), psst("cy", 2));
    let mut eve = b.connect();
    eve.say(json!({ "type": "login", "user": "ann" }));
    assert_eq!(eve.hear_error().0, "name_taken");
    ann.leave();
    drop(ann);
    wait_until("the name is free", || {
        eve.say(json!({ "type": "login", "user": "ann" }));
        kinds(&eve.hear()) == ["welcome"]
    });
}

#[test]
fn a_name_that_is_lost_before_its_grant_is_noticed_ends_the_session() {
    let servers = Servers::new();
    let mut client = servers.a.login("other");
    let (hub, session) = (&servers.a.hub, servers.a.hub.find("other").unwrap());
    let (claim, who) = (hub.new_claim(), session.channel().id());
    hub.log_in("ann", Login { session, who, claim, since: 0 }).ok().unwrap();
    let granted = done(hub.names.take("ann", claim, 0, false));
    assert!(granted.as_ref().is_ok_and(Option::is_some));
    let taken: Option<Position> = done(servers.b.hub.names.take("ann", claim, 1, false)).unwrap();
    assert!(taken.is_some());
    assert!(hub.name_answered("ann", claim, granted).0.is_some());
    client.hear();
    client.0.advance(SECOND);
    assert_eq!(client.hear_one()["reason"], "replaced");
}

#[test]
fn the_time_limit_of_a_login_holds_while_the_store_is_asked() {
    let Servers { b, topics_of_b, .. } = Servers::new();
    let b = b.settings(session::Settings { login_timeout: SECOND, ..SETTINGS });
    let names = topics_of_b.map("users").open().unwrap();
    for is_free in [false, true] {
        assert!(names.hold("bob", "", None).wait().unwrap().is_some());
        let mut bob = b.connect();
        bob.say(json!({ "type": "login", "user": "bob" }));
        bob.0.advance(SECOND + SECOND / 2);
        bob.hear_nothing();
        if is_free {
            assert!(names.release("bob").wait().unwrap());
        }
        bob.0.advance(60 * SECOND);
        let replies = bob.hear();
        if is_free {
            assert_eq!(kinds(&replies), ["welcome"]);
        } else {
            assert_eq!((kinds(&replies), &replies[1]["reason"]), (vec!["error", "bye"], &json!("too_slow")));
        }
    }
}

#[test]
fn a_name_whose_release_is_refused_is_released_later() {
    let store = MemoryBroker::new();
    let (faulty, topics, a) = faulty(&store, "a");
    let b = World::on(topics_on(store, "b"), "b");
    let mut ann = a.login("ann");
    fill(&faulty, &topics.map("users").open().unwrap());
    ann.leave();
    drop(ann);
    faulty.release_changes();
    wait_until("the name is free", || {
        a.hub.tick();
        let mut ann = b.connect();
        ann.say(json!({ "type": "login", "user": "ann" }));
        kinds(&ann.hear()) == ["welcome"]
    });
}

#[test]
fn a_token_does_not_take_a_name_from_another_client() {
    let servers = Servers::new();
    let (mut ann, token) = log_in(&servers.a, "ann");
    ann.leave();
    drop(ann);
    let _other = servers.a.login("ann");
    let mut late = servers.b.connect();
    late.say(json!({ "type": "login", "user": "ann", "resume": { "token": token } }));
    assert_eq!(late.hear_error().0, "name_taken");
}

#[test]
fn a_login_waits_for_a_name_that_is_about_to_be_released() {
    let servers = Servers::new();
    let names = servers.topics_of_b.map("users").open().unwrap();
    assert!(names.hold("ann", "", None).wait().unwrap().is_some());
    let mut ann = servers.b.connect();
    ann.say(json!({ "type": "login", "user": "ann" }));
    ann.say(json!({ "type": "ping" }));
    ann.hear_nothing();
    assert!(names.release("ann").wait().unwrap());
    ann.0.advance(Duration::from_secs(1));
    let kinds: Vec<_> = ann.hear().iter().map(|reply| reply["type"].clone()).collect();
    assert_eq!(kinds, ["welcome", "pong"]);
    // A name that is not released is refused in the end.
    assert!(names.hold("bob", "", None).wait().unwrap().is_some());
    let mut bob = servers.b.connect();
    bob.say(json!({ "type": "login", "user": "bob" }));
    bob.hear_nothing();
    bob.0.advance(Duration::from_secs(60));
    assert_eq!(bob.hear_error().0, "name_taken");
    bob.say(json!({ "type": "login", "user": "cy" }));
    assert_eq!(bob.hear_one()["type"], "welcome");
    // A client that leaves while it waits leaves nothing behind.
    let mut late = servers.b.connect();
    late.say(json!({ "type": "login", "user": "bob" }));
    late.hear_nothing();
    drop(late);
    assert!(names.release("bob").wait().unwrap());
    servers.a.login("bob");
}

#[test]
fn a_server_that_is_started_again_has_the_names_of_its_earlier_process() {
    let servers = Servers::new();
    let _ann = servers.b.login("ann");
    let again = World::on(topics_on(servers.store.clone(), "b"), "b");
    let mut ann = again.login("ann");
    ann.direct("ann", 1);
    assert_eq!(ann.hear_one(), psst("ann", 1));
}

#[test]
fn the_names_and_members_of_a_server_that_ends_are_free() {
    let servers = Servers::new();
    let (mut ann, mut bob) = (servers.a.login("ann"), servers.b.login("bob"));
    ann.join("lobby");
    bob.join("lobby");
    servers.announce();
    ann.hear();
    bob.hear();
    assert_eq!(who(&mut ann), members(&["ann", "bob"]));
    servers.topics_of_b.close().detach();
    servers.announce();
    assert_eq!(ann.hear(), [json!({ "type": "presence", "room": "lobby", "left": ["bob"] })]);
    assert_eq!(who(&mut ann), members(&["ann"]));
    servers.a.login("bob");
}

#[test]
fn a_lookup_finds_users_of_all_servers() {
    let servers = Servers::new();
    let (mut ann, mut bob) = (servers.a.login("ann"), servers.b.login("bob"));
    ann.join("lobby");
    for room in ["lobby", "den"] {
        bob.join(room);
    }
    ann.hear();
    ann.say(json!({ "type": "lookup", "user": "bob" }));
    let profile = ann.hear_one();
    // Rooms without members of the asking server are not known there.
    let expected = json!({ "type": "profile", "user": "bob", "online": true, "rooms": ["lobby"] });
    assert_eq!(profile, expected);
}

#[test]
fn a_member_that_another_server_has_shown_is_shown_again() {
    let servers = Servers::new();
    let (mut ann, mut bob) = (servers.a.login("ann"), servers.b.login("bob"));
    ann.join("lobby");
    bob.join("lobby");
    ann.hear();
    bob.hear();
    let third = topics_on(servers.store.clone(), "third").map("presence/lobby").open().unwrap();
    assert!(third.hold("ann", "", None).wait().unwrap().is_some());
    servers.a.hub.rooms.tick(Instant::now(), &servers.a.hub);
    assert!(third.holds("ann"), "the user may be there");
    servers.a.hub.rooms.tick(Instant::now() + Duration::from_secs(2), &servers.a.hub);
    assert!(!third.release("ann").wait().unwrap());
    assert_eq!(who(&mut bob), members(&["ann", "bob"]));
}

#[test]
fn a_member_whose_earlier_session_closes_slowly_does_not_leave() {
    let servers = Servers::new();
    let c = World::on(topics_on(servers.store.clone(), "c"), "c");
    let ((mut ann, token), mut bob) = (log_in(&servers.a, "ann"), c.login("bob"));
    ann.join("lobby");
    bob.join("lobby");
    ann.hear();
    c.announce();
    bob.hear();
    let mut again = resume(&servers.b, "ann", &token, json!({ "lobby": [1, 1] }));
    assert_eq!(kinds(&again.hear()), ["welcome", "joined"]);
    let now = Instant::now();
    ann.0.set_outbound_room(Some(0));
    ann.hear();
    ann.0.advance(SECOND);
    assert!(!ann.0.is_closed(), "the bye is queued");
    servers.a.hub.rooms.tick(now + 2 * SECOND, &servers.a.hub);
    ann.0.fail_inbound(std::io::ErrorKind::ConnectionReset.into());
    drop(ann);
    c.announce();
    bob.hear().iter().for_each(|reply| assert!(reply.get("left").is_none(), "{reply}"));
    assert_eq!(who(&mut bob), members(&["ann", "bob"]));
}

#[test]
fn a_member_of_a_later_room_with_the_name_stays_shown() {
    let servers = Servers::new();
    let (mut ann, mut bob) = (servers.a.login("ann"), servers.b.login("bob"));
    let hub = &servers.a.hub;
    let (user, channel) = ("ann".into(), hub.find("ann").unwrap().channel().id());
    ann.join("lobby");
    let first = hub.rooms.find("lobby").unwrap();
    ann.say(json!({ "type": "leave", "room": "lobby" }));
    ann.join("lobby");
    // The thread of the first leave continues only now.
    hub.rooms.leave(&first, &user, channel, hub);
    assert_eq!(who(&mut bob), members(&["ann"]));
    // And a member whose room is empty by now.
    ann.say(json!({ "type": "leave", "room": "lobby" }));
    hub.rooms.leave(&first, &user, channel, hub);
    assert_eq!(who(&mut bob), members(&[]));
}

#[test]
fn a_map_of_members_that_cannot_be_opened_is_logged_once() {
    logs::collect();
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    // The names, the messages to this server, and those of the room.
    let topics = Topics::builder(&group, MemoryBroker::new()).node("a").max_topics(3).build().unwrap();
    let a = World::on(topics, "a");
    let mut members = ["ann", "bob"].map(|user| a.login(user));
    for member in &mut members {
        member.join("unshown");
        assert_eq!(kinds(&member.hear()), ["joined"]);
    }
    let now = Instant::now();
    (1..5).for_each(|n| a.hub.rooms.tick(now + 2 * n * SECOND, &a.hub));
    assert_eq!(logs::lines_with("the members of unshown").len(), 1);
}

#[test]
fn a_member_whose_removal_is_refused_is_removed_later() {
    let store = MemoryBroker::new();
    let (faulty, topics, a) = faulty(&store, "a");
    let b = World::on(topics_on(store, "b"), "b");
    let (mut ann, mut bob, mut cy) = (a.login("ann"), a.login("bob"), b.login("cy"));
    for client in [&mut ann, &mut bob, &mut cy] {
        client.join("lobby");
        client.hear();
    }
    fill(&faulty, &topics.map("presence/lobby").open().unwrap());
    ann.leave();
    drop(ann);
    faulty.release_changes();
    assert_eq!(who(&mut cy), members(&["ann", "bob", "cy"]));
    wait_until("the other server knows it", || {
        a.hub.rooms.tick(Instant::now() + 2 * SECOND, &a.hub);
        who(&mut cy) == members(&["bob", "cy"])
    });
}

// ---- members of rooms -----------------------------------------------------------------------

#[test]
fn the_members_of_a_room_are_those_of_all_servers() {
    let servers = Servers::new();
    let (mut ann, mut bob, mut cy) = (servers.a.login("ann"), servers.b.login("bob"), servers.b.login("cy"));
    bob.join("lobby");
    bob.hear();
    assert_eq!(who(&mut ann), members(&["bob"]), "a room without members of this server");
    ann.join("lobby");
    ann.hear();
    assert_eq!(who(&mut ann), members(&["ann", "bob"]));
    servers.announce();
    let joined = |user: &str| json!({ "type": "presence", "room": "lobby", "joined": [user] });
    assert!(ann.hear().last().is_some_and(|last| last["joined"].as_array().unwrap().contains(&json!("ann"))));
    assert!(bob.hear().last().is_some_and(|last| last["joined"].as_array().unwrap().contains(&json!("ann"))));
    cy.join("lobby");
    servers.announce();
    assert_eq!(ann.hear_one(), joined("cy"));
    cy.say(json!({ "type": "leave", "room": "lobby" }));
    servers.announce();
    let left = json!({ "type": "presence", "room": "lobby", "left": ["cy"] });
    assert_eq!((ann.hear_one(), bob.hear().last()), (left.clone(), Some(&left)));
    bob.leave();
    servers.announce();
    assert_eq!(ann.hear_one(), json!({ "type": "presence", "room": "lobby", "left": ["bob"] }));
    assert_eq!(who(&mut ann), members(&["ann"]));
    // The room of the other server was empty, and is a room like any other.
    cy.hear();
    cy.join("lobby");
    servers.announce();
    assert_eq!(ann.hear_one(), joined("cy"));
    cy.hear();
    assert_eq!(who(&mut cy), members(&["ann", "cy"]));
}

/// Shows members of the lobby at a server without clients.
fn show(servers: &Servers, members: usize) -> (MapTopic, Vec<String>) {
    let map = topics_on(servers.store.clone(), "third").map("presence/lobby").open().unwrap();
    let users: Vec<String> = (0..members).map(|n| format!("user-{n:05}")).collect();
    for user in &users {
        assert!(map.hold(user.clone(), "", None).wait().unwrap().is_some());
    }
    (map, users)
}

#[test]
fn members_of_other_servers_count_in_a_large_room() {
    let servers = Servers::new();
    let mut ann = servers.a.login("ann");
    ann.join("lobby");
    servers.announce();
    ann.hear();
    let (map, users) = show(&servers, 1000);
    servers.announce();
    let counted = |count: usize| json!({ "type": "presence", "room": "lobby", "count": count });
    assert_eq!(ann.hear_one(), counted(1001));
    users[..251].iter().for_each(|user| assert!(map.release(user.clone()).wait().unwrap()));
    servers.announce();
    assert_eq!(ann.hear_one(), counted(750));
    assert!(map.release(users[999].clone()).wait().unwrap());
    servers.announce();
    assert_eq!(ann.hear_one(), json!({ "type": "presence", "room": "lobby", "left": [users[999]] }));
    drop(map);
    (0..3).for_each(|_| servers.announce());
    assert_eq!(ann.hear().len(), 3, "748 names in announcements of 256");
    assert_eq!(who(&mut ann), members(&["ann"]));
}

#[test]
fn the_limit_of_a_room_is_one_of_all_servers() {
    let servers = Servers::new();
    let (mut ann, mut bob) = (servers.a.login("ann"), servers.a.login("bob"));
    let (_map, users) = show(&servers, 10_000);
    // The server does not know the others before it has a member itself.
    ann.join("lobby");
    assert_eq!(ann.hear_one()["type"], "joined");
    bob.join("lobby");
    let full = bob.hear_one();
    assert_eq!((&full["code"], &full["message"]), (&json!("bad_request"), &json!("lobby is full")));
    assert_eq!(who(&mut bob)["users"].as_array().unwrap().len(), 1 + users.len());
}

#[test]
fn a_message_without_a_server_is_read() {
    let servers = Servers::new();
    let message = json!({ "from": "ann", "text": "hello", "ts": 1_800_000_000_000_u64 });
    let topic = TopicName::new("room/lobby").unwrap();
    done(servers.topics_of_b.broker().publish(Publication::new(topic, message.to_string().into()))).unwrap();
    let mut bob = servers.a.login("bob");
    bob.say(json!({ "type": "join", "room": "lobby", "history": 10 }));
    let message = json!({ "type": "message", "room": "lobby", "from": "ann", "text": "hello" });
    assert_eq!(bob.hear().last(), Some(&message));
}

// ---- costs ----------------------------------------------------------------------------------

#[test]
fn a_login_costs_the_client_as_much_as_other_requests_to_the_store() {
    let Servers { a, b, topics_of_b, .. } = Servers::new();
    let rates = pace::Rates { requests: 10, deliveries: 0, congestion: Duration::ZERO };
    let b = b.settings(session::Settings { rates, ..SETTINGS });
    let (_ann, _bob) = (a.login("ann"), b.login("bob"));
    // A burst is 20, and one request may exceed it.
    for (name, answered) in [("ann", 5), ("bob", 21)] {
        let mut client = b.connect();
        for _ in 0..50 {
            client.say(json!({ "type": "login", "user": name }));
        }
        assert_eq!(client.hear().len(), answered, "{name}");
    }
    // Each of ten attempts costs 4 more.
    let names = topics_of_b.map("users").open().unwrap();
    assert!(names.hold("cy", "", None).wait().unwrap().is_some());
    let mut cy = b.connect();
    cy.say(json!({ "type": "login", "user": "cy" }));
    cy.0.advance(2 * SECOND);
    assert_eq!(cy.hear_error().0, "name_taken");
    cy.say(json!({ "type": "ping" }));
    cy.hear_nothing();
    cy.0.advance(2 * SECOND);
    assert_eq!(kinds(&cy.hear()), ["pong"]);
}

#[test]
fn a_login_and_a_join_are_one_operation_of_the_store_each() {
    let topics = topics_on(MemoryBroker::new(), "a");
    let world = World::on(topics.clone(), "a");
    let operations = || topics.metrics().map_updates;
    let (mut ann, token) = log_in(&world, "ann");
    assert_eq!(operations(), 1);
    ann.join("lobby");
    ann.hear();
    assert_eq!(operations(), 2);
    ann.direct("ann", 1);
    assert_eq!((ann.hear_one(), operations()), (psst("ann", 1), 2));
    // The client may have been at another server in the meantime.
    let mut again = resume(&world, "ann", &token, json!({}));
    assert_eq!((again.hear_one()["type"].clone(), operations()), (json!("welcome"), 3));
}
