//! Concurrency limits, pauses and dead letters of topics, through the handle.

use crate::{
    support::{
        loops::{end, manual_group, one_loop, settle},
        wait::{HOUR, SECOND, done, ms, receive, wait_until},
    },
    timers::{File, sending, started},
};
use netwheel::{
    Error,
    durable::{Due, DurableTimers, Late, Retry, TimerFilter, TimerState, Topic, TopicCounts},
    time::Clock,
};
use std::{
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

/// A topic whose runs are passed on without an answer.
fn open_ended(name: &str) -> (Topic, Receiver<Due<String>>) {
    let (sender, runs) = channel();
    (Topic::new(name, Late::RunOnce, Retry::never(), move |due| sender.send(due).unwrap()), runs)
}

/// A topic whose runs fail.
fn failing(name: &str) -> Topic {
    Topic::new(name, Late::RunOnce, Retry::never(), |due: Due<String>| due.fail("no"))
}

fn counts(timers: &DurableTimers, topic: &str) -> TopicCounts {
    done(timers.counts()).unwrap().into_iter().find(|counts| counts.topic == topic).unwrap()
}

#[test]
fn a_stuck_topic_with_a_limit_does_not_stop_another() {
    let file = File::new();
    let group = one_loop();
    let (slow, slow_runs) = open_ended("slow");
    let (fast, fast_runs) = sending("fast");
    let timers = file
        .open()
        .topic(slow.max_running(2))
        .topic(fast)
        .max_running(8)
        .max_loaded(64)
        .start(&group)
        .unwrap();
    let stuck: Vec<_> = (0..100).map(|n| timers.at("slow", Duration::ZERO, &n.to_string()).start()).collect();
    for start in stuck {
        done(start).unwrap();
    }
    for n in 0..100 {
        done(timers.at("fast", Duration::ZERO, &n.to_string()).start()).unwrap();
        assert_eq!(receive(&fast_runs), n.to_string());
    }
    let first = [slow_runs.recv().unwrap(), slow_runs.recv().unwrap()];
    assert_eq!((counts(&timers, "slow").running, counts(&timers, "slow").pending), (2, 100));
    assert!(slow_runs.try_recv().is_err());
    first.into_iter().for_each(Due::done);
    for n in 2..100 {
        let due = slow_runs.recv().unwrap();
        assert_eq!(*due.payload(), n.to_string());
        due.done();
    }
    done(timers.close()).unwrap();
    assert_eq!(timers.metrics().pending, 0);
    end(&group);
}

#[test]
fn a_limit_of_no_runs_is_refused() {
    let file = File::new();
    let group = one_loop();
    let refused = file.open().topic(sending("topic").0.max_running(0)).start(&group);
    assert!(matches!(refused, Err(Error::Setting { .. })), "{refused:?}");
    end(&group);
}

#[test]
fn a_pause_survives_a_restart_and_ends_when_the_topic_is_resumed() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    assert!(done(timers.pause("topic")).unwrap());
    assert!(!done(timers.pause("unknown")).unwrap());
    done(timers.at("topic", Duration::ZERO, "waits").start()).unwrap();
    assert!(counts(&timers, "topic").is_paused);
    done(timers.close()).unwrap();

    let (topic, second_runs) = sending("topic");
    let (other, other_runs) = sending("other");
    let timers = file.open().topic(topic).topic(other).start(&group).unwrap();
    // A later timer of another topic fires, so the first one had its chance.
    done(timers.at("other", ms(20), "other").start()).unwrap();
    assert_eq!(receive(&other_runs), "other");
    assert!(runs.try_recv().is_err() && second_runs.try_recv().is_err());
    assert!(done(timers.resume("topic")).unwrap());
    assert!(done(timers.resume("topic")).unwrap());
    assert_eq!(receive(&second_runs), "waits");
    assert!(!counts(&timers, "topic").is_paused);
    done(timers.close()).unwrap();
    end(&group);
}

/// A program that operates on the store of another one has none of its topics.
#[test]
fn a_topic_that_the_program_does_not_have_can_be_paused() {
    let file = File::new();
    let (group, timers, _runs) = started(&file);
    done(timers.close()).unwrap();
    let operator = file.open().paused().start(&group).unwrap();
    assert!(done(operator.pause("topic")).unwrap());
    done(operator.close()).unwrap();
    assert!(matches!(done(operator.pause("topic")), Err(Error::ShutDown)));
    assert!(matches!(done(operator.retry_dead("topic", HOUR)), Err(Error::ShutDown)));
    let (next_group, timers, _runs) = started(&file);
    assert!(counts(&timers, "topic").is_paused);
    done(timers.close()).unwrap();
    end(&group);
    end(&next_group);
}

