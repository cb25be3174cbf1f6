//! Premature returns of the poll, and rebuilding the poll without losing state (E-42 to E-46, E-48,
//! E-49).
//!
//! The tests make a poll return for no reason with a clock that stands still but claims to run in
//! real time. The poll sleeps for the requested millisecond, and the deadline is as far away as
//! before.

use crate::support::{
    logs,
    loops::{Gate, flood, manual, on, settle, settle_until, single, watch},
    servers::echo_server,
    tcp::{assert_echoes, connect},
    wait::{PATIENCE, done, ms, wait_until},
};
use bytes::Bytes;
use netwheel::{codec::RawBytes, metrics::LoopMetrics, prelude::*, testing::ManualClock, time::Clock};
use std::{
    fmt,
    io::{Read, Write},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{Sender, channel},
    },
    time::{Duration, Instant},
};

/// A clock that stands still, and calls a hook whenever the loop reads it.
#[derive(Clone)]
struct StuckClock {
    time: ManualClock,
    look: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>,
}

impl fmt::Debug for StuckClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StuckClock")
    }
}

impl Clock for StuckClock {
    fn now(&self) -> Instant {
        if let Some(look) = self.look.get() {
            look();
        }
        self.time.now()
    }
}

struct Stuck {
    group: EventLoopGroup,
    event_loop: EventLoop,
    clock: StuckClock,
}

impl Stuck {
    fn new(threshold: Option<u32>) -> Self {
        Self::named("netwheel", threshold)
    }

    fn named(name: &str, threshold: Option<u32>) -> Self {
        let clock = StuckClock { time: ManualClock::new(), look: Arc::default() };
        let builder = EventLoopGroup::builder().name(name).clock(clock.clone());
        let builder = threshold.into_iter().fold(builder, |builder, n| builder.rebuild_threshold(n));
        let (group, event_loop) = single(builder);
        Stuck { group, event_loop, clock }
    }

    /// Lets the poll return for no reason, every millisecond, until the loop's own metrics satisfy
    /// `enough`.
    fn spin(&self, enough: impl Fn(&LoopMetrics) -> bool + Send + Sync + 'static) -> LoopMetrics {
        let (seen, metrics) = channel();
        let me = self.event_loop.clone();
        let look = move || {
            let metrics = me.metrics();
            if me.in_event_loop() && enough(&metrics) {
                let _ = seen.send(metrics);
            }
        };
        assert!(self.clock.look.set(Box::new(look)).is_ok());
        let never = self.event_loop.schedule(ms(1), || ()).unwrap();
        let metrics = metrics.recv_timeout(PATIENCE).expect("the poll did not return prematurely");
        assert!(!never.is_done());
        never.cancel();
        metrics
    }
}

#[test]
fn e_42_a_rebuilt_poll_serves_listeners_and_channels() {
    let (group, event_loop) = single(EventLoopGroup::builder());
    let (server, failed) = echo_server(&group);
    let mut old = connect(server.local_address());
    assert_echoes(&mut old);
    for round in 1..=50 {
        // Requested on another thread, and on the loop itself.
        let rebuilt = if round % 2 == 0 {
            event_loop.rebuild_poll().unwrap()
        } else {
            let me = event_loop.clone();
            on(&event_loop, move || me.rebuild_poll().unwrap())
        };
        done(rebuilt).unwrap();
        assert_eq!(event_loop.metrics().rebuilds, round);
        assert_echoes(&mut old);
        assert_echoes(&mut connect(server.local_address()));
    }
    assert!(failed.try_recv().is_err());
}

/// A wake must reach the new poll, or be noticed without one.
#[test]
fn e_42_no_task_is_missed_while_the_poll_is_replaced() {
    let (event_loop, _clock) = manual();
    let rebuilding = Arc::new(());
    std::thread::scope(|scope| {
        let alive = Arc::downgrade(&rebuilding);
        let event_loop = &event_loop;
        scope.spawn(move || {
            while alive.strong_count() > 0 {
                done(event_loop.rebuild_poll().unwrap()).unwrap();
            }
        });
        for n in 0..3000 {
            assert_eq!(on(event_loop, move || n), n);
        }
        drop(rebuilding);
    });
    assert!(event_loop.metrics().rebuilds > 0);
}

