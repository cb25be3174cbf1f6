//! The kept messages that this server knows, by receiver. Without limits and locks.

use super::{
    kept::{Kept, KeptId},
    mailbox::Shares,
};
use crate::{nodes::KeptEnd, retry_pause::RetryPause};
use netwheel::broker::Position;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

/// Number of messages whose end is remembered.
const MAX_ENDED: usize = 10_000;

#[derive(Default)]
pub(super) struct Letters {
    pub(super) by_receiver: BTreeMap<String, BTreeMap<KeptId, Entry>>,
    /// The messages for which this server waits for the answer of the store, each with the outcome
    /// if that is known already. Their entries may have ended.
    pub(super) storing: BTreeMap<KeptId, Option<KeptEnd>>,
    /// The messages of the replica, ordered by expiry; removed once the expiry has been handled.
    pub(super) expiries: BTreeSet<(u64, String, KeptId)>,
    /// Messages that have ended, and could not be removed so far.
    pub(super) retries: BTreeSet<(String, KeptId)>,
    pub(super) retry_pause: RetryPause,
    /// Messages that ended earlier. If one is in the map again, because the store has lost
    /// its removal or because a reminder has fired again, it is not delivered again.
    pub(super) ended: BTreeSet<KeptId>,
    pub(super) ended_in_order: VecDeque<KeptId>,
}

pub(super) struct Entry {
    pub(super) kept: Arc<Kept>,
    /// The position in the map. `None` until the replica has the message.
    pub(super) position: Option<Position>,
    pub(super) state: State,
    pub(super) ending: Option<Ending>,
    pub(super) _shares: Shares,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// This server waits for the answer of the store to the message.
    Storing,
    /// Can be sent.
    Waiting,
    /// Sent to the receiver, and not acknowledged.
    Sent,
    /// Was sent and not acknowledged in time; waits for the next login.
    Held,
}

/// A message that this server removes from the map.
pub(super) struct Ending {
    pub(super) end: End,
    /// Whether the answer of the store is awaited.
    pub(super) is_asked: bool,
    /// Whether the answer to an earlier attempt was lost.
    pub(super) is_uncertain: bool,
}

/// How a message ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The receiver has acknowledged it.
    Delivered,
    /// It was not acknowledged in time.
    Expired,
    /// It has ended before.
    Again,
}

impl Entry {
    pub(super) fn new(kept: Arc<Kept>, position: Option<Position>, shares: Shares) -> Self {
        let (state, ending) = (State::Waiting, None);
        Entry { kept, position, state, ending, _shares: shares }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.position.is_some() && self.ending.is_none() && self.state == State::Waiting
    }
}

impl Letters {
    pub(super) fn get(&mut self, to: &str, id: KeptId) -> Option<&mut Entry> {
        self.by_receiver.get_mut(to)?.get_mut(&id)
    }

    pub(super) fn remove(&mut self, to: &str, id: KeptId) -> Option<Entry> {
        let entries = self.by_receiver.get_mut(to)?;
        let entry = entries.remove(&id)?;
        if entries.is_empty() {
            self.by_receiver.remove(to);
        }
        self.expiries.remove(&(entry.kept.expires, to.to_owned(), id));
        self.retries.remove(&(to.to_owned(), id));
        Some(entry)
    }

    pub(super) fn remember(&mut self, id: KeptId) {
        if self.ended.insert(id) {
            self.ended_in_order.push_back(id);
        }
        if self.ended_in_order.len() > MAX_ENDED
            && let Some(oldest) = self.ended_in_order.pop_front()
        {
            self.ended.remove(&oldest);
        }
    }
}
