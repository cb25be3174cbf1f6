//! `StartIn`: a transaction of the program in which timers are started.

use super::{NewTimer, StoreError, StoreTransaction};
use crate::durable::TimerId;
use std::{fmt::Debug, sync::Arc};

/// How connections of the program start timers of a store. Returned by
/// [`TimerStore::starter`](super::TimerStore::starter), and used by
/// [`StartTimer::start_in`](crate::durable::StartTimer::start_in).
#[derive(Debug, Clone)]
pub struct Starter(pub(super) Arc<dyn StartTimers>);

/// Starts timers of one store. Those of other kinds of stores are refused.
pub(super) trait StartTimers: Debug + Send + Sync {
    /// Stores a timer in the transaction of a connection, or in one of its own if there is none.
    /// `is_own` if the connection is that of the store.
    fn start_in_sqlite(
        &self,
        connection: &rusqlite::Connection,
        is_own: bool,
        timer: &NewTimer,
        now: i64,
    ) -> Result<TimerId, StoreError> {
        let _ = (connection, is_own, timer, now);
        Err(StoreError::OtherStore)
    }
}

/// A transaction that [`StartTimer::start_in`](crate::durable::StartTimer::start_in) accepts.
///
/// Implemented for references to connections and transactions of the crates `rusqlite` and
/// `postgres`, and to the [`StoreTransaction`] of
/// [`Due::done_with`](crate::durable::Due::done_with) and
/// [`DurableTimers::transaction`](crate::durable::DurableTimers::transaction).
pub trait StartIn: sealed::StartIn {}

impl<T: sealed::StartIn> StartIn for T {}

mod sealed {
    use super::{NewTimer, Starter, StoreError, TimerId};

    pub trait StartIn {
        /// Stores a timer. `now` is the wall time in milliseconds since 1970.
        fn start(self, starter: &Starter, timer: &NewTimer, now: i64) -> Result<TimerId, StoreError>;
    }
}

impl sealed::StartIn for &rusqlite::Connection {
    fn start(self, starter: &Starter, timer: &NewTimer, now: i64) -> Result<TimerId, StoreError> {
        starter.0.start_in_sqlite(self, false, timer, now)
    }
}

impl sealed::StartIn for &rusqlite::Transaction<'_> {
    fn start(self, starter: &Starter, timer: &NewTimer, now: i64) -> Result<TimerId, StoreError> {
        starter.0.start_in_sqlite(self, false, timer, now)
    }
}

impl sealed::StartIn for &rusqlite::Savepoint<'_> {
    fn start(self, starter: &Starter, timer: &NewTimer, now: i64) -> Result<TimerId, StoreError> {
        starter.0.start_in_sqlite(self, false, timer, now)
    }
}

impl sealed::StartIn for &mut StoreTransaction<'_> {
    fn start(self, starter: &Starter, timer: &NewTimer, now: i64) -> Result<TimerId, StoreError> {
        match self.sqlite() {
            Ok(connection) => starter.0.start_in_sqlite(connection, true, timer, now),
            Err(_) => Err(StoreError::OtherStore),
        }
    }
}
