//! Idle detection: which traffic counts, when events occur and when not, and their cost.
//!
//! In Netty, the position of the idle handler in the pipeline matters. Here the channel core always
//! measures received bytes and bytes that the kernel has accepted. So I-09, Netty's mode without
//! observation of the output, does not apply.

use crate::support::{
    journal::Log,
    recorder::{Event, Recorder},
    tcp::{ask, connect},
    wait::{SECOND, done},
};
use bytes::Bytes;
use netwheel::{
    IdleState,
    channel::ChannelOptions,
    codec::Line,
    prelude::*,
    shutdown::ShutdownOptions,
    testing::{EmbeddedChannel, ManualClock},
};
use std::time::Duration;

const HALF: Duration = Duration::from_millis(500);
const NANO: Duration = Duration::from_nanos(1);
const TICK: Duration = Duration::from_millis(1);

/// An embedded channel and the times of its idle events.
struct Quiet {
    channel: EmbeddedChannel<Bytes>,
    log: Log,
}

impl Quiet {
    fn new(timeouts: IdleTimeouts) -> Self {
        Self::with(timeouts, TICK, |_, _| Ok(()))
    }

    fn with(
        timeouts: IdleTimeouts,
        tick: Duration,
        mut hook: impl FnMut(&mut Context<'_, Recorder>, &Event) -> Result + 'static,
    ) -> Self {
        let (log, clock) = (Log::new(), ManualClock::new());
        let (inner, time) = (log.clone(), clock.clone());
        // The test needs times, so it ignores the recorder's own log.
        let handler = Recorder::exactly(&Log::new(), move |ctx, call| {
            if let Event::Idle(event) = call {
                inner.push(format!("{:?} {event}", time.elapsed()));
            }
            hook(ctx, call)
        });
        let pipeline = Pipeline::codec(Line::new()).idle(timeouts).handler(handler);
        let channel = EmbeddedChannel::builder(pipeline).clock(clock).wheel_tick(tick).build().unwrap();
        Quiet { channel, log }
    }

    fn advance(&mut self, by: Duration) -> Vec<String> {
        self.channel.advance(by);
        self.log.take()
    }

    fn read(&mut self) {
        // Less than a line, because bytes count, not messages.
        self.channel.write_inbound(b"x").unwrap();
    }

    fn write(&mut self) {
        self.channel.channel().write("x".into()).unwrap();
        self.channel.run_pending();
    }

    fn execute(&mut self, task: impl FnOnce(&mut netwheel::ChannelContext<'_, Bytes>) + Send + 'static) {
        let task = |ctx: &mut netwheel::ChannelContext<'_, Bytes>| {
            task(ctx);
            Ok(())
        };
        self.channel.channel().execute(task).unwrap();
        self.channel.run_pending();
    }
}

fn reader() -> IdleTimeouts {
    IdleTimeouts::new().reader(SECOND)
}

fn writer() -> IdleTimeouts {
    IdleTimeouts::new().writer(SECOND)
}

fn all() -> IdleTimeouts {
    IdleTimeouts::new().all(SECOND)
}

const NOTHING: [&str; 0] = [];

#[test]
fn i_01_reader_idle_occurs_every_second_and_only_the_first_event_is_first() {
    let mut quiet = Quiet::new(reader());
    assert_eq!(quiet.advance(SECOND - NANO), NOTHING);
    assert_eq!(quiet.advance(NANO), ["1s Reader idle, first"]);
    assert_eq!(quiet.advance(2 * SECOND), ["2s Reader idle", "3s Reader idle"]);
}

#[test]
fn i_02_writer_idle_and_all_idle_occur_likewise() {
    let mut quiet = Quiet::new(writer());
    assert_eq!(quiet.advance(3 * SECOND), ["1s Writer idle, first", "2s Writer idle", "3s Writer idle"]);
    let mut quiet = Quiet::new(all());
    assert_eq!(quiet.advance(3 * SECOND), ["1s All idle, first", "2s All idle", "3s All idle"]);
}

#[test]
fn i_03_traffic_postpones_the_event_by_the_whole_timeout() {
    for (timeouts, kind) in [(reader(), "Reader"), (writer(), "Writer")] {
        let mut quiet = Quiet::new(timeouts);
        quiet.advance(HALF + NANO);
        if kind == "Reader" {
            quiet.read()
        } else {
            quiet.write()
        }
        assert_eq!(quiet.advance(HALF), NOTHING, "{kind}: 1 s + 1 ns");
        // Due at 1.5 s + 1 ns, and reported at the end of the wheel tick that contains this time.
        assert_eq!(quiet.advance(SECOND), [format!("1.501s {kind} idle, first")]);
    }
}

#[test]
fn i_03_traffic_of_the_other_direction_does_not_count() {
    let mut quiet = Quiet::new(reader());
    quiet.advance(HALF);
    quiet.write();
    assert_eq!(quiet.advance(HALF), ["1s Reader idle, first"]);
    let mut quiet = Quiet::new(writer());
    quiet.advance(HALF);
    quiet.read();
    assert_eq!(quiet.advance(HALF), ["1s Writer idle, first"]);
}

#[test]
fn i_03_after_traffic_the_next_event_is_first_again() {
    let mut quiet = Quiet::new(reader());
    assert_eq!(quiet.advance(2 * SECOND), ["1s Reader idle, first", "2s Reader idle"]);
    quiet.advance(HALF);
    quiet.read();
    assert_eq!(quiet.advance(2 * SECOND), ["3.5s Reader idle, first", "4.5s Reader idle"]);
}

#[test]
fn i_04_all_idle_is_reset_by_either_direction() {
    let mut quiet = Quiet::new(all());
    quiet.advance(HALF);
    quiet.read();
    assert_eq!(quiet.advance(HALF), NOTHING);
    quiet.write();
    assert_eq!(quiet.advance(SECOND - NANO), NOTHING);
    assert_eq!(quiet.advance(NANO), ["2s All idle, first"]);
}

#[test]
fn i_05_a_reset_counts_as_traffic_but_does_not_make_the_next_event_first() {
    for (timeouts, state) in
        [(reader(), IdleState::Reader), (writer(), IdleState::Writer), (all(), IdleState::All)]
    {
        let mut quiet = Quiet::new(timeouts);
        assert_eq!(quiet.advance(SECOND), [format!("1s {state:?} idle, first")]);
        quiet.advance(HALF);
        quiet.execute(move |ctx| ctx.reset_idle_of(state));
        assert_eq!(quiet.advance(SECOND - NANO), NOTHING);
        assert_eq!(quiet.advance(NANO), [format!("2.5s {state:?} idle")]);
    }
}

#[test]
fn i_05_a_reset_of_one_direction_resets_all_idle_and_not_the_other_direction() {
    let mut quiet = Quiet::new(reader().writer(SECOND).all(SECOND));
    quiet.advance(HALF);
    quiet.execute(|ctx| ctx.reset_idle_of(IdleState::Reader));
    assert_eq!(quiet.advance(HALF), ["1s Writer idle, first"]);
    assert_eq!(quiet.advance(HALF), ["1.5s Reader idle, first", "1.5s All idle, first"]);
}

// Bytes have the time of the turn that read them. Idle detection sees no time pass within a burst,
// however slow the handler is, because no callback runs within another. It continues with the next
// turn.
#[test]
fn i_06_no_event_within_a_burst_of_reads() {
    let log = Log::new();
    let clock = ManualClock::new();
    let time = clock.clone();
    let handler = Recorder::exactly(&log, move |_, call| {
        if let Event::Read(_) = call {
            time.advance(2 * SECOND);
        }
        Ok(())
    });
    let pipeline = Pipeline::codec(Line::new()).idle(reader().all(SECOND)).handler(handler);
    let options = ChannelOptions::new().read_size(2);
    let mut channel =
        EmbeddedChannel::builder(pipeline).channel_options(options).clock(clock).build().unwrap();
    channel.write_inbound(b"a\nb\nc\n").unwrap();
    assert_eq!(log.take(), ["active", "read a", "read b", "read c", "read_complete"]);
}

#[test]
fn i_07_a_read_complete_without_bytes_is_not_traffic() {
    let mut quiet = Quiet::new(reader().all(SECOND));
    quiet.advance(HALF);
    quiet.channel.write_inbound(b"").unwrap();
    assert_eq!(quiet.advance(HALF), ["1s Reader idle, first", "1s All idle, first"]);
}

// Bytes count when the kernel accepts them. A failed write has none.
#[test]
fn i_08_the_writer_timeout_starts_when_the_kernel_accepts_bytes_not_when_they_are_written() {
    let mut quiet = Quiet::new(writer());
    quiet.channel.set_outbound_room(Some(0));
    quiet.advance(HALF);
    quiet.write();
    assert_eq!(quiet.advance(HALF), ["1s Writer idle, first"], "no byte was accepted yet");
    quiet.advance(Duration::from_millis(200));
    quiet.channel.set_outbound_room(None);
    assert_eq!(quiet.advance(SECOND), ["2.2s Writer idle, first"], "1 s after the bytes were accepted");
    quiet.advance(HALF);
    quiet.execute(|ctx| {
        let too_long = Bytes::from(vec![b'x'; 100_000]);
        assert!(ctx.write(too_long).is_err());
    });
    assert_eq!(quiet.advance(HALF), ["3.2s Writer idle"]);
}

#[test]
fn i_10_a_large_write_that_drains_slowly_is_not_idle() {
    let mut quiet = Quiet::new(writer().all(SECOND));
    quiet.channel.set_outbound_room(Some(0));
    quiet.write();
    quiet.write();
    quiet.write();
    for _ in 0..6 {
        assert_eq!(quiet.advance(SECOND - NANO), NOTHING);
        quiet.channel.set_outbound_room(Some(1));
    }
    assert_eq!(quiet.channel.read_outbound(), "x\nx\nx\n");
    let events = quiet.advance(SECOND + TICK);
    assert_eq!(events.len(), 2, "when the write makes no more progress: {events:?}");
}

#[test]
fn i_11_zero_is_off_and_less_than_a_millisecond_is_a_millisecond() {
    let mut quiet = Quiet::new(reader().reader(Duration::ZERO).writer(Duration::ZERO));
    assert_eq!(quiet.channel.timers(), 0);
    assert_eq!(quiet.advance(100 * SECOND), NOTHING);
    let mut quiet = Quiet::new(IdleTimeouts::new().reader(NANO));
    assert_eq!(quiet.advance(2 * TICK), ["1ms Reader idle, first", "2ms Reader idle"]);
}

// There is no handler to add or remove. The watch starts with the channel, and is one timer for all
// kinds.
#[test]
fn i_12_there_is_one_timer_from_open_to_close() {
    let mut quiet = Quiet::with(reader().writer(SECOND).all(SECOND), TICK, |ctx, call| {
        if *call == Event::Inactive {
            ctx.set_idle_timeouts(reader());
        }
        Ok(())
    });
    assert_eq!(quiet.channel.timers(), 1);
    assert_eq!(quiet.channel.next_timer(), Some(SECOND));
    quiet.channel.close();
    assert_eq!(quiet.channel.timers(), 0, "the timer does not start again, even if `inactive` requests it");
    assert_eq!(quiet.advance(10 * SECOND), NOTHING);
}

#[test]
fn i_13_a_closed_channel_has_no_timer_and_a_closing_one_no_events() {
    let mut quiet = Quiet::new(reader().writer(SECOND).all(SECOND));
    quiet.channel.set_outbound_room(Some(0));
    quiet.write();
    quiet.channel.close();
    assert!(!quiet.channel.is_closed());
    assert_eq!(
        quiet.advance(5 * SECOND),
        NOTHING,
        "a closing channel waits for its peer, and reports no idle event"
    );
    quiet.channel.set_outbound_room(None);
    assert!(quiet.channel.is_closed());
    assert_eq!(quiet.channel.timers(), 0);
    assert_eq!(quiet.advance(5 * SECOND), NOTHING);
}

#[test]
fn i_13_no_event_follows_one_that_closes_the_channel() {
    let mut quiet = Quiet::with(reader().writer(SECOND).all(SECOND), TICK, |ctx, call| {
        if let Event::Idle(_) = call {
            ctx.close();
        }
        Ok(())
    });
    assert_eq!(quiet.advance(10 * SECOND), ["1s Reader idle, first"]);
}

#[test]
fn i_14_traffic_does_not_touch_the_timer_which_is_rearmed_for_the_remaining_time_when_due() {
    let mut quiet = Quiet::new(reader());
    let ms = Duration::from_millis;
    for _ in 0..3 {
        quiet.advance(ms(100));
        quiet.read();
    }
    assert_eq!(quiet.channel.next_timer(), Some(ms(700)), "the timer is unchanged");
    assert_eq!(quiet.advance(ms(700)), NOTHING);
    assert_eq!(quiet.channel.next_timer(), Some(ms(300)), "the remaining time: 1 s after the last byte");
    assert_eq!(quiet.channel.timers(), 1);
    assert_eq!(quiet.advance(ms(300)), ["1.3s Reader idle, first"]);
}

#[test]
fn i_15_when_the_handler_fails_the_next_event_is_armed_already_and_the_error_is_reported() {
    let log = Log::new();
    let inner = log.clone();
    let mut quiet = Quiet::with(reader(), TICK, move |_, call| match call {
        Event::Idle(_) => Err("idle".into()),
        Event::Error(text) => {
            inner.push(text.clone());
            Ok(())
        }
        _ => Ok(()),
    });
    assert_eq!(quiet.advance(SECOND), ["1s Reader idle, first"]);
    assert_eq!(log.take(), ["idle"]);
    assert_eq!(quiet.channel.next_timer(), Some(SECOND));
    assert_eq!(quiet.advance(SECOND), ["2s Reader idle"]);
}

#[test]
fn i_20_an_event_is_never_early_and_at_most_a_tick_late() {
    let (timeout, tick) = (Duration::from_millis(250), Duration::from_millis(100));
    for step in 1..200u64 {
        let mut quiet = Quiet::with(IdleTimeouts::new().reader(timeout), tick, |_, _| Ok(()));
        let traffic = Duration::from_micros(step * 1_777);
        let mut early = Vec::new();
        if traffic >= timeout {
            early = quiet.advance(traffic);
        } else {
            quiet.advance(traffic);
        }
        assert!(early.len() <= 1, "{early:?}");
        quiet.read();
        assert_eq!(quiet.advance(timeout - NANO), NOTHING, "traffic at {traffic:?}");
        let events = quiet.advance(tick + NANO);
        assert_eq!(events.len(), 1, "traffic at {traffic:?}: {events:?}");
    }
}

#[test]
fn i_20_events_missed_during_a_stall_are_reported_once() {
    let mut quiet = Quiet::new(reader());
    quiet.channel.stall(Duration::from_millis(5_500));
    assert_eq!(quiet.log.take(), ["5.5s Reader idle, first"]);
    assert_eq!(quiet.advance(SECOND), ["6s Reader idle"]);
}

#[test]
fn timeouts_can_be_changed_at_any_time_and_the_time_so_far_counts() {
    let mut quiet = Quiet::new(IdleTimeouts::new().reader(10 * SECOND));
    quiet.advance(2 * SECOND);
    quiet.execute(|ctx| {
        assert_eq!(ctx.idle_timeouts(), IdleTimeouts::new().reader(10 * SECOND));
        ctx.set_idle_timeouts(IdleTimeouts::new().reader(3 * SECOND));
    });
    assert_eq!(quiet.advance(SECOND), ["3s Reader idle, first"], "shorter");
    quiet.execute(|ctx| ctx.set_idle_timeouts(IdleTimeouts::new().reader(5 * SECOND)));
    assert_eq!(quiet.advance(4 * SECOND), NOTHING);
    assert_eq!(quiet.advance(SECOND), ["8s Reader idle"], "longer");
    quiet.advance(4 * SECOND);
    quiet.execute(|ctx| ctx.set_idle_timeouts(reader()));
    assert_eq!(quiet.advance(TICK).len(), 1, "an overdue event occurs at once");
    quiet.execute(|ctx| ctx.set_idle_timeouts(IdleTimeouts::new()));
    assert_eq!(quiet.channel.timers(), 0, "off");
    assert_eq!(quiet.advance(100 * SECOND), NOTHING);
    quiet.execute(|ctx| ctx.set_idle_timeouts(writer()));
    assert_eq!(quiet.advance(SECOND).len(), 1, "on again, another kind");
}

#[test]
fn a_channel_without_timeouts_can_get_some_later() {
    let mut quiet = Quiet::new(IdleTimeouts::new());
    quiet.advance(10 * SECOND);
    quiet.execute(|ctx| ctx.set_idle_timeouts(reader()));
    assert_eq!(quiet.channel.timers(), 1);
    let events = quiet.advance(SECOND);
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].ends_with("Reader idle, first"));
}

