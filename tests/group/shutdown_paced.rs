//! Channels at the shutdown of their loop: they are notified one after the other over a window,
//! flushed, closed at the deadline, and counted (E-57, E-58).

use crate::support::{
    journal::Journal,
    logs,
    loops::{Gate, advance, settle, settle_until, single, watch},
    resources::need_descriptors,
    tcp::{assert_echoes, connect, read_n},
    wait::{HOUR, done, ms, wait_until},
};
use bytes::Bytes;
use netwheel::{
    Channel, Context, Error, EventLoop, EventLoopGroup, Handler, IdleEvent, IdleTimeouts, Pipeline, Result,
    Server, ServerBootstrap,
    channel::ChannelOptions,
    codec::RawBytes,
    filter::{Filter, FilterContext, FilterState},
    net::TcpOptions,
    shutdown::ShutdownOptions,
    testing::ManualClock,
};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// More channels than the loop notifies in one turn.
const CROWD: usize = 1100;

/// Serializes the tests that need a crowd. Both ends are in this process, and its descriptors
/// suffice for one crowd at a time.
fn alone_with_a_crowd() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    need_descriptors(2 * CROWD + 200);
    alone
}

/// More than the buffers of two sockets hold.
const BIG: usize = 12 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Happened {
    /// `shutdown` was called, in this turn.
    Notified(u64),
    Idle,
    Ran,
    Inactive,
}

/// Echoes its input, and says goodbye. Replies to `big` with [`BIG`] bytes. After `stay`, it does
/// not close at the shutdown.
struct Guest {
    house: House,
    stay: bool,
}

/// A loop whose clock stands still, with a server.
#[derive(Clone)]
struct House {
    clock: ManualClock,
    group: EventLoopGroup,
    event_loop: EventLoop,
    /// The callbacks and their times.
    journal: Journal<(Duration, Happened)>,
    channels: Journal<Channel<Bytes>>,
    /// Its channels have a filter, which is established at once.
    has_filter: bool,
}

/// Changes nothing.
struct Plain;

impl Filter for Plain {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        ctx.deliver(input);
        Ok(input.len())
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        ctx.output().extend_from_slice(plain);
        Ok(())
    }

    fn sealed_len(&self, plain: usize) -> usize {
        plain
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

impl Guest {
    fn note(&self, what: Happened) {
        self.house.journal.push((self.house.clock.elapsed(), what));
    }
}

impl Handler for Guest {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.house.channels.push(ctx.channel());
        ctx.schedule(ms(450), |me, _| {
            me.note(Happened::Ran);
            Ok(())
        });
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        match &message[..] {
            b"big" => ctx.write(vec![7; BIG].into()),
            b"stay" => {
                self.stay = true;
                ctx.write(message)
            }
            _ => ctx.write(message),
        }
    }

    fn idle(&mut self, _: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        self.note(Happened::Idle);
        Ok(())
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.note(Happened::Notified(self.house.event_loop.metrics().turns));
        ctx.write("bye".into())?;
        if !self.stay {
            ctx.close();
        }
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.note(Happened::Inactive);
        Ok(())
    }
}

impl House {
    fn new(name: &str) -> Self {
        let clock = ManualClock::new();
        let builder = EventLoopGroup::builder().clock(clock.clone()).wheel_tick(ms(1)).name(name);
        let (group, event_loop) = single(builder);
        let (journal, channels) = (Journal::new(), Journal::new());
        House { clock, group, event_loop, journal, channels, has_filter: false }
    }

    fn serve(&self) -> Server {
        self.serve_from(&self.group, ChannelOptions::new().close_timeout(HOUR))
    }

    fn serve_from(&self, acceptors: &EventLoopGroup, options: ChannelOptions) -> Server {
        let house = self.clone();
        let server = ServerBootstrap::new(&self.group).acceptor_group(acceptors).channel_options(options);
        let mut server = server.tcp_options(TcpOptions::new().send_buffer(64 * 1024));
        if self.has_filter {
            server = server.filter(|_| Plain);
        }
        let server = server.pipeline(move |_peer| {
            let guest = Guest { house: house.clone(), stay: false };
            Pipeline::codec(RawBytes).idle(IdleTimeouts::new().reader(ms(450))).handler(guest)
        });
        server.bind("127.0.0.1:0").unwrap()
    }

    fn advance(&self, by: Duration) {
        advance(&self.event_loop, &self.clock, by);
    }

