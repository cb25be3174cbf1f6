//! Tests of a loop that is driven by hand, on a manual clock.

use super::*;
use crate::{
    bootstrap::ServerBootstrap,
    channel::Pipeline,
    clock::ManualClock,
    codec::RawBytes,
    error::Result,
    group::{EventLoopGroup, ManualEventLoop},
    pipeline::{Context, Handler},
    testing::wait::PATIENCE,
};
use std::{
    io::{Read, Write},
    iter,
    net::TcpStream,
    thread,
    time::Instant,
};

const HOUR: Duration = Duration::from_secs(3600);
const MS: u64 = 1_000_000;

fn by_hand() -> (ManualEventLoop, ManualClock) {
    let clock = ManualClock::new();
    (EventLoopGroup::builder().clock(clock.clone()).build_manual().unwrap(), clock)
}

fn turn(by_hand: &mut ManualEventLoop) -> &mut Turn {
    by_hand.driven().turn.as_mut().unwrap()
}

/// Resumes the turn with the result of a simulated poll.
fn answer(turn: &mut Turn, wait: Wait, cause: Option<WakeCause>, event: Option<(usize, Ready)>) {
    assert!(!turn.resume(wait, Ok(cause), event.into_iter()));
}

struct Echo;

impl Handler for Echo {
    type Read = bytes::Bytes;
    type Write = bytes::Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: bytes::Bytes) -> Result {
        ctx.write(message)
    }
}

#[test]
fn mail_between_the_halves_sees_the_published_sleep() {
    let (mut by_hand, clock) = by_hand();
    let event_loop = by_hand.event_loop().clone();
    let turn = turn(&mut by_hand);
    let wait = turn.fall_asleep();
    assert_eq!(wait, Wait::Forever);
    let timer = event_loop.schedule(Duration::from_millis(5), || ()).unwrap();
    assert_eq!(event_loop.metrics().wakes_written, 1);
    answer(turn, wait, Some(WakeCause::Waker), None);

    let wait = turn.fall_asleep();
    assert_eq!(wait, Wait::Until(5 * MS));
    event_loop.schedule(Duration::from_millis(7), || ()).unwrap();
    assert_eq!(event_loop.metrics().wakes_written, 1, "the loop wakes before that");
    answer(turn, wait, None, None);
    assert_eq!(event_loop.metrics().wakes_premature, 1);

    let wait = turn.fall_asleep();
    clock.advance(Duration::from_millis(5));
    answer(turn, wait, None, None);
    assert!(timer.is_done());
    assert_eq!(event_loop.metrics().wakes_deadline, 1);

    event_loop.execute(|| ()).unwrap();
    assert_eq!(turn.fall_asleep(), Wait::NotAtAll);
}

#[test]
fn a_driver_other_than_the_kernel_reports_ready_sources() {
    let (mut by_hand, _clock) = by_hand();
    let event_loop = by_hand.event_loop().clone();
    let bootstrap = ServerBootstrap::new(by_hand.group());
    let server = bootstrap.pipeline(|_| Pipeline::codec(RawBytes).handler(Echo)).bind("127.0.0.1:0");
    let server = server.unwrap();
    let address = server.local_address();
    let turn = turn(&mut by_hand);
    let wait = turn.fall_asleep();
    answer(turn, wait, Some(WakeCause::NotAsleep), None);
    let listener = turn.sources.keys()[0];

    let mut peer = TcpStream::connect(address).unwrap();
    let wait = turn.fall_asleep();
    answer(turn, wait, Some(WakeCause::Io), Some((listener.token(), Ready::READABLE)));
    assert_eq!(event_loop.metrics().accepted, 1);
    let channel = turn.sources.keys().into_iter().find(|key| *key != listener).unwrap();

    peer.write_all(b"hello").unwrap();
    let began = Instant::now();
    while event_loop.metrics().bytes_written < 5 {
        let wait = turn.fall_asleep();
        answer(turn, wait, Some(WakeCause::Io), Some((channel.token(), Ready::READABLE)));
        assert!(began.elapsed() < PATIENCE, "{:?}", event_loop.metrics());
    }
    let mut echo = [0; 5];
    peer.read_exact(&mut echo).unwrap();
    assert_eq!(&echo, b"hello");
}

#[test]
fn after_a_failed_poll_the_rest_passes_by_the_clock_of_the_loop() {
    let (mut by_hand, clock) = by_hand();
    let event_loop = by_hand.event_loop().clone();
    for (failures, rest) in [(1, 10), (2, 20), (3, 40)] {
        let turn = turn(&mut by_hand);
        turn.sleep.at_most = None;
        let wait = turn.fall_asleep();
        assert_eq!(wait, Wait::Forever);
        assert!(!turn.resume(wait, Err(io::Error::other("broken")), iter::empty()));
        let metrics = event_loop.metrics();
        assert_eq!((metrics.polls, metrics.poll_errors), (failures, failures));
        clock.advance(Duration::from_millis(rest - 1));
        let now = turn.time().now();
        assert_eq!(turn.fall_asleep(), Wait::Rest(now + MS));
        for _ in 0..3 {
            assert_eq!(by_hand.run_once(Duration::ZERO), 0);
        }
        assert_eq!(event_loop.metrics().polls, failures, "a resting loop does not poll");
        clock.advance(Duration::from_millis(1));
    }
    // The kernel's poll works.
    assert_eq!(by_hand.run_once(Duration::ZERO), 0);
    assert_eq!((event_loop.metrics().polls, turn(&mut by_hand).poll_failures), (4, 0));
}

/// Makes a loop rest for an hour, and runs it without a limit until it has polled.
fn rest_until_polled(by_hand: &mut ManualEventLoop, end_rest: impl FnOnce() + Send) {
    turn(by_hand).rest(HOUR);
    let polls = by_hand.event_loop().metrics().polls;
    thread::scope(|scope| {
        scope.spawn(end_rest);
        while by_hand.event_loop().metrics().polls == polls {
            by_hand.run_once(None);
        }
    });
}

#[test]
fn a_rest_of_an_hour_ends_when_the_clock_advances_by_an_hour() {
    let (mut by_hand, clock) = by_hand();
    // The loop needs a deadline that ends the turn after the rest.
    by_hand.event_loop().schedule(HOUR, || ()).unwrap();
    by_hand.run_once(Duration::ZERO);
    rest_until_polled(&mut by_hand, || {
        clock.advance(HOUR / 2);
        clock.advance(HOUR / 2);
    });
}

#[test]
fn mail_ends_a_rest_while_the_clock_stands_still() {
    let (mut by_hand, clock) = by_hand();
    let event_loop = by_hand.event_loop().clone();
    let mut ran = None;
    rest_until_polled(&mut by_hand, || ran = Some(event_loop.execute(|| ()).is_ok()));
    assert_eq!((ran, clock.elapsed()), (Some(true), Duration::ZERO));
    assert_eq!(by_hand.event_loop().metrics().tasks_run, 1);
}

#[test]
fn a_rest_does_not_exceed_the_limit_of_the_owner_of_a_manual_loop() {
    let mut real = EventLoopGroup::builder().build_manual().unwrap();
    let (mut manual, _clock) = by_hand();
    for by_hand in [&mut real, &mut manual] {
        turn(by_hand).rest(HOUR);
        for limit in [Duration::ZERO, Duration::from_millis(1)] {
            assert_eq!(by_hand.run_once(limit), 0);
        }
        assert_eq!(by_hand.event_loop().metrics().polls, 0);
    }
}
