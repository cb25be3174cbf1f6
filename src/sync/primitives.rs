//! The atomics, locks and the queue that the rest of this room is made of: the standard library's and
//! crossbeam's; in the models of `loom_tests`, and nowhere else, loom's.
//!
//! Always holds: a build without `--cfg netwheel_loom`, and every build but that of the unit tests, has no trace
//! of loom. Every file of this room takes these names from here, so that a model runs the very code that ships.
//!
//! crossbeam's queue has no loom form; the models have a stand-in that promises less than the real one: an entry
//! that was pushed is popped with everything that came before it, in order, and nothing else. The real one's
//! sequentially consistent accesses, which nobody has promised us, cannot make up for a fence that is missing here.

#[cfg(not(all(test, netwheel_loom)))]
mod real {
    pub(in crate::sync) use crossbeam_queue::SegQueue as Queue;
    pub(in crate::sync) use std::{
        sync::{
            Condvar, Mutex, MutexGuard,
            atomic::{AtomicU64, AtomicUsize, Ordering, fence},
        },
        thread::yield_now,
        thread_local as per_thread,
    };
}

#[cfg(not(all(test, netwheel_loom)))]
pub(super) use real::*;

#[cfg(all(test, netwheel_loom))]
mod modelled {
    pub(in crate::sync) use loom::{
        sync::{
            Mutex, MutexGuard,
            atomic::{AtomicU64, AtomicUsize, Ordering, fence},
        },
        thread::yield_now,
    };
    use std::{
        collections::VecDeque,
        sync::{LockResult, PoisonError},
        time::Duration,
    };

    /// loom's `thread_local!` does not know `const`.
    macro_rules! per_thread {
        ($(static $name:ident: $type:ty = const $initial:block;)+) => {
            $(loom::thread_local! { static $name: $type = $initial; })+
        };
    }

    pub(in crate::sync) use per_thread;

    /// loom's never times out. Here no time at all is up at once, which the scheduler may make of any length.
    #[derive(Default)]
    pub(in crate::sync) struct Condvar(loom::sync::Condvar);

    pub(in crate::sync) struct TimedOut(bool);

    impl Condvar {
        pub(in crate::sync) fn new() -> Self {
            Self::default()
        }

        pub(in crate::sync) fn notify_all(&self) {
            self.0.notify_all();
        }

        pub(in crate::sync) fn wait_timeout<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            timeout: Duration,
        ) -> LockResult<(MutexGuard<'a, T>, TimedOut)> {
            if timeout.is_zero() {
                return Ok((guard, TimedOut(true)));
            }
            let guard = self.0.wait(guard).unwrap_or_else(PoisonError::into_inner);
            Ok((guard, TimedOut(false)))
        }
    }

    impl TimedOut {
        pub(in crate::sync) fn timed_out(&self) -> bool {
            self.0
        }
    }

    /// The entries are behind a lock that loom does not know: it neither orders anything nor lets another thread in.
    pub(in crate::sync) struct Queue<T> {
        entries: std::sync::Mutex<VecDeque<T>>,
        pushed: AtomicUsize,
        popped: AtomicUsize,
    }

    impl<T> Queue<T> {
        pub(in crate::sync) fn new() -> Self {
            let (pushed, popped) = (AtomicUsize::new(0), AtomicUsize::new(0));
            Queue { entries: std::sync::Mutex::default(), pushed, popped }
        }

        pub(in crate::sync) fn push(&self, entry: T) {
            self.pushed.fetch_add(1, Ordering::Release);
            self.entries.lock().unwrap().push_back(entry);
        }

        pub(in crate::sync) fn pop(&self) -> Option<T> {
            let popped = self.popped.load(Ordering::Relaxed);
            if self.pushed.load(Ordering::Acquire) == popped {
                return None;
            }
            self.popped.store(popped + 1, Ordering::Relaxed);
            Some(self.entries.lock().unwrap().pop_front().expect("pushed and not popped"))
        }

        pub(in crate::sync) fn is_empty(&self) -> bool {
            self.pushed.load(Ordering::Relaxed) == self.popped.load(Ordering::Relaxed)
        }
    }
}

#[cfg(all(test, netwheel_loom))]
pub(super) use modelled::*;
