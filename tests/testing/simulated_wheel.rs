//! `HashedWheelTimer` on a simulated machine.

use netwheel::{
    Result,
    testing::simulation::{Exploration, Failure, Faults, Journal, Simulation, seed, sleep, sometimes},
    time::default_clock,
    timer::HashedWheelTimer,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(10);

/// Adds timeouts and cancels some. Records what a timer must not do.
fn program(broken: &Journal<String>, ran: &Journal<()>, is_calm: &Arc<AtomicBool>) -> Result {
    let mut random = fastrand::Rng::with_seed(seed().expect("a program of a node"));
    loop {
        let timer = HashedWheelTimer::builder().tick(TICK).build()?;
        let mut pending = Vec::new();
        for _ in 0..random.u32(..200) {
            let delay = MS * random.u32(..2000);
            let due = default_clock().wall_time() + delay;
            let is_cancelled = Arc::new(AtomicBool::new(false));
            let (seen, broken, ran, is_calm) =
                (is_cancelled.clone(), broken.clone(), ran.clone(), is_calm.clone());
            let timeout = timer.new_timeout(delay, move |_| {
                let late = default_clock().wall_time().duration_since(due);
                if seen.load(Ordering::Relaxed) {
                    broken.push("a cancelled timeout has run".to_owned());
                }
                match late {
                    Err(early) => broken.push(format!("{early:?} early")),
                    Ok(late) if late > 3 * TICK && is_calm.load(Ordering::Relaxed) => {
                        broken.push(format!("{late:?} late although all is calm"));
                    }
                    Ok(_) => ran.push(()),
                }
                Ok(())
            });
            pending.push((timeout.map_err(|refused| refused.into_parts().1)?, is_cancelled));
            if random.u32(..4) == 0 {
                let (timeout, is_cancelled) = pending.swap_remove(random.usize(..pending.len()));
                if timeout.cancel() {
                    is_cancelled.store(true, Ordering::Relaxed);
                }
            }
            sleep(MS * random.u32(..50));
        }
        let pending = timer.pending_timeouts();
        if timer.stop()?.len() > pending {
            broken.push("stopped with more timeouts than were pending".to_owned());
        }
        sometimes("a timer was stopped");
    }
}

fn scenario(simulation: &mut Simulation) -> Result<(), Failure> {
    let (broken, ran, is_calm) = (Journal::new(), Journal::new(), Arc::new(AtomicBool::new(false)));
    let (theirs, counted, calm) = (broken.clone(), ran.clone(), is_calm.clone());
    simulation.node("timer", "10.0.0.1", move || program(&theirs, &counted, &calm));
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
