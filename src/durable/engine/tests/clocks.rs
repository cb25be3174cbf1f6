//! The wall clock is set while timers wait.

use super::simulation::{DAY, HOUR, MINUTE, SECOND, Simulation};
use crate::durable::{Late, Retry};

/// P-16.
#[test]
fn a_jump_forward_fires_what_has_become_due_once() {
    for jump in [SECOND, HOUR, 3 * DAY] {
        let mut simulation = Simulation::new(Late::RunOnce, Retry::never());
        let times = [500, 30 * SECOND, 10 * MINUTE, 2 * DAY, 4 * DAY];
        for after in times {
            simulation.start(after);
        }
        simulation.settle();
        simulation.jump(jump);
        simulation.run_until(5 * DAY);
        assert_eq!(simulation.scheduled(), times, "jump of {jump} ms");
        for fired in &simulation.fired {
            assert_eq!(fired.at, fired.scheduled.max(jump), "jump of {jump} ms");
        }
        assert_eq!(simulation.metrics.clock_jumps.read(), 1);
    }
}

/// P-17.
#[test]
fn a_jump_back_fires_nothing_twice_and_nothing_early() {
    for jump in [SECOND, HOUR, 3 * DAY] {
        let mut simulation = Simulation::new(Late::RunOnce, Retry::never());
        simulation.jump(3 * DAY);
        let times = [3 * DAY + 10 * SECOND, 3 * DAY + MINUTE, 4 * DAY];
        for after in times {
            simulation.start(after);
        }
        simulation.run_until(3 * DAY + 30 * SECOND);
        assert_eq!(simulation.fired.len(), 1);
        simulation.jump(-jump);
        simulation.run_until(5 * DAY);
        assert_eq!(simulation.times(), times, "jump of -{jump} ms");
    }
}

/// P-16.
#[test]
fn a_jump_forward_obeys_the_policy_of_the_topic() {
    let mut simulation = Simulation::new(Late::Skip, Retry::never());
    simulation.periodic(HOUR, "every 3600000");
    simulation.start(MINUTE);
    simulation.settle();
    simulation.jump(3 * DAY + MINUTE);
    simulation.run_until(3 * DAY + HOUR);
    assert_eq!(simulation.times(), [3 * DAY + HOUR]);
}

#[test]
fn slow_adjustments_are_not_jumps() {
    let mut simulation = Simulation::new(Late::Skip, Retry::never());
    simulation.start(2 * MINUTE);
    for _ in 0..1000 {
        simulation.pass(100);
        simulation.jump(20);
        simulation.settle();
    }
    assert_eq!(simulation.metrics.clock_jumps.read(), 0);
    assert_eq!(simulation.fired.len(), 1);
}

/// P-17.
#[test]
fn a_periodic_timer_does_not_run_twice_after_a_jump_back() {
    let mut simulation = Simulation::new(Late::RunOnce, Retry::never());
    simulation.periodic(MINUTE, "every 60000");
    simulation.run_until(3 * MINUTE);
    simulation.jump(-2 * MINUTE);
    simulation.run_until(5 * MINUTE);
    assert_eq!(simulation.scheduled(), [1, 2, 3, 4, 5].map(|minute| minute * MINUTE));
}
