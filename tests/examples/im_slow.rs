//! Clients of the chat server that do not read: they are closed and told why, or learn how much they have missed; nobody else
//! notices.

use crate::im::{slow_consumer::SlowConsumer, *};
use serde_json::{Value, json};

/// Bytes that may wait for a client.
const MAX_OUTBOUND: usize = 8000;
/// What is said has so many bytes.
const SIZE: usize = 100;

/// Three in a room: ann talks, bob is slow, cy listens.
struct Room {
    world: World,
    ann: Client,
    bob: Client,
    cy: Client,
    said: usize,
}

impl Room {
    fn new(policy: SlowConsumer) -> Self {
        let world = World::with(policy, MAX_OUTBOUND);
        let mut clients = ["ann", "bob", "cy"].map(|user| {
            let mut client = world.login(user);
            client.join("lobby");
            client
        });
        world.announce();
        clients.iter_mut().for_each(|client| drop(client.hear()));
        let [ann, bob, cy] = clients;
        Room { world, ann, bob, cy, said: 0 }
    }

    /// Ann says so much; she and cy hear it.
    #[track_caller]
    fn talk(&mut self, messages: usize) {
        for _ in 0..messages {
            self.said += 1;
            let text = format!("{:0SIZE$}", self.said);
            self.ann.say(json!({"type": "say", "room": "lobby", "text": text}));
            for other in [&mut self.ann, &mut self.cy] {
                let heard = other.hear();
                assert_eq!(heard.first().and_then(number), Some(self.said), "{heard:?}");
            }
            self.bob.0.run_pending();
        }
    }
}

/// The number of a message, if it is one.
fn number(reply: &Value) -> Option<usize> {
    (reply["type"] == "message").then(|| reply["text"].as_str().unwrap().parse().unwrap())
}

fn missed(count: usize, total: usize) -> Value {
    json!({"type": "missed", "count": count, "total": total})
}

#[test]
fn who_does_not_read_is_closed_and_told_why() {
    let mut room = Room::new(SlowConsumer::Close);
    room.bob.0.set_outbound_room(Some(0));
    room.talk(200);
    assert!(!room.bob.0.is_open());
    room.bob.0.set_outbound_room(None);
    let heard = room.bob.hear();
    let (bye, messages) = heard.split_last().unwrap();
    assert_eq!(*bye, json!({"type": "bye", "reason": "slow_consumer"}));
    let numbers: Vec<_> = messages.iter().map(|reply| number(reply).unwrap()).collect();
    assert!(numbers.iter().copied().eq(1..=numbers.len()), "what waited, without a gap: {numbers:?}");
    assert!(numbers.len() * SIZE <= MAX_OUTBOUND && numbers.len() > 10, "{}", numbers.len());
    assert!(room.bob.0.is_closed());
    room.world.announce();
    let left = json!({"type": "presence", "room": "lobby", "left": ["bob"]});
    assert_eq!(room.ann.hear_one(), left);
    assert_eq!(room.cy.hear_one(), left);
    room.talk(1);
}

#[test]
fn who_misses_messages_learns_how_many() {
    let mut room = Room::new(SlowConsumer::Drop);
    room.talk(1);
    assert_eq!(room.bob.hear().len(), 1, "who keeps up is told nothing");
    let mut total = 0;
    for episode in 0..3 {
        let before = room.said;
        room.bob.0.set_outbound_room(Some(0));
        room.talk(200);
        room.bob.0.set_outbound_room(None);
        let heard = room.bob.hear();
        let (news, messages) = heard.split_last().unwrap();
        let lost = 200 - messages.len();
        total += lost;
        assert_eq!(*news, missed(lost, total), "episode {episode}");
        let numbers = messages.iter().map(|reply| number(reply).unwrap());
        assert!(numbers.eq(before + lost + 1..=room.said), "the newest are there: {messages:?}");
        assert!(lost > 100 && room.bob.0.is_open());
        room.talk(1);
        assert_eq!(room.bob.hear().len(), 1, "told once");
    }
}

