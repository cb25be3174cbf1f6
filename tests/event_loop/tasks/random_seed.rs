//! The seed of a group determines its random numbers.

use crate::support::{
    nobody::Nobody,
    wait::{PATIENCE, ms},
};
use bytes::Bytes;
use netwheel::{
    codec::RawBytes,
    group::ManualEventLoop,
    prelude::*,
    reconnect::{Backoff, ReconnectEvent},
    stage::{Heartbeat, OnDead},
    testing::ManualClock,
    time::Periodic,
};
use std::{
    net::TcpStream,
    ops::ControlFlow,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

const ATTEMPTS: u32 = 5;

/// Random times of a loop: reconnect delays of a client, and the times of timers with jitter.
type Drawn = Arc<Mutex<Vec<(&'static str, Duration)>>>;

/// Records the times at which its channel connects and becomes idle.
struct Idler(Drawn, ManualClock);

impl Handler for Idler {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.0.lock().unwrap().push(("active", self.1.elapsed()));
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }

    fn idle(&mut self, _: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        self.0.lock().unwrap().push(("idle", self.1.elapsed()));
        Ok(())
    }
}

/// Runs the loop until `done`. Connections go through the kernel, which takes a moment of real
/// time.
fn run_until(
    by_hand: &mut ManualEventLoop,
    drawn: &Drawn,
    done: impl Fn(&[(&'static str, Duration)]) -> bool,
) {
    let began = Instant::now();
    while !done(&drawn.lock().unwrap()) {
        by_hand.run_once(ms(10));
        assert!(began.elapsed() < PATIENCE, "{:?}", drawn.lock().unwrap());
    }
}

/// Runs everything that uses jitter: a client without a server, an idle timeout, heartbeats to a
/// silent peer, and periodic tasks of both kinds.
fn draw(seed: u64) -> Vec<(&'static str, Duration)> {
    let clock = ManualClock::new();
    let builder = EventLoopGroup::builder().clock(clock.clone()).wheel_tick(ms(1)).seed(seed);
    let mut by_hand = builder.build_manual().unwrap();
    let drawn = Drawn::default();

    let nobody = Nobody::new();
    let client = ClientBootstrap::new(by_hand.group()).pipeline({
        let (drawn, clock) = (drawn.clone(), clock.clone());
        move |_| Pipeline::codec(RawBytes).handler(Idler(drawn.clone(), clock.clone()))
    });
    let note = drawn.clone();
    let _client = client
        .reconnect(Backoff::new().max_attempts(ATTEMPTS))
        .on_event(move |event| {
            if let ReconnectEvent::Failed { next, .. } = event {
                note.lock().unwrap().push(("reconnect", next.unwrap_or_default()));
            }
            ControlFlow::Continue(())
        })
        .connect(nobody.address)
        .unwrap();
    for attempt in 1..=ATTEMPTS {
        run_until(&mut by_hand, &drawn, |drawn| drawn.len() == attempt as usize);
        clock.advance(Duration::from_secs(60));
    }

    let (note, time) = (drawn.clone(), clock.clone());
    let server = ServerBootstrap::new(by_hand.group()).pipeline(move |_| {
        let (pings, pinged) = (note.clone(), time.clone());
        let ping = move || {
            pings.lock().unwrap().push(("ping", pinged.elapsed()));
            Bytes::from_static(b"?")
        };
        let heartbeat =
            Heartbeat::new(ms(70), ping).jitter(ms(60)).max_misses(u32::MAX).on_dead(OnDead::Report);
        let idle = IdleTimeouts::new().reader(ms(50)).jitter(ms(40));
        let handler = Idler(note.clone(), time.clone());
        Pipeline::codec(RawBytes).idle(idle).stage(heartbeat).handler(handler)
    });
    let server = server.bind("127.0.0.1:0").unwrap();
    let _peer = TcpStream::connect(server.local_address()).unwrap();
    run_until(&mut by_hand, &drawn, |drawn| drawn.iter().any(|(what, _)| *what == "active"));

    for name in ["rate", "delay"] {
        let note = (drawn.clone(), clock.clone());
        let task = move || {
            note.0.lock().unwrap().push((name, note.1.elapsed()));
            Ok(())
        };
        let event_loop = by_hand.event_loop();
        let periodic = match name {
            "rate" => Periodic::fixed_rate(ms(100)),
            _ => Periodic::fixed_delay(ms(100)),
        };
        event_loop.schedule_periodic(periodic.jitter(ms(90)), task).unwrap();
    }
    for _ in 0..2000 {
        clock.advance(ms(1));
        while by_hand.run_once(Duration::ZERO) > 0 {}
    }
    let drawn = drawn.lock().unwrap().clone();
    for (what, least) in
        [("reconnect", 5), ("active", 1), ("idle", 15), ("ping", 10), ("rate", 19), ("delay", 10)]
    {
        let times = drawn.iter().filter(|(name, _)| *name == what).count();
        assert!(times >= least, "{what} {times} times in {drawn:?}");
    }
    drawn
}

#[test]
fn two_groups_with_one_seed_draw_the_same_jitter() {
    let first = draw(20_261_122);
    assert_eq!(first, draw(20_261_122));
    let other = draw(20_261_123);
    for what in ["reconnect", "idle", "ping", "rate", "delay"] {
        let of = |drawn: &[(&str, Duration)]| {
            drawn.iter().filter(|(name, _)| *name == what).map(|(_, at)| *at).collect::<Vec<_>>()
        };
        assert_ne!(of(&first), of(&other), "{what}");
    }
}