#[cfg(target_os = "linux")]
#[test]
fn e_42_the_old_poll_is_closed() {
    let polls = || {
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let target = |d: &std::fs::DirEntry| std::fs::read_link(d.path()).unwrap_or_default();
        descriptors.filter(|d| target(d).to_string_lossy().contains("eventpoll")).count()
    };
    let (event_loop, _clock) = manual();
    settle(&event_loop);
    let before = polls();
    for _ in 0..500 {
        done(event_loop.rebuild_poll().unwrap()).unwrap();
    }
    // Other tests of this process open polls at the same time, but not hundreds.
    assert!(polls() < before + 250, "{before} polls before, {} after", polls());
}

#[test]
fn e_43_a_threshold_below_3_disables_rebuilding() {
    for threshold in [0, 1, 2] {
        let stuck = Stuck::new(Some(threshold));
        let metrics = stuck.spin(|m| m.wakes_premature >= 20);
        assert_eq!(metrics.rebuilds, 0, "threshold {threshold}");
    }
    let stuck = Stuck::new(Some(3));
    assert_eq!(stuck.spin(|m| m.rebuilds == 1).wakes_premature, 3);
}

#[test]
fn e_44_a_task_resets_the_count() {
    let stuck = Stuck::new(Some(8));
    let (me, given) = (stuck.event_loop.clone(), AtomicU64::new(0));
    let metrics = stuck.spin(move |m| {
        // The clock's hook sees the metrics before and after each poll, and submits a task at every
        // fifth premature return.
        if m.wakes_premature % 5 == 4 && given.swap(m.wakes_premature, Ordering::Relaxed) != m.wakes_premature
        {
            me.execute(|| ()).unwrap();
        }
        m.wakes_premature >= 100
    });
    assert_eq!(metrics.rebuilds, 0, "{metrics:?}");
}

#[test]
fn e_44_the_count_persists_across_turns() {
    let stuck = Stuck::new(Some(8));
    let metrics = stuck.spin(|m| m.rebuilds == 3);
    assert_eq!(metrics.wakes_premature, 24, "{metrics:?}");
    assert!(metrics.turns >= 24, "each return is a turn of its own");
}

#[test]
fn e_45_a_poll_that_sleeps_until_its_deadline_is_not_premature() {
    let (_group, event_loop) = single(EventLoopGroup::builder().rebuild_threshold(3));
    for round in 0..100 {
        // Also with a fraction of a millisecond: the poll rounds it up and is not called again for
        // the remainder.
        let task = event_loop.schedule(Duration::from_micros(300 * (round % 5)), || ()).unwrap();
        done(task.completion()).unwrap();
    }
    let metrics = event_loop.metrics();
    assert!(metrics.wakes_deadline > 0);
    assert_eq!((metrics.wakes_premature, metrics.rebuilds), (0, 0), "{metrics:?}");
}

#[test]
fn e_45_a_poll_without_sleep_is_not_premature() {
    let (_group, event_loop) = single(EventLoopGroup::builder().rebuild_threshold(3));
    let flood = flood(&event_loop);
    settle_until(&event_loop, |metrics| metrics.polls_without_sleep >= 100);
    drop(flood);
    settle(&event_loop);
    let metrics = event_loop.metrics();
    assert_eq!((metrics.wakes_premature, metrics.rebuilds), (0, 0), "{metrics:?}");
}

#[test]
fn e_46_a_bare_wake_is_neither_io_nor_premature() {
    let clock = ManualClock::new();
    let builder = EventLoopGroup::builder().rebuild_threshold(3).clock(clock.clone());
    let (_group, event_loop) = single(builder);
    settle(&event_loop);
    let before = event_loop.metrics();
    // Advancing the clock wakes the loop, but no timer is due.
    wait_until("wakes", || {
        clock.advance(ms(1));
        event_loop.metrics().wakes_waker >= before.wakes_waker + 50
    });
    let after = event_loop.metrics();
    assert_eq!((after.wakes_io, after.wakes_premature, after.rebuilds), (0, 0, 0), "{after:?}");
}