    /// Returns the times at which channels were notified of the shutdown.
    fn notified(&self) -> Vec<Duration> {
        let all = self.journal.all();
        all.iter().filter(|(_, what)| matches!(what, Happened::Notified(_))).map(|(at, _)| *at).collect()
    }

    fn count(&self, what: Happened) -> usize {
        self.journal.all().iter().filter(|(_, happened)| *happened == what).count()
    }

    /// Connects peers and returns them in the order in which their channels will be notified.
    fn guests(&self, server: &Server, n: usize) -> Vec<TcpStream> {
        let greet = |_| {
            let mut guest = connect(server.local_address());
            assert_echoes(&mut guest);
            guest
        };
        (0..n).map(greet).collect()
    }
}

/// Returns options for a shutdown over `window`, without a quiet period and with a timeout that is
/// not reached.
fn over(window: Duration) -> ShutdownOptions {
    ShutdownOptions::new().quiet_period(Duration::ZERO).drain_window(window).timeout(HOUR)
}

#[track_caller]
fn ask(guest: &mut TcpStream, what: &str) {
    guest.write_all(what.as_bytes()).unwrap();
    let mut back = vec![0; what.len()];
    guest.read_exact(&mut back).unwrap();
    assert_eq!(back, what.as_bytes());
}

#[track_caller]
fn assert_says_bye(guest: &mut TcpStream) {
    let mut last = String::new();
    guest.read_to_string(&mut last).unwrap();
    assert_eq!(last, "bye");
}

/// Requests more bytes than the sockets hold without reading them. Returns when the kernel accepts
/// no more.
#[track_caller]
fn ask_for_much(house: &House, guest: &mut TcpStream) {
    let blocked = house.event_loop.metrics().writes_blocked;
    guest.write_all(b"big").unwrap();
    settle(&house.event_loop);
    settle_until(&house.event_loop, |metrics| metrics.writes_blocked > blocked);
}

#[test]
fn channels_are_notified_over_the_window() {
    const GUESTS: usize = 10;
    let house = House::new("spread");
    let server = house.serve();
    let mut guests = house.guests(&server, GUESTS);
    let end = house.event_loop.shutdown(over(ms(1000)));
    settle(&house.event_loop);
    for elapsed in (0..=880).step_by(20) {
        let expected: Vec<_> = (0..=elapsed / 100).map(|i| ms(i * 100)).collect();
        assert_eq!(house.notified(), expected);
        if elapsed % 100 == 0 {
            let now = elapsed as usize / 100;
            assert_says_bye(&mut guests[now]);
            // The channels after it are served as before.
            guests[now + 1..].iter_mut().for_each(assert_echoes);
        }
        if elapsed < 880 {
            house.advance(ms(20));
        }
    }
    house.clock.advance(ms(20));
    assert_says_bye(&mut guests[GUESTS - 1]);
    let report = done(end).unwrap();
    assert_eq!((report.channels, report.graceful, report.took), (10, 10, ms(900)), "{report}");
    assert_eq!(house.notified().len(), GUESTS, "each is notified once");
}

#[test]
fn e_57_timers_and_idle_timeouts_of_a_channel_run_until_it_is_notified() {
    let house = House::new("alive");
    let server = house.serve();
    let _guests = house.guests(&server, 10);
    let end = house.event_loop.shutdown(over(ms(1000)));
    settle(&house.event_loop);
    // At each advance but the last, some channels are still served.
    for _ in 0..89 {
        house.advance(ms(10));
    }
    assert_eq!(
        (house.count(Happened::Ran), house.count(Happened::Idle)),
        (5, 5),
        "among the channels not notified at 450 ms"
    );
    house.clock.advance(ms(10));
    let report = done(end).unwrap();
    assert_eq!((report.tasks_cancelled, report.graceful), (5, 10), "{report}");
    assert_eq!(house.event_loop.metrics().timers_pending, 0);
}

#[test]
fn closed_channels_are_skipped_without_changing_the_times_of_the_others() {
    let house = House::new("skips");
    let server = house.serve();
    let mut guests = house.guests(&server, 5);
    let end = house.group.shutdown(over(ms(100)));
    settle(&house.event_loop);
    drop(guests.remove(2));
    settle_until(&house.event_loop, |metrics| metrics.channels <= 3);
    for _ in 0..7 {
        house.advance(ms(10));
    }
    assert_eq!(house.notified(), [ms(0), ms(20), ms(60)]);
    house.clock.advance(ms(10));
    let report = done(end).unwrap();
    assert_eq!((report.channels, report.graceful), (5, 5), "{report}");
    assert_eq!(house.notified(), [ms(0), ms(20), ms(60), ms(80)]);
    guests.iter_mut().for_each(assert_says_bye);
}

