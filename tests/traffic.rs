//! Traffic shaping, of a channel and of a group (H-01 to H-06), on the manual clock.
//!
//! Ours differs in the form: bytes are counted at the socket and nothing is read or sent beyond the limit, there is no queue
//! besides the channel's own buffer, and its own marks hold.

#[path = "support/loops.rs"]
mod loops;
#[path = "support/recorder.rs"]
mod recorder;

use bytes::Bytes;
use loops::{advance, ms, settle, single};
use netwheel::{
    ChannelOptions, Error, SharedTraffic, TimeLimits, TrafficLimits, TrafficShaping,
    buffer::{KEEP_FROM, WaterMark},
    codec::{Line, RawBytes},
    prelude::*,
    testing::{EmbeddedChannel, ManualClock},
};
use recorder::{Call, Log, PATIENCE, Recorder, connect, end};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Mutex,
    time::{Duration, Instant},
};

/// A thousand bytes a second, a hundred at once: a pause is 50 ms.
const SLOW: u64 = 1_000;

fn with(
    options: &ChannelOptions,
    clock: &ManualClock,
    traffic: impl Into<TrafficShaping>,
    handler: Recorder,
) -> EmbeddedChannel<Bytes> {
    let pipeline = Pipeline::new().traffic(traffic).codec(RawBytes).handler(handler);
    EmbeddedChannel::with(pipeline, options, clock.clone(), ms(1)).unwrap()
}

fn shaped(traffic: impl Into<TrafficShaping>, log: &Log) -> EmbeddedChannel<Bytes> {
    with(&ChannelOptions::new(), &ManualClock::new(), traffic, Recorder::new(log))
}

/// So many different bytes.
fn bytes(n: usize) -> Bytes {
    (0..n).map(|i| (i * 7 + i / 251) as u8).collect::<Vec<_>>().into()
}

/// Bytes that the handler has been given since the last call.
fn read(log: &Log) -> usize {
    log.take().iter().filter_map(|entry| entry.strip_prefix("read ")).map(str::len).sum()
}

fn set(channel: &mut EmbeddedChannel<Bytes>, traffic: impl Into<TrafficShaping> + Send + 'static) {
    let set = move |scope: &mut netwheel::Scope<'_, Bytes>| {
        scope.set_traffic(traffic);
        Ok(())
    };
    channel.channel().execute(set).unwrap();
    channel.run_pending();
}

// ---- one channel -----------------------------------------------------------------------------------------

/// H-01: what is read is delivered, then reading pauses; auto-read stays as it is.
#[test]
fn h_01_a_read_limit_delivers_what_it_allows_and_pauses() {
    let log = Log::new();
    let mut channel = shaped(TrafficLimits::new().read(SLOW), &log);
    channel.write_inbound(&[b'x'; 250]).unwrap();
    assert_eq!(log.all().last().unwrap(), "read_complete");
    assert_eq!(read(&log), 100, "the burst");
    assert_eq!(channel.next_timer(), Some(ms(50)));
    channel.advance(ms(50) - Duration::from_nanos(1));
    assert_eq!(read(&log), 0);
    channel.advance(Duration::from_nanos(1));
    assert_eq!(read(&log), 50);
    // More that comes meanwhile waits behind it.
    channel.write_inbound(&[b'x'; 50]).unwrap();
    assert_eq!((read(&log), channel.timers()), (0, 1));
    channel.advance(ms(100));
    assert_eq!(read(&log), 100);
    channel.advance(ms(50));
    assert_eq!(read(&log), 50, "all of it");
    assert_eq!(channel.timers(), 0, "nobody waits for more");
    channel.advance(Duration::from_secs(10));
    channel.write_inbound(&[b'x'; 250]).unwrap();
    assert_eq!(read(&log), 100, "quiet does not add up to more than the burst");
}

/// H-01: less than ten milliseconds is not a pause.
#[test]
fn h_01_what_is_within_the_limit_is_not_held_up_and_no_pause_is_shorter_than_10_ms() {
    let log = Log::new();
    let mut channel = shaped(TrafficLimits::new().read(SLOW), &log);
    for _ in 0..100 {
        channel.write_inbound(&[b'x'; 5]).unwrap();
        assert_eq!((read(&log), channel.timers()), (5, 0));
        channel.advance(ms(5));
    }
    let mut channel = shaped(TrafficLimits::new().read(SLOW).read_burst(1), &log);
    channel.write_inbound(&[b'x'; 100]).unwrap();
    assert_eq!(read(&log), 10, "a burst is what comes in 10 ms, at the least");
    assert_eq!(channel.next_timer(), Some(ms(10)));
}

