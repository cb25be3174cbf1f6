//! `StartIn`: a transaction of the program in which timers are started.

use super::{change::NewTimer, error::StoreError, transaction::StoreTransaction};
use crate::durable::id::TimerId;
use std::{any::Any, fmt::Debug, sync::Arc};

/// How connections of the program start timers of a store. Returned by
/// [`TimerStore::starter`](super::TimerStore::starter), and used by
/// [`StartTimer::start_in`](crate::durable::StartTimer::start_in).
#[derive(Debug, Clone)]
pub struct Starter(pub(super) Arc<dyn StartTimers>);

impl Starter {
    /// Returns the starts of a store, if they are of this kind.
    #[cfg(any(feature = "rusqlite-040", feature = "postgres-019"))]
    pub(super) fn of<S: StartTimers>(&self) -> Result<&S, StoreError> {
        let starts: &dyn Any = &*self.0;
        starts.downcast_ref().ok_or(StoreError::OtherStore)
    }
}

/// Starts timers of one store.
pub(super) trait StartTimers: Any + Debug + Send + Sync {
    /// Stores a timer in a transaction that the store has begun. `connection` is that of its
    /// [`StoreTransaction`].
    ///
    /// # Errors
    ///
    /// [`StoreError::OtherStore`] if the transaction is that of another store.
    fn start_in(&self, connection: &mut dyn Any, timer: &NewTimer, now: i64) -> Result<TimerId, StoreError>;
}

/// A transaction that [`StartTimer::start_in`](crate::durable::StartTimer::start_in) accepts.
///
/// Implemented for references to the [`StoreTransaction`] of
/// [`Due::done_with`](crate::durable::Due::done_with) and
/// [`DurableTimers::transaction`](crate::durable::DurableTimers::transaction). The features
/// `rusqlite-040` and `postgres-019` add references to connections and transactions of those
/// crates.
pub trait StartIn: sealed::StartIn {}

impl<T: sealed::StartIn> StartIn for T {}

pub(super) mod sealed {
    use super::Starter;
    use crate::durable::{
        id::TimerId,
        store::{change::NewTimer, error::StoreError},
    };

    pub trait StartIn {
        /// Stores a timer. `now` is the wall time in milliseconds since 1970.
        fn start(self, starter: &Starter, timer: &NewTimer, now: i64) -> Result<TimerId, StoreError>;
    }
}

impl sealed::StartIn for &mut StoreTransaction<'_> {
    fn start(self, starter: &Starter, timer: &NewTimer, now: i64) -> Result<TimerId, StoreError> {
        starter.0.start_in(self.any(), timer, now)
    }
}