#[test]
fn a_loop_that_was_held_up_notifies_overdue_channels_and_keeps_the_times_of_the_others() {
    let house = House::new("held up");
    let server = house.serve();
    let _guests = house.guests(&server, 10);
    let end = house.event_loop.shutdown(over(ms(100)));
    settle(&house.event_loop);
    let gate = Gate::shut(&house.event_loop);
    house.clock.advance(ms(45));
    drop(gate);
    settle(&house.event_loop);
    assert_eq!(house.notified(), [&[ms(0)][..], &[ms(45); 4]].concat());
    house.advance(ms(5));
    assert_eq!(house.notified().len(), 6);
    // The deadline alone notifies no channel a second time.
    house.clock.advance(HOUR);
    assert_eq!(done(end).unwrap().graceful, 10);
    assert_eq!(house.notified().len(), 10);
}

#[test]
fn a_turn_notifies_a_bounded_number_of_channels() {
    let _alone = alone_with_a_crowd();
    let house = House::new("bounded");
    let server = house.serve();
    let mut guests = house.guests(&server, CROWD);
    let report = done(house.event_loop.shutdown(over(Duration::ZERO))).unwrap();
    assert_eq!((report.graceful, report.took), (CROWD as u64, Duration::ZERO), "{report}");
    let turns = house.journal.all().into_iter().filter_map(|(_, what)| match what {
        Happened::Notified(turn) => Some(turn),
        _ => None,
    });
    let turns: Vec<_> = turns.collect();
    let first = turns[0];
    let expected = [vec![first; 1024], vec![first + 1; CROWD - 1024]].concat();
    assert_eq!(turns, expected);
    guests.iter_mut().for_each(assert_says_bye);
}

#[test]
fn channels_that_are_not_notified_by_the_deadline_are_notified_then() {
    let _alone = alone_with_a_crowd();
    let house = House::new("no time");
    let server = house.serve();
    let mut guests = house.guests(&server, CROWD);
    // There is only one turn, in which 1024 channels are notified.
    let options = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO);
    let report = done(house.event_loop.shutdown(options)).unwrap();
    assert_eq!((report.graceful, report.forced), (CROWD as u64, 0), "{report}");
    guests.iter_mut().for_each(assert_says_bye);
    assert_eq!(house.notified().len(), CROWD);
}

#[test]
fn every_loop_of_a_group_spreads_its_channels_over_the_same_window() {
    let house = House::new("one of two");
    let group = EventLoopGroup::builder().clock(house.clock.clone()).threads(2).build().unwrap();
    let server = House { group: group.clone(), ..house.clone() }.serve();
    let mut guests = house.guests(&server, 6);
    let loops = group.event_loops();
    let settle_both = || loops.iter().for_each(settle);
    let end = group.shutdown(over(ms(30)));
    settle_both();
    // Each loop keeps its last channel until 20 ms have passed.
    for _ in 0..19 {
        house.clock.advance(ms(1));
        settle_both();
    }
    assert_eq!(house.notified(), [0, 0, 10, 10].map(ms));
    house.clock.advance(ms(1));
    let report = done(end).unwrap();
    assert_eq!((report.channels, report.graceful, report.took), (6, 6, ms(20)), "{report}");
    assert_eq!(house.notified(), [0, 0, 10, 10, 20, 20].map(ms));
    guests.iter_mut().for_each(assert_says_bye);
}

#[test]
fn e_58_a_connection_accepted_before_the_loop_starts_to_shut_down_is_notified_like_the_others() {
    let house = House::new("in time");
    let (acceptors, acceptor) = single(EventLoopGroup::builder());
    let server = house.serve_from(&acceptors, ChannelOptions::new());
    settle(&house.event_loop);
    let gate = Gate::shut(&house.event_loop);
    let mut guest = connect(server.local_address());
    wait_until("a pending task", || {
        settle(&acceptor);
        house.event_loop.metrics().tasks_pending > 0
    });
    let end = house.event_loop.shutdown(over(Duration::ZERO));
    drop(gate);
    assert_says_bye(&mut guest);
    let report = done(end).unwrap();
    assert_eq!((report.channels, report.graceful, report.connections_refused), (1, 1, 0), "{report}");
    done(acceptors.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(HOUR))).unwrap();
}

