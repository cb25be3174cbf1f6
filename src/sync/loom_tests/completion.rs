//! Completion against wait, callback, poll and drop. A lost wakeup shows as a deadlock.

use super::model;
use crate::{
    error::{Error, Result},
    sync::{
        Completer,
        completion::{Completion, completion},
    },
};
use loom::thread;
use std::{
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake},
    time::Duration,
};

/// Creates a completion that another thread ends with `end`, and runs `body` concurrently.
fn race_with(
    end: impl FnOnce(Completer<u32>) + Clone + Send + Sync + 'static,
    body: impl Fn(Completion<u32>) + Send + Sync + 'static,
) {
    let meet = move || {
        let (completer, completion) = completion(None);
        let end = end.clone();
        let thread = thread::spawn(move || end(completer));
        body(completion);
        thread.join().unwrap();
    };
    model(meet);
}

fn complete(completer: Completer<u32>) {
    completer.complete(Ok(7));
}

/// A waker that unblocks a sleeping thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls until the result is ready, with a new waker each time, like a future that moves between
/// executors.
fn block_on(completion: Completion<u32>) -> Result<u32> {
    let mut completion = pin!(completion);
    loop {
        let waker = Arc::new(Unpark(thread::current())).into();
        match completion.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn e_31_a_waiter_gets_the_result() {
    race_with(complete, |completion| assert_eq!(completion.wait().unwrap(), 7));
}

#[test]
fn e_31_a_waiter_is_notified_if_the_producer_is_dropped() {
    race_with(drop, |completion| assert!(matches!(completion.wait(), Err(Error::Cancelled))));
}

#[test]
fn e_31_a_waiter_can_wait_again_after_a_timeout() {
    race_with(complete, |completion| {
        let result = completion.wait_timeout(Duration::ZERO).unwrap_or_else(Completion::wait);
        assert_eq!(result.unwrap(), 7);
    });
}

#[test]
fn e_31_a_future_is_woken() {
    race_with(complete, |completion| assert_eq!(block_on(completion).unwrap(), 7));
}

#[test]
fn e_31_a_future_is_notified_if_the_producer_is_dropped() {
    race_with(drop, |completion| assert!(matches!(block_on(completion), Err(Error::Cancelled))));
}

#[test]
fn e_31_a_future_that_was_polled_with_another_waker_is_woken() {
    race_with(complete, |completion| {
        let mut completion = completion;
        let elsewhere = std::task::Waker::noop();
        match pin!(&mut completion).poll(&mut Context::from_waker(elsewhere)) {
            Poll::Ready(result) => assert_eq!(result.unwrap(), 7),
            Poll::Pending => assert_eq!(block_on(completion).unwrap(), 7),
        }
    });
}

/// Collects the arguments of all callback calls. The lock is not part of the model.
fn results_of(completion: Completion<u32>) -> Arc<Mutex<Vec<Result<u32>>>> {
    let results = Arc::new(Mutex::new(Vec::new()));
    let mine = results.clone();
    completion.on_complete(move |result| mine.lock().unwrap().push(result));
    results
}

fn a_callback_is_called_once(end: fn(Completer<u32>), expected: fn(&Result<u32>) -> bool) {
    model(move || {
        let (completer, completion) = completion(None);
        let thread = thread::spawn(move || end(completer));
        let results = results_of(completion);
        thread.join().unwrap();
        let results = results.lock().unwrap();
        assert!(results.len() == 1 && expected(&results[0]), "{results:?}");
    });
}

#[test]
fn e_31_a_callback_is_called_once() {
    a_callback_is_called_once(complete, |result| matches!(result, Ok(7)));
}

#[test]
fn e_31_a_callback_is_notified_if_the_producer_is_dropped() {
    a_callback_is_called_once(drop, |result| matches!(result, Err(Error::Cancelled)));
}

/// Only the loop that completes the operation must not wait for it.
#[test]
fn e_31_only_the_completing_loop_must_not_wait() {
    use crate::sync::loop_id;
    model(|| {
        let (completer, completion) = completion(Some(1));
        let thread = thread::spawn(move || {
            let _entered = loop_id::enter(1);
            completer.complete(Ok(7));
        });
        let _entered = loop_id::enter(2);
        assert_eq!(completion.wait().unwrap(), 7);
        thread.join().unwrap();
    });
}

/// Either the result or the cancel is first, and the other one returns `false`.
#[test]
fn t_11_a_result_and_a_cancel_cannot_both_be_first() {
    use crate::sync::completion::cancellable;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    model(|| {
        let calls = Arc::new(AtomicU32::new(0));
        let mine = calls.clone();
        let (completer, completion) = cancellable(None, move |_| {
            mine.fetch_add(1, SeqCst);
        });
        let thread = thread::spawn(move || completer.deliver(Ok(7)));
        let cancelled = completion.cancel();
        let delivered = thread.join().unwrap();
        assert_ne!(cancelled, delivered);
        assert_eq!(
            calls.load(SeqCst),
            u32::from(cancelled),
            "the producer is notified exactly if the cancel was first"
        );
        match completion.wait() {
            Ok(7) => assert!(delivered),
            Err(Error::Cancelled) => assert!(cancelled),
            other => panic!("{other:?}"),
        }
    });
}

/// Drops a completion while another thread completes it. `expected` checks whether the result was
/// accepted, and the calls of the cancel hook.
fn race_drop_with_result(
    end: fn(Completer<u32>) -> bool,
    drop_it: fn(Completion<u32>),
    expected: fn(bool, &[Option<u32>]),
) {
    use crate::sync::completion::{Unwanted, cancellable};
    model(move || {
        let undone = Arc::new(Mutex::new(Vec::new()));
        let mine = undone.clone();
        let (completer, completion) = cancellable(None, move |unwanted| {
            mine.lock().unwrap().push(match unwanted {
                Unwanted::Operation => None,
                Unwanted::Result(value) => Some(value),
            });
        });
        let thread = thread::spawn(move || end(completer));
        drop_it(completion);
        let delivered = thread.join().unwrap();
        expected(delivered, &undone.lock().unwrap());
    });
}

/// If the drop is first, the operation keeps its value. Otherwise the cancel hook receives the
/// value.
#[test]
fn either_the_drop_or_the_result_disposes_of_the_value() {
    race_drop_with_result(
        |completer| completer.deliver(Ok(7)),
        drop,
        |delivered, undone| assert_eq!(undone, if delivered { [Some(7)] } else { [None] }),
    );
}

#[test]
fn a_drop_that_races_with_an_error_undoes_at_most_the_operation() {
    race_drop_with_result(
        |completer| completer.deliver(Err(Error::Closed)),
        drop,
        |delivered, undone| assert_eq!(undone, if delivered { &[][..] } else { &[None] }),
    );
}

#[test]
fn a_detached_operation_is_never_undone() {
    race_drop_with_result(
        |completer| completer.deliver(Ok(7)),
        Completion::detach,
        |delivered, undone| assert!(delivered && undone.is_empty()),
    );
}

/// A timeout polls its future and drops it later.
#[test]
fn a_drop_after_a_poll_undoes_once() {
    race_drop_with_result(
        |completer| completer.deliver(Ok(7)),
        |mut completion| {
            let polled = pin!(&mut completion).poll(&mut Context::from_waker(std::task::Waker::noop()));
            if let Poll::Ready(result) = polled {
                assert_eq!(result.unwrap(), 7);
            }
        },
        |delivered, undone| match undone {
            [] => assert!(delivered, "taken by the poll"),
            [Some(7)] => assert!(delivered),
            [None] => assert!(!delivered),
            other => panic!("{other:?}"),
        },
    );
}

/// Of a result and a cancel, the callback of `on_cancel` runs if and only if the cancel is first,
/// whether it is set before or after.
#[test]
fn a_callback_of_a_cancel_runs_once_or_never() {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    model(|| {
        let (mut completer, completion) = Completer::<u32>::new(1);
        let calls = Arc::new(AtomicU32::new(0));
        let mine = calls.clone();
        let thread = thread::spawn(move || {
            completer.on_cancel(move || {
                mine.fetch_add(1, SeqCst);
            });
            completer.deliver(Ok(7))
        });
        let cancelled = completion.cancel();
        let delivered = thread.join().unwrap();
        assert_ne!(cancelled, delivered);
        assert_eq!(calls.load(SeqCst), u32::from(cancelled));
    });
}

/// A task of a channel waits for the wake-up, then takes the result.
#[test]
fn a_result_wakes_the_task_that_takes_it() {
    race_with(complete, |completion| {
        let waker = Arc::new(Unpark(thread::current())).into();
        completion.wake_when_done(waker);
        while !completion.is_done() {
            thread::park();
        }
        assert_eq!(completion.take().expect("done").unwrap(), 7);
    });
}

/// The wrapper of a spawned future is woken by a cancel, and drops the future.
#[test]
fn a_cancel_wakes_the_producer() {
    model(|| {
        let (mut completer, completion) = Completer::<u32>::new(1);
        let thread = thread::spawn(move || {
            let waker = Arc::new(Unpark(thread::current())).into();
            while completer.poll_cancelled(&mut Context::from_waker(&waker)).is_pending() {
                thread::park();
            }
        });
        drop(completion);
        thread.join().unwrap();
    });
}
