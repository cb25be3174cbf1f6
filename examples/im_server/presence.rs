//! Announces joins and leaves to the members of rooms, coalesced and with a delay.
//!
//! A message for each join and leave costs as many deliveries as the room has members, and one
//! client can cause thousands of them per second. So a change only puts the room on a list. A
//! periodic task walks through the list and has each room announce what has changed since the last
//! time. Rooms take turns, and every room has its own pace.

use crate::{hub::lock, room::Room};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// The time between two looks at the list.
pub(crate) const PERIOD: Duration = Duration::from_millis(200);
/// Deliveries per second that announcements in one room may cause.
const ROOM_RATE: u32 = 20_000;
/// Deliveries that announcements in all rooms may cause in one period; the last room may exceed it.
const MAX_DELIVERIES: usize = 20_000;

/// The rooms with something to announce.
#[derive(Default)]
pub(crate) struct Announcer(Mutex<VecDeque<Entry>>);

struct Entry {
    room: Arc<Room>,
    /// Not to be announced before this time.
    not_before: Option<Instant>,
}

impl Announcer {
    /// Adds a room that is not in the list.
    pub(crate) fn add(&self, room: Arc<Room>) {
        lock(&self.0).push_back(Entry { room, not_before: None });
    }

    /// Announces the changes of each room that is due; called once per [`PERIOD`].
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
            // A room stays in the list until a look at it finds nothing new, so that each change
            // waits for the pace.
            let Some(cost) = room.announce() else { continue };
            spent += cost;
            let rest =
                (Duration::from_secs(1) / ROOM_RATE).saturating_mul(u32::try_from(cost).unwrap_or(u32::MAX));
            lock(&self.0).push_back(Entry { room, not_before: now.checked_add(rest) });
        }
    }
}
