//! The names in use at all servers of the store: a map, with a replica at each server.
//!
//! The key of an entry is the skeleton of a name, so that no other server has a name that looks
//! like it. Its owner is the server of the user. The store removes the entry when the lease of that
//! server ends. A client that resumes at another server takes its own entry over, and the server
//! that had it ends its session.

use super::resume_token::Claim;
use crate::{hub::lock, name};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use netwheel::{
    Completion, Error, Result,
    broker::{MapCondition, MapEntry, MapEvent, MapTopic, Position, Topics},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

/// The topic of the map.
const TOPIC: &str = "users";
/// Maximum number of users at all servers.
const MAX_USERS: usize = 1_000_000;
/// Maximum bytes of their entries.
const MAX_BYTES: usize = 256 * 1024 * 1024;
/// Maximum number of logins and ends of sessions that the store has not answered.
const MAX_PENDING: usize = 100_000;

pub(crate) struct Names {
    topics: Topics,
    map: MapTopic,
    /// The name of this server.
    node: String,
    /// The skeletons of names whose release was refused because too many operations are unanswered.
    /// At most those of the entries that this server holds.
    unreleased: Arc<Mutex<BTreeSet<String>>>,
}

/// The value of an entry.
#[derive(Serialize, Deserialize)]
struct Entry {
    name: String,
    /// The claim of the client, as text.
    claim: String,
    /// Time of login, in milliseconds since 1970 (UTC).
    since: u64,
}

/// The answer of the store to a login.
pub(crate) enum NameAnswer {
    Granted,
    Taken {
        /// The name of the user that has it, perhaps at another server.
        by: Arc<str>,
        /// Whether the name may be free soon, or is free by now.
        may_be_free: bool,
    },
    Failed(Error),
}

/// A user of another server.
pub(crate) struct UserElsewhere {
    /// The name of the server.
    pub(crate) node: String,
    /// Time of login, in milliseconds since 1970 (UTC).
    pub(crate) since: u64,
}

impl Names {
    /// Opens the map for the server `node`. `lost` is called with the skeleton of each name that
    /// another server has taken over.
    ///
    /// # Errors
    /// Fails if there are too many topics.
    pub(crate) fn open(
        topics: &Topics,
        node: &str,
        lost: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self> {
        let on_event = move |event: MapEvent<'_>| {
            if let MapEvent::Lost { key, .. } = event
                && let Ok(looks) = std::str::from_utf8(key)
            {
                lost(looks);
            }
        };
        let map = topics.map(TOPIC).max_entries(MAX_USERS as u64).max_bytes(MAX_BYTES);
        let map = map.max_held(MAX_USERS).max_pending(MAX_PENDING).on_event(on_event).open()?;
        Ok(Names { topics: topics.clone(), map, node: node.to_owned(), unreleased: Arc::default() })
    }

    /// Acquires a name for this server, if it is free or if the same claim has it. Completes with
    /// `None` if it is neither. `is_shown` tells whether a user of this server may have it already.
    pub(crate) fn take(
        &self,
        user: &str,
        claim: Claim,
        since: u64,
        is_shown: bool,
    ) -> Completion<Option<Position>> {
        let looks = name::looks(user);
        // Without a user here, an entry of this server is about to be removed.
        let may_be_taken =
            |found: &MapEntry| self.is_free(found, user, claim) || is_shown && is_of_node(found, &self.node);
        let condition = match self.map.get(&looks) {
            Some(found) if may_be_taken(&found) => MapCondition::Unchanged(found.position),
            _ => MapCondition::Absent,
        };
        let entry = Entry { name: user.to_owned(), claim: text(claim), since };
        match serde_json::to_vec(&entry) {
            Ok(value) => self.map.hold(looks, value, Some(condition)),
            Err(error) => unreachable!("an entry is always JSON: {error}"),
        }
    }

    /// Returns the answer to a login whose name is not free.
    pub(crate) fn taken(&self, user: &str, claim: Claim) -> NameAnswer {
        let found = self.map.get(name::looks(user));
        // An entry of this server is about to be removed, because the name is not in use here. So
        // may be the one of an earlier connection of the client.
        let may_be_free =
            |found: &MapEntry| is_of_node(found, &self.node) || self.is_free(found, user, claim);
        let may_be_free = found.as_ref().is_none_or(may_be_free);
        let entry = found.and_then(|found| Entry::parse(&found));
        NameAnswer::Taken { by: entry.map_or_else(|| user.into(), |entry| entry.name.into()), may_be_free }
    }

    /// Returns whether an entry may be taken over: if the same client has it at another server, or
    /// if it is one of an earlier process of this server.
    fn is_free(&self, found: &MapEntry, user: &str, claim: Claim) -> bool {
        if is_of_node(found, &self.node) {
            return found.owner != self.topics.authority();
        }
        Entry::parse(found).is_some_and(|entry| entry.is_of(user, claim))
    }

    /// Returns whether this server holds a name.
    pub(crate) fn holds(&self, user: &str) -> bool {
        self.map.holds(name::looks(user))
    }

    /// Releases a name of this server.
    pub(crate) fn release(&self, user: &str) {
        self.release_looks(name::looks(user));
    }

    pub(super) fn release_looks(&self, looks: String) {
        let unreleased = Arc::downgrade(&self.unreleased);
        self.map.release(looks.clone()).on_complete(move |released| {
            // After other errors, the map removes the entry later.
            if let (Err(Error::Full { .. }), Some(unreleased)) = (released, unreleased.upgrade()) {
                lock(&unreleased).insert(looks);
            }
        });
    }

    /// Takes the skeletons of names that could not be released.
    pub(super) fn take_unreleased(&self) -> BTreeSet<String> {
        std::mem::take(&mut *lock(&self.unreleased))
    }

    /// Returns when the client with this claim has logged in at another server.
    pub(crate) fn since(&self, user: &str, claim: Claim) -> Option<u64> {
        let (_, entry) = self.elsewhere(&name::looks(user))?;
        entry.is_of(user, claim).then_some(entry.since)
    }

    /// Returns where a user of another server is.
    pub(crate) fn find(&self, user: &str) -> Option<UserElsewhere> {
        let (found, entry) = self.elsewhere(&name::looks(user)).filter(|(_, entry)| entry.name == user)?;
        Some(UserElsewhere { node: found.owner?.name().to_owned(), since: entry.since })
    }

    /// Returns the entry of a skeleton, if another server owns it.
    fn elsewhere(&self, looks: &str) -> Option<(MapEntry, Entry)> {
        let found = self.map.get(looks)?;
        let entry = Entry::parse(&found)?;
        (!is_of_node(&found, &self.node)).then_some((found, entry))
    }
}

impl Entry {
    fn parse(found: &MapEntry) -> Option<Self> {
        serde_json::from_slice(&found.value).ok()
    }

    fn is_of(&self, user: &str, claim: Claim) -> bool {
        self.name == user && self.claim == text(claim)
    }
}

fn is_of_node(found: &MapEntry, node: &str) -> bool {
    found.owner.as_ref().is_some_and(|owner| owner.name() == node)
}

/// A claim as text. It need not be secret, because a token has a signature, too.
fn text(claim: Claim) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(claim.as_bytes())
}
