//! `BodyFeed`: the loop's end of a request body.
//!
//! Invariants: each chunk that waits for the service is held as input of the channel, so the bound
//! is that of `ChannelOptions::inbound_mark`. Nothing of the program is called or dropped under the
//! lock. Dropping the feed releases everything that is held.

use crate::{
    channel::InputGuard,
    error::{Error, Result},
    sync::Locked,
};
use bytes::Bytes;
use http_types::HeaderMap;
use std::{collections::VecDeque, sync::Arc, task::Waker};

/// Passes the body of a request to the service.
pub(super) struct BodyFeed(Arc<Locked<FeedState>>);

/// The state that the feed shares with the [`RequestBody`](super::RequestBody).
#[derive(Default)]
pub(super) struct FeedState {
    pub(super) chunks: VecDeque<(Bytes, Option<InputGuard>)>,
    pub(super) end: Option<BodyEnd>,
    /// The bytes that the service has not taken, if the length is known.
    pub(super) left: Option<u64>,
    pub(super) waker: Option<Waker>,
    /// Whether the service has dropped the body.
    pub(super) is_dropped: bool,
    /// Reading is paused until the body is polled, because the client waits for `100 Continue`.
    pub(super) unasked: Option<Unasked>,
    /// The pause of a body that was polled, until the client gets `100 Continue`.
    pub(super) asked: Option<InputGuard>,
}

/// How a body has ended.
#[derive(Clone)]
pub(super) enum BodyEnd {
    Complete,
    Trailers(HeaderMap),
    Cut(Error),
}

/// Asks a client that waits for `100 Continue` for its body.
pub(super) struct Unasked {
    pub(super) pause: InputGuard,
    /// Has the loop ask the client. Returns whether the loop will.
    pub(super) ask: Box<dyn FnOnce() -> bool + Send>,
}

impl BodyFeed {
    /// Returns the feed of a body, whose length may be known, and the state for the body.
    pub(super) fn new(length: Option<u64>) -> (Self, Arc<Locked<FeedState>>) {
        let shared = Arc::new(Locked::new(FeedState { left: length, ..FeedState::default() }));
        (BodyFeed(shared.clone()), shared)
    }

    /// Asks for the body when it is polled for the first time.
    pub(super) fn ask_when_polled(&self, unasked: Unasked) {
        self.0.change(|state| ((), state.unasked.replace(unasked)));
    }

    /// Returns whether the body was polled and the client has not been asked. Ends the pause.
    pub(super) fn take_asked(&self) -> bool {
        self.0.change(|state| {
            let asked = state.asked.take();
            (asked.is_some(), asked)
        })
    }

    /// Returns whether the service has dropped the body.
    pub(super) fn is_dropped(&self) -> bool {
        self.0.read(|state| state.is_dropped)
    }

    /// Appends a chunk.
    pub(super) fn push(&self, chunk: Bytes, held: InputGuard) {
        wake(self.0.change(|state| {
            if state.is_dropped {
                return (None, Some((chunk, held)));
            }
            state.chunks.push_back((chunk, Some(held)));
            (state.waker.take(), None)
        }));
    }

    /// Ends the body.
    pub(super) fn end(&self, trailers: Result<HeaderMap>) {
        let end = match trailers {
            Ok(trailers) if trailers.is_empty() => BodyEnd::Complete,
            Ok(trailers) => BodyEnd::Trailers(trailers),
            Err(error) => BodyEnd::Cut(error),
        };
        wake(self.0.change(|state| {
            state.end = Some(end);
            (state.waker.take(), ())
        }));
    }
}

/// Wakes the service, outside of the lock.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Drop for BodyFeed {
    /// Ends a body of which parts are missing. A service may keep it beyond its response.
    fn drop(&mut self) {
        wake(self.0.change(|state| {
            if state.end.is_none() {
                state.end = Some(BodyEnd::Cut(Error::Closed));
            }
            // What has arrived stays readable, but no longer pauses the connection.
            let held: Vec<_> = state.chunks.iter_mut().filter_map(|(_, held)| held.take()).collect();
            (state.waker.take(), (held, state.unasked.take(), state.asked.take()))
        }));
    }
}
