//! `DeadWork`: an operation on all dead letters of a topic, in several transactions.

use super::{
    engine::Permit,
    store::{DeadLetters, TopicCounts},
    unix_millis::LATEST,
};
use crate::{error::Error, sync::Completer};

/// The largest number of letters that one transaction retries. Their payloads are in memory then.
const RETRIED_AT_ONCE: u64 = 256;

/// The largest number of letters that one transaction removes.
pub(super) const REMOVED_AT_ONCE: usize = 1000;

/// What becomes of the letters.
#[derive(Debug, Clone, Copy)]
pub(super) enum DeadAction {
    /// They are due in the course of this time, in milliseconds.
    Retry {
        over: i64,
    },
    Remove,
}

/// The letters that were dead at the beginning.
#[derive(Debug, Clone, Copy)]
struct Selected {
    at: i64,
    /// `None` in the first pass, for letters that died by `at`. The second pass is for letters
    /// whose time is later than this one: the clock was set back after they had died.
    ahead_of: Option<i64>,
    total: u64,
}

pub(super) struct DeadWork {
    topic: String,
    action: DeadAction,
    /// `None` before the first transaction.
    selected: Option<Selected>,
    done: u64,
    completer: Completer<u64>,
    _permit: Permit,
}

impl DeadWork {
    pub(super) fn new(topic: String, action: DeadAction, completer: Completer<u64>, permit: Permit) -> Self {
        DeadWork { topic, action, selected: None, done: 0, completer, _permit: permit }
    }

    pub(super) fn action(&self) -> DeadAction {
        self.action
    }

    /// Returns whether the letters have to be counted before the first transaction.
    pub(super) fn is_new(&self) -> bool {
        self.selected.is_none()
    }

    /// Selects the letters that are dead now. Letters that die later are left out, so the work
    /// ends.
    pub(super) fn select(&mut self, counts: &[TopicCounts], now: i64) {
        let topic = counts.iter().find(|counts| counts.topic == self.topic);
        self.selected =
            Some(Selected { at: now, ahead_of: None, total: topic.map_or(0, |topic| topic.dead) });
    }

    /// Returns the letters of the next transaction, or `None` if there are no more.
    pub(super) fn next(&self) -> Option<DeadLetters> {
        let selected = self.selected?;
        let at_once = match self.action {
            DeadAction::Retry { .. } => RETRIED_AT_ONCE,
            DeadAction::Remove => REMOVED_AT_ONCE as u64,
        };
        let limit = usize::try_from(selected.total.saturating_sub(self.done).min(at_once)).unwrap_or(0);
        let (after, until) = match selected.ahead_of {
            None => (i64::MIN, selected.at),
            Some(now) => (now, i64::MAX),
        };
        (limit > 0).then(|| DeadLetters { topic: self.topic.clone(), after, until, keep: 0, limit })
    }

    /// Returns when the letters of the next transaction are due: spread evenly.
    pub(super) fn dues(&self, letters: &DeadLetters, over: i64) -> Vec<i64> {
        let Some(Selected { at, total, .. }) = self.selected else { return Vec::new() };
        let due = |place: u64| {
            let after = i128::from(over) * i128::from(place) / i128::from(total.max(1));
            at.saturating_add(i64::try_from(after).unwrap_or(i64::MAX)).min(LATEST)
        };
        (self.done..).take(letters.limit).map(due).collect()
    }

    /// Notes that a transaction has changed some letters, at a present time. Returns the work if
    /// there may be more.
    pub(super) fn advance(mut self, letters: &DeadLetters, changed: u64, now: i64) -> Option<Self> {
        self.done = self.done.saturating_add(changed);
        let mut may_be_more = true;
        if changed < letters.limit as u64
            && let Some(selected) = &mut self.selected
        {
            may_be_more = selected.ahead_of.is_none();
            selected.ahead_of = Some(now);
        }
        if may_be_more && self.next().is_some() {
            return Some(self);
        }
        self.finish(None);
        None
    }

    /// Completes the operation.
    pub(super) fn finish(self, error: Option<Error>) {
        self.completer.complete(error.map_or(Ok(self.done), Err));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{Permits, completion};
    use std::sync::Arc;

    #[test]
    fn letters_are_spread_over_the_time_in_several_transactions() {
        let (completer, done) = completion(None);
        let permit = Permit::take(&Arc::new(Permits::new(1))).unwrap();
        let action = DeadAction::Retry { over: 6000 };
        let mut work = DeadWork::new("topic".to_owned(), action, completer, permit);
        assert!(work.is_new() && work.next().is_none());
        work.select(&[TopicCounts::new("topic".to_owned(), 7, 600)], 1_000);
        let mut dues = Vec::new();
        for _ in 0..2 {
            let letters = work.next().unwrap();
            assert_eq!((letters.limit, letters.until), (256, 1_000));
            dues.extend(work.dues(&letters, 6000));
            work = work.advance(&letters, 256, 1_000).unwrap();
        }
        let letters = work.next().unwrap();
        dues.extend(work.dues(&letters, 6000));
        assert_eq!(dues, (0..600).map(|letter| 1_000 + 10 * letter).collect::<Vec<_>>());
        assert!(work.advance(&letters, 88, 1_000).is_none());
        assert!(matches!(done.take(), Some(Ok(600))));
    }

    /// Pages of a list end at the latest time that a timer may have.
    #[test]
    fn letters_that_are_retried_over_a_long_time_are_due_before_the_end_of_time() {
        let (completer, _done) = completion(None);
        let permit = Permit::take(&Arc::new(Permits::new(1))).unwrap();
        let action = DeadAction::Retry { over: LATEST };
        let mut work = DeadWork::new("topic".to_owned(), action, completer, permit);
        work.select(&[TopicCounts::new("topic".to_owned(), 7, 200)], LATEST / 100);
        let letters = work.next().unwrap();
        let dues = work.dues(&letters, LATEST);
        assert!(dues.iter().all(|due| *due <= LATEST) && dues.contains(&LATEST));
    }

    #[test]
    fn work_ends_when_letters_are_gone_meanwhile() {
        let (completer, done) = completion(None);
        let permit = Permit::take(&Arc::new(Permits::new(1))).unwrap();
        let mut work = DeadWork::new("topic".to_owned(), DeadAction::Remove, completer, permit);
        work.select(&[TopicCounts::new("topic".to_owned(), 0, 5000)], 0);
        let letters = work.next().unwrap();
        assert_eq!((letters.limit, letters.until), (REMOVED_AT_ONCE, 0));
        let work = work.advance(&letters, 3, 10).unwrap();
        let letters = work.next().unwrap();
        let ahead = (10, i64::MAX);
        assert_eq!((letters.after, letters.until), ahead, "from before the clock was set back");
        assert!(work.advance(&letters, 1, 20).is_none());
        assert!(matches!(done.take(), Some(Ok(4))));
    }
}
