//! `KeepDead`: which dead letters of a topic are kept.

/// The dead letters of a topic that are kept. All of them by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::durable) struct KeepDead {
    /// The largest number.
    pub(in crate::durable) letters: Option<u64>,
    /// The longest time since a letter died, in milliseconds.
    pub(in crate::durable) millis: Option<i64>,
}
