//! The heartbeat stage: when it sends pings, what counts as an answer, and when a peer is dead.

use crate::support::{
    channels::set_auto_read,
    journal::Log,
    recorder::{Event, Recorder},
    wait::{SECOND, done},
};
use bytes::Bytes;
use netwheel::{
    channel::{ChannelOptions, CloseCause},
    codec::Line,
    prelude::*,
    stage::{Heartbeat, OnDead},
    testing::{EmbeddedChannel, ManualClock},
    traffic::TrafficLimits,
};
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(1);

type Ping = fn() -> Bytes;
type Asks = Heartbeat<Bytes, Bytes, Ping>;

fn heartbeat() -> Asks {
    Heartbeat::new(INTERVAL, || Bytes::from_static(b"PING"))
}

/// An embedded channel with a heartbeat, and the calls of its handler with their times.
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
        let pipeline = Pipeline::codec(Line::new()).stage(heartbeat).handler(handler.half_open());
        let options = ChannelOptions::new().half_close(true);
        let channel = EmbeddedChannel::builder(pipeline).channel_options(options).clock(clock);
        Peer { channel: channel.wheel_tick(tick).build().unwrap(), log }
    }

    /// Advances the clock. Returns the bytes sent and the calls of the handler.
    fn after(&mut self, time: Duration) -> (String, Vec<String>) {
        self.channel.advance(time);
        let sent = self.channel.read_outbound();
        (String::from_utf8(sent.to_vec()).unwrap().replace("\r\n", "\n").replace('\n', " "), self.log.take())
    }

    fn write(&mut self) {
        self.channel.channel().write("x".into()).unwrap();
        self.channel.run_pending();
    }

    fn limit(&mut self, limits: TrafficLimits) {
        let set = move |ctx: &mut netwheel::ChannelContext<'_, Bytes>| {
            ctx.set_traffic(limits);
            Ok(())
        };
        self.channel.channel().execute(set).unwrap();
        self.channel.run_pending();
    }

    fn set_auto_read(&mut self, on: bool) {
        set_auto_read(&self.channel.channel(), on);
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
fn a_silent_peer_gets_three_pings_and_is_dead_an_interval_later() {
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
fn with_zero_misses_one_unanswered_ping_is_fatal() {
    let mut peer = Peer::new(heartbeat().max_misses(0));
    assert_eq!(peer.after(INTERVAL), ("PING ".into(), vec![]));
    assert_eq!(peer.after(INTERVAL - TICK), nothing());
    assert!(!peer.after(TICK).1.is_empty() && peer.channel.is_closed());
}

#[test]
fn every_byte_counts_as_an_answer_and_messages_reach_the_handler() {
    let mut peer = Peer::new(heartbeat());
    for n in 1..20 {
        assert_eq!(peer.after(INTERVAL), ("PING ".into(), vec![]), "{n}");
        // Not even a complete line.
        peer.channel.write_inbound(b"x").unwrap();
    }
    peer.channel.write_inbound(b"y\n").unwrap();
    assert_eq!(peer.log.take(), [format!("190s read {}y", "x".repeat(19))]);
}

#[test]
fn a_predicate_selects_answers_which_do_not_reach_the_handler() {
    let mut peer = Peer::new(heartbeat().max_misses(1).answer(|line: &Bytes| line == "PONG"));
    for _ in 0..5 {
        assert_eq!(peer.after(INTERVAL), ("PING ".into(), vec![]));
        peer.channel.write_inbound(b"PONG\n").unwrap();
    }
    assert_eq!(peer.log.take(), Vec::<String>::new());
    // Other messages reach the handler and do not count as an answer.
    assert_eq!(peer.after(INTERVAL).0, "PING ");
    peer.channel.write_inbound(b"hello\n").unwrap();
    assert_eq!(peer.after(INTERVAL), ("PING ".into(), told(&["60s read hello"])));
    peer.channel.write_inbound(b"hello\n").unwrap();
    let (sent, log) = peer.after(INTERVAL);
    assert_eq!((sent.as_str(), log.len()), ("", 3), "{log:?}");
    assert!(log[1].contains("timed out after 30s") && peer.channel.is_closed(), "{log:?}");
}

#[test]
fn no_ping_is_sent_while_other_messages_are_sent() {
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
fn under_backpressure_no_ping_is_sent_and_a_slow_peer_stays_connected() {
    let mut peer = Peer::new(heartbeat());
    peer.channel.set_outbound_room(Some(0));
    for _ in 0..100 {
        peer.write();
    }
    // The peer accepts a byte now and then: it is slow, not dead.
    for _ in 0..60 {
        assert_eq!(peer.after(2 * SECOND).1, Vec::<String>::new());
        peer.channel.set_outbound_room(Some(1));
    }
    assert!(peer.channel.is_open() && peer.channel.pending_bytes() > 0);
    // All output has been sent and the peer reads again, so pings resume.
    peer.channel.set_outbound_room(None);
    let (sent, _) = peer.after(Duration::ZERO);
    assert!(sent.ends_with("x ") && !sent.contains("PING"), "{sent}");
    let (sent, log) = peer.after(2 * INTERVAL);
    assert!(sent.starts_with("PING") && log.is_empty(), "{sent} {log:?}");
}

#[test]
fn under_backpressure_a_stalled_peer_times_out() {
    let mut peer = Peer::new(heartbeat());
    peer.channel.set_outbound_room(Some(0));
    peer.write();
    assert_eq!(peer.after(3 * INTERVAL - TICK), nothing());
    let (sent, log) = peer.after(INTERVAL + TICK);
    assert_eq!((sent.as_str(), log.len()), ("", 2), "{log:?}");
    assert!(peer.channel.is_closed());
}

#[test]
fn a_peer_that_sends_is_alive_even_if_it_does_not_read() {
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
fn unread_bytes_may_be_answers_while_the_program_does_not_read() {
    let mut peer = Peer::new(heartbeat().answer(|line: &Bytes| line == "PONG"));
    peer.set_auto_read(false);
    for n in 0..10 {
        assert_eq!(peer.after(INTERVAL), ("PING ".into(), vec![]), "{n}");
        peer.channel.write_inbound(b"PONG\n").unwrap();
    }
    peer.set_auto_read(true);
    for n in 0..3 {
        assert_eq!(peer.after(INTERVAL), ("PING ".into(), vec![]), "{n}");
    }
    assert!(peer.channel.is_open());
    assert_eq!(peer.after(INTERVAL).1.len(), 2, "the peer has stopped answering");
}

#[test]
fn an_answer_that_a_traffic_limit_holds_back_is_not_late() {
    let mut peer = Peer::new(heartbeat().answer(|line: &Bytes| line == "PONG"));
    peer.limit(TrafficLimits::new().read(10).read_burst(10));
    // 100 seconds of input in front of the answer.
    let line = "x".repeat(999);
    peer.channel.write_inbound(format!("{line}\nPONG\n").as_bytes()).unwrap();
    for n in 0..9 {
        assert_eq!(peer.after(INTERVAL), ("PING ".into(), vec![]), "{n}");
    }
    let (sent, log) = peer.after(2 * INTERVAL);
    assert_eq!((sent.as_str(), log.len()), ("PING PING ", 1), "{log:?}");
    // All input is read, so the peer has stopped answering.
    assert_eq!(peer.after(INTERVAL), ("PING ".into(), vec![]));
    assert_eq!(peer.after(INTERVAL).1.len(), 2);
    assert!(peer.channel.is_closed());
}

/// Only the limit stops the output, for a second at a time, and the peer has nothing to send.
#[test]
fn a_traffic_limit_that_holds_output_back_is_no_dead_peer() {
    let ping: Ping = || Bytes::from_static(b"PING");
    let mut peer = Peer::new(Heartbeat::new(Duration::from_millis(300), ping).max_misses(0));
    peer.limit(TrafficLimits::new().write(1));
    peer.channel.channel().write("xxxxxx".into()).unwrap();
    peer.channel.run_pending();
    let mut sent = peer.channel.read_outbound().len();
    for n in 0..30 {
        let (text, log) = peer.after(Duration::from_millis(100));
        assert_eq!(log, nothing().1, "{n}");
        sent += text.len();
    }
    assert!(peer.channel.is_open() && (2..8).contains(&sent), "{sent}");
}

#[test]
fn unread_bytes_may_be_answers_during_a_long_pause_by_a_traffic_limit() {
    let mut peer = Peer::new(heartbeat().answer(|line: &Bytes| line == "PONG"));
    // The first burst is followed by a pause of 1000 seconds.
    peer.limit(TrafficLimits::new().read(1).read_burst(1000));
    peer.channel.write_inbound(&[b'x'; 2000]).unwrap();
    for n in 0..20 {
        assert_eq!(peer.after(INTERVAL), ("PING ".into(), vec![]), "{n}");
    }
    assert!(peer.channel.is_open());
}

#[test]
fn a_silent_peer_is_dead_even_if_the_program_does_not_read() {
    for heartbeat in [heartbeat(), heartbeat().answer(|line: &Bytes| line == "PONG")] {
        let mut peer = Peer::new(heartbeat);
        peer.set_auto_read(false);
        assert_eq!(peer.after(4 * INTERVAL - TICK), ("PING PING PING ".into(), vec![]));
        assert_eq!(peer.after(TICK).1.len(), 2);
        assert!(peer.channel.is_closed());
    }
}

#[test]
fn a_peer_that_has_ended_its_stream_need_not_answer_but_must_take_bytes() {
    for heartbeat in [heartbeat(), heartbeat().answer(|line: &Bytes| line == "PONG")] {
        let mut peer = Peer::new(heartbeat);
        peer.channel.end_inbound();
        for n in 0..10 {
            assert_eq!(peer.after(INTERVAL), ("PING ".into(), vec![]), "{n}");
        }
        peer.channel.set_outbound_room(Some(0));
        peer.write();
        assert_eq!(peer.after(4 * INTERVAL - TICK), nothing());
        let (sent, log) = peer.after(TICK);
        assert_eq!((sent.as_str(), log.len()), ("", 2), "{log:?}");
        assert!(log[0].contains("timed out after 40s") && peer.channel.is_closed(), "{log:?}");
    }
}

#[test]
fn a_peer_that_has_ended_its_stream_is_not_dead_as_soon_as_it_blocks() {
    let mut peer = Peer::new(heartbeat().max_misses(0));
    peer.channel.end_inbound();
    assert_eq!(peer.after(2 * INTERVAL - TICK), ("PING ".into(), vec![]));
    peer.channel.set_outbound_room(Some(0));
    peer.write();
    assert_eq!(peer.after(TICK), nothing());
    assert!(peer.channel.is_open());
    assert_eq!(peer.after(INTERVAL).1.len(), 2);
}

#[test]
fn a_dead_peer_can_be_reported_only_and_may_recover() {
    let mut peer = Peer::new(heartbeat().max_misses(0).on_dead(OnDead::Report));
    let dies = |peer: &mut Peer| {
        let (sent, log) = peer.after(10 * INTERVAL);
        assert_eq!((sent.as_str(), log.len()), ("PING ", 1), "one ping and one report: {log:?}");
        assert!(peer.channel.is_open());
    };
    dies(&mut peer);
    peer.channel.write_inbound(b"x").unwrap();
    dies(&mut peer);
}

#[test]
fn a_busy_peer_that_stalls_twice_is_reported_twice() {
    let mut peer = Peer::new(heartbeat().max_misses(0).on_dead(OnDead::Report));
    for _ in 0..2 {
        peer.channel.set_outbound_room(Some(0));
        peer.write();
        let (_, log) = peer.after(10 * INTERVAL);
        assert_eq!(log.iter().filter(|call| call.contains("error")).count(), 1, "{log:?}");
        peer.channel.set_outbound_room(None);
        // It recovers, and is never quiet for long enough for a ping.
        for _ in 0..10 {
            let (sent, log) = peer.after(INTERVAL / 2);
            assert!(!sent.contains("PING") && log.iter().all(|call| call.contains("read")), "{log:?}");
            peer.write();
            peer.channel.write_inbound(b"x\n").unwrap();
        }
    }
}

#[test]
fn a_dead_peer_that_takes_bytes_and_answers_nothing_is_reported_once() {
    let mut peer = Peer::new(heartbeat().max_misses(0).on_dead(OnDead::Report));
    let (_, log) = peer.after(10 * INTERVAL);
    assert_eq!(log.len(), 1, "{log:?}");
    for _ in 0..3 {
        peer.channel.set_outbound_room(Some(1));
        peer.write();
        peer.after(INTERVAL);
        peer.channel.set_outbound_room(None);
        let (sent, log) = peer.after(10 * INTERVAL);
        assert!(!sent.contains("PING") && log.is_empty(), "{sent} {log:?}");
    }
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
            assert!(waited <= WINDOW, "later than the window");
        }
        at.push(waited);
    }
    at.sort();
    assert!(at[63] - at[0] > WINDOW / 2, "{at:?}");
}

#[test]
fn a_ping_is_late_by_at_most_one_tick() {
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
fn two_heartbeats_in_one_pipeline_are_independent() {
    let log = Log::new();
    let slow: Asks = Heartbeat::new(3 * INTERVAL, || Bytes::from_static(b"slow"));
    let pipeline = Pipeline::codec(Line::new()).stage(slow.max_misses(9)).stage(heartbeat().max_misses(1));
    let mut channel = EmbeddedChannel::new(pipeline.handler(Recorder::new(&log)));
    channel.advance(INTERVAL);
    assert!(channel.read_outbound().starts_with(b"PING"));
    channel.write_inbound(b"x").unwrap();
    channel.advance(INTERVAL);
    assert!(channel.read_outbound().starts_with(b"PING"));
    channel.advance(2 * INTERVAL);
    assert!(channel.is_closed(), "the fast heartbeat has closed the channel");
}

#[test]
fn the_interval_is_derived_from_the_peers_idle_timeout() {
    assert_eq!(Asks::interval_for(Duration::from_secs(90)), Duration::from_secs(30));
}

#[test]
fn a_channel_whose_own_output_has_ended_sends_no_pings_and_stays_open() {
    let mut peer = Peer::new(heartbeat());
    assert_eq!(peer.after(INTERVAL), ("PING ".into(), vec![]));
    peer.channel.channel().shutdown_write();
    peer.channel.run_pending();
    for _ in 0..10 {
        peer.channel.write_inbound(b"x\n").unwrap();
        peer.log.take();
        assert_eq!(peer.after(INTERVAL), nothing());
    }
    assert!(peer.channel.is_open());
}

#[test]
fn a_dead_peer_is_the_cause_of_the_end_and_of_writes_that_fail() {
    let mut peer = Peer::new(heartbeat().max_misses(0));
    peer.channel.set_outbound_room(Some(0));
    let closed = peer.channel.channel().closed();
    let written = peer.channel.channel().write_tracked("x".into()).unwrap();
    peer.after(3 * INTERVAL);
    assert!(peer.channel.is_closed());
    assert_eq!(done(closed).unwrap(), CloseCause::TimedOut);
    assert!(matches!(done(written), Err(Error::TimedOut { .. })));
}
