//! What late timers do.

use super::simulation::{DAY, HOUR, MINUTE, SECOND, START, Simulation};
use crate::durable::{
    engine::message::{EngineMessage, RunAnswer},
    policy::{Late, Retry},
    store::{Change, Outcome},
};

/// A program that was down from 00:00:30 to 05:30, with an hourly timer at 1:00, 2:00, …
fn down_for_hours(late: Late) -> Simulation {
    let mut simulation = Simulation::new(late, Retry::never());
    simulation.periodic(HOUR, "every 3600000");
    simulation.run_until(30 * SECOND);
    simulation.restart();
    simulation.pass(5 * HOUR + 30 * MINUTE - 30 * SECOND);
    simulation.run_until(7 * HOUR + MINUTE);
    simulation
}

/// P-13.
#[test]
fn run_once_makes_up_for_all_missed_runs_with_one() {
    let simulation = down_for_hours(Late::RunOnce);
    assert_eq!(simulation.times(), [5 * HOUR + 30 * MINUTE, 6 * HOUR, 7 * HOUR]);
    assert_eq!(simulation.scheduled(), [HOUR, 6 * HOUR, 7 * HOUR]);
    assert_eq!(simulation.fired[0].missed, 4);
    assert_eq!(simulation.fired[1].missed, 0);
}

/// P-14.
#[test]
fn run_all_runs_each_missed_run_in_order() {
    let simulation = down_for_hours(Late::RunAll { at_most: 1000 });
    assert_eq!(simulation.scheduled(), [1, 2, 3, 4, 5, 6, 7].map(|hour| hour * HOUR));
    assert!(simulation.times()[..5].iter().all(|at| *at == 5 * HOUR + 30 * MINUTE));
}

/// P-14.
#[test]
fn run_all_skips_the_oldest_runs_beyond_its_limit() {
    let simulation = down_for_hours(Late::RunAll { at_most: 2 });
    assert_eq!(simulation.scheduled(), [4, 5, 6, 7].map(|hour| hour * HOUR));
    assert_eq!(simulation.metrics.skipped.read(), 1);
}

/// P-14. Another connection moves the timer just before its oldest runs are skipped.
#[test]
fn run_all_keeps_its_limit_after_a_skip_that_the_store_refuses() {
    let mut simulation = Simulation::new(Late::RunAll { at_most: 2 }, Retry::never());
    let id = simulation.periodic(HOUR, "every 3600000");
    simulation.run_until(30 * SECOND);
    simulation.restart();
    simulation.pass(5 * HOUR + 30 * MINUTE - 30 * SECOND);
    simulation.before_change = Some(Box::new(move |simulation| {
        let moved = simulation.commit(Change::Move { id, due: START + 2 * HOUR });
        let Outcome::Done(Some(row)) = moved else { panic!("{moved:?}") };
        simulation.tell(EngineMessage::Stored(row));
    }));
    simulation.run_until(6 * HOUR);
    assert_eq!(simulation.scheduled(), [4, 5, 6].map(|hour| hour * HOUR));
    assert_eq!(simulation.metrics.stale.read(), 1);
}

/// P-15.
#[test]
fn skip_goes_on_with_the_next_run() {
    let simulation = down_for_hours(Late::Skip);
    assert_eq!(simulation.times(), [6 * HOUR, 7 * HOUR]);
    assert_eq!(simulation.metrics.skipped.read(), 1);
}

/// P-15.
#[test]
fn ask_lets_the_handler_skip() {
    let mut simulation = Simulation::new(Late::HandlerDecides, Retry::never());
    simulation.handler(|firing| {
        Some(if firing.lateness.as_secs() > 60 { RunAnswer::Skip } else { RunAnswer::Done(None) })
    });
    simulation.periodic(HOUR, "every 3600000");
    simulation.pass(3 * HOUR + 5 * MINUTE);
    simulation.run_until(4 * HOUR);
    assert_eq!(simulation.times(), [3 * HOUR + 5 * MINUTE, 4 * HOUR]);
    assert_eq!(simulation.fired[0].missed, 2);
    assert_eq!(simulation.metrics.skipped.read(), 1);
}

