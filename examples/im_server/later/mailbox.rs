//! The messages that are kept for users, by receiver.
//!
//! Invariant: a message has one entry from before it is stored until it was acknowledged or has
//! expired. Whoever removes the entry notifies the sender, so that happens at most once.

use super::{
    kept::Kept,
    quota::{Exhausted, Quota, Share},
};
use crate::{
    byte_budget::{ByteBudget, Charge},
    hub::lock,
};
use netwheel::durable::TimerId;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// Maximum number of direct messages that are kept for one user, and from one user.
const MAX_OF_USER: usize = 100;
/// Maximum number of messages that are kept for all users.
const MAX_OF_ALL: usize = 10_000;
/// Maximum bytes of direct messages that are kept for all users.
const MAX_BYTES: usize = 64 * 1024 * 1024;

pub(crate) struct Mailbox {
    receivers: Arc<Quota>,
    senders: Arc<Quota>,
    bytes: Arc<ByteBudget>,
    by_receiver: Mutex<BTreeMap<String, BTreeMap<u64, Entry>>>,
}

/// Counts a message until it is dropped.
pub(crate) enum Shares {
    Direct {
        _receiver: Share,
        _sender: Share,
        _bytes: Charge,
    },
    /// Counts among the reminders of its user.
    Reminder {
        _share: Share,
    },
}

struct Entry {
    kept: Kept,
    timer: Option<TimerId>,
    state: State,
    _shares: Shares,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Its timer is being stored.
    Storing,
    /// Can be sent.
    Waiting,
    /// Sent to the receiver, and not acknowledged.
    Sent,
    /// Was sent and not acknowledged; waits for the next login.
    Held,
}

impl Mailbox {
    pub(crate) fn new() -> Self {
        Mailbox {
            receivers: Quota::new(MAX_OF_USER, MAX_OF_ALL),
            senders: Quota::new(MAX_OF_USER, MAX_OF_ALL),
            bytes: ByteBudget::new(MAX_BYTES),
            by_receiver: Mutex::default(),
        }
    }

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
        Ok(Shares::Direct { _receiver: receiver, _sender: sender, _bytes: bytes })
    }

    /// Counts a direct message of the store. Returns `None` if too many bytes are kept.
    pub(crate) fn count(&self, from: &str, to: &str, bytes: usize) -> Option<Shares> {
        let (receiver, sender) = (self.receivers.force(to), self.senders.force(from));
        Some(Shares::Direct { _receiver: receiver, _sender: sender, _bytes: self.bytes.charge(bytes)? })
    }

    /// Adds a message that is about to be stored, unless it is there already.
    pub(crate) fn add(&self, kept: Kept, shares: Shares) {
        let entry = Entry { timer: None, state: State::Storing, _shares: shares, kept };
        let mut by_receiver = lock(&self.by_receiver);
        let entries = by_receiver.entry(entry.kept.to.clone()).or_default();
        entries.entry(entry.kept.number).or_insert(entry);
    }

    /// Records that the timer of a message is stored. Returns whether the message can be sent.
    pub(crate) fn stored(&self, to: &str, number: u64, timer: TimerId) -> bool {
        self.update(to, number, |entry| {
            entry.timer = Some(timer);
            if entry.state == State::Storing {
                entry.state = State::Waiting;
            }
            entry.state == State::Waiting
        })
        .unwrap_or(false)
    }

    /// Returns the next message to send, with at most `max_bytes` of texts.
    pub(crate) fn next(&self, to: &str, max_bytes: usize) -> Next {
        let mut by_receiver = lock(&self.by_receiver);
        let mut entries = by_receiver.get_mut(to).into_iter().flat_map(BTreeMap::values_mut);
        match entries.find(|entry| entry.state == State::Waiting) {
            None => Next::Empty,
            Some(entry) if entry.kept.len() > max_bytes => Next::TooLarge,
            Some(entry) => {
                entry.state = State::Sent;
                Next::Message(entry.kept.clone())
            }
        }
    }

    /// Records that a message was sent and not acknowledged.
    pub(crate) fn hold(&self, to: &str, number: u64) {
        self.update(to, number, |entry| entry.state = State::Held);
    }

    /// Allows the messages of a user that has just logged in to be sent again.
    pub(crate) fn log_in(&self, to: &str) {
        if let Some(entries) = lock(&self.by_receiver).get_mut(to) {
            for entry in entries.values_mut().filter(|entry| entry.state == State::Held) {
                entry.state = State::Waiting;
            }
        }
    }

    pub(crate) fn contains(&self, to: &str, number: u64) -> bool {
        self.update(to, number, |_| ()).is_some()
    }

    /// Removes a message that was acknowledged, or has expired. Returns it with its timer.
    pub(crate) fn remove(&self, to: &str, number: u64) -> Option<(Kept, Option<TimerId>)> {
        let mut by_receiver = lock(&self.by_receiver);
        let entries = by_receiver.get_mut(to)?;
        let entry = entries.remove(&number)?;
        if entries.is_empty() {
            by_receiver.remove(to);
        }
        Some((entry.kept, entry.timer))
    }

    /// Returns whether no more messages fit into memory.
    pub(crate) fn is_full(&self) -> bool {
        self.receivers.is_full()
    }

    fn update<T>(&self, to: &str, number: u64, f: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        lock(&self.by_receiver).get_mut(to)?.get_mut(&number).map(f)
    }
}

/// The next message of a user.
pub(crate) enum Next {
    Message(Kept),
    /// There is one, but it has too many bytes at the moment.
    TooLarge,
    Empty,
}
