//! The messages that are kept for users, by receiver: an index of the replica of the map, and what
//! this server has done with each message.
//!
//! Invariant: a message of this server has one entry from before it is stored. Other entries begin
//! and end with those of the replica. The end of a message is reported at most once by this server.

pub(crate) use super::letters::End;
use super::{
    kept::{Kept, KeptId},
    letters::{Ending, Entry, Letters, State},
    quota::{Exhausted, Quota, Share},
};
use crate::{
    byte_budget::{ByteBudget, Charge},
    hub::lock,
    nodes::KeptEnd,
};
use netwheel::broker::Position;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Instant,
};

/// Maximum number of direct messages that are kept for one user, and from one user.
const MAX_OF_USER: usize = 100;
/// Maximum number of direct messages that are kept for all users.
pub(crate) const MAX_OF_ALL: usize = 10_000;
/// Maximum bytes of direct messages that are kept for all users.
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Maximum number of messages that are ended at a time.
const MAX_DUE: usize = 1000;

pub(crate) struct Mailbox {
    receivers: Arc<Quota>,
    senders: Arc<Quota>,
    bytes: Arc<ByteBudget>,
    letters: Mutex<Letters>,
}

/// Counts a message until it is dropped.
pub(crate) enum Shares {
    Direct {
        _receiver: Share,
        _sender: Share,
        /// `None` for a message of the map beyond the limit.
        _bytes: Option<Charge>,
    },
    /// Counts among the reminders of its user.
    Reminder { _share: Share },
}

/// A message that has to be removed from the map.
pub(crate) struct Removal {
    pub(crate) kept: Arc<Kept>,
    pub(crate) position: Position,
    end: End,
    was_uncertain: bool,
}

/// The answer of the store to a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removed {
    /// By this server.
    Yes,
    /// The message is not in the map, or not at this position.
    No,
    /// The attempt has failed.
    Failed,
    /// The attempt has perhaps failed.
    Uncertain,
}

impl Mailbox {
    pub(crate) fn new() -> Self {
        Mailbox {
            receivers: Quota::new(MAX_OF_USER, MAX_OF_ALL),
            senders: Quota::new(MAX_OF_USER, MAX_OF_ALL),
            bytes: ByteBudget::new(MAX_BYTES),
            letters: Mutex::default(),
        }
    }

    // ---- limits ---------------------------------------------------------------------------------

    /// Counts a direct message.
    ///
    /// # Errors
    /// Returns a human-readable reason if a limit is reached.
    pub(crate) fn reserve(&self, from: &str, to: &str, bytes: usize) -> Result<Shares, String> {
        let full = || "the server keeps no more direct messages".to_owned();
        let receiver = self.receivers.take(to).map_err(|limit| match limit {
            Exhausted::User => format!("{MAX_OF_USER} direct messages are kept for {to} already"),
            Exhausted::All => full(),
        })?;
        let sender = self.senders.take(from).map_err(|limit| match limit {
            Exhausted::User => format!("{MAX_OF_USER} of your direct messages are kept already"),
            Exhausted::All => full(),
        })?;
        let bytes = self.bytes.charge(bytes).ok_or_else(full)?;
        Ok(Shares::Direct { _receiver: receiver, _sender: sender, _bytes: Some(bytes) })
    }

    /// Counts a direct message of the map, also above the limits.
    pub(crate) fn count(&self, from: &str, to: &str, bytes: usize) -> Shares {
        let (receiver, sender) = (self.receivers.force(to), self.senders.force(from));
        Shares::Direct { _receiver: receiver, _sender: sender, _bytes: self.bytes.charge(bytes) }
    }

    // ---- beginning ------------------------------------------------------------------------------

    /// Adds a message that is about to be stored.
    pub(crate) fn add(&self, kept: Kept, shares: Shares) -> Arc<Kept> {
        let kept = Arc::new(kept);
        let entry = Entry { state: State::Storing, ..Entry::new(kept.clone(), None, shares) };
        let mut letters = lock(&self.letters);
        letters.storing.insert(kept.id, None);
        letters.by_receiver.entry(kept.to.clone()).or_default().insert(kept.id, entry);
        kept
    }

