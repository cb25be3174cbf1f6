//! `Late`: what happens to a timer whose time passed while nothing could fire it.

/// What to do with a late timer. Each topic states one.
///
/// A timer is late if it is due for longer than
/// [`late_after`](crate::durable::DurableTimersBuilder::late_after) when it could fire. The usual
/// reasons are a program that was not running, and a clock that was set forward.
///
/// | | a late one-shot timer | a periodic timer that missed runs |
/// |---|---|---|
/// | `RunOnce` | runs | one run for all that were missed |
/// | `RunAll` | runs | each missed run, at most the latest `at_most` of them |
/// | `Skip` | ends without a run | no run; goes on with the next one |
/// | `Ask` | runs | one run for all that were missed |
///
/// With `Ask`, the handler decides by [`Due::lateness`](crate::durable::Due::lateness) and
/// [`Due::missed`](crate::durable::Due::missed), and may answer
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
    Ask,
}