#[test]
fn a_kind_that_the_previous_event_turned_off_is_not_reported() {
    let mut quiet = Quiet::with(reader().writer(SECOND).all(SECOND), TICK, |ctx, call| {
        if let Event::Idle(_) = call {
            ctx.set_idle_timeouts(IdleTimeouts::new().all(SECOND));
        }
        Ok(())
    });
    assert_eq!(quiet.advance(SECOND), ["1s Reader idle, first", "1s All idle, first"]);
    assert_eq!(quiet.advance(SECOND), ["2s All idle"]);
}

#[test]
fn a_heartbeat_is_sent_only_if_nothing_else_was() {
    let mut quiet = Quiet::with(writer(), TICK, |ctx, call| match call {
        Event::Idle(_) => ctx.write("ping".into()),
        _ => Ok(()),
    });
    quiet.advance(HALF);
    quiet.write();
    quiet.advance(HALF);
    assert_eq!(quiet.channel.read_outbound(), "x\n");
    assert_eq!(quiet.advance(HALF), ["1.5s Writer idle, first"]);
    assert_eq!(quiet.channel.read_outbound(), "ping\n");
    // The heartbeat is traffic itself, so the next event is `first` again.
    assert_eq!(quiet.advance(SECOND), ["2.5s Writer idle, first"]);
}

