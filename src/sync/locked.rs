//! A lock that is not held while values of the program are dropped or called.
//!
//! Dropping a completer, a waker, a callback or a message runs code of the program: destructors of
//! a task, for example. Under a lock of the crate that code could wait for the same lock, forever.
//! So [`Locked::change`] returns values to drop from the critical section, and drops them later.
//!
//! Invariant: the guard never leaves this file, so no local variable of a user outlives it
//! unnoticed.

use super::primitives::Mutex;
use crate::error::drop_guarded;

/// A value behind a lock.
#[derive(Debug, Default)]
pub(crate) struct Locked<T>(Mutex<T>);

impl<T> Locked<T> {
    pub(crate) fn new(value: T) -> Self {
        Locked(Mutex::new(value))
    }

    /// Reads the value under the lock. `read` calls no code of the program.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.0.lock())
    }

    /// Changes the value under the lock. Returns the first result of `change`. The second one is
    /// dropped after the unlock: everything that `change` has removed or did not use.
    ///
    /// Values that `change` captures by value count, too: a closure is dropped after its call.
    pub(crate) fn change<R, D>(&self, change: impl FnOnce(&mut T) -> (R, D)) -> R {
        let (result, unused) = change(&mut self.0.lock());
        drop_guarded(unused);
        result
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Uses the lock when it is dropped, like the destructor of a task.
    struct UsesLock(Arc<Locked<Option<UsesLock>>>);

    impl Drop for UsesLock {
        fn drop(&mut self) {
            self.0.read(|_| ());
        }
    }

    #[test]
    fn what_was_removed_is_dropped_after_the_unlock() {
        let locked = Arc::new(Locked::new(None));
        for _ in 0..2 {
            let next = UsesLock(locked.clone());
            locked.change(|value| ((), value.replace(next)));
        }
        let last = locked.change(|value| (value.take(), ()));
        drop(last);
        assert_eq!(Arc::strong_count(&locked), 1);
    }

    #[test]
    fn a_panic_of_a_dropped_value_does_not_reach_the_caller() {
        struct Panics;

        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("on purpose");
            }
        }

        assert_eq!(Locked::new(1).change(|value| (*value, Panics)), 1);
    }
}
