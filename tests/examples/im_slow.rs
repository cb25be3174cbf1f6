//! Clients of the chat server that do not read. They are closed with the reason or learn how many
//! messages they missed, and others are not affected.

use crate::im::{slow_consumer::SlowConsumer, *};
use netwheel::{channel::TimeLimits, prelude::*, testing::EmbeddedChannel};
use serde_json::{Value, json};
use std::{sync::atomic::Ordering, time::Duration};

/// The limit of pending bytes per client.
const MAX_OUTBOUND: usize = 8000;
/// The length of each message in bytes.
const SIZE: usize = 100;

/// A room with three members: ann sends, bob is slow, cy reads.
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

    /// Lets ann send messages. She and cy receive each of them.
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

/// Returns the number of a message, or `None` for other replies.
fn number(reply: &Value) -> Option<usize> {
    (reply["type"] == "message").then(|| reply["text"].as_str().unwrap().parse().unwrap())
}

fn missed(count: usize, total: usize) -> Value {
    json!({"type": "missed", "count": count, "total": total})
}

#[test]
fn a_client_that_does_not_read_is_closed_with_the_reason() {
    let mut room = Room::new(SlowConsumer::Close);
    room.bob.0.set_outbound_room(Some(0));
    room.talk(200);
    assert!(!room.bob.0.is_open());
    room.bob.0.set_outbound_room(None);
    let heard = room.bob.hear();
    let (bye, messages) = heard.split_last().unwrap();
    assert_eq!(*bye, json!({"type": "bye", "reason": "slow_consumer"}));
    let numbers: Vec<_> = messages.iter().map(|reply| number(reply).unwrap()).collect();
    assert!(numbers.iter().copied().eq(1..=numbers.len()), "gap in the pending messages: {numbers:?}");
    assert!(numbers.len() * SIZE <= MAX_OUTBOUND && numbers.len() > 10, "{}", numbers.len());
    assert!(room.bob.0.is_closed());
    room.world.announce();
    let left = json!({"type": "presence", "room": "lobby", "left": ["bob"]});
    assert_eq!(room.ann.hear_one(), left);
    assert_eq!(room.cy.hear_one(), left);
    room.talk(1);
}

#[test]
fn a_slow_client_that_has_not_logged_in_is_counted_until_it_ends() {
    let world = World::with(SlowConsumer::Drop, MAX_OUTBOUND);
    let slow = || world.hub.counters.slow_consumers.load(Ordering::Relaxed);
    let mut client = world.connect();
    client.0.set_outbound_room(Some(0));
    for _ in 0..100 {
        // The error repeats the name.
        client.say(json!({"type": "direct", "to": "x".repeat(SIZE), "text": "hi", "id": 1}));
    }
    assert_eq!(slow(), 1);
    client.0.fail_inbound(std::io::ErrorKind::ConnectionReset.into());
    assert!(client.0.is_closed());
    assert_eq!(slow(), 0);
}

#[test]
fn a_client_learns_how_many_messages_it_missed() {
    let mut room = Room::new(SlowConsumer::Drop);
    room.talk(1);
    assert_eq!(room.bob.hear().len(), 1, "a client that keeps up gets no report");
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
        assert!(numbers.eq(before + lost + 1..=room.said), "the newest messages are delivered: {messages:?}");
        assert!(lost > 100 && room.bob.0.is_open());
        room.talk(1);
        assert_eq!(room.bob.hear().len(), 1, "reported once");
    }
}

#[test]
fn the_total_includes_a_lost_report() {
    let mut room = Room::new(SlowConsumer::Drop);
    room.bob.0.set_outbound_room(Some(0));
    room.talk(200);
    // Bob reads until the rest is below the low water mark, so a report is queued after the rest.
    let waits = room.bob.0.pending_bytes();
    room.bob.0.set_outbound_room(Some(waits - MAX_OUTBOUND / 8));
    room.bob.0.run_pending();
    let first = room.bob.0.read_outbound();
    assert!(room.bob.0.pending_bytes() > MAX_OUTBOUND / 8, "the report is pending as well");
    room.bob.0.set_outbound_room(Some(0));
    room.talk(200);
    room.bob.0.set_outbound_room(None);
    room.bob.0.run_pending();
    let lines = [first, room.bob.0.read_outbound()].concat();
    let lines: Vec<Value> =
        lines.split_inclusive(|&b| b == b'\n').map(|line| serde_json::from_slice(line).unwrap()).collect();
    let (news, messages) = lines.split_last().unwrap();
    assert!(messages.iter().all(|reply| number(reply).is_some()), "the first report is dropped as well");
    // The lost report counts as missed in addition to the messages.
    assert_eq!(news["total"], room.said - messages.len() + 1);
    assert!(news["count"].as_u64() < news["total"].as_u64());
}

