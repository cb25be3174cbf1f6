//! Reads the store of reminders at the start of the server, before the first timer fires.

use super::{Later, REMIND, kept::Reminder};
use netwheel::{
    Result,
    durable::{TimerFilter, TimerId, TimerStore},
};
use std::sync::atomic::Ordering;

impl Later {
    /// Reads all reminders of the store, in pages, after the kept messages. Returns the timers of
    /// reminders that are kept messages already.
    pub(super) fn load(&self, store: &mut impl TimerStore) -> Result<Vec<TimerId>> {
        let (mut leftovers, mut count) = (Vec::new(), 0);
        let mut filter = TimerFilter::new().topic(REMIND).limit(TimerFilter::MAX_LIMIT);
        loop {
            let page = store.list(&filter)?;
            for timer in &page {
                let reminder: Reminder = match serde_json::from_str(&timer.payload) {
                    Ok(reminder) => reminder,
                    Err(error) => {
                        log::warn!("timer {} is not understood: {error}", timer.id);
                        continue;
                    }
                };
                self.last.fetch_max(reminder.number, Ordering::Relaxed);
                if self.mailbox.is_known(&reminder.user, reminder.id()) {
                    leftovers.push(timer.id);
                } else if self.reminders.is_full() {
                    log::warn!("only {count} timers of the topic {REMIND} fit into memory");
                    return Ok(leftovers);
                } else {
                    self.reminders.load(reminder, timer.id);
                    count += 1;
                }
            }
            match page.last() {
                Some(last) => filter = filter.after(last.id),
                None => break,
            }
        }
        log::info!("{count} reminders were stored");
        Ok(leftovers)
    }
}
