//! The examples of late timers in docs/durable-timers.md.

use crate::timers::File;
use netwheel::{
    EventLoopGroup,
    durable::{Due, DurableTimers, Late, Retry, TimerFilter, Topic},
    group::ManualEventLoop,
    testing::ManualClock,
};
use std::{
    sync::mpsc::{Receiver, channel},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A run: its scheduled time, and the number of missed runs that it stands for.
type Run = (SystemTime, u64);

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const RUN_ALL: Late = Late::RunAll { at_most: 2 };

/// Returns a time of 2026-01-05, a Monday.
fn monday(hour: u32, minute: u32) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_767_571_200) + HOUR * hour + HOUR / 60 * minute
}

/// A program with a topic, whose handler fails if the payload is `true` and the attempt the first.
struct Program {
    file: File,
    clock: ManualClock,
    by_hand: ManualEventLoop,
    late: Late,
    timers: DurableTimers,
    runs: Receiver<Run>,
}

fn open(file: &File, late: Late, by_hand: &ManualEventLoop) -> (DurableTimers, Receiver<Run>) {
    let (sender, runs) = channel();
    let handler = move |due: Due<bool>| {
        if *due.payload() && due.attempt() == 1 {
            return due.fail("the first attempt");
        }
        sender.send((due.scheduled(), due.missed())).unwrap();
        due.done();
    };
    let retry = Retry::backoff(1).initial(HOUR / 3).max_delay(HOUR);
    let topic = Topic::new("topic", late, retry, handler);
    (file.open().topic(topic).start(by_hand.group()).unwrap(), runs)
}

impl Program {
    fn starts(late: Late, time: SystemTime) -> Self {
        let (file, clock) = (File::new(), ManualClock::new());
        clock.set_wall_time(time);
        let by_hand = EventLoopGroup::builder().clock(clock.clone()).build_manual().unwrap();
        let (timers, runs) = open(&file, late, &by_hand);
        Program { file, clock, by_hand, late, timers, runs }
    }

    fn at(&mut self, time: SystemTime) {
        self.by_hand.run_until(self.timers.at("topic", time, &false).start()).unwrap();
    }

    fn hourly(&mut self) {
        self.by_hand.run_until(self.timers.every("topic", HOUR, &false).start()).unwrap();
    }

    fn is_down_until(&mut self, time: SystemTime) {
        self.by_hand.run_until(self.timers.close()).unwrap();
        self.clock.set_wall_time(time);
        (self.timers, self.runs) = open(&self.file, self.late, &self.by_hand);
    }

    fn clock_is_set(&mut self, time: SystemTime) {
        // A jump by more than a day counts after it has lasted for a minute.
        self.clock.set_wall_time(time - Duration::from_secs(62));
        self.clock.advance(Duration::from_secs(1));
        for _ in 0..5 {
            self.by_hand.run_until(self.timers.list(TimerFilter::new())).unwrap();
        }
        self.clock.advance(Duration::from_secs(61));
    }

    /// Runs until the store has just one timer, due at this time, or none. Returns the runs.
    #[track_caller]
    fn runs_until(&mut self, next: Option<SystemTime>) -> Vec<Run> {
        for _ in 0..10_000 {
            let stored = self.by_hand.run_until(self.timers.list(TimerFilter::new())).unwrap();
            assert!(stored.len() <= 1);
            if stored.first().map(|timer| timer.due) == next {
                return self.runs.try_iter().collect();
            }
            self.by_hand.run_once(Duration::from_millis(1));
        }
        panic!("the next run is another one");
    }
}

#[test]
fn an_hourly_timer_of_a_program_that_is_down_from_2_59_to_5_30() {
    let runs = |late| {
        let mut program = Program::starts(late, monday(2, 0));
        program.hourly();
        program.is_down_until(monday(5, 30));
        program.runs_until(Some(monday(6, 0)))
    };
    assert_eq!(runs(Late::RunOnce), [(monday(3, 0), 2)]);
    assert_eq!(runs(Late::HandlerDecides), [(monday(3, 0), 2)]);
    assert_eq!(runs(RUN_ALL), [(monday(4, 0), 0), (monday(5, 0), 0)]);
    assert_eq!(runs(Late::Skip), []);
}

#[test]
fn a_one_shot_timer_of_a_program_that_is_down() {
    let runs = |late| {
        let mut program = Program::starts(late, monday(2, 0));
        program.at(monday(4, 0));
        program.is_down_until(monday(5, 30));
        program.runs_until(None)
    };
    assert_eq!(runs(Late::RunOnce), [(monday(4, 0), 0)]);
    assert_eq!(runs(RUN_ALL), [(monday(4, 0), 0)]);
    assert_eq!(runs(Late::Skip), []);
}

#[test]
fn a_second_attempt_of_a_program_that_is_down() {
    let runs = |late| {
        let mut program = Program::starts(late, monday(2, 50));
        let start = program.timers.at("topic", monday(2, 50), &true).start();
        program.by_hand.run_until(start).unwrap();
        assert_eq!(program.runs_until(Some(monday(3, 10))), []);
        program.is_down_until(monday(5, 30));
        program.runs_until(None)
    };
    assert_eq!(runs(Late::RunOnce), [(monday(2, 50), 0)]);
    assert_eq!(runs(RUN_ALL), [(monday(2, 50), 0)]);
    assert_eq!(runs(Late::Skip), []);
}

#[test]
fn a_start_for_a_time_ten_minutes_ago() {
    let runs = |late| {
        let mut program = Program::starts(late, monday(10, 30));
        program.at(monday(10, 20));
        program.runs_until(None)
    };
    assert_eq!(runs(Late::RunOnce), [(monday(10, 20), 0)]);
    assert_eq!(runs(RUN_ALL), [(monday(10, 20), 0)]);
    assert_eq!(runs(Late::Skip), []);
}

/// P-16.
#[test]
fn a_clock_that_is_set_forward_by_three_days() {
    let runs = |late| {
        let mut program = Program::starts(late, monday(10, 0));
        program.hourly();
        program.clock_is_set(monday(10, 30) + 3 * DAY);
        program.runs_until(Some(monday(11, 0) + 3 * DAY))
    };
    assert_eq!(runs(Late::RunOnce), [(monday(11, 0), 71)]);
    assert_eq!(runs(RUN_ALL), [9, 10].map(|hour| (monday(hour, 0) + 3 * DAY, 0)));
    assert_eq!(runs(Late::Skip), []);
    let runs = |late| {
        let mut program = Program::starts(late, monday(10, 30));
        program.at(monday(10, 30) + DAY);
        program.clock_is_set(monday(10, 30) + 3 * DAY);
        program.runs_until(None)
    };
    assert_eq!(runs(Late::RunOnce), [(monday(10, 30) + DAY, 0)]);
    assert_eq!(runs(Late::Skip), []);
}

/// P-17.
#[test]
fn a_clock_that_is_set_back_by_twelve_hours() {
    for late in [Late::RunOnce, RUN_ALL, Late::Skip] {
        let mut program = Program::starts(late, monday(10, 0));
        program.hourly();
        program.clock_is_set(monday(10, 30) - 12 * HOUR);
        program.clock.advance(12 * HOUR + HOUR / 2 - Duration::from_millis(1));
        assert_eq!(program.runs_until(Some(monday(11, 0))), []);
        program.clock.advance(Duration::from_millis(1));
        assert_eq!(program.runs_until(Some(monday(12, 0))), [(monday(11, 0), 0)]);
    }
}
