//! The names in use at this server.
//!
//! Invariant: a name, and every name that looks like it, belongs to at most one connection: the
//! newest one of its claim. An earlier connection of the same claim is replaced. A name is in use
//! from the login on, also while the store of all names is asked for it.

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
    state: NameState,
}

/// What the store of all names has said about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameState {
    /// Nothing yet.
    Asked,
    /// Nothing yet, although the session has ended.
    Abandoned,
    /// The name is not free. The session may ask again.
    Refused,
    /// The name belongs to this server. The session does not know it yet.
    Granted,
    /// The session has its name.
    Held,
    /// The name belongs to another server by now. The session is about to end.
    Lost,
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
    /// Whether the name belongs to this server, so that the store need not be asked.
    pub(crate) is_held: bool,
    /// Whether the store has to be asked.
    pub(super) must_ask: bool,
}

impl Users {
    /// Reserves a name for a session.
    ///
    /// # Errors
    /// Returns the name in conflict: the same name of another claim, or one that looks like it.
    pub(crate) fn log_in(&mut self, name: &str, login: Login) -> Result<LoggedIn, Arc<str>> {
        let Login { session, who, claim, since } = login;
        let (rooms, state) = (BTreeSet::new(), NameState::Asked);
        let mut new = User { session, who, claim, since, rooms, state };
        match self.looks.entry(name::looks(name)) {
            Entry::Vacant(free) => {
                let user: Arc<str> = name.into();
                free.insert(user.clone());
                self.by_name.insert(user.clone(), new);
                Ok(LoggedIn { user, replaced: None, is_held: false, must_ask: true })
            }
            Entry::Occupied(taken) => {
                let taken = taken.get().clone();
                let same = self.by_name.get_mut(&taken).filter(|user| *taken == *name && user.claim == claim);
                let Some(user) = same else { return Err(taken) };
                // A name that is asked for is not asked for again.
                new.state = match user.state {
                    NameState::Abandoned | NameState::Refused | NameState::Lost => NameState::Asked,
                    state => state,
                };
                new.since = user.since;
                let must_ask = matches!(user.state, NameState::Refused | NameState::Lost);
                let is_held = matches!(new.state, NameState::Granted | NameState::Held);
                let replaced = std::mem::replace(user, new);
                Ok(LoggedIn { user: taken, replaced: Some(replaced.session), is_held, must_ask })
            }
        }
    }

    /// Records the answer of the store. Returns the session that waits for it. `None` if that has
    /// ended, and the name is free again.
    pub(crate) fn answered(&mut self, name: &str, is_granted: bool) -> Option<HandlerRef<Session>> {
        let user = self.by_name.get_mut(name)?;
        match user.state {
            NameState::Asked => {
                user.state = if is_granted { NameState::Granted } else { NameState::Refused };
                return Some(user.session.clone());
            }
            NameState::Abandoned => self.remove(name),
            _ => {}
        }
        None
    }

    /// Records that the store is asked again for the name of a session. Returns whether that is
    /// useful.
    pub(crate) fn ask_again(&mut self, name: &str, who: ChannelId) -> bool {
        let user = self.of(name, who).filter(|user| user.state == NameState::Refused);
        user.map(|user| user.state = NameState::Asked).is_some()
    }

    /// Records that a session has its name. From now on it is found.
    pub(crate) fn confirm(&mut self, name: &str, who: ChannelId) {
        if let Some(user) = self.of(name, who).filter(|user| user.state == NameState::Granted) {
            user.state = NameState::Held;
        }
    }

    /// Records that the name with this skeleton belongs to another server. Returns the session that
    /// had it.
    pub(crate) fn lost(&mut self, looks: &str) -> Option<HandlerRef<Session>> {
        let user = self.by_name.get_mut(self.looks.get(looks)?)?;
        let had_name = matches!(user.state, NameState::Granted | NameState::Held);
        had_name.then(|| {
            user.state = NameState::Lost;
            user.session.clone()
        })
    }

    /// Releases the name of a session, unless another session has replaced it. Returns whether the
    /// store has granted the name.
    pub(crate) fn release(&mut self, name: &str, who: ChannelId) -> bool {
        let Some(user) = self.of(name, who) else { return false };
        let state = user.state;
        if state == NameState::Asked {
            user.state = NameState::Abandoned;
            return false;
        }
        self.remove(name);
        matches!(state, NameState::Granted | NameState::Held)
    }

    fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
        self.looks.remove(&name::looks(name));
    }

    /// Returns the session of a user. The session may be about to end.
    pub(crate) fn find(&self, name: &str) -> Option<HandlerRef<Session>> {
        self.held(name).map(|user| user.session.clone())
    }

    fn held(&self, name: &str) -> Option<&User> {
        self.by_name.get(name).filter(|user| user.state == NameState::Held)
    }

    /// Returns the current directory entry of a name.
    pub(crate) fn profile(&self, name: &str) -> Profile {
        match self.held(name) {
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