#[test]
fn over_tcp_idle_events_follow_the_loops_clock() {
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().threads(1).wheel_tick(TICK).clock(clock.clone()).build().unwrap();
    let log = Log::new();
    let handler_log = log.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            Pipeline::codec(Line::new()).idle(reader().writer(10 * SECOND)).handler(Recorder::with(
                &handler_log,
                |ctx, call| match call {
                    Event::Read(message) => ctx.write(message.clone()),
                    Event::Idle(event) if event.state == IdleState::Writer => ctx.write("ping".into()),
                    _ => Ok(()),
                },
            ))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut peer = connect(server.local_address());
    log.wait_for("active");
    clock.advance(SECOND);
    log.wait_for("idle Reader idle, first");
    ask(&mut peer, "one\n", "one\n");
    clock.advance(SECOND - NANO);
    // This task was submitted after the clock was advanced, so all due events have run before it.
    done(group.next().schedule(Duration::ZERO, || ()).unwrap().completion()).unwrap();
    assert_eq!(log.count("idle Reader idle, first"), 1);
    clock.advance(SECOND);
    log.wait_until("a second first event", |log| {
        log.iter().filter(|e| *e == "idle Reader idle, first").count() == 2
    });
    clock.advance(10 * SECOND);
    ask(&mut peer, "", "ping\n");
    drop(peer);
    log.wait_for("drop");
    let before = log.all().len();
    clock.advance(100 * SECOND);
    done(group.next().schedule(Duration::ZERO, || ()).unwrap().completion()).unwrap();
    assert_eq!(log.all().len(), before, "nothing after `drop`");
    assert_eq!(group.next().metrics().wheel_pending, 0);
    // Time stands still, so only a shutdown with zero durations ends at once.
    let ended = group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO));
    done(ended).unwrap();
}

