//! The heartbeat stage: who is asked, when, and who is dead (user-asks 1.12 to 1.16).

use crate::support::{
    journal::Log,
    recorder::{Event, Recorder},
    wait::SECOND,
};
use bytes::Bytes;
use netwheel::{
    ChannelOptions,
    codec::Line,
    prelude::*,
    stage::{Heartbeat, OnDead},
    testing::{EmbeddedChannel, ManualClock},
};
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(1);

type Ping = fn() -> Bytes;
type Asks = Heartbeat<Bytes, Bytes, Ping>;

fn heartbeat() -> Asks {
    Heartbeat::new(INTERVAL, || Bytes::from_static(b"PING"))
}

/// An embedded channel that lives behind a heartbeat; what its handler is told, with times.
struct Peer {
    channel: EmbeddedChannel<Bytes>,
    log: Log,
}

impl Peer {
    fn new(heartbeat: Asks) -> Self {
        Self::with(heartbeat, TICK)
    }

    fn with(heartbeat: Asks, tick: Duration) -> Self {
        let (log, clock) = (Log::new(), ManualClock::new());
        let (inner, time) = (log.clone(), clock.clone());
        let handler = Recorder::exactly(&Log::new(), move |_, call| {
            if matches!(call, Event::Error(_) | Event::Read(_) | Event::Inactive) {
                inner.push(format!("{:?} {call}", time.elapsed()));
            }
            Ok(())
        });
        let pipeline = Pipeline::codec(Line::new()).stage(heartbeat).handler(handler);
        let channel = EmbeddedChannel::with(pipeline, &ChannelOptions::new(), clock, tick).unwrap();
        Peer { channel, log }
    }

    /// What was sent and what was told when some time has passed.
    fn after(&mut self, time: Duration) -> (String, Vec<String>) {
        self.channel.advance(time);
        let sent = self.channel.read_outbound();
        (String::from_utf8(sent.to_vec()).unwrap().replace("\r\n", "\n").replace('\n', " "), self.log.take())
    }

    fn write(&mut self) {
        self.channel.channel().write("x".into()).unwrap();
        self.channel.run_pending();
    }
}

fn nothing() -> (String, Vec<String>) {
    (String::new(), Vec::new())
}

fn told(lines: &[&str]) -> Vec<String> {
    lines.iter().map(ToString::to_string).collect()
}

#[test]
fn a_silent_peer_is_asked_three_times_and_is_dead_an_interval_later() {
    let mut peer = Peer::new(heartbeat());
    assert_eq!(peer.after(INTERVAL - TICK), nothing());
    for _ in 0..3 {
        assert_eq!(peer.after(INTERVAL), ("PING ".into(), vec![]));
    }
    assert!(peer.channel.is_open());
    let error = "40s error an answer to the heartbeat timed out after 40s";
    assert_eq!(peer.after(INTERVAL), (String::new(), told(&[error, "40s inactive"])));
    assert!(peer.channel.is_closed());
    assert_eq!(peer.channel.timers(), 0);
}

#[test]
fn no_miss_is_allowed_if_so_wished() {
    let mut peer = Peer::new(heartbeat().misses(0));
    assert_eq!(peer.after(INTERVAL), ("PING ".into(), vec![]));
    assert_eq!(peer.after(INTERVAL - TICK), nothing());
    assert!(!peer.after(TICK).1.is_empty() && peer.channel.is_closed());
}

#[test]
fn every_byte_is_an_answer_and_the_handler_gets_what_comes() {
    let mut peer = Peer::new(heartbeat());
    for n in 1..20 {
        assert_eq!(peer.after(INTERVAL), ("PING ".into(), vec![]), "{n}");
        // Not even a whole line.
        peer.channel.write_inbound(b"x").unwrap();
    }
    peer.channel.write_inbound(b"y\n").unwrap();
    assert_eq!(peer.log.take(), [format!("190s read {}y", "x".repeat(19))]);
}

#[test]
fn what_counts_as_an_answer_can_be_said_and_stays_in_the_stage() {
    let mut peer = Peer::new(heartbeat().misses(1).answer(|line: &Bytes| line == "PONG"));
    for _ in 0..5 {
        assert_eq!(peer.after(INTERVAL), ("PING ".into(), vec![]));
        peer.channel.write_inbound(b"PONG\n").unwrap();
    }
    assert_eq!(peer.log.take(), Vec::<String>::new());
    // Other messages are the handler's, and no answer.
    assert_eq!(peer.after(INTERVAL).0, "PING ");
    peer.channel.write_inbound(b"hello\n").unwrap();
    assert_eq!(peer.after(INTERVAL), ("PING ".into(), told(&["60s read hello"])));
    peer.channel.write_inbound(b"hello\n").unwrap();
    let (sent, log) = peer.after(INTERVAL);
    assert_eq!((sent.as_str(), log.len()), ("", 3), "{log:?}");
    assert!(log[1].contains("timed out after 30s") && peer.channel.is_closed(), "{log:?}");
}

