//! Clients that wait for the copies of their own messages.
//!
//! A message may be stored before it is delivered, by another thread. Replies to later requests of
//! its sender wait until the copy is in the queue of the sender's loop.

use crate::{
    hub::{self, lock},
    ordered_replies::Unanswered,
    session::Session,
};
use netwheel::{HandlerRef, broker::Position};
use std::sync::Mutex;

#[derive(Default)]
pub(super) struct OwnCopies(Mutex<State<(HandlerRef<Session>, Unanswered)>>);

struct State<C> {
    /// The position up to which messages were delivered.
    delivered: Option<Position>,
    /// The epoch before that of `delivered`.
    last_epoch: Option<u64>,
    waiting: Vec<(Position, C)>,
}

impl<C> Default for State<C> {
    fn default() -> Self {
        State { delivered: None, last_epoch: None, waiting: Vec::new() }
    }
}

impl<C> State<C> {
    /// Returns the clients whose copies were delivered, or will not be.
    fn delivered(&mut self, at: Position) -> Vec<C> {
        let before = self.delivered.replace(at).map(|before| before.epoch);
        let is_new_epoch = before != Some(at.epoch);
        if is_new_epoch {
            self.last_epoch = before;
        }
        // A message of another epoch is of one that has not been delivered yet, until an epoch
        // begins here.
        let is_waiting =
            |other: Position| if other.epoch == at.epoch { other.offset > at.offset } else { !is_new_epoch };
        self.waiting.extract_if(.., |(other, _)| !is_waiting(*other)).map(|(_, client)| client).collect()
    }

    /// Returns whether a message was delivered. The client waits if not.
    fn wait_for(&mut self, at: Position, client: C) -> bool {
        let is_before = |last: Position| last.epoch == at.epoch && last.offset >= at.offset;
        // A message of another epoch than the last two is of one that begins soon.
        let is_delivered = self.delivered.is_some_and(is_before) || self.last_epoch == Some(at.epoch);
        if !is_delivered {
            self.waiting.push((at, client));
        }
        is_delivered
    }
}

impl OwnCopies {
    /// Records that the messages up to a position were delivered, or will not be: the copies of
    /// their senders are in the queues of the loops.
    pub(super) fn delivered(&self, at: Position) {
        let done = lock(&self.0).delivered(at);
        done.into_iter().for_each(end);
    }

    /// Returns whether a message of a client was delivered. If not, the client is notified when it
    /// is.
    pub(super) fn wait_for(&self, at: Position, client: HandlerRef<Session>, request: Unanswered) -> bool {
        lock(&self.0).wait_for(at, (client, request))
    }

    /// Notifies all clients that wait.
    pub(super) fn release(&self) {
        let waiting = std::mem::take(&mut lock(&self.0).waiting);
        waiting.into_iter().for_each(|(_, client)| end(client));
    }
}

impl Drop for OwnCopies {
    /// The last member has left, so the copies do not come any more.
    fn drop(&mut self) {
        self.release();
    }
}

/// Notifies a client.
fn end((client, request): (HandlerRef<Session>, Unanswered)) {
    hub::run(&client, move |me, ctx| me.copy_delivered(ctx, request));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64, offset: u64) -> Position {
        Position::new(epoch, offset)
    }

    /// The store was restarted. The answer to the sender comes before the event.
    #[test]
    fn the_first_message_of_an_epoch_is_waited_for() {
        for first in [at(2, 18), at(2, 1)] {
            let mut state = State::default();
            state.delivered(at(1, 16));
            assert!(!state.wait_for(first, "ann"));
            assert!(state.delivered(at(1, 17)).is_empty(), "a message of the epoch before");
            assert!(state.delivered(at(2, first.offset - 1)).is_empty(), "the epoch has begun");
            assert_eq!(state.delivered(first), ["ann"]);
            assert!(state.wait_for(first, "ann"));
        }
    }

    #[test]
    fn messages_of_epochs_that_are_over_are_not_waited_for() {
        let mut state = State::default();
        state.delivered(at(1, 16));
        assert!(!state.wait_for(at(1, 17), "ann"));
        assert!(!state.wait_for(at(2, 18), "bob"));
        // All messages of the second epoch were lost.
        assert_eq!(state.delivered(at(3, 16)), ["ann", "bob"]);
        assert!(state.wait_for(at(1, 17), "ann"));
    }
}
