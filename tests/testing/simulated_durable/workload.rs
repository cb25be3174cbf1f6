//! What the program of a node does with its timers.

use super::{
    oracle::{Event, Id, Kind, Number, RETRIES, Run},
    watched::Watched,
};
use netwheel::{
    Error, EventLoop, EventLoopGroup, Result,
    durable::{
        Delivery, Due, DurableTimers, Late, MemoryTransaction, Retry, TimerFilter, TimerId, TimerInfo,
        TimerState, TimerStore, Topic,
    },
    shutdown::ShutdownOptions,
    testing::simulation::{Journal, seed, sleep, sometimes},
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MS: Duration = Duration::from_millis(1);

/// Timers of this delay fire only if they are moved.
const FAR: Duration = Duration::from_secs(3600);

/// Numbers below this are started again and again.
const REPEATED: Number = 20;

/// What the programs of all nodes share with the test.
#[derive(Clone)]
pub(super) struct Scene {
    pub(super) events: Journal<Event>,
    /// What is left in the store after nothing is pending, and the time.
    pub(super) left: Journal<(Vec<TimerInfo>, SystemTime)>,
    /// No timers are started any more.
    pub(super) is_calm: Arc<AtomicBool>,
    lives: Arc<AtomicU64>,
    /// Returns the time by the clock that decides when timers are due.
    now: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

impl Scene {
    pub(super) fn new(now: Arc<dyn Fn() -> SystemTime + Send + Sync>) -> Self {
        Scene {
            events: Journal::new(),
            left: Journal::new(),
            is_calm: Arc::default(),
            lives: Arc::default(),
            now,
        }
    }

    fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::Relaxed)
    }
}

/// Opens a store again and again, and works with its timers. `node` is the number of the node.
pub(super) fn program<S: TimerStore + 'static>(
    scene: &Scene,
    node: usize,
    mut open: impl FnMut() -> Option<S>,
) -> Result {
    let mut random = fastrand::Rng::with_seed(seed().expect("a program of a node"));
    loop {
        let group = EventLoopGroup::builder().threads(1).build();
        if let (Ok(group), Some(store)) = (group, open()) {
            let life = scene.lives.fetch_add(1, Ordering::Relaxed);
            scene.events.push(Event::Opened { node, life });
            let store = Watched::new(store, life, scene.events.clone());
            match builder(scene, store, group.next(), life).start(&group) {
                Ok(timers) => live(scene, &timers, &mut random),
                Err(Error::Other(_)) => sometimes("the timers were not started"),
                Err(error) => panic!("{error}"),
            }
            let options = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(SECOND);
            let _ = group.shutdown(options).wait();
        }
        sleep(MS * random.u32(1..1000));
    }
}

fn builder<S: TimerStore + 'static>(
    scene: &Scene,
    store: S,
    event_loop: &EventLoop,
    life: u64,
) -> netwheel::durable::DurableTimersBuilder {
    let mut builder = DurableTimers::builder(store).near(10 * SECOND).max_loaded(30);
    for kind in Kind::ALL {
        builder = builder.topic(topic(scene, kind, event_loop.clone(), life));
    }
    builder
}

fn topic(scene: &Scene, kind: Kind, event_loop: EventLoop, life: u64) -> Topic {
    let retry = match kind {
        Kind::Dead | Kind::Once => Retry::never(),
        _ => Retry::backoff(RETRIES).initial(100 * MS).max_delay(SECOND),
    };
    let scene = scene.clone();
    let topic = Topic::new(kind.topic(), Late::RunOnce, retry, move |due: Due<Number>| {
        let (id, number, attempt) = (due.id(), *due.payload(), due.attempt());
        let now = (scene.now)();
        let run = Run { life, id: id.get(), scheduled: due.scheduled(), now, attempt };
        scene.events.push(Event::Ran(kind, number, run));
        let timers = due.timers();
        match kind {
            Kind::Retry if attempt == 1 => return due.fail("the first time"),
            Kind::Dead => return due.fail("always"),
            Kind::Effect => due.done_with(move |transaction| {
                let rows = transaction.connection::<MemoryTransaction>()?;
                let name = format!("effect {number}");
                let stored = rows.get(&name).map_or(0, |row| row[0]);
                rows.put(&name, [stored + 1]);
                Ok(())
            }),
            Kind::Later => {
                let after = MS * (number % 1500) as u32;
                // If the loop refuses the task, the run ends with the drop of its `Due`.
                let _ = event_loop.schedule(after, move || due.done());
            }
            _ => due.done(),
        }
        if matches!(kind, Kind::Plain | Kind::Effect | Kind::Retry) {
            // A cancel waits for the end of the run, and then finds nothing. It may find a timer
            // that another node has moved since then. Such a run does not end.
            let events = scene.events.clone();
            timers.cancel(id).on_complete(move |found| {
                let is_ended = matches!(found, Ok(false));
                events.push(if is_ended { Event::Ended(id.get()) } else { Event::CancelAsked(id.get()) });
            });
        }
    });
    if kind == Kind::Once { topic.delivery(Delivery::AtMostOnce) } else { topic }
}