/// More tasks than a turn takes are between the beginning of the shutdown and the connection.
#[test]
fn a_connection_that_becomes_a_channel_during_the_shutdown_counts_once() {
    const TASKS: usize = 10_000;
    for has_filter in [false, true] {
        let house = House { has_filter, ..House::new("meanwhile") };
        let (acceptors, acceptor) = single(EventLoopGroup::builder());
        let server = house.serve_from(&acceptors, ChannelOptions::new());
        settle(&house.event_loop);
        let gate = Gate::shut(&house.event_loop);
        (0..TASKS).for_each(|_| house.event_loop.execute(|| ()).unwrap());
        let pending = || house.event_loop.metrics().tasks_pending;
        let before = pending();
        let mut guest = connect(server.local_address());
        wait_until("a pending connection", || {
            settle(&acceptor);
            pending() > before
        });
        let end = house.event_loop.shutdown(over(Duration::ZERO));
        drop(gate);
        assert_says_bye(&mut guest);
        let report = done(end).unwrap();
        assert_eq!((report.channels, report.graceful), (1, 1), "with a filter: {has_filter}: {report}");
        done(acceptors.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(HOUR))).unwrap();
    }
}

#[test]
fn e_58_a_connection_that_arrives_later_is_closed_without_becoming_a_channel() {
    let house = House::new("too late");
    let (acceptors, _acceptor) = single(EventLoopGroup::builder());
    let server = house.serve_from(&acceptors, ChannelOptions::new());
    let mut guests = house.guests(&server, 2);
    let end = house.event_loop.shutdown(over(ms(1000)));
    settle(&house.event_loop);
    assert_eq!(connect(server.local_address()).read(&mut [0]).unwrap(), 0);
    assert_echoes(&mut guests[1]);
    house.clock.advance(ms(500));
    let report = done(end).unwrap();
    assert_eq!((report.channels, report.graceful, report.connections_refused), (2, 2, 1), "{report}");
    assert_eq!(house.count(Happened::Inactive), 2);
    guests.iter_mut().for_each(assert_says_bye);
    done(acceptors.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(HOUR))).unwrap();
}

#[test]
fn a_channel_that_is_closed_already_is_neither_notified_nor_counted() {
    let house = House::new("closed");
    let server = house.serve();
    let mut guests = house.guests(&server, 2);
    let gate = Gate::shut(&house.event_loop);
    // Its socket closes in the turn in which the shutdown starts. Its handler is called at the end
    // of that turn.
    house.channels.all()[0].close_now();
    let end = house.event_loop.shutdown(over(Duration::ZERO));
    drop(gate);
    let report = done(end).unwrap();
    assert_eq!((report.channels, report.graceful), (1, 1), "{report}");
    assert_eq!(guests[0].read(&mut [0]).unwrap(), 0);
    assert_says_bye(&mut guests[1]);
}

#[test]
fn replies_in_flight_are_delivered() {
    let house = House::new("inflight");
    let server = house.serve();
    let mut guest = house.guests(&server, 1).remove(0);
    ask_for_much(&house, &mut guest);
    let end = house.event_loop.shutdown(over(Duration::ZERO));
    settle(&house.event_loop);
    assert_eq!(house.notified().len(), 1);
    assert!(house.event_loop.metrics().bytes_written < BIG as u64);
    // A slow reader that reads in small parts while the loop turns.
    let mut all = vec![0; BIG];
    for part in all.chunks_mut(BIG / 16) {
        guest.read_exact(part).unwrap();
        std::thread::yield_now();
    }
    assert!(all.iter().all(|byte| *byte == 7));
    assert_says_bye(&mut guest);
    let report = done(end).unwrap();
    assert_eq!((report.channels, report.graceful, report.unsent_bytes), (1, 1, 0), "{report}");
}