#[test]
fn e_48_after_512_premature_returns_the_poll_is_rebuilt() {
    logs::collect();
    let stuck = Stuck::new(None);
    let (server, failed) = echo_server(&stuck.group);
    let mut peer = connect(server.local_address());
    assert_echoes(&mut peer);
    let metrics = stuck.spin(|m| m.rebuilds == 1);
    assert_eq!(metrics.wakes_premature, 512, "{metrics:?}");
    let warned = logs::lines_with("poll rebuilt");
    assert!(
        warned.iter().any(|line| line.starts_with("WARN") && line.contains(stuck.event_loop.name())),
        "{warned:?}"
    );
    assert_echoes(&mut peer);
    assert_echoes(&mut connect(server.local_address()));
    assert!(failed.try_recv().is_err());
    // When the clock advances again, timers fire.
    let task = stuck.event_loop.schedule(ms(5), || "late").unwrap();
    stuck.clock.time.advance(ms(5));
    assert_eq!(done(task.completion()).unwrap(), "late");
}

/// Rebuilding does not help this poll. The loop rebuilds it three times, then rests at each
/// premature return and logs one warning. It serves its channels all the time.
#[test]
fn rebuilds_are_limited_to_three() {
    logs::collect();
    let stuck = Stuck::named("capped", Some(8));
    let name = stuck.event_loop.name().to_owned();
    let (server, failed) = echo_server(&stuck.group);
    let mut peer = connect(server.local_address());
    assert_echoes(&mut peer);
    // The timer of `spin` ends with it. This timer keeps the loop spinning.
    let never = stuck.event_loop.schedule(ms(1), || ()).unwrap();
    let metrics = stuck.spin(|m| m.rests >= 20);
    assert_eq!(metrics.rebuilds, 3, "{metrics:?}");
    for _ in 0..20 {
        assert_echoes(&mut peer);
        assert_echoes(&mut connect(server.local_address()));
    }
    // Each echo reset the count, but the loop keeps resting.
    let resting = stuck.event_loop.metrics().rests + 50;
    watch(&stuck.event_loop, |metrics| metrics.rests >= resting);
    assert_eq!(stuck.event_loop.metrics().rebuilds, 3);
    let said = |what| logs::lines_with(what).iter().filter(|line| line.contains(&name)).count();
    assert_eq!((said("poll rebuilt"), said("pausing for")), (3, 1));

    // A minute later it may try another rebuild.
    stuck.clock.time.advance(ms(60_000));
    done(never.completion()).unwrap();
    let never = stuck.event_loop.schedule(ms(1), || ()).unwrap();
    watch(&stuck.event_loop, |metrics| metrics.rebuilds >= 4);
    never.cancel();
    settle(&stuck.event_loop);
    // The poll works again, so the loop does not rest.
    let rests = stuck.event_loop.metrics().rests;
    for _ in 0..20 {
        assert_echoes(&mut peer);
    }
    assert_eq!(stuck.event_loop.metrics().rests, rests);
    assert!(failed.try_recv().is_err());
}

#[test]
fn e_48_sources_that_were_ready_before_are_not_missed() {
    let (group, event_loop) = single(EventLoopGroup::builder());
    let (server, _failed) = echo_server(&group);
    let mut peers: Vec<_> = (0..10).map(|_| connect(server.local_address())).collect();
    peers.iter_mut().for_each(assert_echoes);
    for _ in 0..20 {
        let gate = Gate::shut(&event_loop);
        let rebuilt = event_loop.rebuild_poll().unwrap();
        for peer in &mut peers {
            peer.write_all(b"hello").unwrap();
        }
        let mut late = connect(server.local_address());
        late.write_all(b"hello").unwrap();
        drop(gate);
        done(rebuilt).unwrap();
        for peer in peers.iter_mut().chain([&mut late]) {
            let mut back = [0; 5];
            peer.read_exact(&mut back).unwrap();
        }
    }
}

