//! Clients that wait for the copies of their own messages.
//!
//! A message may be stored before it is delivered, by another thread. Replies to later requests of
//! its sender wait until the copy is in the queue of the sender's loop.

use crate::{
    hub::{self, lock},
    session::Session,
};
use netwheel::{HandlerRef, broker::Position};
use std::sync::Mutex;

#[derive(Default)]
pub(super) struct OwnCopies(Mutex<State>);

#[derive(Default)]
struct State {
    /// The position up to which messages were delivered.
    delivered: Option<Position>,
    waiting: Vec<(Position, HandlerRef<Session>)>,
}

impl OwnCopies {
    /// Records that the messages up to a position were delivered, or will not be: the copies of
    /// their senders are in the queues of the loops.
    pub(super) fn delivered(&self, at: Position) {
        let mut state = lock(&self.0);
        state.delivered = Some(at);
        if state.waiting.is_empty() {
            return;
        }
        let is_waiting = |other: Position| other.epoch == at.epoch && other.offset > at.offset;
        let done: Vec<_> = state.waiting.extract_if(.., |(other, _)| !is_waiting(*other)).collect();
        drop(state);
        done.into_iter().for_each(end);
    }

    /// Returns whether a message of a client was delivered. If not, the client is notified when it
    /// is.
    pub(super) fn wait_for(&self, at: Position, client: HandlerRef<Session>) -> bool {
        let mut state = lock(&self.0);
        let is_delivered =
            state.delivered.is_some_and(|last| last.epoch != at.epoch || last.offset >= at.offset);
        if !is_delivered {
            state.waiting.push((at, client));
        }
        is_delivered
    }

    /// Notifies all clients that wait.
    pub(super) fn release(&self) {
        let waiting = std::mem::take(&mut lock(&self.0).waiting);
        waiting.into_iter().for_each(end);
    }
}

impl Drop for OwnCopies {
    /// The last member has left, so the copies do not come any more.
    fn drop(&mut self) {
        self.release();
    }
}

/// Notifies a client.
fn end((_, client): (Position, HandlerRef<Session>)) {
    hub::run(&client, |me, ctx| me.copy_delivered(ctx));
}
