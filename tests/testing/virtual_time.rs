//! One day of a server and its clients, simulated in a second over real sockets and one manual
//! clock.
//!
//! The test covers idle detection, heartbeats, time limits, scheduled tasks, a client that
//! reconnects with backoff, and a shutdown over a window.
//!
//! Both ends run on one manually driven loop, and nothing sleeps until a deadline. Each event has
//! an exact time, and a second run yields the same times.

use crate::support::wait::PATIENCE;
use bytes::Bytes;
use netwheel::{
    Channel, Pipeline,
    channel::TimeLimits,
    codec::{Line, RawBytes},
    group::ManualEventLoop,
    prelude::*,
    reconnect::{Backoff, ReconnectEvent},
    shutdown::ShutdownOptions,
    stage::Heartbeat,
    testing::ManualClock,
    time::Periodic,
};
use std::{
    ops::ControlFlow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

const DAY: u64 = 24 * 3600;

/// The step of the clock in seconds. Each time below is a multiple of it, and it is a multiple of
/// the wheel's tick.
const STEP: u64 = 10;

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// State shared by both ends and the test.
struct World {
    clock: ManualClock,
    /// Events with their time in seconds.
    journal: Mutex<Vec<(u64, String)>>,
    /// Open channels of the server minus those of the clients.
    open: AtomicI64,
    /// Connection attempts in progress.
    connecting: AtomicI64,
}

impl World {
    fn say(&self, what: impl Into<String>) {
        let at = self.clock.elapsed();
        assert_eq!(at.subsec_nanos(), 0);
        self.journal.lock().unwrap().push((at.as_secs(), what.into()));
    }
}

// ---- the server --------------------------------------------------------------------------------

struct Session {
    world: Arc<World>,
    name: String,
}

impl Handler for Session {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.world.open.fetch_add(1, SeqCst);
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        let text = String::from_utf8_lossy(&message).into_owned();
        match text.strip_prefix("hello ") {
            Some(name) => {
                self.name = name.to_owned();
                // A task of the channel.
                ctx.schedule(seconds(6 * 3600), |me, ctx| {
                    me.world.say(format!("{} is here for six hours", me.name));
                    ctx.write("news".into())
                });
                Ok(())
            }
            None => {
                self.world.say(format!("{}: {text}", self.name));
                ctx.write("pong".into())
            }
        }
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, event: IdleEvent) -> Result {
        self.world.say(format!("{} is idle: {:?}", self.name, event.state));
        ctx.close();
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        self.world.say(format!("{}: {error:#}", self.name));
        ctx.close();
        Ok(())
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.world.say(format!("{} is shut down", self.name));
        ctx.write("bye".into())?;
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.world.open.fetch_sub(1, SeqCst);
        Ok(())
    }
}

fn serve(by_hand: &ManualEventLoop, world: &Arc<World>) -> Server {
    let world = world.clone();
    let server = ServerBootstrap::new(by_hand.group()).pipeline(move |_| {
        let limits = TimeLimits::new().first_message(seconds(30)).progress(100, seconds(20));
        Pipeline::codec(Line::new())
            .idle(IdleTimeouts::new().reader(seconds(180)))
            .time_limits(limits)
            .handler(Session { world: world.clone(), name: "anonymous".to_owned() })
    });
    server.bind("127.0.0.1:0").unwrap()
}

// ---- clients -----------------------------------------------------------------------------------

/// Sends one message at the beginning. Everything else is up to its pipeline.
struct Client {
    world: Arc<World>,
    first_words: Bytes,
}

impl Handler for Client {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.world.open.fetch_sub(1, SeqCst);
        if self.first_words.is_empty() { Ok(()) } else { ctx.write(self.first_words.clone()) }
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.world.say("a client is shut down");
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.world.open.fetch_add(1, SeqCst);
        Ok(())
    }
}

