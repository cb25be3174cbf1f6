//! `Parker`: a thread sleeps until it is woken.

use super::condvar::Condvar;
use super::mutex::Mutex;
use std::time::Duration;

/// Like `std::thread::park`, for one thread and in a simulation as well. A wake-up that comes
/// before the sleep ends it at once.
#[derive(Default)]
pub(crate) struct Parker {
    is_woken: Mutex<bool>,
    changed: Condvar,
}

impl Parker {
    /// Blocks the calling thread until it is woken, at most for `timeout` if there is one. May
    /// return without a reason.
    pub(crate) fn park(&self, timeout: Option<Duration>) {
        let mut is_woken = self.is_woken.lock();
        if !*is_woken {
            is_woken = self.changed.wait(&self.is_woken, is_woken, timeout).0;
        }
        *is_woken = false;
    }

    /// Wakes the thread. Callable from any thread.
    pub(crate) fn unpark(&self) {
        let mut is_woken = self.is_woken.lock();
        let was_woken = std::mem::replace(&mut *is_woken, true);
        drop(is_woken);
        if !was_woken {
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Arc, thread};

    #[test]
    fn a_wake_up_before_or_during_the_sleep_ends_it() {
        let parkers: Arc<[Parker; 2]> = Arc::default();
        let theirs = parkers.clone();
        let thread = thread::spawn(move || {
            for _ in 0..1000 {
                theirs[0].park(None);
                theirs[1].unpark();
            }
        });
        for _ in 0..1000 {
            parkers[0].unpark();
            parkers[1].park(None);
        }
        thread.join().unwrap();
        parkers[0].park(Some(Duration::from_millis(1)));
    }
}
