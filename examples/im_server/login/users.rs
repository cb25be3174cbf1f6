//! The names in use.
//!
//! Invariant: a name, and every name that looks like it, belongs to at most one connection: the
//! newest one of its claim. An earlier connection of the same claim is replaced.

use super::resume_token::Claim;
use crate::{name, session::Session};
use netwheel::{ChannelId, HandlerRef};
use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

#[derive(Default)]
pub(crate) struct Users {
    by_name: BTreeMap<Arc<str>, User>,
    /// Maps the skeleton of each name in use to that name.
    looks: BTreeMap<String, Arc<str>>,
}

/// A user that is logged in.
struct User {
    session: HandlerRef<Session>,
    who: ChannelId,
    claim: Claim,
    /// Time of login, in milliseconds since 1970 (UTC).
    since: u64,
    rooms: BTreeSet<Arc<str>>,
}

/// Directory entry of a name.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    /// Time of login; `None` if no user with that name is logged in.
    pub(crate) since: Option<u64>,
    /// Rooms in alphabetical order.
    pub(crate) rooms: Vec<String>,
}

/// A connection that logs in.
pub(crate) struct Login {
    pub(crate) session: HandlerRef<Session>,
    pub(crate) who: ChannelId,
    pub(crate) claim: Claim,
    /// Time of the login, in milliseconds since 1970 (UTC).
    pub(crate) since: u64,
}

/// A name that was given to a session.
pub(crate) struct LoggedIn {
    pub(crate) user: Arc<str>,
    /// The session of the same claim that had the name.
    pub(crate) replaced: Option<HandlerRef<Session>>,
}

impl Users {
    /// Reserves a name for a session.
    ///
    /// # Errors
    /// Returns the name in conflict: the same name of another claim, or one that looks like it.
    pub(crate) fn log_in(&mut self, name: &str, login: Login) -> Result<LoggedIn, Arc<str>> {
        let Login { session, who, claim, since } = login;
        let new = |since| User { session, who, claim, since, rooms: BTreeSet::new() };
        match self.looks.entry(name::looks(name)) {
            Entry::Vacant(free) => {
                let name: Arc<str> = name.into();
                free.insert(name.clone());
                self.by_name.insert(name.clone(), new(since));
                Ok(LoggedIn { user: name, replaced: None })
            }
            Entry::Occupied(taken) => {
                let taken = taken.get().clone();
                match self.by_name.get_mut(&taken).filter(|user| *taken == *name && user.claim == claim) {
                    Some(user) => {
                        let replaced = std::mem::replace(user, new(user.since));
                        Ok(LoggedIn { user: taken, replaced: Some(replaced.session) })
                    }
                    None => Err(taken),
                }
            }
        }
    }

    /// Releases the name of a session, unless another session has replaced it.
    pub(crate) fn release(&mut self, name: &str, who: ChannelId) {
        if self.of(name, who).is_some() {
            self.by_name.remove(name);
            self.looks.remove(&name::looks(name));
        }
    }

    /// Returns the session of a user. The session may be about to end.
    pub(crate) fn find(&self, name: &str) -> Option<HandlerRef<Session>> {
        self.by_name.get(name).map(|user| user.session.clone())
    }

    /// Returns the current directory entry of a name.
    pub(crate) fn profile(&self, name: &str) -> Profile {
        match self.by_name.get(name) {
            Some(user) => Profile {
                since: Some(user.since),
                rooms: user.rooms.iter().map(|room| room.to_string()).collect(),
            },
            None => Profile::default(),
        }
    }

    /// Records that a session has joined a room.
    pub(crate) fn joined(&mut self, name: &str, who: ChannelId, room: &Arc<str>) {
        if let Some(user) = self.of(name, who) {
            user.rooms.insert(room.clone());
        }
    }

    /// Records that a session has left a room.
    pub(crate) fn left(&mut self, name: &str, who: ChannelId, room: &str) {
        if let Some(user) = self.of(name, who) {
            user.rooms.remove(room);
        }
    }

    fn of(&mut self, name: &str, who: ChannelId) -> Option<&mut User> {
        self.by_name.get_mut(name).filter(|user| user.who == who)
    }
}
