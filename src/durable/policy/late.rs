//! `Late`: the policy for a timer whose time passed while it could not fire.

/// What to do with a late timer. Each topic states it.
///
/// A timer is late if it has been due for longer than
/// [`late_after`](crate::durable::DurableTimersBuilder::late_after) when it can fire. The usual
/// reasons are a program that was not running, a clock that was set forward, and a burst of timers
/// that takes longer than `late_after` to fire. Retries are late in the same way.
///
/// | | a late one-shot timer | a periodic timer that missed runs |
/// |---|---|---|
/// | `RunOnce` | runs | one run for all missed runs |
/// | `RunAll` | runs | each missed run, at most the latest `at_most` of them |
/// | `Skip` | ends without a run | no run; goes on with the next one |
/// | `HandlerDecides` | runs | one run for all missed runs |
///
/// With `HandlerDecides`, the handler chooses by [`Due::lateness`](crate::durable::Due::lateness)
/// and [`Due::missed`](crate::durable::Due::missed), and may answer
/// [`Due::skip`](crate::durable::Due::skip).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Late {
    /// Run once, however many runs were missed.
    RunOnce,
    /// Run each missed run, one after the other.
    RunAll {
        /// The largest number of missed runs to make up for, 1 to 1000. Older ones are skipped.
        at_most: u32,
    },
    /// Do not run.
    Skip,
    /// Run once, and let the handler decide. Skipping is counted like that of `Skip`.
    HandlerDecides,
}
