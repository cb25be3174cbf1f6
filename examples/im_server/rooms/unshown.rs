//! `Unshown`: members whose entries in the maps of rooms may be wrong. The store cannot be reached,
//! too many operations are unanswered, or another server has shown the member.

use crate::hub::lock;
use netwheel::Error;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Time after which the entry of a member is set or removed again. By then, a server usually knows
/// that the name belongs to another one.
const PAUSE: Duration = Duration::from_secs(1);

/// The names of a room and a user.
type Membership = (Arc<str>, Arc<str>);

/// Memberships with the time of the next attempt. Each one is there once.
#[derive(Default)]
pub(super) struct Unshown {
    memberships: Mutex<BTreeMap<Membership, Instant>>,
    /// Whether maps cannot be opened, which was logged.
    is_known: AtomicBool,
}

impl Unshown {
    pub(super) fn add(&self, room: &Arc<str>, user: &Arc<str>, now: Instant) {
        lock(&self.memberships).insert((room.clone(), user.clone()), now + PAUSE);
    }

    /// Adds a membership of a room whose map could not be opened. Only the first failure is a
    /// warning: each membership is tried once per [`PAUSE`].
    pub(super) fn not_opened(&self, room: &Arc<str>, user: &Arc<str>, now: Instant, error: &Error) {
        let is_known = self.is_known.swap(true, Ordering::Relaxed);
        let level = if is_known { log::Level::Debug } else { log::Level::Warn };
        log::log!(level, "the members of {room} are not shown to other servers: {error:#}");
        self.add(room, user, now);
    }

    /// Records that a map was opened, so that the next failure is a warning again.
    pub(super) fn opened(&self) {
        self.is_known.store(false, Ordering::Relaxed);
    }

    /// Takes the memberships whose time has come.
    pub(super) fn take(&self, now: Instant) -> Vec<Membership> {
        let mut due = Vec::new();
        lock(&self.memberships).retain(|membership, not_before| {
            let waits = *not_before > now;
            if !waits {
                due.push(membership.clone());
            }
            waits
        });
        due
    }
}
