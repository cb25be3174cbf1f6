//! Direct messages that are kept for users that are not connected to any server of a store, and
//! their outcomes.

use crate::{
    examples::im_nodes::Redis,
    faulty::Faulty,
    im::{
        later::{
            Kept, KeptId, Later,
            mailbox::{End, Mailbox, Next, Removed},
        },
        *,
    },
    im_process::Member,
    support::{
        line_client::LineClient,
        loops::{end, one_loop},
        wait::{HOUR, SECOND, done, wait_until},
    },
};
use netwheel::{
    EventLoopGroup,
    broker::{
        MapTopic, MemoryBroker, Position, TopicName, Topics,
        store::{MapChange, MapUpdate},
    },
    durable::{Due, DurableTimers, Late, MemoryDisk, Retry, Topic},
    testing::ManualClock,
    time::{Clock, default_clock},
};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant, SystemTime},
};

/// Servers of one store, which keep messages.
struct Servers {
    store: MemoryBroker,
    a: Server,
    b: Server,
}

struct Server {
    world: World,
    later: Arc<Later>,
    _group: EventLoopGroup,
}

impl Server {
    fn new(store: &MemoryBroker, node: &str, expiry: Duration, timers: &MemoryDisk) -> Self {
        Self::on(topics_on(store.clone(), node), node, expiry, default_clock(), timers)
    }

    fn on(topics: Topics, node: &str, expiry: Duration, clock: Arc<dyn Clock>, timers: &MemoryDisk) -> Self {
        let (world, group) = (World::on(topics, node), one_loop());
        let later = Later::start_on(timers.open().unwrap(), expiry, clock, &world.hub, &group).unwrap();
        world.hub.set_later(later.clone());
        Server { world, later, _group: group }
    }

    /// Logs in. Returns the client, and what follows the `welcome`.
    fn log_in(&self, user: &str) -> (Client, Vec<Value>) {
        let mut client = self.world.connect();
        client.say(json!({ "type": "login", "user": user }));
        let mut replies = client.hear();
        assert_eq!(replies.remove(0)["type"], "welcome");
        (client, replies)
    }

    fn tick(&self) {
        self.later.tick(&self.world.hub);
    }
}

impl Servers {
    fn new(expiry: Duration) -> Self {
        Self::at(default_clock(), expiry)
    }

    /// Creates servers on which messages expire by a clock.
    fn at(clock: Arc<dyn Clock>, expiry: Duration) -> Self {
        let store = MemoryBroker::new();
        let [a, b] = ["a", "b"].map(|node| {
            let topics = topics_on(store.clone(), node);
            Server::on(topics, node, expiry, clock.clone(), &MemoryDisk::new())
        });
        Servers { store, a, b }
    }

    /// Returns the map of messages at a third node.
    fn map(&self) -> MapTopic {
        let map = topics_on(self.store.clone(), "third").map("mail").open().unwrap();
        done(map.ready()).unwrap();
        map
    }
}

/// Sends a direct message to a user that is not connected.
#[track_caller]
fn keep(client: &mut Client, to: &str, id: impl Into<Value>) {
    client.direct(to, id);
    let kept = client.hear_one();
    assert_eq!((&kept["type"], &kept["to"]), (&json!("kept"), &json!(to)), "{kept}");
}

// ---- servers in one process -----------------------------------------------------------------

