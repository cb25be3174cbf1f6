//! How often a message has arrived, and where.

use netwheel::testing::simulation::sometimes;
use std::collections::BTreeMap;

/// How often the server sends a message to one session: once, and three times again.
const MOST_IN_A_SESSION: u32 = 4;

/// The arrivals of one message, by session of the receiver.
#[derive(Default)]
pub(super) struct Arrivals {
    by_session: BTreeMap<u32, InSession>,
}

struct InSession {
    /// The id that the server has given the message in this session.
    id: u64,
    times: u32,
}

impl Arrivals {
    /// Records an arrival. Returns whether its id is the right one, and the limit is kept.
    pub(super) fn add(&mut self, session: u32, id: u64) -> bool {
        let arrived = self.by_session.entry(session).or_insert(InSession { id, times: 0 });
        arrived.times += 1;
        if arrived.times > 1 {
            sometimes("sent again");
        }
        arrived.id == id && arrived.times <= MOST_IN_A_SESSION
    }

    pub(super) fn total(&self) -> u32 {
        self.by_session.values().map(|arrived| arrived.times).sum()
    }

    pub(super) fn sessions(&self) -> usize {
        self.by_session.len()
    }
}
