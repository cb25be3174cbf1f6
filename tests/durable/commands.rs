//! Commands by key, and the handle of a handler.

use crate::{
    support::{
        loops::{end, one_loop},
        wait::{HOUR, done, ms, receive, wait_until},
    },
    timers::{File, sending, started},
};
use netwheel::{
    Error,
    durable::{Due, DurableTimers, Late, Retry, SqliteStore, TimerState, Topic},
};
use std::{
    sync::{Arc, OnceLock, mpsc::channel},
    time::SystemTime,
};

#[test]
fn a_timer_is_found_moved_run_and_cancelled_by_its_key() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    let id = done(timers.at("topic", HOUR, "a").key("order-1").start()).unwrap();
    done(timers.at("topic", HOUR, "b").key("order-2").start()).unwrap();
    // Neither start is waited for: commands apply to starts that were made before.
    timers.at("topic", HOUR, "c").key("order-3").start().detach();
    assert!(done(timers.cancel_key("topic", "order-3")).unwrap());

    let found = done(timers.find("topic", "order-1")).unwrap().unwrap();
    assert_eq!((found.id, found.state, found.payload.as_str()), (id, TimerState::Pending, "\"a\""));
    assert!(done(timers.move_key("topic", "order-1", 2 * HOUR)).unwrap());
    let moved = done(timers.find("topic", "order-1")).unwrap().unwrap();
    assert!(moved.due > SystemTime::now() + HOUR);
    assert!(done(timers.run_key("topic", "order-1")).unwrap());
    assert_eq!(receive(&runs), "a");
    assert!(done(timers.move_key("topic", "order-2", ms(0))).unwrap());
    assert_eq!(receive(&runs), "b");

    for (topic, key) in [("topic", "order-3"), ("topic", "order-4"), ("other", "order-1")] {
        assert_eq!(done(timers.find(topic, key)).unwrap(), None);
        assert!(!done(timers.cancel_key(topic, key)).unwrap());
        assert!(!done(timers.move_key(topic, key, HOUR)).unwrap());
        assert!(!done(timers.run_key(topic, key)).unwrap());
    }
    done(timers.close()).unwrap();
    assert!(matches!(done(timers.find("topic", "order-1")), Err(Error::ShutDown)));
    assert!(matches!(done(timers.cancel_key("topic", "order-1")), Err(Error::ShutDown)));
    end(&group);
}

/// Works like `cancel`, because the command is the same.
#[test]
fn a_command_by_key_waits_for_the_run_of_its_timer() {
    let group = one_loop();
    let (sender, runs) = channel();
    let topic = Topic::new("topic", Late::RunOnce, Retry::backoff(5), move |due: Due<()>| {
        sender.send(due).unwrap();
    });
    let timers =
        DurableTimers::builder(SqliteStore::in_memory().unwrap()).topic(topic).start(&group).unwrap();
    done(timers.at("topic", ms(0), &()).key("k").start()).unwrap();
    let run = receive(&runs);
    let cancelled = timers.cancel_key("topic", "k");
    done(timers.counts()).unwrap();
    assert!(!cancelled.is_done());
    run.fail("it would be retried");
    assert!(done(cancelled).unwrap());
    assert_eq!(done(timers.find("topic", "k")).unwrap(), None);
    end(&group);
}

#[test]
fn a_replaced_payload_counts_from_the_next_run_on() {
    let group = one_loop();
    let (sender, runs) = channel();
    let topic = Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<String>| {
        drop(sender.send(due));
    });
    let timers =
        DurableTimers::builder(SqliteStore::in_memory().unwrap()).topic(topic).start(&group).unwrap();
    let start = |payload: &str| timers.every("topic", ms(5), payload);
    let id = done(start("old").start()).unwrap();
    let run = receive(&runs);
    assert_eq!(done(start("ignored").start()).unwrap(), id);
    assert_eq!(done(start("new").replace_payload().start()).unwrap(), id);
    assert_eq!(run.payload(), "old");
    run.done();
    let next = receive(&runs);
    assert_eq!(next.payload(), "new");
    next.done();
    drop(runs);
    done(timers.cancel(id)).unwrap();
    end(&group);
}

/// A countdown in which each run starts the next one.
#[test]
fn a_handler_starts_the_next_timer_with_its_own_handle() {
    let group = one_loop();
    let (sender, runs) = channel();
    let topic = Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<u32>| {
        let left = *due.payload();
        sender.send(left).unwrap();
        if left == 0 {
            return due.done();
        }
        let next = due.timers().at("topic", ms(0), &(left - 1)).start();
        next.on_complete(move |stored| match stored {
            Ok(_) => due.done(),
            Err(error) => due.fail(error),
        });
    });
    let timers =
        DurableTimers::builder(SqliteStore::in_memory().unwrap()).topic(topic).start(&group).unwrap();
    done(timers.at("topic", ms(0), &3).start()).unwrap();
    assert_eq!([(); 4].map(|()| receive(&runs)), [3, 2, 1, 0]);
    done(timers.close()).unwrap();
    end(&group);
}

/// The handle of a handler is kept in the handler, where it would keep itself alive.
#[test]
fn a_handle_from_a_handler_does_not_keep_the_file_locked() {
    let file = File::new();
    let group = one_loop();
    let kept: Arc<OnceLock<DurableTimers>> = Arc::default();
    let (in_handler, dropped) = (kept.clone(), Arc::new(()));
    let (sender, runs) = channel();
    let token = dropped.clone();
    let topic = Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<()>| {
        let _token = &token;
        in_handler.get_or_init(|| due.timers());
        due.done();
        sender.send(()).unwrap();
    });
    let timers = file.open().topic(topic).start(&group).unwrap();
    done(timers.at("topic", ms(0), &()).start()).unwrap();
    receive(&runs);
    let kept = kept.get().unwrap();
    assert_eq!(done(kept.counts()).unwrap()[0].topic, "topic");
    let id = done(kept.at("topic", HOUR, &()).start()).unwrap();
    drop(timers);
    // The last handle of the program is gone: the file is free at some time.
    let (topic, _runs) = sending("topic");
    let mut opened = None;
    wait_until("the file is free", || {
        opened = SqliteStore::open(file.path()).ok();
        opened.is_some()
    });
    let next = DurableTimers::builder(opened.unwrap()).topic(topic).start(&group).unwrap();
    assert!(matches!(done(kept.at("topic", HOUR, &()).start()), Err(Error::ShutDown)));
    assert!(matches!(done(kept.cancel(id)), Err(Error::ShutDown)));
    assert!(matches!(done(kept.cancel_key("topic", "k")), Err(Error::ShutDown)));
    assert!(done(kept.counts()).is_err());
    done(kept.close()).unwrap();
    // The handlers are dropped, although one of them holds a handle.
    wait_until("the handlers are dropped", || Arc::strong_count(&dropped) == 1);
    done(next.close()).unwrap();
    end(&group);
}
