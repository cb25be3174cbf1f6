//! `Alarm`: when a loop or a thread runs next, and its entries in the queue.
//!
//! Invariant: an alarm has few entries, however often its time changes. An entry that is earlier
//! than the time is put back when it comes up, and one that is later is left in the queue. So the
//! length of the queue depends neither on the number of turns and waits nor on their timeouts.

#[derive(Debug, Default)]
pub(super) struct Alarm {
    due: Option<u64>,
    /// The times of the entries in the queue. The earliest is the last.
    entries: Vec<u64>,
}

impl Alarm {
    /// Returns the time at which the loop or thread runs. `None` if it waits for an event.
    pub(super) fn due(&self) -> Option<u64> {
        self.due
    }

    /// Sets the time. Returns whether the queue needs an entry for it.
    #[must_use]
    pub(super) fn set(&mut self, at: u64) -> bool {
        self.due = Some(at);
        if self.entries.last().is_some_and(|entry| *entry <= at) {
            return false;
        }
        self.entries.push(at);
        true
    }

    /// Removes the time. The entries stay in the queue, also for the next owner of the place.
    pub(super) fn clear(&mut self) {
        self.due = None;
    }

    /// Notes that the earliest entry was taken out of the queue. Returns the time.
    pub(super) fn entry_came_up(&mut self) -> Option<u64> {
        self.entries.pop();
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Compares with a model that has an entry for each time that was set.
    #[test]
    fn each_time_comes_up_exactly_and_entries_are_few() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut alarm, mut queue, mut now) = (Alarm::default(), BTreeSet::new(), 0);
        for _ in 0..10_000 {
            match random.u32(..4) {
                0 => alarm.clear(),
                n => {
                    let at = now + random.u64(..10) * [1, 1000, 1_000_000][n as usize - 1];
                    if alarm.set(at) {
                        assert!(queue.insert(at), "two entries at {at}");
                    }
                }
            }
            assert!(alarm.due().is_none_or(|due| queue.first().is_some_and(|first| *first <= due)));
            assert!(queue.len() <= 40, "{}", queue.len());
            if random.bool()
                && let Some(first) = queue.pop_first()
            {
                now = first;
                match alarm.entry_came_up() {
                    Some(due) if due <= now => {
                        assert_eq!(due, now);
                        alarm.clear();
                    }
                    Some(due) if alarm.set(due) => assert!(queue.insert(due)),
                    _ => {}
                }
            }
        }
    }
}
