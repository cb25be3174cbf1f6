//! Sending, closing, and waiting for space. A waiter that is left asleep shows as a deadlock.

use super::{Loop, Shared, model};
use crate::error::{Error, SendError};
use std::time::Duration;

const FOR_EVER: Duration = Duration::MAX;
const AT_ONCE: Duration = Duration::ZERO;

impl Shared {
    fn submit_timeout(&self, entry: u32, timeout: Duration) -> Result<(), SendError<u32>> {
        let wake = || _ = self.wake_if_asleep(0);
        self.mailbox.put_timeout(entry, |entry| entry, timeout, wake)?;
        self.wake_if_asleep(0);
        Ok(())
    }
}

#[test]
fn e_59_accepted_entries_are_taken_and_none_after_the_close() {
    model(|| {
        let mut event_loop = Loop::new(8);
        let putters = [1, 2].map(|n| event_loop.beside(move |shared| shared.mailbox.put(n).map(|()| n)));
        event_loop.finish();
        let results = putters.map(|putter| putter.join().unwrap());
        assert!(event_loop.inbox.take().is_none(), "accepted after the end");
        assert_eq!(event_loop.shared.mailbox.len(), 0);
        assert!(results.iter().flat_map(|r| r.as_ref().err()).all(|r| matches!(r.error(), Error::ShutDown)));
        let accepted: Vec<u32> = results.into_iter().flatten().collect();
        assert_eq!(event_loop.sorted(), accepted);
    });
}

#[test]
fn e_59_entries_of_one_thread_are_taken_in_order_until_the_close() {
    model(|| {
        let mut event_loop = Loop::new(8);
        let putter =
            event_loop.beside(|shared| (1..=3).take_while(|n| shared.mailbox.put(*n).is_ok()).count());
        event_loop.run_tasks(1);
        event_loop.finish();
        let accepted = putter.join().unwrap();
        assert_eq!(event_loop.taken, [1, 2, 3][..accepted]);
    });
}

/// The observed length is never negative and never above the limit.
#[test]
fn e_29_the_limit_holds() {
    model(|| {
        let mut event_loop = Loop::new(1);
        let putters = [1, 2].map(|n| event_loop.beside(move |shared| shared.mailbox.put(n).is_ok()));
        event_loop.run_tasks(1);
        let accepted = putters.map(|putter| putter.join().unwrap()).into_iter().filter(|ok| *ok).count();
        let waiting = event_loop.shared.mailbox.len();
        assert!(accepted >= 1 && waiting <= 1);
        assert_eq!(waiting + event_loop.taken.len(), accepted);
    });
}

#[test]
fn e_29_a_waiter_gets_in_when_there_is_room() {
    model(|| {
        let mut event_loop = Loop::new(1);
        event_loop.shared.mailbox.put(1).unwrap();
        let waiter = event_loop.beside(|shared| shared.submit_timeout(2, FOR_EVER));
        event_loop.run_tasks(1);
        waiter.join().unwrap().expect("there is space");
        event_loop.run_tasks(1);
        assert_eq!(event_loop.taken, [1, 2]);
    });
}

#[test]
fn e_29_all_waiters_get_in_one_after_the_other() {
    model(|| {
        let mut event_loop = Loop::new(1);
        event_loop.shared.mailbox.put(1).unwrap();
        let waiters = [2, 3].map(|n| event_loop.beside(move |shared| shared.submit_timeout(n, FOR_EVER)));
        event_loop.turn_until(3);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap().expect("there is space"));
        assert_eq!(event_loop.sorted(), [1, 2, 3]);
    });
}

/// A waiter that gives up does not take space from another waiter.
#[test]
fn e_29_a_waiter_gets_in_while_another_one_times_out() {
    model(|| {
        let mut event_loop = Loop::new(1);
        event_loop.shared.mailbox.put(1).unwrap();
        let impatient = event_loop.beside(|shared| shared.submit_timeout(2, AT_ONCE));
        let patient = event_loop.beside(|shared| shared.submit_timeout(3, FOR_EVER));
        while !event_loop.taken.contains(&3) {
            event_loop.sleep(None);
            event_loop.run_tasks(usize::MAX);
        }
        patient.join().unwrap().expect("there is space");
        let expected = match impatient.join().unwrap().map_err(SendError::into_parts) {
            Ok(()) => vec![1, 2, 3],
            Err((2, Error::Full { .. })) => vec![1, 3],
            Err((_, other)) => panic!("{other}"),
        };
        event_loop.run_tasks(usize::MAX);
        assert_eq!(event_loop.sorted(), expected);
    });
}

/// A thread that does not wait takes the space for which a waiter was woken.
#[test]
fn e_29_a_waiter_whose_space_was_taken_continues_to_wait() {
    model(|| {
        let mut event_loop = Loop::new(1);
        event_loop.shared.mailbox.put(1).unwrap();
        let waiter = event_loop.beside(|shared| shared.submit_timeout(2, FOR_EVER));
        let other = event_loop.beside(|shared| {
            let put = shared.mailbox.put(3).is_ok();
            shared.wake_if_asleep(0);
            put
        });
        while !event_loop.taken.contains(&2) {
            event_loop.sleep(None);
            event_loop.run_tasks(1);
        }
        waiter.join().unwrap().expect("there is space");
        let entries = if other.join().unwrap() { 3 } else { 2 };
        event_loop.run_tasks(usize::MAX);
        assert_eq!(event_loop.taken.len(), entries);
    });
}

/// The entry that fills the queue did not wake the loop when it was submitted.
#[test]
fn e_29_a_waiter_wakes_a_loop_that_sleeps_on_a_full_queue() {
    model(|| {
        let mut event_loop = Loop::new(1);
        let waiter = event_loop.beside(|shared| {
            shared.mailbox.put(1).unwrap();
            shared.submit_timeout(2, FOR_EVER)
        });
        event_loop.turn_until(2);
        waiter.join().unwrap().expect("there is space");
        assert_eq!(event_loop.taken, [1, 2]);
    });
}

#[test]
fn e_59_the_close_releases_a_waiter() {
    model(|| {
        let mut event_loop = Loop::new(1);
        event_loop.shared.mailbox.put(1).unwrap();
        let waiter = event_loop.beside(|shared| shared.submit_timeout(2, FOR_EVER));
        event_loop.shared.mailbox.close();
        let refused = waiter.join().unwrap().expect_err("there was never space");
        assert!(matches!(refused.into_parts(), (2, Error::ShutDown)));
        event_loop.finish();
        assert_eq!(event_loop.taken, [1]);
    });
}

#[test]
fn e_59_waiters_at_the_end_get_in_or_are_refused() {
    model(|| {
        let mut event_loop = Loop::new(1);
        event_loop.shared.mailbox.put(1).unwrap();
        let waiters = [2, 3].map(|n| event_loop.beside(move |shared| shared.submit_timeout(n, FOR_EVER)));
        event_loop.run_tasks(1);
        event_loop.finish();
        let mut expected = vec![1];
        for (waiter, n) in waiters.into_iter().zip([2, 3]) {
            match waiter.join().unwrap() {
                Ok(()) => expected.push(n),
                Err(refused) => {
                    assert!(matches!(refused.into_parts(), (value, Error::ShutDown) if value == n))
                }
            }
        }
        assert!(event_loop.inbox.take().is_none(), "accepted after the end");
        assert_eq!(event_loop.sorted(), expected);
    });
}
