//! Limits for stored items: of one user, and of all users.

use crate::hub::lock;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// Counts the items of each user. Thread-safe.
pub(crate) struct Quota {
    per_user: usize,
    total: usize,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    by_user: BTreeMap<Arc<str>, usize>,
    all: usize,
}

/// Counts one item until it is dropped.
pub(crate) struct Share {
    quota: Arc<Quota>,
    user: Arc<str>,
}

/// The limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exhausted {
    User,
    All,
}

impl Quota {
    pub(crate) fn new(per_user: usize, total: usize) -> Arc<Self> {
        Arc::new(Quota { per_user, total, counts: Mutex::default() })
    }

    /// Counts an item, unless a limit is reached.
    pub(crate) fn take(self: &Arc<Self>, user: &str) -> Result<Share, Exhausted> {
        let mut counts = lock(&self.counts);
        if counts.all >= self.total {
            return Err(Exhausted::All);
        }
        if counts.by_user.get(user).is_some_and(|count| *count >= self.per_user) {
            return Err(Exhausted::User);
        }
        Ok(self.count(&mut counts, user))
    }

    /// Counts an item that exists already, also above the limits.
    pub(crate) fn force(self: &Arc<Self>, user: &str) -> Share {
        self.count(&mut lock(&self.counts), user)
    }

    /// Returns whether the limit of all users is reached.
    pub(crate) fn is_full(&self) -> bool {
        lock(&self.counts).all >= self.total
    }

    fn count(self: &Arc<Self>, counts: &mut Counts, user: &str) -> Share {
        let user: Arc<str> = user.into();
        counts.all += 1;
        *counts.by_user.entry(user.clone()).or_default() += 1;
        Share { quota: self.clone(), user }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut counts = lock(&self.quota.counts);
        counts.all -= 1;
        if let Some(count) = counts.by_user.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                counts.by_user.remove(&self.user);
            }
        }
    }
}