/// Each event has the whole state, so a viewer that reads slowly needs only the newest ones.
#[test]
fn a_viewer_of_the_dashboard_that_does_not_read_misses_events() {
    use crate::support::{
        loops::single,
        wait::{PATIENCE, done},
    };
    use netwheel::{
        http::{HttpServer, Part, Response},
        shutdown::ShutdownOptions,
    };
    use std::sync::Arc;

    let world = World::new();
    let (group, _) = single(EventLoopGroup::builder());
    let dashboard = Arc::new(web::Dashboard::new(world.hub.clone(), &group));
    let viewers = dashboard.clone();
    let pipeline = HttpServer::new().pipeline().on_read(move |ctx, part| match part {
        Part::Head(_) => {
            assert!(viewers.add(ctx.channel()));
            ctx.write(Response::event_stream().into())
        }
        _ => Ok(()),
    });
    let mut viewer = EmbeddedChannel::new(pipeline);
    viewer.write_inbound(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    viewer.set_outbound_room(Some(0));
    let publish = |viewer: &mut EmbeddedChannel<Part<Response>>| {
        dashboard.publish().unwrap();
        viewer.run_pending();
    };
    for _ in 0..1000 {
        publish(&mut viewer);
    }
    assert!((50_000..100_000).contains(&viewer.pending_bytes()), "{}", viewer.pending_bytes());
    viewer.set_outbound_room(None);
    viewer.run_pending();
    viewer.read_outbound();
    publish(&mut viewer);
    assert!(String::from_utf8_lossy(&viewer.read_outbound()).contains("data: {"));
    done(group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(PATIENCE))).unwrap();
}

/// If the channels of a loop share too little memory, a channel drops messages while it is
/// writable. No change of writability triggers a report then.
#[cfg(unix)]
#[test]
fn a_channel_that_stayed_writable_reports_with_the_next_heartbeat() {
    use crate::support::{
        loops::{advance, single, watch},
        wait::{PATIENCE, done},
    };
    use netwheel::{prelude::*, shutdown::ShutdownOptions, testing::ManualClock};
    use std::{
        io::{BufRead, BufReader, Write},
        os::unix::net::{UnixListener, UnixStream},
        time::Duration,
    };

    const SAID: usize = 500;
    let clock = ManualClock::new();
    let (group, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()).max_outbound(1));
    let hub = new_hub(hub::MAX_UNACKED_BYTES);
    // A Unix socket whose file is removed immediately.
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
    watch(&event_loop, |metrics| metrics.messages_dropped > 0);
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
    done(group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(PATIENCE))).unwrap();
}

#[test]
fn a_client_is_not_idle_until_it_has_resumed() {
    let world = World::new();
    let mut ann = world.connect();
    ann.say(json!({"type": "login", "user": "ann"}));
    let welcome: Value = serde_json::from_slice(&ann.0.read_outbound()).unwrap();
    let mut rooms = json!({});
    for room in ["attic", "lobby"] {
        ann.join(room);
        let joined: Value = serde_json::from_slice(&ann.0.read_outbound()).unwrap();
        rooms[room] = json!([joined["epoch"], joined["offset"]]);
        for _ in 0..100 {
            ann.say(json!({"type": "say", "room": room, "text": "x".repeat(800)}));
            ann.hear();
        }
    }
    let minute = Duration::from_secs(60);
    let pipeline = session_with(&world.hub, IdleTimeouts::new().reader(minute), SETTINGS, TimeLimits::new());
    let mut again = Client(EmbeddedChannel::builder(pipeline).build().unwrap());
    again.0.set_outbound_room(Some(0));
    let resume = json!({"token": welcome["resume_token"], "rooms": rooms});
    again.say(json!({"type": "login", "user": "ann", "resume": resume}));
    again.say(json!({"type": "ping"}));
    again.0.advance(3 * minute);
    assert!(again.0.is_open(), "the ping is not read yet");
    again.0.set_outbound_room(None);
    let heard = again.hear();
    let kinds: Vec<&str> = heard.iter().map(|reply| reply["type"].as_str().unwrap()).collect();
    let count = |kind| kinds.iter().filter(|other| **other == kind).count();
    assert_eq!((count("joined"), count("message"), kinds.last()), (2, 200, Some(&"pong")));
    again.0.advance(2 * minute);
    assert_eq!(again.hear(), [json!({"type": "bye", "reason": "idle"})]);
}