/// H-02: what is over the limit is sent later, and what is written later goes behind it.
#[test]
fn h_02_a_write_limit_sends_later_and_keeps_the_order() {
    let mut channel = shaped(TrafficLimits::new().write(SLOW), &Log::new());
    // Chunks of both kinds: copied and kept.
    let all = bytes(2 * KEEP_FROM + 500);
    let (first, rest) = (all.slice(..300), all.slice(300..));
    channel.channel().write(first).unwrap();
    channel.run_pending();
    assert_eq!(channel.pending_bytes(), 200);
    let mut sent = channel.read_outbound().to_vec();
    channel.advance(ms(50));
    let kept = rest.slice(..KEEP_FROM + 100);
    channel.channel().write(kept).unwrap();
    channel.channel().write(rest.slice(KEEP_FROM + 100..)).unwrap();
    channel.run_pending();
    sent.extend_from_slice(&channel.read_outbound());
    assert_eq!(sent.len(), 150, "who comes later does not pass who waits");
    let mut waits = 0;
    while channel.pending_bytes() > 0 {
        channel.advance(ms(50));
        let more = channel.read_outbound();
        assert!(more.len() <= 50, "{} bytes at once", more.len());
        sent.extend_from_slice(&more);
        waits += 1;
    }
    assert_eq!(sent, all);
    assert_eq!(waits, (all.len() - 150).div_ceil(50));
    assert_eq!(channel.timers(), 0);
}

/// H-03: the channel's own marks and its own limit hold; there is no queue besides its buffer.
#[test]
fn h_03_what_waits_counts_against_the_marks_and_the_limit_of_the_channel() {
    let log = Log::new();
    let options = ChannelOptions::new().water_mark(WaterMark::new(100, 300).unwrap()).max_outbound(1_000);
    let limits = TrafficLimits::new().write(SLOW);
    let mut channel = with(&options, &ManualClock::new(), limits, Recorder::new(&log));
    let handle = channel.channel();
    handle.write(bytes(401)).unwrap();
    channel.run_pending();
    assert_eq!(log.take(), ["active", "writable false"], "301 bytes wait");
    assert!(!handle.is_writable());
    channel.advance(ms(200));
    assert_eq!((channel.pending_bytes(), log.take()), (101, vec![]));
    channel.advance(ms(50));
    assert_eq!(log.take(), ["writable true"]);
    handle.write(bytes(949)).unwrap();
    channel.run_pending();
    let refused = handle.write(bytes(1)).unwrap_err();
    assert!(matches!(refused.reason, Error::Full { limit: 1_000, .. }), "{refused:?}");
    assert_eq!(refused.value, bytes(1), "it is handed back");
}

/// H-03: one wait is 100 ms at most, or the time of one byte.
#[test]
fn h_03_no_wait_is_longer_than_100_ms_or_a_byte() {
    for (rate, burst, longest) in
        [(SLOW, 0, 50), (SLOW, 100_000, 100), (10, 0, 100), (1, 0, 1_000), (10_000_000, 0, 50)]
    {
        let limits = TrafficLimits::new().write(rate).write_burst(burst).read(rate).read_burst(burst);
        let mut channel = shaped(limits, &Log::new());
        let first = if burst > 0 { burst } else { (rate / 10) as usize };
        channel.channel().write(bytes(first + 3)).unwrap();
        channel.write_inbound(&vec![b'x'; first + 3]).unwrap();
        assert!(channel.pending_bytes() > 0 && channel.timers() == 1, "one entry for both directions");
        assert!(channel.next_timer().unwrap() <= ms(longest), "{rate} bytes a second");
    }
}

