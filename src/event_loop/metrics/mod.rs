//! What a loop counts about itself.
//!
//! Always holds: only the loop's thread adds (a plain load and store, no locked instruction), any thread reads;
//! counters never go back. The exception is `wakes_written`, which submitters count.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        #[derive(Debug, Default)]
        pub(crate) struct Metrics {
            $(pub(crate) $name: Counter),*
        }

        /// A copy of a loop's counters, as of one moment (each counter by itself; they are not taken together).
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct LoopMetrics {
            $($(#[$doc])* pub $name: u64,)*
            /// Tasks that wait in the queue now.
            pub tasks_pending: u64,
            /// Tasks that were refused because the queue was full.
            pub tasks_refused: u64,
        }

        impl Metrics {
            pub(crate) fn snapshot(&self) -> LoopMetrics {
                LoopMetrics { $($name: self.$name.read(),)* ..LoopMetrics::default() }
            }
        }
    };
}

metrics! {
    /// Passes of the loop.
    turns,
    /// Polls that may sleep.
    polls,
    /// Polls that returned with I/O.
    wakes_io,
    /// Polls that returned because another thread woke the loop.
    wakes_waker,
    /// Polls that slept until their deadline.
    wakes_deadline,
    /// Polls that a signal interrupted.
    wakes_interrupted,
    /// Polls that returned early for no reason.
    wakes_premature,
    /// Polls that were not to sleep, since work was waiting.
    polls_without_sleep,
    /// Writes to the waker, by whatever thread.
    wakes_written,
    /// Times that the poll was rebuilt.
    rebuilds,
    /// Polls that failed.
    poll_errors,
    /// Readings of the clock.
    clock_reads,
    /// Tasks and channel mail that were run.
    tasks_run,
    /// Tasks that panicked.
    tasks_panicked,
    /// Task phases that ended with tasks left for the next turn.
    tasks_deferred,
    /// Scheduled tasks that came due, of channels and of the loop.
    timers_fired,
    /// Idle entries that came due on the wheel (with or without an event).
    wheel_fired,
    /// Scheduled tasks that wait now.
    timers_pending,
    /// Entries on the wheel now.
    wheel_pending,
    /// Connections open now.
    channels,
    /// Connections accepted.
    accepted,
    /// Accepts that failed.
    accept_errors,
    /// Reads from sockets, and `reads_blocked` of them brought nothing.
    reads,
    /// Reads that found nothing.
    reads_blocked,
    /// Bytes read.
    bytes_read,
    /// Writes to sockets.
    writes,
    /// Writes that the kernel took nothing of.
    writes_blocked,
    /// Bytes written.
    bytes_written,
    /// Channels that closed with bytes unsent.
    closes_unsent,
    /// Bytes that were written to channels and not sent when those closed.
    bytes_unsent,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds; on the loop's thread only.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Adds, from any thread.
    pub(crate) fn add_shared(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Sets a gauge; on the loop's thread only.
    #[inline]
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
