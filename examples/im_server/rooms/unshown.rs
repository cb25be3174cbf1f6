//! `Unshown`: members whose entries in the maps of rooms may be wrong. The store cannot be reached,
//! too many operations are unanswered, or another server has shown the member.

use crate::hub::lock;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// Time after which the entry of a member is set or removed again. By then, a server usually knows
/// that the name belongs to another one.
const PAUSE: Duration = Duration::from_secs(1);

/// The names of a room and a user.
type Membership = (Arc<str>, Arc<str>);

/// Memberships with the time of the next attempt. Each one is there once.
#[derive(Default)]
pub(super) struct Unshown(Mutex<BTreeMap<Membership, Instant>>);

impl Unshown {
    pub(super) fn add(&self, room: &Arc<str>, user: &Arc<str>, now: Instant) {
        lock(&self.0).insert((room.clone(), user.clone()), now + PAUSE);
    }

    /// Takes the memberships whose time has come.
    pub(super) fn take(&self, now: Instant) -> Vec<Membership> {
        let mut due = Vec::new();
        lock(&self.0).retain(|membership, not_before| {
            let waits = *not_before > now;
            if !waits {
                due.push(membership.clone());
            }
            waits
        });
        due
    }
}