/// H-04: who has turned auto-read off is not read for when the pause ends.
#[test]
fn h_04_the_end_of_a_pause_leaves_the_users_auto_read_alone() {
    let log = Log::new();
    let hold = |_: &mut Context<'_, Recorder>, _: &Call| Ok(());
    let mut channel = with(
        &ChannelOptions::new(),
        &ManualClock::new(),
        TrafficLimits::new().read(SLOW),
        Recorder::with(&log, hold),
    );
    let auto_read = |channel: &mut EmbeddedChannel<Bytes>, on: bool| {
        let set = move |scope: &mut netwheel::Scope<'_, Bytes>| {
            assert_eq!(scope.auto_read(), !on, "the pause has not touched it");
            scope.set_auto_read(on);
            Ok(())
        };
        channel.channel().execute(set).unwrap();
        channel.run_pending();
    };
    channel.write_inbound(&[b'x'; 300]).unwrap();
    assert_eq!(read(&log), 100);
    auto_read(&mut channel, false);
    channel.advance(Duration::from_secs(1));
    assert_eq!((read(&log), channel.timers()), (0, 0), "the pause is over, and nothing is read");
    auto_read(&mut channel, true);
    assert_eq!(read(&log), 100);
    // On, while the pause goes on: nothing before its end.
    auto_read(&mut channel, false);
    auto_read(&mut channel, true);
    assert_eq!(read(&log), 0);
    channel.advance(ms(50));
    assert_eq!(read(&log), 50);
}

/// H-04: a read that was asked for in a pause is made at its end, once.
#[test]
fn h_04_a_read_that_was_asked_for_waits_for_the_end_of_the_pause() {
    let log = Log::new();
    let options = ChannelOptions::new().auto_read(false).read_size(80);
    let limits = TrafficLimits::new().read(SLOW);
    let mut channel = with(&options, &ManualClock::new(), limits, Recorder::new(&log));
    let ask = |channel: &mut EmbeddedChannel<Bytes>| {
        let ask = |scope: &mut netwheel::Scope<'_, Bytes>| {
            scope.read();
            Ok(())
        };
        channel.channel().execute(ask).unwrap();
        channel.run_pending();
    };
    channel.write_inbound(&[b'x'; 300]).unwrap();
    for expected in [80, 20, 0] {
        ask(&mut channel);
        assert_eq!(read(&log), expected);
    }
    channel.advance(ms(50));
    assert_eq!(read(&log), 50);
    channel.advance(Duration::from_secs(1));
    assert_eq!(read(&log), 0, "nobody has asked again");
}

/// What was read before it was decoded is not held up a second time.
#[test]
fn messages_of_bytes_that_are_there_are_not_held_up() {
    let log = Log::new();
    let pipeline = Pipeline::new().traffic(TrafficLimits::new().read(SLOW)).codec(Line::new());
    let handler = Recorder::with(&log, |ctx, call| {
        if *call == Call::Read("a".into()) {
            ctx.set_auto_read(false);
        }
        Ok(())
    });
    let mut channel = EmbeddedChannel::new(pipeline.handler(handler));
    let text = [&b"a\nb\n"[..], &[b'x'; 200]].concat();
    channel.write_inbound(&text).unwrap();
    assert_eq!(log.take(), ["active", "read a", "read_complete"]);
    let on = |scope: &mut netwheel::Scope<'_, Bytes>| {
        scope.set_auto_read(true);
        Ok(())
    };
    channel.channel().execute(on).unwrap();
    channel.run_pending();
    assert_eq!(log.take(), ["read b", "read_complete"]);
}

/// H-05: without limits what waits goes out, reading goes on, and no timer is left.
#[test]
fn h_05_removal_sends_what_waits_and_reads_what_is_there() {
    let log = Log::new();
    let mut channel = shaped(TrafficLimits::new().read(SLOW).write(SLOW), &log);
    channel.channel().write(bytes(5_000)).unwrap();
    channel.write_inbound(&[b'x'; 5_000]).unwrap();
    assert_eq!((read(&log), channel.pending_bytes(), channel.timers()), (100, 4_900, 1));
    set(&mut channel, TrafficLimits::new());
    assert_eq!((read(&log), channel.pending_bytes(), channel.timers()), (4_900, 0, 0));
    assert_eq!(channel.read_outbound(), bytes(5_000));
    channel
        .channel()
        .execute(|scope| {
            assert!(scope.traffic().is_off());
            Ok(())
        })
        .unwrap();
    channel.run_pending();
    assert!(channel.is_open());
}

/// H-05: a channel that ends leaves no timer, and drops what waits if it is closed at once.
#[test]
fn h_05_a_channel_that_is_closed_at_once_waits_for_nothing() {
    let mut channel = shaped(TrafficLimits::new().write(SLOW), &Log::new());
    channel.channel().write(bytes(5_000)).unwrap();
    channel.run_pending();
    channel.channel().close_now();
    channel.run_pending();
    assert!(channel.is_closed());
    assert_eq!((channel.read_outbound().len(), channel.timers()), (100, 0));
}