#[test]
fn nothing_is_asked_while_something_else_is_sent() {
    let mut peer = Peer::new(heartbeat());
    for _ in 0..50 {
        peer.after(INTERVAL / 2);
        peer.write();
        assert_eq!(peer.after(Duration::ZERO), ("x ".into(), vec![]));
    }
    assert_eq!(peer.after(INTERVAL - TICK), nothing());
    assert_eq!(peer.after(TICK), ("PING ".into(), vec![]));
}

#[test]
fn heartbeat_under_backpressure_asks_nothing_and_does_not_kill_who_takes_bytes() {
    let mut peer = Peer::new(heartbeat());
    peer.channel.set_outbound_room(Some(0));
    for _ in 0..100 {
        peer.write();
    }
    // A byte now and then: the peer is slow, not dead.
    for _ in 0..60 {
        assert_eq!(peer.after(2 * SECOND).1, Vec::<String>::new());
        peer.channel.set_outbound_room(Some(1));
    }
    assert!(peer.channel.is_open() && peer.channel.pending_bytes() > 0);
    // What is written is gone, the peer reads again: it is asked as before.
    peer.channel.set_outbound_room(None);
    let (sent, _) = peer.after(Duration::ZERO);
    assert!(sent.ends_with("x ") && !sent.contains("PING"), "{sent}");
    let (sent, log) = peer.after(2 * INTERVAL);
    assert!(sent.starts_with("PING") && log.is_empty(), "{sent} {log:?}");
}

#[test]
fn heartbeat_under_backpressure_does_not_wait_for_ever() {
    let mut peer = Peer::new(heartbeat());
    peer.channel.set_outbound_room(Some(0));
    peer.write();
    assert_eq!(peer.after(3 * INTERVAL - TICK), nothing());
    let (sent, log) = peer.after(INTERVAL + TICK);
    assert_eq!((sent.as_str(), log.len()), ("", 2), "{log:?}");
    assert!(peer.channel.is_closed());
}

#[test]
fn a_peer_that_sends_is_alive_although_it_reads_nothing() {
    let mut peer = Peer::new(heartbeat());
    peer.channel.set_outbound_room(Some(0));
    peer.write();
    for _ in 0..50 {
        peer.channel.write_inbound(b"x").unwrap();
        assert_eq!(peer.after(INTERVAL), nothing());
    }
    assert!(peer.channel.is_open());
}

#[test]
fn a_dead_peer_is_only_reported_if_so_wished_and_may_come_back() {
    let mut peer = Peer::new(heartbeat().misses(0).on_dead(OnDead::Report));
    let dies = |peer: &mut Peer| {
        let (sent, log) = peer.after(10 * INTERVAL);
        assert_eq!((sent.as_str(), log.len()), ("PING ", 1), "asked once, reported once: {log:?}");
        assert!(peer.channel.is_open());
    };
    dies(&mut peer);
    peer.channel.write_inbound(b"x").unwrap();
    dies(&mut peer);
}

#[test]
fn pings_are_spread_over_the_jitter_and_never_early() {
    const WINDOW: Duration = Duration::from_secs(2);
    let mut at = Vec::new();
    for _ in 0..64 {
        let mut peer = Peer::new(heartbeat().jitter(WINDOW));
        assert_eq!(peer.after(INTERVAL - TICK), nothing());
        let mut waited = Duration::ZERO;
        while peer.after(SECOND / 10).0.is_empty() {
            waited += SECOND / 10;
            assert!(waited <= WINDOW, "beyond the window");
        }
        at.push(waited);
    }
    at.sort();
    assert!(at[63] - at[0] > WINDOW / 2, "{at:?}");
}

#[test]
fn it_is_late_by_a_tick_of_the_wheel_at_most() {
    let mut peer = Peer::with(heartbeat(), Duration::from_millis(700));
    assert_eq!(peer.after(INTERVAL - TICK), nothing());
    assert_eq!(peer.after(Duration::from_millis(700)).0, "PING ");
}

#[test]
fn a_heartbeat_and_idle_timeouts_share_one_entry_on_the_wheel() {
    let idle = IdleTimeouts::new().all(SECOND);
    let pipeline = Pipeline::codec(Line::new()).idle(idle).stage(heartbeat());
    let channel = EmbeddedChannel::new(pipeline.handler(Recorder::new(&Log::new())));
    assert_eq!(channel.timers(), 1);
}

#[test]
fn two_heartbeats_in_one_pipeline_keep_their_own_times() {
    let log = Log::new();
    let slow: Asks = Heartbeat::new(3 * INTERVAL, || Bytes::from_static(b"slow"));
    let pipeline = Pipeline::codec(Line::new()).stage(slow.misses(9)).stage(heartbeat().misses(1));
    let mut channel = EmbeddedChannel::new(pipeline.handler(Recorder::new(&log)));
    channel.advance(INTERVAL);
    assert!(channel.read_outbound().starts_with(b"PING"));
    channel.write_inbound(b"x").unwrap();
    channel.advance(INTERVAL);
    assert!(channel.read_outbound().starts_with(b"PING"));
    channel.advance(2 * INTERVAL);
    assert!(channel.is_closed(), "the fast one has found it dead");
}

#[test]
fn the_interval_fits_the_peers_idle_time() {
    assert_eq!(Asks::interval_for(Duration::from_secs(90)), Duration::from_secs(30));
}