#[test]
fn a_total_tells_also_what_a_lost_line_would_have_told() {
    let mut room = Room::new(SlowConsumer::Drop);
    room.bob.0.set_outbound_room(Some(0));
    room.talk(200);
    // So much is read that the rest is below the low water mark: he is told, and what he is told waits behind that.
    let waits = room.bob.0.pending_bytes();
    room.bob.0.set_outbound_room(Some(waits - MAX_OUTBOUND / 8));
    room.bob.0.run_pending();
    let first = room.bob.0.read_outbound();
    assert!(room.bob.0.pending_bytes() > MAX_OUTBOUND / 8, "it waits, too");
    room.bob.0.set_outbound_room(Some(0));
    room.talk(200);
    room.bob.0.set_outbound_room(None);
    room.bob.0.run_pending();
    let lines = [first, room.bob.0.read_outbound()].concat();
    let lines: Vec<Value> =
        lines.split_inclusive(|&b| b == b'\n').map(|line| serde_json::from_slice(line).unwrap()).collect();
    let (news, messages) = lines.split_last().unwrap();
    assert!(messages.iter().all(|reply| number(reply).is_some()), "the first line about it is lost itself");
    // Beside the messages that line was missed.
    assert_eq!(news["total"], room.said - messages.len() + 1);
    assert!(news["count"].as_u64() < news["total"].as_u64());
}

/// Where all channels of a loop share too little room, one drops messages although it is writable: nothing changes then.
#[cfg(unix)]
#[test]
fn who_never_stopped_being_writable_learns_it_with_the_next_heartbeat() {
    use crate::support::{
        loops::{advance, single},
        wait::{PATIENCE, done},
    };
    use netwheel::{prelude::*, testing::ManualClock};
    use std::{
        io::{BufRead, BufReader, Write},
        os::unix::net::{UnixListener, UnixStream},
        sync::Arc,
        time::{Duration, Instant},
    };

    const SAID: usize = 500;
    let clock = ManualClock::new();
    let (group, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()).max_outbound(1));
    let hub = Arc::default();
    // A socket without a name in the file system, but for a moment.
    let path = std::env::temp_dir().join(format!("netwheel-im-slow-{}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let mut ann = UnixStream::connect(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let _server = ServerBootstrap::new(&group)
        .channel_options(SlowConsumer::Drop.channel_options(1024 * 1024).unwrap())
        .pipeline(move |_peer| session(&hub, IdleTimeouts::new().writer(SETTINGS.heartbeat)))
        .adopt(listener)
        .unwrap();

    ann.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut lines = BufReader::new(ann.try_clone().unwrap()).lines();
    let mut hear = move || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    writeln!(ann, "{}", json!({"type": "login", "user": "ann"})).unwrap();
    writeln!(ann, "{}", json!({"type": "join", "room": "lobby"})).unwrap();
    assert_eq!([hear()["type"].take(), hear()["type"].take()], ["welcome", "joined"]);
    for said in 1..=SAID {
        writeln!(ann, "{}", json!({"type": "say", "room": "lobby", "text": format!("{said:0900}")})).unwrap();
    }
    let until = Instant::now() + PATIENCE;
    while event_loop.metrics().messages_dropped == 0 {
        assert!(Instant::now() < until, "too little is said");
        std::thread::yield_now();
    }
    let mut heard = 0;
    loop {
        let reply = hear();
        let number = number(&reply).unwrap_or_else(|| panic!("{reply}"));
        heard += 1;
        if number == SAID {
            break;
        }
    }
    advance(&event_loop, &clock, SETTINGS.heartbeat);
    assert_eq!(hear(), missed(SAID - heard, SAID - heard));
    assert_eq!(hear(), json!({"type": "ping"}));
    done(group.shutdown_gracefully(Duration::ZERO, PATIENCE)).unwrap();
}