#[test]
fn limits_change_at_run_time_and_what_was_used_up_stays_so() {
    let mut channel = shaped(TrafficLimits::new().write(SLOW), &Log::new());
    channel.channel().write(bytes(100_000)).unwrap();
    channel.run_pending();
    assert_eq!(channel.read_outbound().len(), 100);
    set(&mut channel, TrafficLimits::new().write(10 * SLOW));
    assert_eq!(channel.read_outbound().len(), 900, "a larger burst, less what was sent");
    channel.advance(Duration::from_secs(1));
    let sent = channel.read_outbound().len();
    assert_eq!(sent, 10_000);
    for _ in 0..100 {
        // Nobody gets more by setting the same again.
        set(&mut channel, TrafficLimits::new().write(10 * SLOW));
    }
    assert_eq!(channel.read_outbound().len(), 0);
    channel.advance(ms(50));
    assert_eq!(channel.read_outbound().len(), 500);
}

#[test]
fn a_graceful_close_sends_what_waits_at_the_same_rate_within_its_timeout() {
    let log = Log::new();
    let options = ChannelOptions::new().close_timeout(Duration::from_secs(1));
    let limits = TrafficLimits::new().write(SLOW);
    let mut channel = with(&options, &ManualClock::new(), limits, Recorder::new(&log));
    channel.channel().write(bytes(600)).unwrap();
    channel.channel().close();
    channel.run_pending();
    assert_eq!(channel.read_outbound().len(), 100);
    channel.advance(ms(499));
    assert!(!channel.is_closed());
    channel.advance(ms(1));
    assert!(channel.is_closed());
    assert_eq!((channel.read_outbound().len(), channel.timers()), (500, 0));

    let mut channel = with(&options, &ManualClock::new(), limits, Recorder::new(&log));
    channel.channel().write(bytes(6_000)).unwrap();
    channel.channel().close();
    channel.run_pending();
    channel.advance(ms(999));
    assert!(!channel.is_closed());
    channel.advance(ms(1));
    assert!(channel.is_closed());
    let sent = channel.read_outbound().len();
    assert!((1_050..=1_100).contains(&sent), "{sent} bytes, and no more, at the timeout");
    assert_eq!(channel.timers(), 0);
}

#[test]
fn the_end_of_the_output_comes_behind_what_waits() {
    let mut channel = shaped(TrafficLimits::new().write(SLOW), &Log::new());
    channel.channel().write(bytes(200)).unwrap();
    channel.channel().shutdown_write();
    channel.run_pending();
    assert!(!channel.is_output_ended());
    channel.advance(ms(100));
    assert!(channel.is_output_ended());
    assert_eq!(channel.read_outbound().len(), 200);
}

#[test]
fn the_peers_end_comes_behind_what_it_has_sent() {
    let log = Log::new();
    let mut channel = shaped(TrafficLimits::new().read(SLOW), &log);
    channel.write_inbound(&[b'x'; 200]).unwrap();
    channel.end_inbound();
    assert!(channel.is_open());
    channel.advance(ms(100));
    assert!(channel.is_closed());
    assert_eq!(read(&log), 200);
}

#[test]
fn a_peer_is_not_blamed_for_our_own_pauses() {
    let log = Log::new();
    let limits = TimeLimits::new().read(ms(20)).progress(1_000, ms(20));
    // The codec wants a line, and none ends.
    let pipeline = Pipeline::new().traffic(TrafficLimits::new().read(SLOW)).time_limits(limits);
    let mut channel = EmbeddedChannel::new(pipeline.codec(Line::new()).handler(Recorder::new(&log)));
    channel.write_inbound(&[b'x'; 400]).unwrap();
    channel.advance(ms(299));
    assert!(channel.is_open(), "{:?}", log.all());
    channel.advance(ms(50));
    assert!(channel.is_closed(), "nothing is left to read, and the peer says no more");
}

#[test]
fn a_peer_is_not_blamed_for_what_the_limit_holds_up_but_for_what_it_does_not_take() {
    let log = Log::new();
    let pipeline = Pipeline::new()
        .traffic(TrafficLimits::new().write(SLOW))
        .time_limits(TimeLimits::new().write(ms(20)))
        .codec(RawBytes)
        .handler(Recorder::new(&log));
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.channel().write(bytes(600)).unwrap();
    channel.run_pending();
    channel.advance(ms(449));
    assert!(channel.is_open(), "{:?}", log.all());
    channel.set_outbound_room(Some(0));
    channel.advance(ms(51));
    assert_eq!(log.take(), ["active", "error writing timed out after 20ms", "inactive"]);
}

