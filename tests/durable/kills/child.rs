//! The process that is killed.
//!
//! What it says, each in one write:
//!
//! | line | meaning |
//! |---|---|
//! | `process PID` | the child has begun |
//! | `start KIND N` | a start was submitted; its key is made of kind and number |
//! | `started KIND N ID` | it was completed |
//! | `cancel ID`, `cancelled ID` | a cancel was submitted, and completed with `true` |
//! | `ran KIND N ID SCHEDULED NOW ATTEMPT` | a handler was called |
//! | `fault` | the child has copied or harmed its files, or has set its clock |
//! | `ended ID` | the end of a one-shot timer is stored: a cancel after the answer found nothing |

use super::harm;
use crate::{
    support::{loops::single, wait::ms},
    wrong_clock::WrongClock,
};
use netwheel::{
    EventLoopGroup,
    durable::{
        Delivery, Due, DurableTimers, Late, Retry, SqliteStore, TimerFilter, TimerId, TimerInfo, TimerState,
        Topic,
    },
    time::Clock,
};
use std::{
    collections::VecDeque,
    io::Write,
    sync::{
        Arc, OnceLock,
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

pub(super) const FILE: &str = "NETWHEEL_KILLS_FILE";
pub(super) const MODE: &str = "NETWHEEL_KILLS_MODE";
pub(super) const SEED: &str = "NETWHEEL_KILLS_SEED";

/// The mode of a child that lets everything fire. Its clock is as far ahead as that of any child
/// was.
pub(super) const DRAIN_AHEAD: &str = "drain ahead";

/// The topics: done at once, at most once, with a row of its own, failing at first, failing always,
/// done later on another thread.
pub(super) const KINDS: &[&str] = &["plain", "once", "effect", "retry", "dead", "later"];

/// The topic of the periodic timer.
pub(super) const PERIODIC: &str = "periodic";

/// Timers of this delay fire only if they are moved.
pub(super) const FAR: Duration = Duration::from_secs(3600);

/// Numbers below this are started again and again.
const REPEATED: u64 = 20;

type Handle = Arc<OnceLock<DurableTimers>>;

pub(super) fn say(line: std::fmt::Arguments<'_>) {
    let line = format!("@{line}\n");
    // A child without a parent would work forever.
    if std::io::stdout().write_all(line.as_bytes()).is_err() {
        std::process::exit(1);
    }
}

fn millis(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).unwrap().as_millis()
}

pub(super) fn main() {
    let file = std::env::var(FILE).unwrap();
    let seed = std::env::var(SEED).unwrap().parse().unwrap();
    say(format_args!("process {}", std::process::id()));
    let mode = std::env::var(MODE).unwrap();
    let clock = WrongClock::ahead_by(if mode == DRAIN_AHEAD { harm::LARGEST_JUMP } else { 0 });
    let (group, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()).wheel_tick(ms(1)));
    let timers = open(&file, &group, &clock);
    let harmed = timers.clone();
    match mode.as_str() {
        "scenario" => return finish(timers, scenario),
        "drain" | DRAIN_AHEAD => return finish(timers, drain),
        "copies" => drop(thread::spawn(move || harm::copy(&harmed, file.as_ref()))),
        "moves" => drop(thread::spawn(move || harm::move_away(&harmed, file.as_ref(), seed))),
        "jumps" => harm::jump(&event_loop, clock, fastrand::Rng::with_seed(seed)),
        _ => {}
    }
    run(&timers, seed);
}

fn finish(timers: DurableTimers, work: fn(&DurableTimers)) {
    work(&timers);
    timers.close().wait().unwrap();
}

fn open(file: &str, group: &EventLoopGroup, clock: &WrongClock) -> DurableTimers {
    let handle = Handle::default();
    let topic = |kind| topic(kind, handle.clone(), clock.clone());
    let mut builder = DurableTimers::builder(SqliteStore::open(file).unwrap()).max_commit_delay(ms(1));
    for kind in KINDS {
        builder = builder.topic(topic(kind));
    }
    let timers = builder.topic(topic(PERIODIC)).start(group).unwrap();
    handle.set(timers.clone()).unwrap();
    timers
}

