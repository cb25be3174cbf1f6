//! `HashedWheelTimer` on a simulated machine.

use netwheel::{
    Error, Result,
    testing::simulation::{Exploration, Failure, Faults, Journal, Simulation, seed, sleep, sometimes},
    time::default_clock,
    timer::{HashedWheelTimer, Timeout},
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(10);

/// What the program and the test share.
#[derive(Clone)]
struct Scene {
    /// What a timer must not do.
    broken: Journal<String>,
    ran: Journal<()>,
    is_calm: Arc<AtomicBool>,
}

/// What was seen of a timeout.
#[derive(Debug, Default)]
struct Seen {
    runs: u32,
    /// Calls of its hook.
    hooks: u32,
    /// Whether a cancel has returned `true`.
    is_cancelled: bool,
}

/// A timeout, and the observations of it.
struct Watched {
    timeout: Timeout,
    has_hook: bool,
    seen: Arc<Mutex<Seen>>,
}

impl Watched {
    fn add(timer: &HashedWheelTimer, delay: Duration, has_hook: bool, scene: &Scene) -> Result<Self> {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let (due, ran, scene) = (default_clock().wall_time() + delay, seen.clone(), scene.clone());
        let task = move |_: &Timeout| {
            let mut seen = ran.lock().unwrap();
            seen.runs += 1;
            if seen.is_cancelled {
                scene.broken.push("a cancelled timeout has run".to_owned());
            }
            look_at_lateness(due, &scene);
            Ok(())
        };
        let hooked = seen.clone();
        let timeout = if has_hook {
            let hook = move |_: &Timeout| hooked.lock().unwrap().hooks += 1;
            timer.new_timeout_with_hook(delay, task, hook).map_err(|refused| refused.into_parts().1)
        } else {
            timer.new_timeout(delay, task).map_err(|refused| refused.into_parts().1)
        };
        Ok(Watched { timeout: timeout?, has_hook, seen })
    }

    fn cancel(&self) {
        if self.timeout.cancel() {
            self.seen.lock().unwrap().is_cancelled = true;
        }
    }

    /// Checks the outcome of the timeout, after its timer was stopped: it has run, was cancelled,
    /// or was left.
    fn check(&self, is_left: bool) -> Result<(), String> {
        let seen = self.seen.lock().unwrap();
        let (runs, hooks) = match (seen.is_cancelled, is_left) {
            (false, false) => (1, 0),
            (true, true) => return Err(format!("cancelled and left: {seen:?}")),
            _ => (0, u32::from(self.has_hook)),
        };
        if (seen.runs, seen.hooks) == (runs, hooks) {
            return Ok(());
        }
        let has_hook = self.has_hook;
        Err(format!(
            "{runs} runs and {hooks} hooks expected, has hook: {has_hook}, left: {is_left}: {seen:?}"
        ))
    }
}

fn look_at_lateness(due: SystemTime, scene: &Scene) {
    match default_clock().wall_time().duration_since(due) {
        Err(early) => scene.broken.push(format!("{early:?} early")),
        Ok(late) if late > 3 * TICK && scene.is_calm.load(Ordering::Relaxed) => {
            scene.broken.push(format!("{late:?} late although all is calm"));
        }
        Ok(_) => scene.ran.push(()),
    }
}

/// Adds timeouts and cancels some, and stops the timer. Records violations by the timer.
fn program(scene: &Scene) -> Result {
    let mut random = fastrand::Rng::with_seed(seed().expect("a program of a node"));
    loop {
        let timer = HashedWheelTimer::builder().tick(TICK).build()?;
        let mut all = Vec::new();
        for _ in 0..random.u32(..200) {
            all.push(Watched::add(&timer, MS * random.u32(..2000), random.bool(), scene)?);
            if random.u32(..4) == 0 {
                random.choice(&all).ok_or(Error::Cancelled)?.cancel();
            }
            sleep(MS * random.u32(..50));
        }
        let left = timer.stop()?;
        for watched in &all {
            let times = left.iter().filter(|timeout| **timeout == watched.timeout).count();
            if times > 1 {
                scene.broken.push(format!("a timeout was returned {times} times"));
            }
            if let Err(broken) = watched.check(times > 0) {
                scene.broken.push(broken);
            }
        }
        sometimes("a timer was stopped");
    }
}

fn scenario(simulation: &mut Simulation) -> Result<(), Failure> {
    let scene = Scene { broken: Journal::new(), ran: Journal::new(), is_calm: Arc::default() };
    let theirs = scene.clone();
    simulation.node("timer", "10.0.0.1", move || program(&theirs));
    let Scene { broken, ran, is_calm } = scene;
    simulation.check("timeouts", move || {
        broken.with(|broken: &[String]| broken.first().map_or(Ok(()), |first| Err(first.clone())))
    });
    simulation.run_for(30 * SECOND)?;
    simulation.heal();
    // Timeouts of before, and a stall.
    simulation.run_for(10 * SECOND)?;
    is_calm.store(true, Ordering::Relaxed);
    let before = ran.len();
    simulation.run_for(20 * SECOND)?;
    if ran.len() < before + 50 {
        return Err(simulation.fail("timeouts do not run any more"));
    }
    Ok(())
}

#[test]
fn a_timer_with_a_thread_keeps_its_promises_in_a_simulation() {
    // The time of day that the programs read steps, and not the clock of the timer.
    let faults = Faults::all().rate("wall-time-steps", 0);
    let explored = Exploration::new(6).faults(faults).run(scenario);
    let explored = explored.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(explored.reached("a timer was stopped") > 0);
}