#[test]
fn a_message_is_delivered_at_the_server_of_the_login() {
    let servers = Servers::new(HOUR);
    let (mut ann, _) = servers.a.log_in("ann");
    keep(&mut ann, "bob", 1);
    keep(&mut ann, "bob", 2);
    let (mut bob, messages) = servers.b.log_in("bob");
    assert_eq!(messages, [psst("ann", 1), psst("ann", 2)]);
    bob.ack(1);
    assert_eq!(ann.hear_one(), delivered("bob", 1));
    bob.leave();
    drop(bob);
    // What was not acknowledged follows at any server.
    let (mut bob, messages) = servers.a.log_in("bob");
    assert_eq!(messages, [psst("ann", 1)]);
    bob.ack(1);
    assert_eq!(ann.hear_one(), delivered("bob", 2));
    bob.leave();
    drop(bob);
    let (mut bob, messages) = servers.b.log_in("bob");
    assert_eq!(messages, [] as [Value; 0]);
    assert!(servers.map().is_empty());
    // One for a user that logs in while it is stored is delivered at once.
    let message = json!({
        "id": { "number": 1, "server": 9 }, "to": "bob", "expires": u64::MAX,
        "content": { "direct": { "from": "cy", "text": "psst", "ts": 1_800_000_000_000_u64, "id": null } },
    });
    done(servers.map().set("bob/0000000000000001-0000000000000009", message.to_string())).unwrap();
    assert_eq!(bob.hear_one(), psst("cy", 1));
    // Others are ignored.
    for (key, value) in [("bob/2", message.to_string()), ("bob/3", "bob".to_owned())] {
        done(servers.map().set(key, value)).unwrap();
    }
    bob.hear_nothing();
}

#[test]
fn a_message_that_was_sent_to_an_earlier_connection_follows_on_the_next_one() {
    let servers = Servers::new(HOUR);
    let (mut ann, _) = servers.a.log_in("ann");
    keep(&mut ann, "bob", 1);
    let mut bob = servers.a.world.connect();
    bob.say(json!({ "type": "login", "user": "bob" }));
    bob.0.run_pending();
    let lines = bob.0.read_outbound();
    let lines: Vec<Value> = serde_json::Deserializer::from_slice(&lines).into_iter().flatten().collect();
    let [welcome, direct] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(direct["text"], "psst");
    // The earlier connection is still open at the login.
    let mut again = servers.a.world.connect();
    let resume = json!({ "token": welcome["resume_token"] });
    again.say(json!({ "type": "login", "user": "bob", "resume": resume }));
    assert_eq!(again.hear_one()["type"], "welcome");
    bob.hear();
    assert!(bob.0.is_closed());
    assert_eq!(again.hear_one(), psst("ann", 1));
    again.ack(1);
    assert_eq!(ann.hear_one(), delivered("bob", 1));
}

#[test]
fn a_sender_whose_loop_has_too_many_tasks_does_not_miss_an_outcome() {
    let servers = Servers::new(HOUR);
    let (mut ann, _) = servers.a.log_in("ann");
    keep(&mut ann, "bob", 1);
    let (mut bob, _) = servers.b.log_in("bob");
    let channel = ann.0.channel();
    while channel.execute(|_| Ok(())).is_ok() {}
    bob.ack(1);
    assert_eq!(ann.hear_one(), delivered("bob", 1));
}

#[test]
fn an_outcome_is_behind_the_answer_of_the_store() {
    let store = MemoryBroker::new();
    let faulty = Faulty::new(&store, one_loop().next());
    let topics = topics_on(faulty.clone(), "a");
    let a = Server::on(topics, "a", HOUR, default_clock(), &MemoryDisk::new());
    let b = Server::new(&store, "b", HOUR, &MemoryDisk::new());
    let (mut ann, _) = a.log_in("ann");
    faulty.hold_change_answers();
    ann.direct("bob", 1);
    let (mut bob, messages) = b.log_in("bob");
    assert_eq!(messages, [psst("ann", 1)]);
    bob.ack(1);
    ann.hear_nothing();
    faulty.release_change_answers();
    let mut outcomes = Vec::new();
    wait_until("both are there", || {
        outcomes.extend(ann.hear());
        outcomes.len() == 2
    });
    assert_eq!((&outcomes[0]["type"], &outcomes[1..]), (&json!("kept"), &[delivered("bob", 1)][..]));
}

#[test]
fn the_outcome_finds_the_sender_at_its_server_of_that_time() {
    let servers = Servers::new(HOUR);
    let (mut ann, _) = servers.a.log_in("ann");
    keep(&mut ann, "bob", "mine");
    keep(&mut ann, "cy", "next");
    ann.leave();
    drop(ann);
    let (mut ann, _) = servers.b.log_in("ann");
    let (mut bob, _) = servers.a.log_in("bob");
    bob.ack(1);
    assert_eq!(ann.hear_one(), delivered("bob", "mine"));
    ann.leave();
    drop(ann);
    let (mut cy, _) = servers.a.log_in("cy");
    cy.ack(1);
    let (mut ann, messages) = servers.a.log_in("ann");
    assert_eq!(messages, [] as [Value; 0], "no user was notified");
    ann.hear_nothing();
}