/// P-15.
#[test]
fn late_one_shot_timers_run_or_are_skipped() {
    for (late, runs) in
        [(Late::RunOnce, 1), (Late::RunAll { at_most: 1 }, 1), (Late::HandlerDecides, 1), (Late::Skip, 0)]
    {
        let mut simulation = Simulation::new(late, Retry::never());
        simulation.start(MINUTE);
        simulation.restart();
        simulation.pass(3 * DAY);
        simulation.settle();
        assert_eq!(simulation.fired.len(), runs, "{late:?}");
        assert_eq!(simulation.stored(), [], "{late:?}");
    }
}

#[test]
fn a_timer_is_late_only_after_the_limit() {
    let mut simulation = Simulation::new(Late::Skip, Retry::never());
    simulation.start(SECOND);
    simulation.start(2 * SECOND);
    simulation.pass(3 * SECOND);
    simulation.settle();
    assert_eq!(simulation.scheduled(), [2 * SECOND], "2 s late is late, 1 s is not");
}

#[test]
fn runs_of_a_slow_program_are_not_lost_while_they_are_not_late() {
    let mut simulation = Simulation::new(Late::Skip, Retry::never());
    simulation.periodic(100, "every 100");
    for _ in 0..10 {
        simulation.pass(300);
        simulation.settle();
    }
    let runs: Vec<i64> = (1..=30).map(|run| run * 100).collect();
    assert_eq!(simulation.scheduled(), runs);
}

#[test]
fn missed_cron_runs_follow_the_same_rules() {
    for (late, hours) in [
        (Late::RunOnce, vec![9, 4 * 24 + 9]),
        (Late::RunAll { at_most: 2 }, vec![9, 3 * 24 + 9, 4 * 24 + 9]),
        (Late::Skip, vec![4 * 24 + 9]),
    ] {
        let mut simulation = Simulation::new(late, Retry::never());
        // Friday, Monday, Tuesday.
        simulation.periodic(9 * HOUR, "cron UTC 0 9 * * MON-FRI");
        simulation.restart();
        simulation.pass(3 * DAY + 10 * HOUR);
        simulation.run_until(4 * DAY + 10 * HOUR);
        let hours: Vec<i64> = hours.into_iter().map(|hour| hour * HOUR).collect();
        assert_eq!(simulation.scheduled(), hours, "{late:?}");
    }
}

#[test]
fn a_backlog_that_grows_faster_than_it_is_worked_off_does_not_block_the_loop() {
    let mut simulation = Simulation::new(Late::RunAll { at_most: 3 }, Retry::never());
    simulation.periodic(1, "every 1");
    simulation.pass(10 * SECOND);
    for _ in 0..100 {
        simulation.poll();
        simulation.pass(50);
    }
    assert!(simulation.fired.len() >= 50, "{}", simulation.fired.len());
    assert!(simulation.scheduled().is_sorted());
}

/// P-13.
#[test]
fn a_retry_stands_for_the_runs_that_were_missed_before_it() {
    for late in [Late::RunOnce, Late::HandlerDecides] {
        let mut simulation = Simulation::new(late, Retry::backoff(1));
        simulation.periodic(HOUR, "every 3600000");
        simulation.settle();
        simulation.restart();
        simulation.pass(3 * HOUR + 30 * MINUTE);
        simulation.handler(|firing| {
            Some(if firing.row.attempt() == 1 {
                RunAnswer::Failed("no".to_owned())
            } else {
                RunAnswer::Done(None)
            })
        });
        simulation.run_until(4 * HOUR - SECOND);
        let half_past_three = 3 * HOUR + 30 * MINUTE;
        assert_eq!(simulation.times(), [half_past_three, half_past_three + SECOND], "{late:?}");
        assert_eq!(simulation.scheduled(), [HOUR, HOUR]);
        assert_eq!(simulation.fired.iter().map(|fired| fired.missed).collect::<Vec<_>>(), [2, 2]);
    }
}

/// P-14.
#[test]
fn run_all_runs_what_a_retry_kept_waiting() {
    let mut simulation = Simulation::new(Late::RunAll { at_most: 100 }, Retry::backoff(1));
    simulation.handler(|firing| {
        Some(if firing.row.attempt() == 1 {
            RunAnswer::Failed("no".to_owned())
        } else {
            RunAnswer::Done(None)
        })
    });
    simulation.periodic(100, "every 100");
    simulation.run_until(1350);
    assert_eq!(simulation.scheduled(), [100, 100, 200]);
    simulation.handler(|_| Some(RunAnswer::Done(None)));
    simulation.run_until(2200);
    let rest: Vec<i64> = (2..=22).map(|run| run * 100).collect();
    assert_eq!(simulation.scheduled()[3..], rest);
}