// ---- a group ---------------------------------------------------------------------------------------------

/// Two channels of a group, and its clock.
fn two(group: &SharedTraffic) -> (ManualClock, [EmbeddedChannel<Bytes>; 2]) {
    let clock = ManualClock::new();
    let channels = [0, 1].map(|_| with(&ChannelOptions::new(), &clock, group, Recorder::new(&Log::new())));
    (clock, channels)
}

/// Lets time pass for all of them, a millisecond at a time.
fn pass(clock: &ManualClock, channels: &mut [EmbeddedChannel<Bytes>], time: u64) {
    for _ in 0..time {
        clock.advance(ms(1));
        for channel in channels.iter_mut() {
            channel.run_pending();
        }
    }
}

/// H-06: one limit for all, and each has its turn.
#[test]
fn h_06_a_group_keeps_to_its_limit_and_takes_turns() {
    const RATE: u64 = 100_000;
    let group = SharedTraffic::new(TrafficLimits::new().write(RATE));
    let (clock, mut channels) = two(&group);
    // The first has used up everything before the second comes, and is always served first.
    channels[0].channel().write(bytes(1_000_000)).unwrap();
    channels[0].run_pending();
    assert_eq!(channels[0].read_outbound().len(), 10_000, "the burst");
    channels[1].channel().write(bytes(1_000_000)).unwrap();
    channels[1].run_pending();
    assert_eq!(channels[1].read_outbound().len(), 0);
    pass(&clock, &mut channels, 2_000);
    let sent = channels.each_mut().map(|channel| channel.read_outbound().len());
    let all = sent[0] + sent[1];
    assert!((190_000..=200_000).contains(&all), "{sent:?}");
    assert!(sent[0].abs_diff(sent[1]) <= 10_000, "{sent:?}");
}

/// H-06: a group's limits may stand behind those of the channel.
#[test]
fn h_06_a_channel_may_have_limits_of_its_own_within_the_group() {
    let group = SharedTraffic::new(TrafficLimits::new().write(100_000));
    let own = TrafficLimits::new().write(10_000);
    let clock = ManualClock::new();
    let new =
        |traffic: TrafficShaping| with(&ChannelOptions::new(), &clock, traffic, Recorder::new(&Log::new()));
    let mut channels = [new(own.within(&group)), new((&group).into())];
    for channel in &mut channels {
        channel.channel().write(bytes(1_000_000)).unwrap();
        channel.run_pending();
    }
    pass(&clock, &mut channels, 2_000);
    let sent = channels.each_mut().map(|channel| channel.read_outbound().len());
    assert!((19_000..=21_000).contains(&sent[0]), "its own limit: {sent:?}");
    assert!((185_000..=191_000).contains(&sent[1]), "and the other one has the rest: {sent:?}");
}

/// H-06: what a channel has booked is for others when it ends.
#[test]
fn h_06_who_leaves_the_group_gives_back_what_was_booked() {
    let group = SharedTraffic::new(TrafficLimits::new().write(100_000));
    let (_, mut channels) = two(&group);
    for channel in &mut channels {
        channel.channel().write(bytes(50_000)).unwrap();
        channel.run_pending();
    }
    // 5,000 bytes are booked by the first, and half as many by the second.
    assert_eq!(channels[1].next_timer(), Some(ms(75)));
    channels[0].channel().close_now();
    channels[0].run_pending();
    set(&mut channels[1], TrafficLimits::new());
    set(&mut channels[1], group.clone());
    channels[1].channel().write(bytes(1)).unwrap();
    channels[1].run_pending();
    assert_eq!(channels[1].next_timer(), Some(ms(50)), "as if nobody had booked");
}

/// H-06: reading is shared as well, and a channel that has read all gives the rest back.
#[test]
fn h_06_reading_is_shared_too() {
    let group = SharedTraffic::new(TrafficLimits::new().read(100_000));
    let clock = ManualClock::new();
    let logs = [Log::new(), Log::new()];
    let mut channels = [0, 1].map(|n| with(&ChannelOptions::new(), &clock, &group, Recorder::new(&logs[n])));
    channels[0].write_inbound(&[b'x'; 12_000]).unwrap();
    channels[1].write_inbound(&[b'x'; 50_000]).unwrap();
    assert_eq!(logs.each_ref().map(read), [10_000, 0]);
    pass(&clock, &mut channels, 600);
    assert_eq!(logs.each_ref().map(read), [2_000, 50_000]);
    assert_eq!(channels.each_ref().map(|channel| channel.timers()), [0, 0]);
}