/// Returns a clock that begins now, and stands still.
fn stopped_clock() -> ManualClock {
    let clock = ManualClock::new();
    clock.set_wall_time(SystemTime::now());
    clock
}

#[test]
fn an_expiry_is_reported_once_and_at_the_other_server() {
    let clock = stopped_clock();
    let servers = Servers::at(Arc::new(clock.clone()), HOUR);
    let (mut ann, _) = servers.a.log_in("ann");
    keep(&mut ann, "bob", 7);
    ann.leave();
    drop(ann);
    let (mut ann, _) = servers.b.log_in("ann");
    clock.advance(HOUR - Duration::from_millis(1));
    servers.a.tick();
    ann.hear_nothing();
    clock.advance(Duration::from_millis(1));
    servers.a.tick();
    assert_eq!(ann.hear_error(), refused("expired", 7));
    servers.b.tick();
    ann.hear_nothing();
}

#[test]
fn an_acknowledgement_and_an_expiry_at_the_same_time_are_reported_once() {
    for n in 0..60 {
        let clock = stopped_clock();
        let servers = Servers::at(Arc::new(clock.clone()), HOUR);
        let (mut ann, _) = servers.a.log_in("ann");
        keep(&mut ann, "bob", 1);
        let (mut bob, messages) = servers.b.log_in("bob");
        assert_eq!(messages, [psst("ann", 1)]);
        clock.advance(HOUR);
        let expected = match n % 3 {
            0 => {
                bob.ack(1);
                servers.a.tick();
                Some("delivered")
            }
            1 => {
                servers.a.tick();
                bob.ack(1);
                Some("error")
            }
            _ => {
                let barrier = Barrier::new(2);
                let (later, hub) = (servers.a.later.clone(), servers.a.world.hub.clone());
                thread::scope(|scope| {
                    scope.spawn(|| {
                        barrier.wait();
                        later.tick(&hub);
                    });
                    barrier.wait();
                    bob.ack(1);
                });
                None
            }
        };
        let mut outcomes = Vec::new();
        wait_until("the message has ended", || {
            servers.a.tick();
            servers.b.tick();
            outcomes = ann.hear();
            !outcomes.is_empty()
        });
        assert_eq!(outcomes.len(), 1, "{outcomes:?}");
        assert!(expected.is_none_or(|expected| outcomes[0]["type"] == *expected), "{n}: {outcomes:?}");
        servers.b.tick();
        ann.hear_nothing();
        assert!(servers.map().is_empty());
    }
}

#[test]
fn a_server_without_its_lease_sends_kept_messages_when_the_next_one_begins() {
    // A server that was stopped may not notice the end of its lease.
    for is_noticed in [true, false] {
        let store = MemoryBroker::new();
        let leased = Leased::new(&store, "b");
        let b = Server::on(leased.topics.clone(), "b", HOUR, default_clock(), &MemoryDisk::new());
        let (mut bob, _) = b.log_in("bob");
        b.tick();
        leased.end_lease();
        let message = json!({
            "id": { "number": 1, "server": 9 }, "to": "bob", "expires": u64::MAX,
            "content": { "direct": { "from": "cy", "text": "psst", "ts": 1_800_000_000_000_u64, "id": null } },
        });
        let map = topics_on(store, "third").map("mail").open().unwrap();
        done(map.set("bob/0000000000000001-0000000000000009", message.to_string())).unwrap();
        let replica = leased.topics.map("mail").open().unwrap();
        wait_until("the server has the message", || !replica.is_empty());
        if is_noticed {
            b.tick();
        }
        bob.hear_nothing();
        leased.begin_lease();
        bob.hear_nothing();
        b.tick();
        assert_eq!(bob.hear_one(), psst("cy", 1));
    }
}

