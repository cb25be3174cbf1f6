//! Idempotency keys.

use crate::{
    support::{
        loops::{end, one_loop},
        wait::{HOUR, done, ms, receive},
    },
    timers::{File, sending, started},
};
use netwheel::durable::{DurableTimers, SqliteStore, TimerFilter};
use std::time::Duration;

/// P-11.
#[test]
fn a_second_start_with_a_key_returns_the_first_timer() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    let first = done(timers.at("topic", HOUR, "first").key("order-17").start()).unwrap();
    let second = done(timers.at("topic", ms(0), "second").key("order-17").start()).unwrap();
    assert_eq!(first, second);
    let other = done(timers.at("topic", HOUR, "other").key("order-18").start()).unwrap();
    assert_ne!(first, other);
    assert!(runs.try_recv().is_err());
    end(&group);
}

/// P-11.
#[test]
fn the_key_of_an_ended_timer_is_remembered_across_restarts() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    let first = done(timers.at("topic", ms(0), "once").key("order-17").start()).unwrap();
    assert_eq!(receive(&runs), "once");
    done(timers.close()).unwrap();
    let (next_group, timers, runs) = started(&file);
    assert_eq!(done(timers.at("topic", ms(0), "twice").key("order-17").start()).unwrap(), first);
    done(timers.close()).unwrap();
    assert!(runs.try_recv().is_err());
    end(&group);
    end(&next_group);
}

#[test]
fn a_periodic_timer_tells_its_next_runs() {
    let file = File::new();
    let (group, timers, _runs) = started(&file);
    done(timers.every("topic", HOUR, "hourly").start()).unwrap();
    done(timers.cron("topic", "0 9 * * MON", "Asia/Shanghai", "weekly").unwrap().key("weekly").start())
        .unwrap();
    done(timers.at("topic", HOUR, "once").key("once").start()).unwrap();
    let runs = |key: &str| -> Vec<_> {
        let info = done(timers.find("topic", key)).unwrap().unwrap();
        info.next_runs().take(2).map(|run| run.duration_since(info.scheduled).unwrap()).collect()
    };
    assert_eq!(runs("periodic"), [HOUR, 2 * HOUR]);
    assert_eq!(runs("weekly"), [7 * 24 * HOUR, 14 * 24 * HOUR]);
    assert_eq!(runs("once").len(), 0);
    end(&group);
}

/// P-11.
#[test]
fn a_key_is_forgotten_after_its_time() {
    let group = one_loop();
    let (topic, runs) = sending("topic");
    let store = SqliteStore::in_memory().unwrap().remember_keys(Duration::ZERO);
    let timers = DurableTimers::builder(store).topic(topic).start(&group).unwrap();
    let first = done(timers.at("topic", ms(0), "1").key("k").start()).unwrap();
    assert_eq!(receive(&runs), "1");
    loop {
        // The run may not have ended, and the clock may show the same millisecond.
        let next = done(timers.at("topic", ms(0), "2").key("k").start()).unwrap();
        if next != first {
            break;
        }
    }
    assert_eq!(receive(&runs), "2");
    end(&group);
}

#[test]
fn keys_of_different_topics_are_different() {
    let file = File::new();
    let group = one_loop();
    let (a, _runs_a) = sending("a");
    let (b, _runs_b) = sending("b");
    let timers = file.open().topic(a).topic(b).start(&group).unwrap();
    let first = done(timers.at("a", HOUR, "x").key("k").start()).unwrap();
    assert_ne!(done(timers.at("b", HOUR, "x").key("k").start()).unwrap(), first);
    end(&group);
}

/// P-12.
#[test]
fn a_periodic_timer_is_started_once_and_gets_a_new_schedule() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    let first = done(timers.every("topic", HOUR, "hourly").start()).unwrap();
    assert_eq!(done(timers.every("topic", HOUR, "hourly").start()).unwrap(), first);
    assert_eq!(done(timers.list(TimerFilter::new())).unwrap().len(), 1);
    assert_eq!(done(timers.every("topic", ms(5), "often").start()).unwrap(), first);
    assert_eq!([receive(&runs), receive(&runs)], ["often", "often"]);
    assert!(done(timers.cancel(first)).unwrap());
    // A cancelled periodic timer may be started again.
    assert_ne!(done(timers.every("topic", HOUR, "again").start()).unwrap(), first);
    end(&group);
}
