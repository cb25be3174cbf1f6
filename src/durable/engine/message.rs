//! Input and output of the engine: [`EngineMessage`] and [`EngineStep`].

use super::{permit::Permit, run::Firing};
use crate::{
    durable::{
        id::TimerId,
        store::{Change, DueKey, Effect, Lease, LoadRange, Loaded, Outcome, TimerRow, TopicSet},
    },
    error::Error,
    sync::Completer,
};
use std::collections::BTreeSet;

/// The answer of a handler.
pub(in crate::durable) enum RunAnswer {
    Done(Option<Effect>),
    Skip,
    Failed(String),
}

/// A command of the program on one timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::durable) enum TimerCommand {
    Cancel,
    MoveTo(i64),
    RunNow,
}

/// The reason for a change that the engine requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::durable) enum Purpose {
    /// A command of the program.
    TimerCommand,
    /// A run that needs the store's permission before its handler is called.
    Permission,
    /// The end of a run. No caller waits for it.
    End,
}

/// A command and its completion.
pub(in crate::durable) struct Asked {
    pub(in crate::durable) id: TimerId,
    pub(in crate::durable) command: TimerCommand,
    pub(in crate::durable) completer: Completer<bool>,
    pub(in crate::durable) permit: Permit,
}

/// What happened, in the order in which the store's thread saw it.
pub(in crate::durable) enum EngineMessage {
    /// A timer was stored.
    Stored(TimerRow),
    /// Timers were stored that the engine does not receive, because its inbox was full.
    StartsDropped,
    /// A change of the engine was made.
    Changed { id: TimerId, outcome: Outcome },
    /// The change of a command failed, and the command with it.
    CommandFailed { id: TimerId, error: Error },
    /// Timers were loaded.
    Loaded { range: LoadRange, loaded: Loaded },
    /// A load failed, and may be repeated.
    LoadFailed,
    /// A timer is being stored in a transaction of the program.
    StartHinted,
    /// The store has looked for timers of others. They came before, as stored timers.
    Looked,
    /// Periodic timers that are due far in the future, without their payloads. `None` if the store
    /// could not be asked.
    Surveyed { rows: Option<Vec<TimerRow>> },
    /// Leases were renewed. `asked` is the loop's time before the request. `lease` is `None` if the
    /// store could not be reached. `changed` are timers that other nodes have changed.
    Renewed { asked: u64, lease: Option<Lease>, changed: Loaded },
    /// These topics are paused now, and the others are not. Completes a pause or its end.
    Paused { topics: TopicSet, pausing: Option<(Completer<bool>, Permit)> },
    /// Dead letters were removed. `is_complete` if none is too old or surplus any more.
    Pruned { is_complete: bool },
    /// The store cannot go on.
    Stopped(Error),
    /// A handler has answered. `run` is the number of its run.
    Answered { id: TimerId, run: u64, answer: RunAnswer },
    /// The program asks for something.
    Asked(Asked),
    /// Do not fire any more, and close the store when the runs have ended.
    Close(Completer<()>),
    /// Close the store now.
    CloseNow,
}

impl EngineMessage {
    /// Completes the operation behind a message that no engine receives any more.
    pub(super) fn refuse(self) {
        match self {
            EngineMessage::Asked(asked) => asked.completer.complete(Err(Error::ShutDown)),
            EngineMessage::Close(completer) => completer.complete(Ok(())),
            _ => {}
        }
    }
}

impl RunAnswer {
    /// Has the driver drop an answer that is not carried out.
    pub(super) fn discard(self, steps: &mut Vec<EngineStep>) {
        if let RunAnswer::Done(Some(effect)) = self {
            steps.push(EngineStep::Discard(effect));
        }
    }
}

/// An action for the driver.
pub(in crate::durable) enum EngineStep {
    /// Call the handler.
    Fire(Firing),
    /// Pass the change to the store.
    Change { id: TimerId, change: Change, purpose: Purpose },
    /// Drop the effect of an answer that came too late. Its destructor may call the engine, so the
    /// driver drops it without the lock.
    Discard(Effect),
    /// Load timers.
    Load(LoadRange),
    /// Remove dead letters that are too old or too many.
    Prune,
    /// Read periodic timers that are due far in the future.
    Survey { after: DueKey, limit: usize },
    /// Give back the partitions without open runs with the next renewals, before the store is
    /// closed.
    Drain,
    /// Renew leases; `until` is the due time up to which changes of others matter, and `busy` has
    /// the partitions of at-most-once runs that are open.
    Renew { asked: u64, until: i64, busy: BTreeSet<u32> },
    /// Look for timers that other connections have stored, and that are due by `until`.
    Look { until: i64 },
    /// Complete a command.
    Complete(Completer<bool>, Result<bool, Error>),
    /// Fail these calls of `close`: the store has failed before.
    FailClose(Vec<Completer<()>>, Error),
    /// Close the store, then complete these.
    Close(Vec<Completer<()>>),
}
