//! The reminders whose time has not come, by user.
//!
//! An entry is added before its timer is stored, so that a timer that fires at once finds it.

use super::{
    kept::{KeptId, Reminder},
    quota::{Exhausted, Quota, Share},
};
use crate::hub::lock;
use netwheel::durable::TimerId;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// Maximum number of reminders of one user, including reminders that wait for an acknowledgement.
pub(crate) const MAX_OF_USER: usize = 50;
/// Maximum number of reminders of all users.
pub(crate) const MAX_OF_ALL: usize = 10_000;

pub(crate) struct Reminders {
    quota: Arc<Quota>,
    by_user: Mutex<BTreeMap<String, BTreeMap<u64, Entry>>>,
}

struct Entry {
    reminder: Reminder,
    /// `None` until the timer is stored.
    timer: Option<TimerId>,
    _share: Share,
}

impl Reminders {
    pub(crate) fn new() -> Self {
        Reminders { quota: Quota::new(MAX_OF_USER, MAX_OF_ALL), by_user: Mutex::default() }
    }

    /// Adds a reminder that is about to be stored.
    pub(crate) fn add(&self, reminder: Reminder) -> Result<(), Exhausted> {
        let share = self.quota.take(&reminder.user)?;
        self.insert(Entry { reminder, timer: None, _share: share });
        Ok(())
    }

    /// Adds a reminder of the store.
    pub(crate) fn load(&self, reminder: Reminder, timer: TimerId) {
        let share = self.count(&reminder.user);
        self.insert(Entry { reminder, timer: Some(timer), _share: share });
    }

    /// Counts a reminder whose time has come.
    pub(crate) fn count(&self, user: &str) -> Share {
        self.quota.force(user)
    }

    fn insert(&self, entry: Entry) {
        let user = entry.reminder.user.clone();
        lock(&self.by_user).entry(user).or_default().insert(entry.reminder.number, entry);
    }

    /// Sets the timer of a reminder, unless it has fired.
    pub(crate) fn stored(&self, user: &str, number: u64, timer: TimerId) {
        let mut by_user = lock(&self.by_user);
        if let Some(entry) = by_user.get_mut(user).and_then(|entries| entries.get_mut(&number)) {
            entry.timer = Some(timer);
        }
    }

    /// Returns the timer of a user's reminder.
    pub(crate) fn timer(&self, user: &str, number: u64) -> Option<TimerId> {
        lock(&self.by_user).get(user)?.get(&number)?.timer
    }

    pub(crate) fn remove(&self, user: &str, number: u64) {
        let mut by_user = lock(&self.by_user);
        let Some(entries) = by_user.get_mut(user) else { return };
        entries.remove(&number);
        if entries.is_empty() {
            by_user.remove(user);
        }
    }

    /// Removes a reminder that is a kept message by now. Another server may have set it.
    pub(crate) fn became_kept(&self, user: &str, id: KeptId) {
        let by_user = lock(&self.by_user);
        let entry = by_user.get(user).and_then(|entries| entries.get(&id.number));
        let is_own = entry.is_some_and(|entry| entry.reminder.id() == id);
        drop(by_user);
        if is_own {
            self.remove(user, id.number);
        }
    }

    /// Returns the stored reminders of a user in the order of their times.
    pub(crate) fn of(&self, user: &str) -> Vec<Reminder> {
        let by_user = lock(&self.by_user);
        let entries = by_user.get(user).into_iter().flat_map(BTreeMap::values);
        let stored = entries.filter(|entry| entry.timer.is_some());
        let mut reminders: Vec<_> = stored.map(|entry| entry.reminder.clone()).collect();
        reminders.sort_by_key(|reminder| (reminder.due, reminder.number));
        reminders
    }

    /// Returns whether no more reminders fit into memory.
    pub(crate) fn is_full(&self) -> bool {
        self.quota.is_full()
    }
}