/// Uses the timers until they fail, or are closed now and then.
fn live(scene: &Scene, timers: &DurableTimers, random: &mut fastrand::Rng) {
    let started: Arc<Mutex<Vec<(Id, bool)>>> = Arc::default();
    timers.every(Kind::Periodic.topic(), 7 * SECOND, &0u64).start().on_complete({
        let events = scene.events.clone();
        move |id| {
            if let Ok(id) = id {
                events.push(Event::Started(Kind::Periodic, 0, id.get()));
            }
        }
    });
    while !scene.is_calm() {
        if timers.metrics().is_stopped || random.u32(..150) == 0 {
            return close(timers);
        }
        step(scene, timers, random, &started);
        sleep(MS * random.u32(..800));
    }
    while !timers.metrics().is_stopped {
        if drain(scene, timers) {
            sometimes("nothing is left");
            sleep(3600 * SECOND);
        }
        sleep(SECOND);
    }
    close(timers);
}

fn close(timers: &DurableTimers) {
    match timers.close().wait() {
        Ok(()) => sometimes("the timers were closed"),
        Err(_) => sometimes("the store had failed"),
    }
}

fn step(
    scene: &Scene,
    timers: &DurableTimers,
    random: &mut fastrand::Rng,
    started: &Arc<Mutex<Vec<(Id, bool)>>>,
) {
    let known = |random: &mut fastrand::Rng| {
        let mut started = started.lock().unwrap();
        (!started.is_empty()).then(|| {
            let at = random.usize(..started.len());
            started.swap_remove(at)
        })
    };
    match random.u32(..12) {
        0..8 => {
            for _ in 0..=random.u32(..3) {
                start(scene, timers, random, started);
            }
        }
        8 => {
            let Some((id, _)) = known(random) else { return };
            scene.events.push(Event::CancelAsked(id));
            let events = scene.events.clone();
            timers.cancel(TimerId::new(id)).on_complete(move |found| {
                if let Ok(true) = found {
                    events.push(Event::Cancelled(id));
                }
            });
        }
        9 => {
            if let Some((id, true)) = known(random) {
                scene.events.push(Event::Moved(id));
                timers.move_to(TimerId::new(id), MS * random.u32(..5000)).detach();
            }
        }
        10 => {
            if let Some((id, true)) = known(random) {
                scene.events.push(Event::Moved(id));
                timers.run_now(TimerId::new(id)).detach();
            }
        }
        _ => drop(timers.list(TimerFilter::new()).wait()),
    }
}

fn start(
    scene: &Scene,
    timers: &DurableTimers,
    random: &mut fastrand::Rng,
    started: &Arc<Mutex<Vec<(Id, bool)>>>,
) {
    let kind = Kind::ALL[random.usize(..Kind::ALL.len() - 1)];
    let is_repeated = random.u32(..10) == 0;
    let number = if is_repeated { random.u64(..REPEATED) } else { random.u64(..1 << 50) };
    let is_far = random.u32(..5) == 0;
    let delay = if is_far { FAR } else { MS * random.u32(..20_000) };
    scene.events.push(Event::Asked(kind, number));
    let (events, started) = (scene.events.clone(), started.clone());
    let stored = timers.at(kind.topic(), delay, &number).key(format!("{kind:?} {number}")).start();
    stored.on_complete(move |id| match id {
        Ok(id) => {
            events.push(Event::Started(kind, number, id.get()));
            // A command would revive a dead letter.
            if !is_repeated {
                started.lock().unwrap().push((id.get(), is_far && kind != Kind::Dead));
            }
        }
        Err(_) => sometimes("a start failed"),
    });
}

/// Lets everything fire that is still there. Returns whether nothing is left.
fn drain(scene: &Scene, timers: &DurableTimers) -> bool {
    let now = (scene.now)();
    let Some(all) = list(timers) else { return false };
    let mut is_drained = true;
    for info in all.iter().filter(|info| info.state == TimerState::Pending) {
        if info.topic != Kind::Periodic.topic() {
            is_drained = false;
            if info.due > now + 30 * SECOND {
                scene.events.push(Event::Moved(info.id.get()));
                timers.run_now(info.id).detach();
            }
        }
    }
    if is_drained && timers.metrics().running == 0 {
        scene.left.push((all, now));
        return true;
    }
    false
}

/// Returns all timers of the store.
fn list(timers: &DurableTimers) -> Option<Vec<TimerInfo>> {
    let mut all: Vec<TimerInfo> = Vec::new();
    loop {
        let mut filter = TimerFilter::new().limit(TimerFilter::MAX_LIMIT);
        if let Some(last) = all.last() {
            filter = filter.after(last.id);
        }
        let page = timers.list(filter).wait().ok()?;
        let is_last = page.len() < TimerFilter::MAX_LIMIT;
        all.extend(page);
        if is_last {
            return Some(all);
        }
    }
}
