//! Announces joins and leaves to the members of rooms, coalesced and delayed.
//!
//! Announcing each join and leave immediately would cost one delivery per member, and one client
//! can cause thousands of changes per second. A change therefore only adds the room to a list. A
//! periodic task goes through the list, and each room announces its changes since the last time.
//! The rooms are served in turn, and each room has its own rate limit.

use super::Room;
use crate::hub::lock;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// Interval at which the list is processed.
pub(crate) const PERIOD: Duration = Duration::from_millis(200);
/// Maximum deliveries per second for announcements in one room.
const ROOM_RATE: u32 = 20_000;
/// Maximum deliveries per period for announcements in all rooms; the last room may exceed it.
const MAX_DELIVERIES: usize = 20_000;

/// The rooms with changes to announce.
#[derive(Default)]
pub(crate) struct Announcer(Mutex<VecDeque<Entry>>);

struct Entry {
    room: Arc<Room>,
    /// Earliest time of the next announcement.
    not_before: Option<Instant>,
}

impl Announcer {
    /// Adds a room that is not yet in the list.
    pub(crate) fn add(&self, room: Arc<Room>) {
        lock(&self.0).push_back(Entry { room, not_before: None });
    }

    /// Announces the changes of each room whose time has come. Called once per [`PERIOD`].
    pub(crate) fn announce(&self, now: Instant) {
        let rooms = lock(&self.0).len();
        let mut spent = 0;
        for _ in 0..rooms {
            if spent >= MAX_DELIVERIES {
                break;
            }
            let Some(Entry { room, not_before }) = lock(&self.0).pop_front() else { break };
            if not_before.is_some_and(|not_before| now < not_before) {
                lock(&self.0).push_back(Entry { room, not_before });
                continue;
            }
            // A room stays in the list until it has nothing new to announce, so that every change
            // is subject to the rate limit.
            let Some(cost) = room.announce() else { continue };
            spent += cost;
            let rest =
                (Duration::from_secs(1) / ROOM_RATE).saturating_mul(u32::try_from(cost).unwrap_or(u32::MAX));
            lock(&self.0).push_back(Entry { room, not_before: now.checked_add(rest) });
        }
    }
}
