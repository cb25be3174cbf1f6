//! `DeadLetters`: selects dead letters to remove or to try again.

/// Selects dead letters of a topic, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetters {
    /// The name of the topic.
    pub topic: String,
    /// Only letters that died later, in milliseconds since 1970 (UTC).
    pub after: i64,
    /// Only letters that died by then, in milliseconds since 1970 (UTC).
    pub until: i64,
    /// This many letters of the topic, the latest, are not selected.
    pub keep: u64,
    /// At most this many.
    pub limit: usize,
}

impl DeadLetters {
    /// Selects all dead letters of a topic.
    pub fn new(topic: impl Into<String>) -> Self {
        DeadLetters { topic: topic.into(), after: i64::MIN, until: i64::MAX, keep: 0, limit: usize::MAX }
    }

    /// Returns how many letters to select of a topic that has `dead` letters.
    pub(super) fn limit_of(&self, dead: i64) -> i64 {
        let keep = i64::try_from(self.keep).unwrap_or(i64::MAX);
        let limit = i64::try_from(self.limit).unwrap_or(i64::MAX);
        dead.saturating_sub(keep).clamp(0, limit)
    }
}