/// H-06: changed for all of them, from any thread.
#[test]
fn h_06_the_limits_of_a_group_change_at_run_time() {
    let group = SharedTraffic::new(TrafficLimits::new().write(1_000));
    let (clock, mut channels) = two(&group);
    for channel in &mut channels {
        channel.channel().write(bytes(500_000)).unwrap();
        channel.run_pending();
    }
    let faster = TrafficLimits::new().write(1_000_000);
    let other = group.clone();
    std::thread::spawn(move || other.set(faster)).join().unwrap();
    assert_eq!(group.limits(), faster);
    pass(&clock, &mut channels, 1_200);
    assert_eq!(channels.each_mut().map(|channel| channel.read_outbound().len()), [500_000; 2]);
    group.set(TrafficLimits::new());
    channels[0].channel().write(bytes(9_000_000)).unwrap();
    channels[0].run_pending();
    assert_eq!(channels[0].read_outbound().len(), 9_000_000, "no limit");
}

// ---- over TCP --------------------------------------------------------------------------------------------

/// A server on a loop whose time stands still, with shaped channels that write `answer` when they are connected.
fn serve(
    traffic: impl Into<TrafficShaping>,
    answer: Bytes,
    log: &Log,
) -> (EventLoopGroup, EventLoop, ManualClock, Server) {
    let clock = ManualClock::new();
    let (group, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()));
    let (traffic, log) = (traffic.into(), Mutex::new(log.clone()));
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let answer = answer.clone();
            let handler = Recorder::with(&log.lock().unwrap(), move |ctx, call| {
                if *call == Call::Active && !answer.is_empty() {
                    ctx.write(answer.clone())?;
                }
                Ok(())
            });
            Pipeline::new().traffic(traffic.clone()).codec(RawBytes).handler(handler)
        })
        .bind("127.0.0.1:0")
        .unwrap();
    (group, event_loop, clock, server)
}

/// The loop sleeps: it neither turns nor looks at a socket while nothing is due.
#[track_caller]
fn assert_sleeps(event_loop: &EventLoop) {
    settle(event_loop);
    let before = event_loop.metrics();
    settle(event_loop);
    let turns = event_loop.metrics().turns;
    (0..10_000).for_each(|_| std::thread::yield_now());
    let after = event_loop.metrics();
    assert!(after.turns <= turns + 2, "it turns in vain");
    // An event may be on its way still, the peer's end.
    assert!(after.ready <= before.ready + 1, "it has nothing to look at");
    assert_eq!(after.reads, before.reads);
}

#[track_caller]
fn receive(peer: &mut TcpStream, n: usize) -> Vec<u8> {
    let mut got = vec![0; n];
    peer.read_exact(&mut got).unwrap();
    got
}

/// H-02 over TCP: so much arrives and no more, in order; the loop sleeps meanwhile.
#[test]
fn h_02_over_tcp_a_write_limit_paces_what_the_kernel_gets() {
    const RATE: usize = 1_000_000;
    let all = bytes(RATE);
    let limits = TrafficLimits::new().write(RATE as u64);
    let (group, event_loop, clock, server) = serve(limits, all.clone(), &Log::new());
    let mut peer = connect(&server);
    let mut got = receive(&mut peer, 100_000);
    settle(&event_loop);
    assert_eq!(event_loop.metrics().bytes_written, 100_000);
    assert_sleeps(&event_loop);
    for step in 1..=18 {
        advance(&event_loop, &clock, ms(50));
        got.extend(receive(&mut peer, 50_000));
        assert_eq!(event_loop.metrics().bytes_written, 100_000 + step * 50_000);
        assert_eq!(event_loop.metrics().writes_paused, step.min(17) + 1);
    }
    assert_eq!(got, all);
    assert_eq!(event_loop.metrics().timers_pending, 0);
    assert_sleeps(&event_loop);
    end(&group);
}

