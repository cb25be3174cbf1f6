//! Bounded recursion of callbacks.
//!
//! A callback may call `on_complete` on a completion that is done, which calls the next callback.
//! Without a bound, a long chain of these overflows the stack.
//!
//! Invariants: at most [`MAX_DEPTH`] callbacks are nested on a thread. Further callbacks are
//! queued, and run on the same thread when the outermost callback has returned. Queued callbacks
//! run in order, and later callbacks never overtake them. A panic in a queued callback is caught
//! and logged, because its caller has returned. All state is thread-local.

use crate::{
    error::{caught, panic_message},
    log_throttle::{PANICS, log_throttled, off_loop},
    sync::primitives::per_thread,
};
use log::Level;
use std::{
    any::Any,
    cell::{Cell, RefCell},
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// The maximum number of callbacks nested on one thread.
pub(super) const MAX_DEPTH: usize = 8;

type Callback = Box<dyn FnOnce()>;

// A chain has one callback in the queue at a time. The queue grows only if a callback queues
// several others.
per_thread! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static QUEUE: RefCell<VecDeque<Callback>> = const { RefCell::new(VecDeque::new()) };
}

/// Calls `callback` now, or queues it if too many callbacks are running on this thread or others
/// are queued.
///
/// # Panics
///
/// Propagates a panic of `callback` unless the callback is queued.
pub(super) fn run(callback: impl FnOnce() + 'static) {
    let depth = DEPTH.with(Cell::get);
    if depth == 0 {
        run_outermost(callback);
    } else if depth < MAX_DEPTH && is_queue_empty() {
        let _nested = Nested::enter(depth);
        callback();
    } else {
        queue(depth, callback);
    }
}

/// Logs a panic with a rate limit, because a peer may cause thousands of panics in a second.
#[cold]
pub(super) fn log_panic(whose: &str, panic: Box<dyn Any + Send>) {
    let message = panic_message(panic);
    // The program's logger may panic too.
    caught(|| log_throttled!(off_loop(), PANICS, Level::Error, "{whose} panicked: {message}"));
}

fn run_outermost(callback: impl FnOnce()) {
    let nested = Nested::enter(0);
    let result = catch_unwind(AssertUnwindSafe(callback));
    while let Some(next) = pop() {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(next)) {
            log_panic("a completion's callback", panic);
        }
    }
    drop(nested);
    if let Err(panic) = result {
        resume_unwind(panic);
    }
}

/// Returns whether the queue is empty, or has been dropped because the thread is exiting.
fn is_queue_empty() -> bool {
    QUEUE.try_with(|queue| queue.borrow().is_empty()).unwrap_or(true)
}

fn pop() -> Option<Callback> {
    QUEUE.try_with(|queue| queue.borrow_mut().pop_front()).ok().flatten()
}

#[cold]
fn queue(depth: usize, callback: impl FnOnce() + 'static) {
    let mut callback = Some(callback);
    let queued = QUEUE.try_with(|queue| {
        if let Some(callback) = callback.take() {
            queue.borrow_mut().push_back(Box::new(callback));
        }
    });
    if let (Err(_), Some(callback)) = (queued, callback) {
        let _nested = Nested::enter(depth);
        callback();
    }
}

/// A guard for a running callback. Restores the depth when dropped, also while unwinding.
struct Nested(usize);

impl Nested {
    fn enter(depth: usize) -> Self {
        DEPTH.with(|cell| cell.set(depth + 1));
        Nested(depth)
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        DEPTH.with(|cell| cell.set(self.0));
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;
    use std::rc::Rc;

    /// Calls itself `n` times and records the deepest nesting.
    fn chain(n: usize, deepest: Rc<Cell<usize>>) {
        deepest.set(deepest.get().max(DEPTH.with(Cell::get)));
        if n > 0 {
            run(move || chain(n - 1, deepest));
        }
    }

    #[test]
    fn the_depth_of_a_chain_is_bounded() {
        let deepest = Rc::new(Cell::new(0));
        let mine = deepest.clone();
        run(move || chain(if cfg!(miri) { 1_000 } else { 10_000 }, mine));
        assert_eq!(deepest.get(), MAX_DEPTH);
        assert_eq!(Rc::strong_count(&deepest), 1, "the whole chain has run");
        assert_eq!(DEPTH.with(Cell::get), 0);
    }

    #[test]
    fn queued_callbacks_keep_their_order() {
        fn nest(depth: usize, log: Rc<RefCell<Vec<usize>>>) {
            if depth < MAX_DEPTH {
                let inner = log.clone();
                run(move || nest(depth + 1, inner));
            }
            // The innermost callback is queued. The outer ones must not overtake it, although they
            // could nest.
            let n = MAX_DEPTH - depth;
            run(move || log.borrow_mut().push(n));
        }
        let log = Rc::new(RefCell::new(Vec::new()));
        let mine = log.clone();
        run(move || nest(1, mine));
        assert_eq!(*log.borrow(), (0..MAX_DEPTH).collect::<Vec<_>>());
    }

    #[test]
    fn a_panic_keeps_the_queue_and_the_depth_consistent() {
        fn deep(n: usize, ran: Rc<Cell<usize>>) {
            if n == 0 {
                for panics in [true, false] {
                    let ran = ran.clone();
                    run(move || {
                        ran.set(ran.get() + 1);
                        assert!(!panics, "on purpose: in the queue");
                    });
                }
                panic!("on purpose: nested");
            }
            run(move || deep(n - 1, ran));
        }
        let ran = Rc::new(Cell::new(0));
        let mine = ran.clone();
        let panicked = catch_unwind(AssertUnwindSafe(|| run(move || deep(MAX_DEPTH - 1, mine))));
        assert!(panicked.is_err(), "a callback that is not queued panics in its caller");
        assert_eq!((ran.get(), DEPTH.with(Cell::get)), (2, 0));
    }
}