    /// Records whether a message of this server was stored. Called when the sender has the answer.
    pub(crate) fn answered(&self, kept: &Kept, is_stored: bool) -> Answered {
        let mut letters = lock(&self.letters);
        let outcome = letters.storing.remove(&kept.id).flatten();
        let Some(entry) = letters.get(&kept.to, kept.id) else {
            return Answered { is_ready: false, outcome };
        };
        if entry.state == State::Storing {
            entry.state = State::Waiting;
        }
        let is_ready = entry.is_ready();
        if !is_stored && entry.position.is_none() {
            letters.remove(&kept.to, kept.id);
        }
        Answered { is_ready, outcome }
    }

    /// Keeps the outcome of a message for [`answered`](Self::answered), if the store has not
    /// answered yet: another server may know the message earlier. Returns whether it does so.
    pub(crate) fn hold_outcome(&self, end: &KeptEnd) -> bool {
        let mut letters = lock(&self.letters);
        let outcome = letters.storing.get_mut(&end.kept);
        outcome.map(|outcome| *outcome = Some(end.clone())).is_some()
    }

    /// Records a message of the replica, which `count` counts. Returns whether it can be sent.
    pub(crate) fn arrived(
        &self,
        kept: Kept,
        position: Position,
        count: impl FnOnce(&Kept) -> Shares,
    ) -> bool {
        let mut letters = lock(&self.letters);
        letters.expiries.insert((kept.expires, kept.to.clone(), kept.id));
        if let Some(entry) = letters.get(&kept.to, kept.id) {
            entry.position = Some(position);
            return entry.is_ready();
        }
        let (shares, kept) = (count(&kept), Arc::new(kept));
        let mut entry = Entry::new(kept.clone(), Some(position), shares);
        if letters.ended.contains(&kept.id) {
            entry.ending = Some(Ending { end: End::Again, is_asked: false, is_uncertain: false });
            letters.retries.insert((kept.to.clone(), kept.id));
        }
        let is_ready = entry.is_ready();
        letters.by_receiver.entry(kept.to.clone()).or_default().insert(kept.id, entry);
        is_ready
    }

    /// Returns whether a message is kept, or has ended a short time ago.
    pub(crate) fn is_known(&self, to: &str, id: KeptId) -> bool {
        let mut letters = lock(&self.letters);
        letters.ended.contains(&id) || letters.get(to, id).is_some()
    }

    // ---- delivery -------------------------------------------------------------------------------

    /// Returns the next message to send that has not expired, with at most `max_bytes` of texts.
    pub(crate) fn next(&self, to: &str, max_bytes: usize, now: u64) -> Next {
        let mut letters = lock(&self.letters);
        let mut entries = letters.by_receiver.get_mut(to).into_iter().flat_map(BTreeMap::values_mut);
        match entries.find(|entry| entry.is_ready() && entry.kept.expires > now) {
            None => Next::Empty,
            Some(entry) if entry.kept.len() > max_bytes => Next::TooLarge,
            Some(entry) => {
                entry.state = State::Sent;
                Next::Message(entry.kept.clone())
            }
        }
    }

    /// Records that the connection to which a message was sent has closed. Returns whether the
    /// message can be sent.
    pub(crate) fn put_back(&self, kept: &Kept) -> bool {
        let mut letters = lock(&self.letters);
        let Some(entry) = letters.get(&kept.to, kept.id) else { return false };
        entry.state = State::Waiting;
        entry.is_ready()
    }

    /// Records that a message was sent and not acknowledged in time.
    pub(crate) fn hold(&self, kept: &Kept) {
        if let Some(entry) = lock(&self.letters).get(&kept.to, kept.id) {
            entry.state = State::Held;
        }
    }

    /// Allows the messages of a user that has just logged in to be sent again.
    pub(crate) fn log_in(&self, to: &str) {
        if let Some(entries) = lock(&self.letters).by_receiver.get_mut(to) {
            for entry in entries.values_mut().filter(|entry| entry.state == State::Held) {
                entry.state = State::Waiting;
            }
        }
    }

