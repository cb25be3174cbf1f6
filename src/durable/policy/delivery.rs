//! `Delivery`: whether a run that a crash interrupted is repeated.

/// Whether a run is repeated that a crash of the program interrupted.
///
/// | | order | after a crash during the handler |
/// |---|---|---|
/// | `AtLeastOnce` | fired, handler, ended | runs again |
/// | `AtMostOnce` | fired, ended, handler | does not run again |
///
/// No scheduler can offer both, except for effects that are stored in the transaction which ends
/// the timer: see [`Due::done_with`](crate::durable::Due::done_with).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Delivery {
    /// The timer ends after the handler has answered.
    #[default]
    AtLeastOnce,
    /// The timer has ended before the handler is called. It is not retried.
    AtMostOnce,
}
