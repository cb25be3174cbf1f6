//! The atomics, locks and the queue that the rest of this room is made of: the standard library's and
//! crossbeam's; in the models of `loom_tests`, and nowhere else, loom's.
//!
//! Always holds: a build without `--cfg netwheel_loom`, and every build but that of the unit tests, has no trace
//! of loom. Every file of this room takes these names from here, so that a model runs the very code that ships.
//!
//! crossbeam's queue has no loom form; the models have a stand-in that promises less than the real one: an entry
//! that was sent is received with everything that came before it, in order, and nothing else. The real one's
//! sequentially consistent accesses, which nobody has promised us, cannot make up for a fence that is missing here.

#[cfg(not(all(test, netwheel_loom)))]
mod real {
    pub(in crate::sync) use crossbeam_channel::{Receiver, Sender, unbounded};
    pub(in crate::sync) use std::{
        sync::{
            Condvar, Mutex, MutexGuard,
            atomic::{AtomicU64, AtomicUsize, Ordering, fence},
        },
        thread_local as per_thread,
    };
}

#[cfg(not(all(test, netwheel_loom)))]
pub(super) use real::*;

#[cfg(all(test, netwheel_loom))]
mod modelled {
    use crossbeam_channel::{SendError, TryRecvError};
    pub(in crate::sync) use loom::sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering, fence},
    };
    use std::{
        collections::VecDeque,
        sync::{Arc, LockResult, PoisonError},
        time::Duration,
    };

    /// loom's `thread_local!` does not know `const`.
    macro_rules! per_thread {
        (static $name:ident: $type:ty = const $initial:block;) => {
            loom::thread_local! { static $name: $type = $initial; }
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
    struct Queue<T> {
        entries: std::sync::Mutex<VecDeque<T>>,
        sent: AtomicUsize,
        received: AtomicUsize,
    }

    pub(in crate::sync) struct Sender<T>(Arc<Queue<T>>);

    pub(in crate::sync) struct Receiver<T>(Arc<Queue<T>>);

    pub(in crate::sync) fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
        let (sent, received) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let queue = Arc::new(Queue { entries: std::sync::Mutex::default(), sent, received });
        (Sender(queue.clone()), Receiver(queue))
    }

    impl<T> Sender<T> {
        pub(in crate::sync) fn send(&self, entry: T) -> Result<(), SendError<T>> {
            self.0.sent.fetch_add(1, Ordering::Release);
            self.0.entries.lock().unwrap().push_back(entry);
            Ok(())
        }
    }

    impl<T> Receiver<T> {
        pub(in crate::sync) fn try_recv(&self) -> Result<T, TryRecvError> {
            let received = self.0.received.load(Ordering::Relaxed);
            if self.0.sent.load(Ordering::Acquire) == received {
                return Err(TryRecvError::Empty);
            }
            self.0.received.store(received + 1, Ordering::Relaxed);
            Ok(self.0.entries.lock().unwrap().pop_front().expect("sent and not received"))
        }

        pub(in crate::sync) fn is_empty(&self) -> bool {
            self.0.sent.load(Ordering::Relaxed) == self.0.received.load(Ordering::Relaxed)
        }
    }
}

#[cfg(all(test, netwheel_loom))]
pub(super) use modelled::*;
