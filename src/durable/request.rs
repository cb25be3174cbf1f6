//! `Request`: a task for the thread of the store.

use crate::durable::{
    TimerId,
    dead_work::DeadWork,
    engine::{Permit, Purpose},
    starting::Starting,
    store::{Change, DueKey, Effect, LoadRange, NewTimer, TimerStore},
};
use crate::{Error, sync::Completer};
use std::collections::VecDeque;

/// Something that a program wants to know about the store.
pub(in crate::durable) type Query = Box<dyn FnOnce(Result<&mut dyn TimerStore, Error>) + Send>;

/// What the thread is asked to do.
pub(in crate::durable) enum Request {
    Change {
        change: Change,
        reply: Reply,
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
pub(in crate::durable) enum Reply {
    /// The program, and the engine.
    Start(Starting),
    /// The engine.
    Engine(TimerId, Purpose),
}

impl Reply {
    /// Returns whether somebody waits for the commit.
    pub(in crate::durable) fn is_awaited(&self) -> bool {
        !matches!(self, Reply::Engine(_, Purpose::End))
    }
}

/// Tells the programs whose requests came after the store was closed.
pub(in crate::durable) fn refuse(requests: impl Iterator<Item = Request>) {
    for request in requests {
        match request {
            Request::Change { reply: Reply::Start(starting), .. } => starting.complete(Err(Error::ShutDown)),
            Request::StartMany(starts) => {
                starts.into_iter().for_each(|(_, starting)| starting.complete(Err(Error::ShutDown)));
            }
            Request::Query(query) => query(Err(Error::ShutDown)),
            Request::Transaction { reply, .. } => reply(Err(Error::ShutDown)),
            Request::Pause { completer, .. } => completer.complete(Err(Error::ShutDown)),
            Request::DeadWork(work) => work.finish(Some(Error::ShutDown)),
            Request::Close(completers) => {
                completers.into_iter().for_each(|completer| completer.complete(Ok(())));
            }
            // Those of the engine, which has stopped.
            Request::Change { .. }
            | Request::Load(_)
            | Request::Survey { .. }
            | Request::Drain
            | Request::Renew { .. }
            | Request::Look { .. }
            | Request::Prune => {}
        }
    }
}