#[test]
fn a_message_that_another_server_has_ended_is_not_reported() {
    let servers = Servers::new(HOUR);
    let (mut ann, _) = servers.a.log_in("ann");
    keep(&mut ann, "bob", 1);
    let (mut bob, messages) = servers.b.log_in("bob");
    assert_eq!(messages.len(), 1);
    let map = servers.map();
    let entry = map.entries().remove(0);
    assert!(done(map.remove(entry.key)).unwrap());
    bob.ack(1);
    ann.hear_nothing();
}

#[test]
fn an_acknowledged_message_that_comes_back_is_not_delivered_again() {
    let servers = Servers::new(HOUR);
    let (mut ann, _) = servers.a.log_in("ann");
    keep(&mut ann, "bob", 1);
    let map = servers.map();
    let entry = map.entries().remove(0);
    let (mut bob, _) = servers.b.log_in("bob");
    bob.ack(1);
    assert_eq!(ann.hear_one(), delivered("bob", 1));
    // The store has lost the removal.
    done(map.set(entry.key, entry.value)).unwrap();
    bob.hear_nothing();
    servers.b.tick();
    assert!(map.is_empty());
    ann.hear_nothing();
}

#[test]
fn limits_hold_for_the_messages_of_all_servers() {
    let servers = Servers::new(HOUR);
    let ((mut ann, _), (mut eve, _)) = (servers.a.log_in("ann"), servers.b.log_in("eve"));
    for n in 0..50 {
        keep(&mut ann, "bob", n);
        keep(&mut eve, "bob", n);
    }
    for client in [&mut ann, &mut eve] {
        client.direct("bob", "more");
        assert_eq!(client.hear_error(), refused("undelivered", "more"), "to one user");
    }
    for n in 0..50 {
        keep(&mut ann, "cy", n);
    }
    ann.leave();
    drop(ann);
    let (mut ann, _) = servers.b.log_in("ann");
    ann.direct("dan", "more");
    assert_eq!(ann.hear_error(), refused("undelivered", "more"), "from one user");
    keep(&mut eve, "dan", "other");
    // They end at another server, and others are kept in their place.
    let (mut cy, messages) = servers.a.log_in("cy");
    assert_eq!(messages.len(), SETTINGS.max_unacked);
    cy.ack(1);
    assert_eq!(ann.hear_one(), delivered("cy", 0));
    keep(&mut ann, "dan", "more");
}

#[test]
fn the_map_has_a_limit_for_all_messages_and_reminders() {
    let servers = Servers::new(HOUR);
    let third = topics_on(servers.store.clone(), "third");
    for user in 0..20 {
        let reminders = (0..1000).map(|n| {
            let content = json!({ "reminder": { "text": "tea", "due": 1 } });
            let (id, to) = (json!({ "number": n, "server": 9 }), format!("user-{user}"));
            let kept = json!({ "id": id, "to": to, "expires": u64::MAX, "content": content });
            MapChange::set(format!("{to}/{n:016x}-{:016x}", 9), kept.to_string())
        });
        let update = MapUpdate::new(TopicName::new("mail").unwrap(), reminders.collect());
        assert!(done(third.broker().change(update)).unwrap().made.iter().all(|made| *made));
    }
    let (mut ann, _) = servers.a.log_in("ann");
    ann.direct("bob", 1);
    assert_eq!(ann.hear_error(), refused("undelivered", 1));
    let (mut user, reminders) = servers.b.log_in("user-7");
    assert_eq!(reminders.len(), SETTINGS.max_unacked);
    user.ack(1);
    keep(&mut ann, "bob", 2);
    // Reminders of the user that are kept count among those of the user.
    user.hear();
    user.say(json!({ "type": "remind", "in": "1h", "text": "more", "id": 3 }));
    assert_eq!(user.hear_error(), refused("too_many_reminders", 3));
}