/// Opens one connection without reconnecting.
fn dial(
    group: &EventLoopGroup,
    server: &Server,
    world: &Arc<World>,
    pipeline: impl Fn(Client) -> Pipeline<Bytes> + Send + Sync + 'static,
    first_words: String,
) {
    let (mine, done) = (world.clone(), world.clone());
    world.connecting.fetch_add(1, SeqCst);
    let client = ClientBootstrap::new(group)
        .pipeline(move |_| pipeline(Client { world: mine.clone(), first_words: first_words.clone().into() }));
    client.connect(server.local_address()).on_complete(move |channel: Result<Channel<Bytes>>| {
        done.connecting.fetch_sub(1, SeqCst);
        channel.unwrap();
    });
}

/// Runs the loop until all work at the current time is done, including bytes in transit through the
/// kernel.
fn settle(by_hand: &mut ManualEventLoop, world: &World) {
    let begun = Instant::now();
    loop {
        while by_hand.run_once(Duration::ZERO) > 0 {}
        let metrics = by_hand.event_loop().metrics();
        let under_way = world.open.load(SeqCst) != 0 || world.connecting.load(SeqCst) != 0;
        if by_hand.is_terminated() || (!under_way && metrics.bytes_read == metrics.bytes_written) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{:?} at {:?}", metrics, world.clock.elapsed());
        by_hand.run_once(Duration::from_millis(10));
    }
}

