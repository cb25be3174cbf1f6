//! What a loop counts about itself.
//!
//! Always holds: only the loop's thread adds (a plain load and store, no locked instruction), any thread reads;
//! counters never go back. The exception is `wakes_written`, which submitters count.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        #[derive(Debug, Default)]
        pub(crate) struct Metrics {
            $(pub(crate) $name: Counter,)*
            pub(crate) lag: Hist,
            pub(crate) turn_time: Hist,
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
    /// Wakes by another thread after which there was nothing to do.
    wakes_in_vain,
    /// Times that the poll was rebuilt.
    rebuilds,
    /// Sources moved to a new poll.
    sources_moved,
    /// Sources that could not be moved and were closed.
    sources_lost,
    /// Nanoseconds spent on rebuilding.
    rebuild_time,
    /// Short rests of a loop that would have turned in vain.
    rests,
    /// Panics while a socket was handled that no channel has caught.
    io_panics,
    /// Nanoseconds in the poll.
    time_polling,
    /// Nanoseconds spent on ready sockets.
    time_io,
    /// Nanoseconds spent on tasks.
    time_tasks,
    /// Nanoseconds spent on timers.
    time_timers,
    /// Nanoseconds spent on sending at the end of a turn.
    time_flushing,
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

/// Placeholder until merge.
#[derive(Debug, Default)]
pub(crate) struct Hist;
impl Hist {
    pub(crate) fn record(&self, _: u64) {}
}