/// Replaces a connection's descriptor, without the loop's knowledge, by one that no poll accepts.
#[cfg(target_os = "linux")]
mod spoil {
    use crate::support::resources;
    use std::{fs::File, net::SocketAddr, os::fd::AsRawFd};

    unsafe extern "C" {
        fn dup2(from: i32, to: i32) -> i32;
    }

    /// Finds the connection by the ports of its two ends.
    pub(crate) fn connection(local: SocketAddr, peer: SocketAddr) {
        let descriptor = resources::descriptor_of(local, peer);
        let file = File::open("/proc/self/exe").unwrap();
        // SAFETY: both descriptors are open, and the owner of the second continues to own it.
        assert_eq!(unsafe { dup2(file.as_raw_fd(), descriptor) }, descriptor);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn e_49_only_a_channel_that_cannot_be_moved_is_closed() {
    let (group, event_loop) = single(EventLoopGroup::builder());
    let (server, failed) = echo_server(&group);
    let mut before = connect(server.local_address());
    let mut spoiled = connect(server.local_address());
    let mut after = connect(server.local_address());
    for peer in [&mut before, &mut spoiled, &mut after] {
        assert_echoes(peer);
    }
    assert_eq!(event_loop.metrics().channels, 3);
    let ends = (spoiled.peer_addr().unwrap(), spoiled.local_addr().unwrap());
    on(&event_loop, move || spoil::connection(ends.0, ends.1));
    done(event_loop.rebuild_poll().unwrap()).unwrap();

    let error = failed.recv_timeout(PATIENCE).expect("the handler received no error");
    assert!(error.to_string().starts_with("moving to a new poll"), "{error}");
    settle(&event_loop);
    assert_eq!(event_loop.metrics().channels, 2);
    for peer in [&mut before, &mut after, &mut connect(server.local_address())] {
        assert_echoes(peer);
    }
    assert!(failed.try_recv().is_err(), "another handler received an error");
}

/// A channel that closes before the rebuild is skipped, and the other channels see no error.
#[test]
fn e_49_a_channel_that_is_closed_before_the_rebuild_is_skipped() {
    struct Announced(Sender<Result<Channel<Bytes>, Error>>);
    impl Handler for Announced {
        type Read = Bytes;
        type Write = Bytes;
        fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
            self.0.send(Ok(ctx.channel())).map_err(|_| "the test has ended".into())
        }
        fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
            ctx.write(message)
        }
        fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
            self.0.send(Err(error)).map_err(|_| "the test has ended".into())
        }
    }

    let (group, event_loop) = single(EventLoopGroup::builder());
    let (told, news) = channel();
    let pipeline = move |_: &_| Pipeline::codec(RawBytes).handler(Announced(told.clone()));
    let server = ServerBootstrap::new(&group).pipeline(pipeline).bind("127.0.0.1:0").unwrap();
    let open = || {
        let mut peer = connect(server.local_address());
        assert_echoes(&mut peer);
        (peer, news.recv_timeout(PATIENCE).unwrap().unwrap())
    };
    let ((mut before, _), (mut closed, handle), (mut after, _)) = (open(), open(), open());
    let me = event_loop.clone();
    let rebuilt = on(&event_loop, move || {
        handle.close_now();
        me.rebuild_poll().unwrap()
    });
    let report = done(rebuilt).unwrap();
    assert_eq!((report.moved, report.closed), (3, 0), "the listener and two channels");
    assert_eq!(closed.read(&mut [0]).unwrap(), 0, "the end of the stream");
    for peer in [&mut before, &mut after] {
        assert_echoes(peer);
    }
    settle(&event_loop);
    assert_eq!(event_loop.metrics().channels, 2);
    assert!(news.try_recv().is_err(), "no handler receives an error");
}