/// H-01 over TCP: the kernel keeps what is over the limit, and tells of it no more; it is read all the same.
#[test]
fn h_01_over_tcp_a_read_limit_leaves_the_rest_to_the_kernel() {
    let log = Log::new();
    let limits = TrafficLimits::new().read(100_000);
    let (group, event_loop, clock, server) = serve(limits, Bytes::new(), &log);
    let mut peer = connect(&server);
    log.wait_for("active");
    peer.write_all(&[b'x'; 30_000]).unwrap();
    let total = |log: &Log| -> usize {
        log.all().iter().filter_map(|entry| entry.strip_prefix("read ")).map(str::len).sum()
    };
    log.wait_until("the burst", |_| event_loop.metrics().bytes_read == 10_000);
    // New events while it waits are no reason to read.
    let wakes = event_loop.metrics().wakes_io;
    peer.write_all(&[b'x'; 10_000]).unwrap();
    drop(peer);
    let begun = Instant::now();
    while event_loop.metrics().wakes_io == wakes {
        assert!(begun.elapsed() < PATIENCE, "no event comes");
        std::thread::yield_now();
    }
    // Those of the same peer that are still on their way.
    settle(&event_loop);
    assert_sleeps(&event_loop);
    assert_eq!(total(&log), 10_000);
    for step in 1..=6 {
        advance(&event_loop, &clock, ms(50));
        assert_eq!(
            (total(&log), event_loop.metrics().bytes_read),
            (10_000 + step * 5_000, 10_000 + step as u64 * 5_000)
        );
    }
    assert_eq!(
        event_loop.metrics().reads_paused,
        7,
        "also behind the last one: it cannot know that no more comes"
    );
    assert_eq!(log.count("inactive"), 0, "the peer's end is behind it");
    advance(&event_loop, &clock, ms(50));
    log.wait_for("inactive");
    end(&group);
}

/// A peer that has sent just as much as may be read, and is quiet then, is late like any other.
#[test]
fn over_tcp_a_quiet_peer_is_late_when_the_pause_is_over() {
    let clock = ManualClock::new();
    let (group, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()));
    let log = Log::new();
    let handler_log = log.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            Pipeline::new()
                .traffic(TrafficLimits::new().read(100_000))
                .time_limits(TimeLimits::new().read(ms(300)))
                .codec(RawBytes)
                .handler(Recorder::new(&handler_log))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut peer = connect(&server);
    log.wait_for("active");
    peer.write_all(&[b'x'; 10_000]).unwrap();
    log.wait_until("the burst", |_| event_loop.metrics().bytes_read == 10_000);
    advance(&event_loop, &clock, ms(50));
    for _ in 0..4 {
        advance(&event_loop, &clock, ms(100));
    }
    settle(&event_loop);
    assert_eq!(log.count("error reading timed out after 300ms"), 1, "{:?}", log.all());
    end(&group);
}

/// H-06 over TCP: connections on two loops share a limit and all get everything.
#[test]
fn h_06_over_tcp_loops_share_a_limit() {
    const PEERS: usize = 4;
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().threads(2).clock(clock.clone()).build().unwrap();
    let shared = SharedTraffic::new(TrafficLimits::new().write(20_000_000).read(20_000_000));
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let echo = Recorder::with(&Log::new(), |ctx, call| match call {
                Call::Read(message) => ctx.write(message.clone()),
                _ => Ok(()),
            });
            Pipeline::new().traffic(&shared).codec(RawBytes).handler(echo)
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let text = bytes(1_000_000);
    std::thread::scope(|scope| {
        let peers = (0..PEERS).map(|_| {
            scope.spawn(|| {
                let mut peer = connect(&server);
                let mut sender = peer.try_clone().unwrap();
                let sent = text.clone();
                let sending = std::thread::spawn(move || sender.write_all(&sent).unwrap());
                assert!(receive(&mut peer, text.len()) == text);
                sending.join().unwrap();
            })
        });
        let peers: Vec<_> = peers.collect();
        // While time stands still the burst is used up, and they wait.
        let pauses = || group.metrics().iter().map(|m| m.reads_paused + m.writes_paused).sum::<u64>();
        while pauses() == 0 {
            std::thread::yield_now();
        }
        while peers.iter().any(|peer| !peer.is_finished()) {
            clock.advance(ms(1));
            std::thread::yield_now();
        }
    });
    // Four million bytes, of which two are the burst.
    assert!(clock.elapsed() >= ms(100), "{:?}", clock.elapsed());
    end(&group);
}
