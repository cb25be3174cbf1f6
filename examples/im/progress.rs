//! How far a client has come in its rooms, over connections.

use super::protocol::{Request, Resume};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

#[derive(Default)]
pub(crate) struct Progress(Mutex<State>);

#[derive(Default)]
struct State {
    /// The token, and the positions in the rooms in which the client is.
    resume: Resume,
    /// The rooms in which the user is away, with the number of messages at that time.
    away: BTreeMap<String, u64>,
    /// Whether the client has been in a room.
    has_joined: bool,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the requests at the begin of a connection. `first` is the room to join on the first
    /// one.
    pub(crate) fn requests(&self, user: &str, first: &str) -> Vec<Request> {
        let state = self.lock();
        let Resume { token, mut rooms } = state.resume.clone();
        // A client that resumes is active in a room, and gets the messages that it has not wanted.
        rooms.retain(|room, _| !state.away.contains_key(room));
        let joins_first = !state.has_joined || token.is_empty();
        let resume = (!token.is_empty()).then_some(Resume { token, rooms });
        let mut requests = vec![Request::Login { user: user.to_owned(), resume, unique_ids: false }];
        if joins_first {
            requests.push(Request::join(first));
        }
        for room in state.away.keys() {
            requests.extend([Request::join(room), Request::Passive { room: room.clone() }]);
        }
        requests
    }

    pub(crate) fn set_token(&self, token: String) {
        self.lock().resume.token = token;
    }

    /// Records that the client gets the messages of a room behind a position. A server before
    /// version 3 has none.
    pub(crate) fn joined(&self, room: String, epoch: Option<u64>, offset: Option<u64>) {
        let mut state = self.lock();
        state.has_joined = true;
        if let (Some(epoch), Some(offset)) = (epoch, offset) {
            state.resume.rooms.insert(room, (epoch, offset));
        }
    }

    /// Records the position of a message. One that was sent while the client was leaving the room
    /// may arrive when it has left.
    pub(crate) fn advance(&self, room: &str, epoch: Option<u64>, offset: Option<u64>) {
        if let (Some(epoch), Some(offset), Some(at)) = (epoch, offset, self.lock().resume.rooms.get_mut(room))
        {
            *at = (epoch, offset);
        }
    }

    pub(crate) fn left(&self, room: &str) {
        let mut state = self.lock();
        state.resume.rooms.remove(room);
        state.away.remove(room);
    }

    /// Records that the user is away from a room, which has had `total` messages.
    pub(crate) fn set_away(&self, room: String, total: u64) {
        self.lock().away.insert(room, total);
    }

    /// Records that the user is back in a room.
    pub(crate) fn set_back(&self, room: &str) {
        self.lock().away.remove(room);
    }

    /// Returns how many of `total` messages the user has not seen, because it is away.
    pub(crate) fn unread(&self, room: &str, total: u64) -> u64 {
        self.lock().away.get(room).map_or(0, |since| total.saturating_sub(*since))
    }
}
