//! `StoreRequest`: a task for the thread of the store.

use super::id::TimerId;
use crate::durable::{
    dead_work::DeadWork,
    engine::{Permit, Purpose},
    starting::Starting,
    store::{Change, DueKey, Effect, LoadRange, NewTimer, TimerStore},
};
use crate::{error::Error, sync::Completer};
use std::collections::{BTreeSet, VecDeque};

/// Something that a program wants to know about the store.
pub(in crate::durable) type Query = Box<dyn FnOnce(Result<&mut dyn TimerStore, Error>) + Send>;

/// What the thread is asked to do.
pub(in crate::durable) enum StoreRequest {
    Change {
        change: Change,
        reply: StoreReply,
    },
    /// Starts in their order, in as many transactions as the limit of a transaction asks for.
    StartMany(VecDeque<(NewTimer, Starting)>),
    Load(LoadRange),
    Survey {
        after: DueKey,
        limit: usize,
    },
    Drain,
    Renew {
        asked: u64,
        until: i64,
        /// The partitions of at-most-once runs that are open.
        busy: BTreeSet<u32>,
    },
    /// Looks for timers of other connections, due by `until`.
    Look {
        until: i64,
    },
    Query(Query),
    /// Pauses a topic, or lets it go on.
    Pause {
        topic: String,
        is_paused: bool,
        completer: Completer<bool>,
        permit: Permit,
    },
    /// Changes dead letters of a topic.
    DeadWork(DeadWork),
    /// Removes dead letters that are too old or too many.
    Prune,
    /// Runs work of the program in a transaction of its own.
    Transaction {
        work: Effect,
        reply: Box<dyn FnOnce(Result<(), Error>) + Send>,
    },
    /// Closes the store.
    Close(Vec<Completer<()>>),
}

/// The recipient of a change's outcome.
pub(in crate::durable) enum StoreReply {
    /// The program, and the engine.
    Start(Starting),
    /// The engine.
    Engine(TimerId, Purpose),
}

impl StoreReply {
    /// Returns whether a completion waits for the commit.
    pub(in crate::durable) fn is_awaited(&self) -> bool {
        !matches!(self, StoreReply::Engine(_, Purpose::End))
    }
}

/// Fails requests that arrived after the store was closed.
pub(in crate::durable) fn refuse(requests: impl IntoIterator<Item = StoreRequest>) {
    for request in requests {
        match request {
            StoreRequest::Change { reply: StoreReply::Start(starting), .. } => {
                starting.complete(Err(Error::ShutDown))
            }
            StoreRequest::StartMany(starts) => {
                starts.into_iter().for_each(|(_, starting)| starting.complete(Err(Error::ShutDown)));
            }
            StoreRequest::Query(query) => query(Err(Error::ShutDown)),
            StoreRequest::Transaction { reply, .. } => reply(Err(Error::ShutDown)),
            StoreRequest::Pause { completer, .. } => completer.complete(Err(Error::ShutDown)),
            StoreRequest::DeadWork(work) => work.finish(Some(Error::ShutDown)),
            StoreRequest::Close(completers) => {
                completers.into_iter().for_each(|completer| completer.complete(Ok(())));
            }
            // Those of the engine, which has stopped.
            StoreRequest::Change { .. }
            | StoreRequest::Load(_)
            | StoreRequest::Survey { .. }
            | StoreRequest::Drain
            | StoreRequest::Renew { .. }
            | StoreRequest::Look { .. }
            | StoreRequest::Prune => {}
        }
    }
}
