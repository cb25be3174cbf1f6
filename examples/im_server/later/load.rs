//! Reads the store at the start of the server, before the first timer fires.

use super::{
    KEPT, Kept, Later, RECORD, REMIND,
    kept::{Content, Reminder},
    mailbox::Shares,
};
use netwheel::{
    Result,
    durable::{TimerFilter, TimerId, TimerInfo, TimerStore},
};
use std::sync::atomic::Ordering;

impl Later {
    /// Reads all kept messages and reminders of the store, in pages. Returns the timers of
    /// reminders that are kept messages already.
    pub(super) fn load(&self, store: &mut impl TimerStore) -> Result<Vec<TimerId>> {
        let messages = self.load_topic(store, KEPT, |timer| {
            let kept: Kept = serde_json::from_str(&timer.payload)?;
            let shares = match &kept.content {
                Content::Direct { from, .. } if !self.mailbox.is_full() => {
                    self.mailbox.count(from, &kept.to, RECORD + kept.len())
                }
                Content::Reminder { .. } if !self.reminders.is_full() => {
                    Some(Shares::Reminder { _share: self.reminders.count(&kept.to) })
                }
                _ => None,
            };
            let (number, to) = (kept.number, kept.to.clone());
            Ok(shares.map(|shares| {
                self.mailbox.add(kept, shares);
                self.mailbox.stored(&to, number, timer.id);
                number
            }))
        })?;
        let mut leftovers = Vec::new();
        let reminders = self.load_topic(store, REMIND, |timer| {
            let reminder: Reminder = serde_json::from_str(&timer.payload)?;
            let number = reminder.number;
            if self.mailbox.contains(&reminder.user, number) {
                leftovers.push(timer.id);
            } else if self.reminders.is_full() {
                return Ok(None);
            } else {
                self.reminders.load(reminder, timer.id);
            }
            Ok(Some(number))
        })?;
        log::info!("{reminders} reminders and {messages} kept messages were stored");
        Ok(leftovers)
    }

    /// Passes the timers of a topic to `load`, until that returns no number because memory is full.
    fn load_topic(
        &self,
        store: &mut impl TimerStore,
        topic: &str,
        mut load: impl FnMut(&TimerInfo) -> serde_json::Result<Option<u64>>,
    ) -> Result<usize> {
        let mut count = 0;
        let mut filter = TimerFilter::new().topic(topic).limit(TimerFilter::MAX_LIMIT);
        loop {
            let page = store.list(&filter)?;
            for timer in &page {
                match load(timer) {
                    Ok(Some(number)) => {
                        count += 1;
                        self.next.fetch_max(number + 1, Ordering::Relaxed);
                    }
                    Ok(None) => {
                        log::warn!("only {count} timers of the topic {topic} fit into memory");
                        return Ok(count);
                    }
                    Err(error) => log::warn!("timer {} is not understood: {error}", timer.id),
                }
            }
            match page.last() {
                Some(last) => filter = filter.after(last.id),
                None => return Ok(count),
            }
        }
    }
}