/// A handler that does not implement `idle`.
struct DefaultIdle;

impl Handler for DefaultIdle {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        match &line[..] {
            b"pause" => ctx.set_auto_read(false),
            _ => ctx.write(line)?,
        }
        Ok(())
    }

    fn read_closed(&mut self, _: &mut Context<'_, Self>) -> Result {
        Ok(())
    }
}

/// Returns a channel whose handler does not implement `idle`.
fn default_idle_channel(timeouts: IdleTimeouts) -> EmbeddedChannel<Bytes> {
    let pipeline = Pipeline::codec(Line::new()).idle(timeouts).handler(DefaultIdle);
    let options = ChannelOptions::new().half_close(true);
    EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap()
}

#[test]
fn by_default_a_channel_closes_when_its_peer_is_idle_after_flushing_its_writes() {
    for timeouts in [IdleTimeouts::new().reader(SECOND), IdleTimeouts::new().all(SECOND)] {
        let mut channel = default_idle_channel(timeouts);
        channel.set_outbound_room(Some(2));
        channel.write_inbound(b"hello\n").unwrap();
        channel.advance(SECOND - TICK);
        assert!(channel.is_open());
        channel.advance(2 * TICK);
        assert!(!channel.is_open() && !channel.is_closed(), "bytes are pending");
        channel.set_outbound_room(None);
        channel.run_pending();
        assert!(channel.is_closed());
        assert_eq!(channel.read_outbound(), "hello\n");
    }
}

#[test]
fn by_default_a_channel_stays_open_if_only_its_own_side_is_idle_or_it_does_not_read() {
    let mut writer = default_idle_channel(IdleTimeouts::new().writer(SECOND));
    let mut paused = default_idle_channel(IdleTimeouts::new().reader(SECOND).all(SECOND));
    paused.write_inbound(b"pause\n").unwrap();
    let mut ended = default_idle_channel(IdleTimeouts::new().reader(SECOND));
    ended.end_inbound();
    for channel in [&mut writer, &mut paused, &mut ended] {
        channel.advance(10 * SECOND);
        assert!(channel.is_open());
    }
    // A peer that has ended its stream and receives nothing is idle in both directions.
    let mut both = default_idle_channel(IdleTimeouts::new().all(SECOND));
    both.end_inbound();
    both.advance(2 * SECOND);
    assert!(both.is_closed());
}
