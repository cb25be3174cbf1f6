//! `Starting`: the waiter of a start.

use super::{engine::Permit, id::TimerId};
use crate::{
    error::{Error, Result},
    machine::Mutex,
    sync::Completer,
};
use std::sync::Arc;

/// The completion of a start, or a place in that of many. Its permit is held until shortly before.
pub(super) enum Starting {
    One(Completer<TimerId>, Permit),
    Many(Arc<StartingMany>, usize, Permit),
}

impl Starting {
    pub(super) fn complete(self, result: Result<TimerId>) {
        // The permit is free when the program learns of the result.
        match self {
            Starting::One(completer, permit) => {
                drop(permit);
                completer.complete(result);
            }
            Starting::Many(many, index, permit) => {
                drop(permit);
                many.set(index, result);
            }
        }
    }
}

/// The completion of many starts. If it is dropped before all of them have ended, it fails.
pub(super) struct StartingMany(Mutex<State>);

struct State {
    results: Vec<Result<TimerId>>,
    /// How many starts have no result.
    left: usize,
    completer: Option<Completer<Vec<Result<TimerId>>>>,
}

impl StartingMany {
    /// Creates the completion of `count` starts, which must not be zero.
    pub(super) fn new(count: usize, completer: Completer<Vec<Result<TimerId>>>) -> Arc<Self> {
        let results = (0..count).map(|_| Err(Error::ShutDown)).collect();
        Arc::new(StartingMany(Mutex::new(State { results, left: count, completer: Some(completer) })))
    }

    /// Sets the result of a start, once for each.
    pub(super) fn set(&self, index: usize, result: Result<TimerId>) {
        let mut state = self.0.lock();
        state.results[index] = result;
        state.left -= 1;
        if state.left > 0 {
            return;
        }
        let (completer, results) = (state.completer.take(), std::mem::take(&mut state.results));
        drop(state);
        if let Some(completer) = completer {
            completer.complete(Ok(results));
        }
    }
}