    /// Returns the users for whom messages can be sent.
    pub(crate) fn receivers(&self) -> Vec<String> {
        let letters = lock(&self.letters);
        let waiting = letters.by_receiver.iter().filter(|(_, entries)| entries.values().any(Entry::is_ready));
        waiting.map(|(to, _)| to.clone()).collect()
    }

    // ---- end ------------------------------------------------------------------------------------

    /// Returns messages that have expired, by the time of day in milliseconds. Each is returned
    /// once.
    pub(crate) fn expired(&self, now: u64) -> Vec<(String, KeptId)> {
        let mut letters = lock(&self.letters);
        let mut expired = Vec::new();
        while expired.len() < MAX_DUE
            && letters.expiries.first().is_some_and(|(expires, ..)| *expires <= now)
            && let Some((_, to, id)) = letters.expiries.pop_first()
        {
            expired.push((to, id));
        }
        expired
    }

    /// Returns messages whose removal has failed, if it is time to try again.
    pub(crate) fn retries(&self, now: Instant) -> Vec<(String, KeptId)> {
        let mut letters = lock(&self.letters);
        if letters.retries.is_empty() || !letters.retry_pause.is_over(now) {
            return Vec::new();
        }
        std::iter::from_fn(|| letters.retries.pop_first()).take(MAX_DUE).collect()
    }

    /// Begins to end a message, unless that is under way. An end that has begun stays the same.
    pub(crate) fn begin_end(&self, to: &str, id: KeptId, end: End) -> Option<Removal> {
        let mut letters = lock(&self.letters);
        let entry = letters.get(to, id)?;
        let position = entry.position?;
        let ending = entry.ending.get_or_insert(Ending { end, is_asked: false, is_uncertain: false });
        if std::mem::replace(&mut ending.is_asked, true) {
            return None;
        }
        let (end, was_uncertain) = (ending.end, ending.is_uncertain);
        Some(Removal { kept: entry.kept.clone(), position, end, was_uncertain })
    }

    /// Records the answer to a removal. Returns the end that has to be reported by this server.
    pub(crate) fn end_answered(&self, removal: &Removal, removed: Removed) -> Option<End> {
        let Removal { kept, end, was_uncertain, .. } = removal;
        let mut letters = lock(&self.letters);
        let is_there = letters.get(&kept.to, kept.id).is_some();
        // If the answer to an attempt was lost and the message is gone, this server has most
        // probably removed it. Reports of several servers are recognised as repetitions.
        let has_ended = match removed {
            Removed::Yes => true,
            Removed::No => *was_uncertain,
            Removed::Uncertain => !is_there,
            Removed::Failed => !is_there && *was_uncertain,
        };
        if has_ended {
            letters.remove(&kept.to, kept.id);
            letters.remember(kept.id);
            return Some(*end);
        }
        // Another server has ended it, which the replica does not show yet; or it was set again.
        if let Some(ending) = letters.get(&kept.to, kept.id).and_then(|entry| entry.ending.as_mut()) {
            ending.is_asked = false;
            ending.is_uncertain |= removed == Removed::Uncertain;
            letters.retries.insert((kept.to.clone(), kept.id));
        }
        None
    }

    /// Records that the replica does not have a message any more. Returns the end that has to be
    /// reported by this server.
    pub(crate) fn gone(&self, kept: &Kept) -> Option<End> {
        let mut letters = lock(&self.letters);
        let ending = letters.remove(&kept.to, kept.id)?.ending?;
        let is_own = ending.is_uncertain && !ending.is_asked;
        is_own.then(|| {
            letters.remember(kept.id);
            ending.end
        })
    }
}

/// The effect of the answer of the store to a message.
pub(crate) struct Answered {
    /// Whether the message can be sent.
    pub(crate) is_ready: bool,
    /// The outcome that is known already.
    pub(crate) outcome: Option<KeptEnd>,
}

/// The next message of a user.
pub(crate) enum Next {
    Message(Arc<Kept>),
    /// There is one, but it has too many bytes at the moment.
    TooLarge,
    Empty,
}
