//! The names in use at this server.
//!
//! Invariant: a name, and every name that looks like it, belongs to at most one connection: the
//! newest one of its claim. An earlier connection of the same claim is replaced once the shared map
//! of names has granted the name to the newer one. A name is in use from the login on, also while
//! the map is asked for it.

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
    /// Whether a request for the name is in flight.
    is_asked: bool,
    /// Whether the map may have an entry of this server for the name.
    is_shown: bool,
    /// The user by an earlier connection, which has the name until the map has granted it to this
    /// one. Its state is `Held`.
    earlier: Option<Box<User>>,
}

/// The state of a name in the shared map of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameState {
    /// The request is in flight.
    Asked,
    /// The session has ended while a request is in flight.
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

/// A name that is reserved for a session.
pub(crate) struct Reserved {
    pub(crate) user: Arc<str>,
    /// A session of the same claim that waits for the name, too.
    pub(crate) replaced: Option<HandlerRef<Session>>,
    /// Whether the map has to be asked, because no request is in flight.
    pub(crate) must_ask: bool,
    /// Whether the map may have an entry of this server for the name.
    pub(crate) is_shown: bool,
}

/// The effect of an answer of the map.
pub(crate) enum Answered {
    /// This session waits for the answer.
    Waiting(HandlerRef<Session>),
    /// The session has ended. An earlier one still has the name.
    Unused,
    /// The session has ended, and the name is not in use any more.
    Free {
        /// Whether the map may have an entry of this server.
        is_shown: bool,
    },
}

impl Users {
    /// Reserves a name for a session.
    ///
    /// # Errors
    /// Returns the name in conflict: the same name of another claim, or one that looks like it.
    pub(crate) fn log_in(&mut self, name: &str, login: Login) -> Result<Reserved, Arc<str>> {
        let Login { session, who, claim, since } = login;
        let mut new = User {
            session,
            who,
            claim,
            since,
            rooms: BTreeSet::new(),
            state: NameState::Asked,
            is_asked: true,
            is_shown: false,
            earlier: None,
        };
        match self.looks.entry(name::looks(name)) {
            Entry::Vacant(free) => {
                let user: Arc<str> = name.into();
                free.insert(user.clone());
                self.by_name.insert(user.clone(), new);
                Ok(Reserved { user, replaced: None, must_ask: true, is_shown: false })
            }
            Entry::Occupied(taken) => {
                let taken = taken.get().clone();
                let same = self.by_name.get_mut(&taken).filter(|user| *taken == *name && user.claim == claim);
                let Some(user) = same else { return Err(taken) };
                let is_shown = user.is_shown;
                (new.since, new.is_shown) = (user.since, is_shown);
                let mut old = std::mem::replace(user, new);
                // The client may have been at another server in the meantime, which the replica of
                // this one does not show yet. So a name of this server is asked for, too.
                let must_ask = !old.is_asked;
                if old.state == NameState::Held {
                    user.earlier = Some(Box::new(old));
                    return Ok(Reserved { user: taken, replaced: None, must_ask, is_shown });
                }
                user.earlier = old.earlier.take();
                Ok(Reserved { user: taken, replaced: Some(old.session), must_ask, is_shown })
            }
        }
    }

    /// Records the answer of the map.
    pub(crate) fn answered(&mut self, name: &str, is_granted: bool) -> Answered {
        let Some(user) = self.by_name.get_mut(name) else {
            return Answered::Free { is_shown: is_granted };
        };
        user.is_shown |= is_granted;
        user.is_asked = false;
        match user.state {
            NameState::Asked => {
                user.state = if is_granted { NameState::Granted } else { NameState::Refused };
                Answered::Waiting(user.session.clone())
            }
            NameState::Abandoned => {
                let is_shown = user.is_shown;
                self.remove(name);
                Answered::Free { is_shown }
            }
            _ => Answered::Unused,
        }
    }

    /// Records that the map is asked again for the name of a session. Returns whether it may have
    /// an entry of this server. `None` if it need not be asked.
    pub(crate) fn ask_again(&mut self, name: &str, who: ChannelId) -> Option<bool> {
        let user = self.of(name, who).filter(|user| user.state == NameState::Refused)?;
        (user.state, user.is_asked) = (NameState::Asked, true);
        Some(user.is_shown)
    }

    /// Records that a session has its name. From now on it is found. Returns whether the name still
    /// belongs to it.
    pub(crate) fn confirm(&mut self, name: &str, who: ChannelId) -> bool {
        let user = self.of(name, who).filter(|user| user.state == NameState::Granted);
        user.map(|user| user.state = NameState::Held).is_some()
    }

    /// Takes the session that has had the name until it was granted to this one.
    pub(crate) fn take_earlier(&mut self, name: &str, who: ChannelId) -> Option<HandlerRef<Session>> {
        let user = self.of(name, who).filter(|user| user.state == NameState::Held)?;
        user.earlier.take().map(|earlier| earlier.session)
    }

    /// Records that the name with this skeleton belongs to another server. Returns the sessions
    /// that had it.
    pub(crate) fn lost(&mut self, looks: &str) -> Vec<HandlerRef<Session>> {
        let user = self.looks.get(looks).and_then(|name| self.by_name.get_mut(name));
        let Some(user) = user else { return Vec::new() };
        user.is_shown = false;
        let mut sessions: Vec<_> = user.earlier.take().map(|earlier| earlier.session).into_iter().collect();
        if matches!(user.state, NameState::Granted | NameState::Held) {
            user.state = NameState::Lost;
            sessions.push(user.session.clone());
        }
        sessions
    }

    /// Releases the name of a session. An earlier session that still has the name keeps it. Returns
    /// whether the name is not in use any more, and the map may have an entry of this server.
    pub(crate) fn release(&mut self, name: &str, who: ChannelId) -> bool {
        let Some(user) = self.by_name.get_mut(name) else { return false };
        if user.who != who {
            user.earlier.take_if(|earlier| earlier.who == who);
            return false;
        }
        if let Some(earlier) = user.earlier.take() {
            // A request of this session may still be in flight.
            let (is_shown, is_asked) = (user.is_shown, user.is_asked);
            *user = *earlier;
            (user.is_shown, user.is_asked) = (is_shown, is_asked);
            return false;
        }
        if user.is_asked {
            user.state = NameState::Abandoned;
            return false;
        }
        let is_shown = user.is_shown;
        self.remove(name);
        is_shown
    }

    /// Returns whether a user has a name with this skeleton, so that its end releases the name.
    pub(crate) fn is_shown(&self, looks: &str) -> bool {
        let user = self.looks.get(looks).and_then(|name| self.by_name.get(name));
        user.is_some_and(|user| user.is_shown)
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
        let user = self.by_name.get(name)?;
        if user.state == NameState::Held { Some(user) } else { user.earlier.as_deref() }
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

    /// Returns the user by one of its connections.
    fn of(&mut self, name: &str, who: ChannelId) -> Option<&mut User> {
        let user = self.by_name.get_mut(name)?;
        if user.who == who {
            return Some(user);
        }
        user.earlier.as_deref_mut().filter(|earlier| earlier.who == who)
    }
}
