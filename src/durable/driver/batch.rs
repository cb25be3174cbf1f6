//! `CommitBatch`: changes that share a transaction, with their replies.
//!
//! Invariant: each change has a reply. The engine receives the outcomes in the order of the
//! changes.

use crate::durable::{
    engine::{EngineInbox, EngineMessage, Purpose},
    metrics::Metrics,
    request::StoreReply,
    store::{Change, Outcome},
};
use crate::error::{Error, drop_guarded};

#[derive(Default)]
pub(super) struct CommitBatch {
    changes: Vec<Change>,
    replies: Vec<StoreReply>,
    /// How many of the replies are [awaited](Reply::is_awaited).
    awaited: usize,
}

impl CommitBatch {
    pub(super) fn push(&mut self, change: Change, reply: StoreReply) {
        self.awaited += usize::from(reply.is_awaited());
        self.changes.push(change);
        self.replies.push(reply);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Returns the number of starts and commands.
    pub(super) fn awaited(&self) -> usize {
        self.awaited
    }

    /// Returns the first changes.
    pub(super) fn changes(&mut self, count: usize) -> &mut [Change] {
        &mut self.changes[..count]
    }

    /// Moves the changes of another batch to the end of this one.
    pub(super) fn append(&mut self, other: &mut CommitBatch) {
        self.changes.append(&mut other.changes);
        self.replies.append(&mut other.replies);
        self.awaited += std::mem::take(&mut other.awaited);
    }

    /// Takes the first changes out.
    pub(super) fn take_first(&mut self, count: usize) -> CommitBatch {
        let changes = self.changes.drain(..count).collect();
        let replies: Vec<StoreReply> = self.replies.drain(..count).collect();
        let awaited = replies.iter().filter(|reply| reply.is_awaited()).count();
        self.awaited -= awaited;
        CommitBatch { changes, replies, awaited }
    }

    /// Delivers the outcomes of the first changes, and takes these out.
    ///
    /// The engine holds no timer that is due after `loaded_until`. It would drop such a start,
    /// after the loop was woken for it.
    pub(super) fn deliver(
        &mut self,
        outcomes: Vec<Outcome>,
        loaded_until: i64,
        inbox: &EngineInbox,
        metrics: &Metrics,
    ) {
        let mut messages = Vec::with_capacity(self.replies.len());
        let mut completed = Vec::new();
        let CommitBatch { changes, replies, .. } = self.take_first(outcomes.len());
        for (reply, outcome) in replies.into_iter().zip(outcomes) {
            match reply {
                StoreReply::Start(starting) => {
                    let result = match &outcome {
                        Outcome::Started(row) => {
                            metrics.started.add(1);
                            Ok(row.key.id)
                        }
                        Outcome::AlreadyStarted { id, .. } => Ok(*id),
                        Outcome::Refused(error) => Err(error.clone().into()),
                        _ => Err(Error::other("the store did not start the timer")),
                    };
                    let is_far = matches!(&outcome, Outcome::Started(row) if row.key.due > loaded_until);
                    if !is_far {
                        messages.extend(outcome.into_row().map(EngineMessage::Stored));
                    }
                    completed.push((starting, result));
                }
                StoreReply::Engine(id, _) => messages.push(EngineMessage::Changed { id, outcome }),
            }
        }
        // The engine first: a program whose start is completed may move the timer at once.
        inbox.tell_all(messages);
        completed.into_iter().for_each(|(starting, result)| starting.complete(result));
        // Effects hold values of the program.
        changes.into_iter().for_each(drop_guarded);
    }

    /// Fails starts and commands. Changes of runs stay.
    pub(super) fn refuse_awaited(&mut self, error: &Error, inbox: &EngineInbox) {
        let changes = std::mem::take(&mut self.changes);
        let mut messages = Vec::new();
        for (change, reply) in changes.into_iter().zip(self.take()) {
            match reply {
                StoreReply::Start(starting) => starting.complete(Err(error.clone())),
                StoreReply::Engine(id, Purpose::TimerCommand) => {
                    messages.push(EngineMessage::CommandFailed { id, error: error.clone() });
                }
                StoreReply::Engine(..) => self.push(change, reply),
            }
        }
        inbox.tell_all(messages);
    }

    /// Fails all starts. Called after [`EngineMessage::Stopped`], with which the engine fails its
    /// commands.
    pub(super) fn refuse(&mut self, error: &Error) {
        for reply in self.take() {
            if let StoreReply::Start(starting) = reply {
                starting.complete(Err(error.clone()));
            }
        }
    }

    fn take(&mut self) -> Vec<StoreReply> {
        self.changes.drain(..).for_each(drop_guarded);
        self.awaited = 0;
        std::mem::take(&mut self.replies)
    }
}
