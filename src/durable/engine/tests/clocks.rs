//! The wall clock is set while timers wait.

use super::simulation::{DAY, HOUR, MINUTE, SECOND, START, Simulation};
use crate::durable::{
    engine::message::TimerCommand,
    policy::{Late, Retry},
    store::TimerState,
    unix_millis::present_millis,
};

/// P-16.
#[test]
fn a_jump_forward_fires_what_has_become_due_once() {
    for jump in [SECOND, HOUR, DAY] {
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

const YEARS: i64 = 3653 * DAY;

/// Returns the due times of pending timers since [`START`].
fn dues(simulation: &mut Simulation) -> Vec<i64> {
    let stored = simulation.stored();
    let pending = stored.iter().filter(|info| info.state == TimerState::Pending);
    pending.map(|info| present_millis(info.due) - START).collect()
}

#[test]
fn a_jump_by_more_than_a_day_fires_what_has_become_due_after_a_minute() {
    let mut simulation = Simulation::new(Late::RunOnce, Retry::never());
    for after in [30 * SECOND, 10 * MINUTE, 2 * DAY, 4 * DAY] {
        simulation.start(after);
    }
    simulation.settle();
    simulation.jump(3 * DAY);
    simulation.run_until(5 * DAY);
    let jump = 3 * DAY;
    // The time goes on as before the jump, until that is believed.
    assert_eq!(simulation.times(), [jump + 30 * SECOND, jump + MINUTE, jump + MINUTE, 4 * DAY]);
}

/// The clock is ten years ahead for three seconds.
#[test]
fn a_glitch_of_years_fires_nothing_and_moves_nothing() {
    let mut simulation = Simulation::new(Late::RunOnce, Retry::never());
    simulation.periodic(SECOND, "every 1000");
    simulation.periodic(HOUR, "cron UTC 0 * * * *");
    simulation.start(2 * HOUR);
    simulation.run_until(5 * SECOND);
    simulation.jump(YEARS);
    simulation.run_until(YEARS + 8 * SECOND);
    simulation.jump(-YEARS);
    simulation.run_until(10 * SECOND);
    assert_eq!(simulation.scheduled(), (1..=10).map(|second| second * SECOND).collect::<Vec<_>>());
    assert_eq!(dues(&mut simulation), [11 * SECOND, HOUR, 2 * HOUR]);
    assert_eq!(simulation.metrics.clock_jumps.read(), 2);
    assert_eq!(simulation.metrics.repaired.read(), 0);
}

#[test]
fn a_glitch_into_the_past_delays_timers_by_its_length_only() {
    let mut simulation = Simulation::new(Late::RunOnce, Retry::never());
    simulation.start(7 * SECOND);
    simulation.start(20 * SECOND);
    simulation.run_until(5 * SECOND);
    simulation.jump(-YEARS);
    simulation.run_until(8 * SECOND - YEARS);
    assert_eq!(simulation.fired, []);
    simulation.jump(YEARS);
    simulation.run_until(30 * SECOND);
    assert_eq!(simulation.times(), [8 * SECOND, 20 * SECOND]);
}

/// It lasts for so long that it is believed.
#[test]
fn periodic_timers_go_on_when_a_clock_that_was_years_ahead_is_set_back() {
    let mut simulation = Simulation::new(Late::RunOnce, Retry::never());
    for _ in 0..70 {
        simulation.periodic(SECOND, "every 60000");
    }
    simulation.periodic(HOUR, "cron UTC 0 * * * *");
    simulation.run_until(5 * SECOND);
    simulation.jump(YEARS);
    simulation.run_until(YEARS + 5 * MINUTE);
    assert!(dues(&mut simulation).iter().all(|due| *due > YEARS));
    let fired = simulation.fired.len();
    simulation.jump(-YEARS);
    simulation.run_until(6 * MINUTE);
    assert_eq!(simulation.metrics.repaired.read(), 71);
    assert!(simulation.fired.len() >= fired + 70, "each has run once more");
    let late = dues(&mut simulation).into_iter().filter(|due| *due > HOUR);
    assert_eq!(late.count(), 0);
}

#[test]
fn periodic_timers_of_a_clock_that_was_years_ahead_go_on_after_a_restart() {
    let mut simulation = Simulation::new(Late::RunOnce, Retry::never());
    simulation.periodic(YEARS + 30 * SECOND, "every 60000");
    simulation.periodic(YEARS, "cron Europe/Berlin 30 2 * * *");
    simulation.restart();
    simulation.run_until(MINUTE);
    assert_eq!(simulation.scheduled(), [30 * SECOND], "in step with the old runs");
    let day = 90 * MINUTE;
    assert_eq!(dues(&mut simulation), [90 * SECOND, day]);
    assert_eq!(simulation.metrics.repaired.read(), 2);
}

#[test]
fn timers_that_wait_for_long_by_their_schedule_or_by_a_command_are_left_alone() {
    let mut simulation = Simulation::new(Late::RunOnce, Retry::never());
    simulation.start(YEARS);
    simulation.periodic(29 * DAY, &format!("every {}", 30 * DAY));
    simulation.periodic(29 * DAY, "cron UTC 0 0 30 * *");
    let moved = simulation.periodic(SECOND, "every 60000");
    assert!(simulation.command(moved, TimerCommand::MoveTo(START + YEARS)).take().unwrap().unwrap());
    let before = dues(&mut simulation);
    simulation.restart();
    simulation.run_until(10 * MINUTE);
    assert_eq!(dues(&mut simulation), before);
    assert_eq!(simulation.metrics.repaired.read(), 0);
    assert!(simulation.command(moved, TimerCommand::RunNow).take().unwrap().unwrap());
    simulation.run_until(12 * MINUTE);
    assert_eq!(simulation.times(), [10, 11, 12].map(|minute| minute * MINUTE), "it goes on from the command");
}

/// The store is not asked all the time.
#[test]
fn periodic_timers_are_looked_through_a_page_at_a_time() {
    let mut simulation = Simulation::new(Late::RunOnce, Retry::never());
    for _ in 0..100 {
        simulation.periodic(29 * DAY, &format!("every {}", 30 * DAY));
    }
    simulation.restart();
    let mut surveys = Vec::new();
    for _ in 0..20 {
        simulation.poll();
        surveys.push(simulation.surveys);
        simulation.pass(100);
    }
    assert_eq!(surveys.iter().max(), Some(&4), "32 timers in each");
    assert!(surveys.windows(2).all(|pair| pair[1] - pair[0] <= 1));
}