#[test]
fn a_peer_that_never_reads_is_closed_by_force_at_the_deadline() {
    logs::collect();
    let house = House::new("never-reads");
    let server = house.serve();
    let mut guest = house.guests(&server, 1).remove(0);
    ask_for_much(&house, &mut guest);
    let end =
        house.event_loop.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(ms(1000)));
    settle(&house.event_loop);
    house.advance(ms(999));
    assert!(!end.is_done() && house.event_loop.metrics().channels == 1);
    house.clock.advance(ms(1));
    let report = done(end).unwrap();
    let sent = house.event_loop.metrics().bytes_written;
    assert_eq!((report.channels, report.graceful, report.incomplete, report.forced), (1, 0, 0, 1));
    assert_eq!(report.unsent_bytes, ("hello".len() + BIG + "bye".len()) as u64 - sent);
    assert_eq!(report.took, ms(1000));
    let lines = logs::lines_with("never-reads-0: shut down");
    assert_eq!(lines, [format!("INFO never-reads-0: shut down: {report}")]);
}

#[test]
fn e_57_the_close_timeout_of_a_channel_that_is_closing_survives() {
    let house = House::new("closing");
    let server = house.serve_from(&house.group, ChannelOptions::new().close_timeout(ms(1000)));
    let mut guest = house.guests(&server, 1).remove(0);
    ask_for_much(&house, &mut guest);
    // The end of the peer's stream makes the channel close after its pending writes.
    guest.shutdown(Shutdown::Write).unwrap();
    settle_until(&house.event_loop, |metrics| metrics.timers_pending >= 2);
    house.advance(ms(400));
    let end = house.event_loop.shutdown(over(Duration::ZERO));
    settle(&house.event_loop);
    house.advance(ms(599));
    assert_eq!(house.event_loop.metrics().channels, 1);
    house.clock.advance(ms(1));
    let report = done(end).unwrap();
    assert_eq!((report.channels, report.incomplete, report.took), (1, 1, ms(600)), "{report}");
    assert!(report.unsent_bytes > 0);
    assert_eq!(house.notified(), [] as [Duration; 0], "a channel that is closing is not notified");
}

#[test]
fn graceful_incomplete_and_forced_are_counted_exactly() {
    let house = House::new("mixed");
    let server = house.serve();
    let mut leaves = house.guests(&server, 1);
    let mut good = house.guests(&server, 3);
    let mut stay = house.guests(&server, 2);
    let mut greedy = house.guests(&server, 3);
    stay.iter_mut().for_each(|guest| ask(guest, "stay"));
    greedy.iter_mut().for_each(|guest| ask_for_much(&house, guest));
    let options = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(ms(1000)).drain_window(ms(900));
    let cancelled = house.event_loop.schedule(HOUR, || ()).unwrap();
    let before = house.event_loop.schedule(HOUR, || ()).unwrap();
    let gate = Gate::shut(&house.event_loop);
    let end = house.event_loop.shutdown(options);
    // The loop still finds the cancelled task in its heap.
    assert!(before.cancel());
    for _ in 0..3 {
        house.event_loop.execute(|| ()).unwrap();
    }
    drop(gate);
    assert!(matches!(done(cancelled.completion()), Err(Error::ShutDown)));
    assert_says_bye(&mut leaves[0]);
    // One of the greedy peers breaks its connection: with unread bytes, its close is a reset.
    drop(greedy.pop());
    watch(&house.event_loop, |metrics| metrics.channels <= 7);
    house.clock.advance(ms(900));
    good.iter_mut().for_each(assert_says_bye);
    house.clock.advance(ms(100));
    let report = done(end).unwrap();
    assert_eq!(
        (report.channels, report.graceful, report.incomplete, report.forced),
        (9, 4, 1, 4),
        "{report}"
    );
    // One of the loop's own tasks is cancelled, and one task of each of the two channels that
    // closed before it was due. The tasks of the others ran.
    assert_eq!((report.tasks_run, report.tasks_cancelled), (3, 1 + 2), "{report}");
    let bytes = house.event_loop.metrics().bytes_written + report.unsent_bytes;
    assert_eq!(bytes, (9 * "hello".len() + 2 * "stay".len() + 3 * BIG + 8 * "bye".len()) as u64);
    for guest in &mut stay {
        assert_eq!(read_n(guest, 3), b"bye");
        let cut = guest.read(&mut [0; 1]).unwrap_err();
        assert_eq!(cut.kind(), ErrorKind::ConnectionReset, "a cut is no regular end");
    }
    for guest in &mut greedy {
        // The stream ends somewhere in the middle.
        let mut all = Vec::new();
        let ended = guest.read_to_end(&mut all);
        assert!(all.len() < BIG && ended.err().is_none_or(|e| e.kind() == ErrorKind::ConnectionReset));
    }
}