#[test]
fn a_reminder_that_is_kept_already_is_kept_once() {
    let (store, disk, group) = (MemoryBroker::new(), MemoryDisk::new(), one_loop());
    // The server was killed between the two steps.
    let topic = Topic::new("remind", Late::RunOnce, Retry::never(), |due: Due<Value>| due.done());
    let timers = DurableTimers::builder(disk.open().unwrap()).topic(topic).paused().start(&group).unwrap();
    let reminder = json!({ "number": 5, "server": 9, "user": "bob", "text": "tea", "due": 1 });
    done(timers.at("remind", Duration::ZERO, &reminder).start()).unwrap();
    done(timers.close()).unwrap();
    let kept = json!({
        "id": { "number": 5, "server": 9 }, "to": "bob", "expires": u64::MAX,
        "content": { "reminder": { "text": "tea", "due": 1 } },
    });
    let map = topics_on(store.clone(), "third").map("mail").open().unwrap();
    done(map.set("bob/0000000000000005-0000000000000009", kept.to_string())).unwrap();

    let a = Server::new(&store, "a", HOUR, &disk);
    let (mut bob, messages) = a.log_in("bob");
    assert_eq!(messages, [json!({ "type": "reminder", "reminder": 5, "text": "tea", "due": 1, "id": 1 })]);
    bob.ack(1);
    assert!(map.is_empty());
    assert_eq!(a.later.timers().metrics().pending, 0);
    bob.hear_nothing();
}

#[test]
fn a_reminder_without_a_server_is_read() {
    let (disk, group) = (MemoryDisk::new(), one_loop());
    let topic = Topic::new("remind", Late::RunOnce, Retry::never(), |due: Due<Value>| due.done());
    let timers = DurableTimers::builder(disk.open().unwrap()).topic(topic).paused().start(&group).unwrap();
    let reminder = json!({ "number": 5, "user": "bob", "text": "tea", "due": 1 });
    done(timers.at("remind", HOUR, &reminder).start()).unwrap();
    done(timers.close()).unwrap();
    let a = Server::new(&MemoryBroker::new(), "a", HOUR, &disk);
    let (mut bob, _) = a.log_in("bob");
    bob.say(json!({ "type": "reminders" }));
    let own = json!({ "reminder": 5, "due": 1, "text": "tea" });
    assert_eq!(bob.hear_one(), json!({ "type": "reminders", "reminders": [own] }));
}

// ---- the index ------------------------------------------------------------------------------

/// A message to "bob".
fn kept(number: u64, expires: u64) -> Kept {
    let content = json!({ "direct": { "from": "ann", "text": "psst", "ts": 1, "id": null } });
    let id = json!({ "number": number, "server": 9 });
    let kept = json!({ "id": id, "to": "bob", "expires": expires, "content": content });
    serde_json::from_value(kept).unwrap()
}

fn id(number: u64) -> KeptId {
    KeptId { number, server: 9 }
}

/// Returns an index with one message.
fn mailbox_with(number: u64) -> Mailbox {
    let mailbox = Mailbox::new();
    assert!(mailbox.arrived(kept(number, 100), Position::new(1, 1), |_| mailbox.count("ann", "bob", 1)));
    mailbox
}

#[test]
fn an_end_without_an_answer_is_reported_when_the_message_is_gone() {
    let now = Instant::now();
    for [is_again, is_gone] in [[false, true], [true, true], [true, false]] {
        let mailbox = mailbox_with(1);
        let removal = mailbox.begin_end("bob", id(1), End::Delivered).unwrap();
        assert!(mailbox.begin_end("bob", id(1), End::Expired).is_none(), "under way");
        assert_eq!(mailbox.end_answered(&removal, Removed::Uncertain), None);
        if !is_again {
            assert_eq!(mailbox.gone(&kept(1, 100)), Some(End::Delivered));
            continue;
        }
        assert_eq!(mailbox.retries(now), [("bob".to_owned(), id(1))]);
        // The end stays what it was.
        let removal = mailbox.begin_end("bob", id(1), End::Expired).unwrap();
        if is_gone {
            assert_eq!(mailbox.gone(&kept(1, 100)), None, "when the answer is there");
        }
        assert_eq!(mailbox.end_answered(&removal, Removed::No), Some(End::Delivered));
        assert!(mailbox.is_known("bob", id(1)));
        assert_eq!(mailbox.expired(u64::MAX), []);
        assert_eq!(mailbox.retries(now + SECOND), []);
    }
}