fn topic(kind: &'static str, handle: Handle, clock: WrongClock) -> Topic {
    let retry = if kind == "retry" { Retry::backoff(3).initial(ms(5)) } else { Retry::never() };
    let topic = Topic::new(kind, Late::RunOnce, retry, move |due: Due<u64>| {
        let (id, number, attempt) = (due.id(), *due.payload(), due.attempt());
        let scheduled = millis(due.scheduled());
        // The clock may have been set back since the end or the first attempt was stored.
        let was_due_before = kind == "once" || attempt > 1;
        let now = millis(if was_due_before { clock.latest_wall_time() } else { clock.wall_time() });
        say(format_args!("ran {kind} {number} {id} {scheduled} {now} {attempt}"));
        match kind {
            "retry" if attempt == 1 => return due.fail("the first time"),
            "dead" => return due.fail("always"),
            "effect" => due.done_with(move |transaction| {
                let connection = transaction.sqlite()?;
                let write = || {
                    connection.execute_batch("CREATE TABLE IF NOT EXISTS effects (number INTEGER)")?;
                    connection.execute("INSERT INTO effects VALUES (?1)", [number as i64])
                };
                write().map(drop).map_err(netwheel::Error::other)
            }),
            "later" => drop(thread::spawn(move || due.done())),
            _ => due.done(),
        }
        if kind != PERIODIC && kind != "once" {
            // A cancel waits for the end of the run, and then finds nothing.
            let cancelled = handle.wait().cancel(id);
            cancelled.on_complete(move |found| {
                if let Ok(false) = found {
                    say(format_args!("ended {id}"));
                }
            });
        }
    });
    if kind == "once" { topic.delivery(Delivery::AtMostOnce) } else { topic }
}

/// Starts a timer with a key. Returns where its id arrives.
pub(super) fn start(
    timers: &DurableTimers,
    kind: &'static str,
    number: u64,
    delay: Duration,
) -> Receiver<Option<TimerId>> {
    say(format_args!("start {kind} {number}"));
    let (sender, receiver) = channel();
    let stored = timers.at(kind, delay, &number).key(format!("{kind} {number}")).start();
    stored.on_complete(move |id| {
        if let Ok(id) = id {
            say(format_args!("started {kind} {number} {id}"));
        }
        let _ = sender.send(id.ok());
    });
    receiver
}

fn cancel(timers: &DurableTimers, id: TimerId) {
    say(format_args!("cancel {id}"));
    let cancelled = timers.cancel(id);
    cancelled.on_complete(move |found| {
        if let Ok(true) = found {
            say(format_args!("cancelled {id}"));
        }
    });
}

fn start_periodic(timers: &DurableTimers) {
    timers.every(PERIODIC, ms(20), &0u64).start().detach();
}

/// Starts, cancels and moves timers at random, until it is killed.
fn run(timers: &DurableTimers, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    start_periodic(timers);
    // Numbers of different lives differ, except that some starts of earlier lives are repeated.
    let mut under_way = VecDeque::new();
    loop {
        let kind = KINDS[random.usize(..KINDS.len())];
        let number = if random.u32(..10) == 0 { random.u64(..REPEATED) } else { random.u64(..1 << 50) };
        let is_far = random.u32(..5) == 0;
        let delay = if is_far { FAR } else { ms(random.u64(..60)) };
        // A timer that was started before may be a dead letter, which a command would revive.
        under_way.push_back((is_far && number >= REPEATED, start(timers, kind, number, delay)));
        if under_way.len() < 8 {
            continue;
        }
        let Some((is_far, started)) = under_way.pop_front() else { continue };
        let Ok(Some(id)) = started.recv() else { continue };
        match random.u32(..4) {
            0 => cancel(timers, id),
            1 if is_far => timers.move_to(id, ms(random.u64(..20))).detach(),
            2 if is_far => timers.run_now(id).detach(),
            _ => {}
        }
    }
}

/// Does a little of everything, always the same.
fn scenario(timers: &DurableTimers) {
    start_periodic(timers);
    for number in 0..3 {
        for kind in KINDS {
            let _ = start(timers, kind, number, ms(number * 3)).recv();
        }
    }
    for command in [0, 1, 2] {
        if let Ok(Some(id)) = start(timers, "plain", 100 + command, FAR).recv() {
            match command {
                0 => cancel(timers, id),
                1 => timers.move_to(id, ms(2)).detach(),
                _ => timers.run_now(id).detach(),
            }
        }
    }
    // Until only the periodic timer is pending, and some of its runs are over.
    while pending(timers).len() > 1 || timers.metrics().fired < 30 {}
}

/// Lets everything fire that is still there.
fn drain(timers: &DurableTimers) {
    loop {
        let pending = pending(timers);
        if pending.is_empty() {
            return;
        }
        for info in pending {
            if info.topic == PERIODIC {
                timers.cancel(info.id).detach();
            } else if info.due > SystemTime::now() + FAR / 2 {
                // The next list must not show it again.
                timers.run_now(info.id).wait().unwrap();
            }
        }
    }
}

fn pending(timers: &DurableTimers) -> Vec<TimerInfo> {
    let filter = TimerFilter::new().state(TimerState::Pending).limit(TimerFilter::MAX_LIMIT);
    timers.list(filter).wait().unwrap()
}