/// Starts timers that fail, and waits until they are dead letters.
fn dead_letter(timers: &DurableTimers, number: u64) {
    let dead = counts(timers, "topic").dead;
    let starts: Vec<_> =
        (0..number).map(|n| timers.at("topic", Duration::ZERO, &n.to_string()).start()).collect();
    for start in starts {
        done(start).unwrap();
    }
    wait_until("dead letters", || counts(timers, "topic").dead == dead + number);
}

#[test]
fn all_dead_letters_are_retried_in_the_course_of_a_time() {
    let file = File::new();
    let (group, clock) = manual_group();
    let timers = file.open().topic(failing("topic")).start(&group).unwrap();
    dead_letter(&timers, 600);
    done(timers.close()).unwrap();

    let (topic, runs) = sending("topic");
    let timers = file.open().topic(topic).start(&group).unwrap();
    assert_eq!(done(timers.retry_dead("unknown", HOUR)).unwrap(), 0);
    assert_eq!(done(timers.retry_dead("topic", 600 * SECOND)).unwrap(), 600);
    assert_eq!(receive(&runs), "0");
    let after = counts(&timers, "topic");
    assert_eq!(after.dead, 0);
    // One letter in each second, the oldest first.
    for n in 1..600 {
        clock.advance(ms(999));
        settle(group.next());
        assert!(runs.try_recv().is_err(), "letter {n} is early");
        clock.advance(ms(1));
        assert_eq!(receive(&runs), n.to_string());
    }
    done(timers.close()).unwrap();
    assert_eq!(timers.metrics().pending, 0);
    end(&group);
}

#[test]
fn letters_that_die_again_while_all_are_retried_are_not_retried_once_more() {
    let file = File::new();
    let group = one_loop();
    let timers = file.open().topic(failing("topic")).start(&group).unwrap();
    dead_letter(&timers, 700);
    assert_eq!(done(timers.retry_dead("topic", Duration::ZERO)).unwrap(), 700);
    wait_until("dead letters", || counts(&timers, "topic").dead == 700);
    assert_eq!(timers.metrics().fired, 1400);
    assert_eq!(done(timers.remove_dead("topic")).unwrap(), 700);
    assert_eq!(counts(&timers, "topic").dead, 0);
    done(timers.close()).unwrap();
    end(&group);
}

#[test]
fn dead_letters_beyond_their_number_and_age_are_removed() {
    let file = File::new();
    let (group, clock) = manual_group();
    let topic = failing("topic").keep_dead(5).keep_dead_for(24 * HOUR);
    let timers = file.open().topic(topic).start(&group).unwrap();
    dead_letter(&timers, 8);
    let passes = |time: Duration| {
        clock.advance(time);
        settle(group.next());
    };
    (0..12).for_each(|_| passes(SECOND));
    wait_until("dead letters", || counts(&timers, "topic").dead == 5);
    assert_eq!(timers.metrics().pruned, 3);
    let left = done(timers.list(TimerFilter::new().state(TimerState::Dead))).unwrap();
    let payloads: Vec<_> = left.iter().map(|timer| timer.payload.as_str()).collect();
    assert_eq!(payloads, ["\"3\"", "\"4\"", "\"5\"", "\"6\"", "\"7\""]);
    assert!(left.iter().all(|timer| timer.due <= clock.wall_time()));
    passes(24 * HOUR - 20 * SECOND);
    assert_eq!(counts(&timers, "topic").dead, 5);
    (0..30).for_each(|_| passes(SECOND));
    wait_until("dead letters", || counts(&timers, "topic").dead == 0);
    assert_eq!(timers.metrics().pruned, 8);
    done(timers.close()).unwrap();
    end(&group);
}

#[test]
fn more_surplus_letters_than_one_transaction_removes_are_removed_without_a_pause() {
    let file = File::new();
    let (group, _clock) = manual_group();
    let timers = file.open().topic(failing("topic")).start(&group).unwrap();
    dead_letter(&timers, 2500);
    done(timers.close()).unwrap();
    let timers = file.open().topic(failing("topic").keep_dead(100)).start(&group).unwrap();
    wait_until("dead letters", || counts(&timers, "topic").dead == 100);
    assert_eq!(timers.metrics().pruned, 2400);
    done(timers.close()).unwrap();
    end(&group);
}