#[test]
fn an_end_that_has_failed_is_tried_again_and_one_of_another_server_is_not_reported() {
    let (mailbox, now) = (mailbox_with(1), Instant::now());
    let removal = mailbox.begin_end("bob", id(1), End::Delivered).unwrap();
    assert_eq!(mailbox.end_answered(&removal, Removed::Failed), None);
    let due = [("bob".to_owned(), id(1))];
    assert_eq!((mailbox.expired(99), mailbox.expired(100)), (vec![], due.to_vec()), "it has expired, too");
    assert_eq!(mailbox.retries(now), due);
    let removal = mailbox.begin_end("bob", id(1), End::Expired).unwrap();
    assert_eq!(mailbox.end_answered(&removal, Removed::Failed), None);
    assert_eq!(mailbox.retries(now + SECOND / 2), [], "the store may still be away");
    assert_eq!(mailbox.retries(now + SECOND), due);
    let removal = mailbox.begin_end("bob", id(1), End::Expired).unwrap();
    assert_eq!(mailbox.end_answered(&removal, Removed::No), None);
    assert!(matches!(mailbox.next("bob", 1000, 0), Next::Empty), "not sent again");
    assert_eq!(mailbox.gone(&kept(1, 100)), None);
    assert_eq!((mailbox.expired(u64::MAX), mailbox.retries(now + 2 * SECOND)), (vec![], vec![]));
    assert!(!mailbox.is_known("bob", id(1)));
}

#[test]
fn a_message_is_sent_when_its_sender_is_notified_and_until_it_expires() {
    let mailbox = Mailbox::new();
    let shares = mailbox.reserve("ann", "bob", 1).unwrap();
    let own = mailbox.add(kept(1, 100), shares);
    assert!(matches!(mailbox.next("bob", 1000, 0), Next::Empty));
    assert!(!mailbox.arrived(kept(1, 100), Position::new(1, 1), |_| unreachable!("it is counted")));
    assert!(matches!(mailbox.next("bob", 1000, 0), Next::Empty));
    assert!(mailbox.answered(&own, true).is_ready);
    assert_eq!(mailbox.receivers(), ["bob"]);
    assert!(matches!(mailbox.next("bob", 3, 0), Next::TooLarge));
    assert!(matches!(mailbox.next("bob", 1000, 100), Next::Empty), "expired");
    assert!(matches!(mailbox.next("bob", 1000, 99), Next::Message(_)));
    // One that was not stored is not counted any more.
    let shares = mailbox.reserve("ann", "cy", 1).unwrap();
    let mut other = kept(2, 100);
    other.to = "cy".to_owned();
    let other = mailbox.add(other, shares);
    assert!(!mailbox.answered(&other, false).is_ready);
    assert!(!mailbox.is_known("cy", id(2)));
}

#[test]
fn ends_are_remembered_up_to_a_limit() {
    let mailbox = Mailbox::new();
    for number in 0..10_001 {
        mailbox.arrived(kept(number, 100), Position::new(1, 1), |_| mailbox.count("ann", "bob", 1));
        let removal = mailbox.begin_end("bob", id(number), End::Delivered).unwrap();
        assert_eq!(mailbox.end_answered(&removal, Removed::Yes), Some(End::Delivered));
    }
    assert!(!mailbox.is_known("bob", id(0)));
    assert!(mailbox.is_known("bob", id(1)) && mailbox.is_known("bob", id(10_000)));
}

// ---- servers as processes -------------------------------------------------------------------