/// Simulates a day and returns its journal.
fn a_day() -> Vec<(u64, String)> {
    let clock = ManualClock::new();
    let builder = EventLoopGroup::builder().clock(clock.clone()).wheel_tick(seconds(1));
    let mut by_hand = builder.build_manual().unwrap();
    let world = Arc::new(World {
        clock: clock.clone(),
        journal: Mutex::default(),
        open: AtomicI64::new(0),
        connecting: AtomicI64::new(0),
    });
    let server = Arc::new(serve(&by_hand, &world));
    let group = by_hand.group().clone();

    // Six clients that send a heartbeat every minute.
    for n in 0..6 {
        let ask = |client| {
            let heartbeat = Heartbeat::new(seconds(60), || Bytes::from_static(b"ping"));
            let heartbeat = heartbeat.answer(|line: &Bytes| line == "pong");
            Pipeline::codec(Line::new()).stage(heartbeat).handler(client)
        };
        dial(&group, &server, &world, ask, format!("hello member {n}"));
    }

    // A client that sends nothing, is closed by the server, and reconnects.
    let (mine, hers) = (world.clone(), world.clone());
    let backoff =
        Backoff::new().initial(seconds(10)).max_delay(seconds(160)).jitter(false).reset_after(seconds(3600));
    let mute = ClientBootstrap::new(&group)
        .pipeline(move |_| {
            let client = Client { world: mine.clone(), first_words: Bytes::new() };
            Pipeline::codec(Line::new()).handler(client)
        })
        .reconnect(backoff)
        .on_event(move |event| {
            match event {
                ReconnectEvent::Connecting { .. } => {
                    hers.connecting.fetch_add(1, SeqCst);
                }
                ReconnectEvent::Connected { .. } => {
                    hers.connecting.fetch_sub(1, SeqCst);
                    hers.say("the mute client is connected");
                }
                ReconnectEvent::Failed { error, .. } => {
                    hers.connecting.fetch_sub(1, SeqCst);
                    hers.say(format!("the mute client: {error:#}"));
                }
                ReconnectEvent::Lost { held, .. } => {
                    hers.say(format!("the mute client was connected for {held:?}"))
                }
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .connect(server.local_address())
        .unwrap();

    // Every hour a client sends hello and then nothing. Once, a client starts a line without
    // finishing it.
    let (hourly, at) = ((group.clone(), server.clone(), world.clone()), seconds(1800));
    let visit = by_hand.event_loop().schedule_periodic(
        Periodic::fixed_rate(seconds(3600)).initial_delay(at),
        move || {
            let (group, server, world) = &hourly;
            let plain = |client| Pipeline::codec(Line::new()).handler(client);
            dial(group, server, world, plain, "hello visitor".to_owned());
            Ok(())
        },
    );
    let once = (group.clone(), server.clone(), world.clone());
    let drip = by_hand.event_loop().schedule(seconds(45_000), move || {
        let (group, server, world) = &once;
        let raw = |client| Pipeline::codec(RawBytes).handler(client);
        dial(group, server, world, raw, "hel".to_owned());
    });
    settle(&mut by_hand, &world);

    for _ in 0..DAY / STEP {
        clock.advance(seconds(STEP));
        settle(&mut by_hand, &world);
    }
    assert!(drip.unwrap().is_done() && !visit.unwrap().is_done());

    let options =
        ShutdownOptions::new().drain_window(seconds(60)).quiet_period(seconds(10)).timeout(seconds(600));
    let ended = by_hand.event_loop().shutdown(options);
    settle(&mut by_hand, &world);
    while !by_hand.is_terminated() {
        clock.advance(seconds(1));
        settle(&mut by_hand, &world);
        assert!(clock.elapsed() < seconds(DAY + 600));
    }
    world.say("the end");
    let report = ended.wait().unwrap();
    assert_eq!((report.channels, report.forced, report.incomplete), (12, 0, 0), "{report:?}");
    assert!(mute.closed().is_done());
    world.journal.lock().unwrap().clone()
}

/// Returns the times at which an event happened.
fn times(journal: &[(u64, String)], what: &str) -> Vec<u64> {
    journal.iter().filter(|(_, said)| said == what).map(|(at, _)| *at).collect()
}

#[test]
fn a_simulated_day_has_exact_times() {
    let journal = a_day();
    let mut accounted = 0;
    let mut check = |what: &str, expected: Vec<u64>| {
        assert_eq!(times(&journal, what), expected, "{what}");
        accounted += expected.len();
    };

    // One heartbeat per minute. The server's messages do not delay it, because only messages of the
    // client count.
    for n in 0..6 {
        check(&format!("member {n}: ping"), (60..=DAY).step_by(60).collect());
        check(&format!("member {n} is here for six hours"), vec![6 * 3600]);
    }
    let visits: Vec<u64> = (1800..=DAY).step_by(3600).collect();
    check("visitor is idle: Reader", visits.iter().map(|at| at + 180).collect());
    check(
        "anonymous: the peer violated the protocol: 3 bytes of a message in 20s; at least 100 are required",
        vec![45_020],
    );

    // Connected for thirty seconds each, followed by a delay of 10, 20, 40, 80, 160, 160, ...
    // seconds.
    let mut back = vec![0];
    let mut delays = [10, 20, 40, 80].into_iter().chain(std::iter::repeat(160));
    while let Some(next) = Some(back[back.len() - 1] + 30 + delays.next().unwrap()).filter(|at| *at <= DAY) {
        back.push(next);
    }
    let lost: Vec<u64> = back.iter().map(|at| at + 30).filter(|at| *at <= DAY).collect();
    assert_eq!(lost.len(), back.len(), "the client is disconnected at the end of the day");
    check("anonymous: the first message timed out after 30s", lost.clone());
    check("the mute client was connected for 30s", lost);
    check("the mute client is connected", back);

    // The six accepted channels close, one every ten seconds, which ends the clients too. So no
    // outgoing channel is left to be notified.
    for n in 0..6 {
        check(&format!("member {n} is shut down"), vec![DAY + 10 * n]);
    }
    check("the end", vec![DAY + 50]);
    assert_eq!(accounted, journal.len(), "there were no other events");
    assert!(journal.is_sorted_by_key(|(at, _)| *at));
}

#[test]
fn a_simulated_day_is_reproducible() {
    assert_eq!(a_day(), a_day());
}
