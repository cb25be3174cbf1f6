//! Sleep against submit. A lost wakeup shows as a deadlock.

use super::{Loop, model};

/// The time of a submission that is due immediately.
const NOW: u64 = 0;

#[test]
fn e_24_the_loop_does_not_sleep_while_a_task_waits() {
    model(|| {
        let mut event_loop = Loop::new(8);
        let submitter = event_loop.beside(|shared| shared.submit(1, NOW));
        event_loop.turn_until(1);
        submitter.join().unwrap();
    });
}

/// A submitter that is delayed between its two steps meets the next sleep, which has another
/// deadline.
#[test]
fn e_24_a_task_does_not_wait_through_the_next_sleep() {
    model(|| {
        let mut event_loop = Loop::new(8);
        let first = event_loop.beside(|shared| shared.submit(1, NOW));
        let second = event_loop.beside(|shared| shared.submit(2, NOW));
        for n in 1.. {
            event_loop.sleep(Some(100 * n));
            event_loop.run_tasks(1);
            if event_loop.taken.len() == 2 {
                break;
            }
        }
        first.join().unwrap();
        second.join().unwrap();
        assert_eq!(event_loop.sorted(), [1, 2]);
    });
}

#[test]
fn e_23_a_sleep_is_ended_by_one_write_at_most() {
    model(|| {
        let event_loop = Loop::new(8);
        let submitters = [1, 2].map(|n| event_loop.beside(move |shared| shared.submit(n, NOW)));
        event_loop.sleep(None);
        let wrote = submitters.map(|submitter| submitter.join().unwrap());
        let writes = wrote.into_iter().filter(|wrote| *wrote).count();
        assert!(writes <= 1, "one sleep, {writes} writes");
        assert_eq!(event_loop.shared.poll.writes(), writes);
    });
}

#[test]
fn e_23_a_running_loop_is_not_woken() {
    model(|| {
        let mut event_loop = Loop::new(8);
        event_loop.shared.submit(1, NOW);
        event_loop.sleep(None);
        let submitter = event_loop.beside(|shared| shared.submit(2, NOW));
        event_loop.run_tasks(usize::MAX);
        assert!(!submitter.join().unwrap(), "the loop was running");
        event_loop.run_tasks(usize::MAX);
        assert_eq!((event_loop.taken, event_loop.shared.poll.writes()), (vec![1, 2], 0));
    });
}

#[test]
fn e_15_an_earlier_timer_wakes_the_loop_and_a_later_one_does_not() {
    model(|| {
        let mut event_loop = Loop::new(8);
        let later = event_loop.beside(|shared| shared.submit(1, 100));
        let earlier = event_loop.beside(|shared| shared.submit(2, 99));
        while !event_loop.taken.contains(&2) {
            event_loop.sleep(Some(100));
            event_loop.run_tasks(usize::MAX);
        }
        assert!(!later.join().unwrap(), "a timer not before the deadline does not wake the loop");
        earlier.join().unwrap();
        event_loop.run_tasks(usize::MAX);
        assert_eq!(event_loop.sorted(), [1, 2]);
    });
}

/// The timer is later than the deadline of a sleep that has ended, but earlier than that of the
/// next one.
#[test]
fn e_15_a_timer_that_meets_a_longer_sleep_ends_it() {
    model(|| {
        let mut event_loop = Loop::new(8);
        let timer = event_loop.beside(|shared| shared.submit(1, 100));
        event_loop.shared.wake_up.about_to_sleep(Some(50));
        event_loop.shared.wake_up.awake();
        while event_loop.taken.is_empty() {
            event_loop.sleep(Some(200));
            event_loop.run_tasks(usize::MAX);
        }
        timer.join().unwrap();
    });
}

/// The write to the waker fails. The next submission wakes the loop, unless the loop is running by
/// then.
#[test]
fn after_a_failed_wake_the_next_submitter_wakes() {
    model(|| {
        let mut event_loop = Loop::new(8);
        let submitter = event_loop.beside(|shared| {
            shared.submit_with_broken_waker(1, NOW);
            shared.submit(2, NOW);
        });
        event_loop.turn_until(2);
        submitter.join().unwrap();
        assert_eq!(event_loop.sorted(), [1, 2]);
    });
}