#[test]
fn kept_messages_outlive_the_server_that_has_kept_them() {
    let Some(redis) = Redis::start() else { return };
    let with_expiry = ["--expiry", "3s"];
    let (a, b) = (redis.node_with("a", &with_expiry), redis.node_with("b", &with_expiry));
    let mut ann = Member::join(&a, "ann");
    for to in ["bob", "cy"] {
        ann.lines.send(&json!({ "type": "direct", "to": to, "text": "psst", "id": to }));
        assert_eq!(ann.lines.wait_for("kept")["to"], to);
    }
    a.kill();
    let mut ann = Member::resume(&b, "ann", &ann.token, ann.at).0.lines;
    let mut bob = b.log_in("bob");
    let message = bob.wait_for("direct");
    assert_eq!((&message["from"], &message["text"]), (&json!("ann"), &json!("psst")));
    bob.send(&json!({ "type": "ack", "id": message["id"] }));
    assert_eq!(ann.wait_for("delivered")["id"], "bob");
    let expired = ann.wait_for("error");
    assert_eq!((&expired["code"], &expired["id"]), (&json!("expired"), &json!("cy")), "{expired}");
    for client in [&mut ann, &mut bob] {
        client.send(&json!({ "type": "ping" }));
        assert_eq!(client.next_but_presence()["type"], "pong");
    }
    b.stop();
}

#[test]
fn a_server_starts_with_more_messages_than_redis_clients_read_by_default() {
    let Some(redis) = Redis::start() else { return };
    let group = one_loop();
    let topics = redis.topics("filler", &group);
    let text = "x".repeat(16_000);
    // 17 MB in all.
    let stored: Vec<_> = (0..22)
        .map(|batch| {
            let additions = (0..50).map(|n| {
                let content = json!({ "direct": { "from": "ann", "text": text, "ts": 1, "id": null } });
                let (id, to) = (json!({ "number": n, "server": batch }), format!("user-{batch}"));
                let kept = json!({ "id": id, "to": to, "expires": u64::MAX, "content": content });
                MapChange::set(format!("{to}/{n:016x}-{batch:016x}"), kept.to_string())
            });
            topics.broker().change(MapUpdate::new(TopicName::new("mail").unwrap(), additions.collect()))
        })
        .collect();
    for stored in stored {
        assert!(done(stored).unwrap().made.iter().all(|made| *made));
    }
    let server = redis.node_with("a", &[]);
    for user in ["user-0", "user-21"] {
        assert_eq!(server.log_in(user).wait_for("direct")["text"], text);
    }
    server.stop();
    done(topics.close()).unwrap();
    end(&group);
}

/// Counts the outcomes of messages by their ids, until each message has one.
fn count_outcomes(client: &mut LineClient, outcomes: &mut [u32]) {
    while outcomes.contains(&0) {
        let line = client.next();
        match line["type"].as_str() {
            Some("kept") => {}
            Some("delivered" | "error") => outcomes[line["id"].as_u64().unwrap() as usize] += 1,
            _ => panic!("{line}"),
        }
    }
}

#[test]
fn each_kept_message_has_one_outcome_whatever_comes_first() {
    let Some(redis) = Redis::start() else { return };
    const MESSAGES: usize = 60;
    let options = ["--expiry", "300ms"];
    let (a, b) = (redis.node_with("a", &options), redis.node_with("b", &options));
    let mut ann = a.log_in("ann");
    for n in 0..MESSAGES {
        let to = format!("bob-{}", n % 6);
        ann.send(&json!({ "type": "direct", "to": to, "text": "psst", "id": n }));
    }
    // Some are acknowledged in time, some too late, and some never arrive.
    let receivers: Vec<LineClient> = (0..6).map(|n| b.log_in(&format!("bob-{n}"))).collect();
    let threads: Vec<_> = receivers
        .into_iter()
        .map(|mut bob| {
            thread::spawn(move || {
                bob.send(&json!({ "type": "ping" }));
                loop {
                    let line = bob.next();
                    match line["type"].as_str() {
                        Some("direct") => bob.send(&json!({ "type": "ack", "id": line["id"] })),
                        Some("pong") => return bob,
                        _ => {}
                    }
                }
            })
        })
        .collect();
    let receivers: Vec<LineClient> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let mut outcomes = [0; MESSAGES + 1];
    count_outcomes(&mut ann, &mut outcomes[..MESSAGES]);
    // A second outcome of one of them would come before that of a later message.
    ann.send(&json!({ "type": "direct", "to": "nobody", "text": "psst", "id": MESSAGES }));
    count_outcomes(&mut ann, &mut outcomes);
    drop(receivers);
    assert_eq!(outcomes, [1; MESSAGES + 1]);
    a.stop();
    b.stop();
}
