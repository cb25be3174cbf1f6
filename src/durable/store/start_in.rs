//! `StartIn`: a transaction of the program in which timers are started.

use super::{change::NewTimer, error::StoreError, transaction::StoreTransaction};
use crate::durable::id::TimerId;
#[cfg(feature = "durable-postgres")]
use postgres::error::SqlState;
use std::{any::Any, fmt::Debug, sync::Arc};

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

    /// Stores a timer in the transaction of a store without a database. `connection` is that of
    /// its [`StoreTransaction`].
    fn start_in_other(
        &self,
        connection: &mut dyn Any,
        timer: &NewTimer,
        now: i64,
    ) -> Result<TimerId, StoreError> {
        let _ = (connection, timer, now);
        Err(StoreError::OtherStore)
    }

    /// Stores a timer in the transaction of a client.
    #[cfg(feature = "durable-postgres")]
    fn start_in_postgres(
        &self,
        client: &mut dyn PostgresClient,
        timer: &NewTimer,
        now: i64,
    ) -> Result<TimerId, StoreError> {
        let _ = (client, timer, now);
        Err(StoreError::OtherStore)
    }
}

/// A client of PostgreSQL, or a transaction of one.
#[cfg(feature = "durable-postgres")]
pub(super) trait PostgresClient {
    fn query(
        &mut self,
        sql: &str,
        values: &[&(dyn postgres::types::ToSql + Sync)],
    ) -> Result<Vec<postgres::Row>, postgres::Error>;

    fn batch(&mut self, sql: &str) -> Result<(), postgres::Error>;
}

#[cfg(feature = "durable-postgres")]
impl<C: postgres::GenericClient> PostgresClient for C {
    fn query(
        &mut self,
        sql: &str,
        values: &[&(dyn postgres::types::ToSql + Sync)],
    ) -> Result<Vec<postgres::Row>, postgres::Error> {
        postgres::GenericClient::query(self, sql, values)
    }

    fn batch(&mut self, sql: &str) -> Result<(), postgres::Error> {
        self.batch_execute(sql)
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
        if let Ok(connection) = self.sqlite() {
            return starter.0.start_in_sqlite(connection, true, timer, now);
        }
        #[cfg(feature = "durable-postgres")]
        if let Ok(client) = self.postgres() {
            return starter.0.start_in_postgres(client, timer, now);
        }
        starter.0.start_in_other(self.any(), timer, now)
    }
}

#[cfg(feature = "durable-postgres")]
impl sealed::StartIn for &mut postgres::Transaction<'_> {
    fn start(self, starter: &Starter, timer: &NewTimer, now: i64) -> Result<TimerId, StoreError> {
        starter.0.start_in_postgres(self, timer, now)
    }
}

/// A client may have begun a transaction with a statement of its own, which must not be committed
/// here. Only the server knows.
#[cfg(feature = "durable-postgres")]
impl sealed::StartIn for &mut postgres::Client {
    fn start(self, starter: &Starter, timer: &NewTimer, now: i64) -> Result<TimerId, StoreError> {
        let failed = |error: postgres::Error| StoreError::failed(error);
        match self.batch_execute("SAVEPOINT netwheel_start; RELEASE netwheel_start") {
            Ok(()) => starter.0.start_in_postgres(self, timer, now),
            Err(error) if error.code() == Some(&SqlState::NO_ACTIVE_SQL_TRANSACTION) => {
                let mut transaction = self.transaction().map_err(failed)?;
                let id = starter.0.start_in_postgres(&mut transaction, timer, now)?;
                transaction.commit().map_err(failed)?;
                Ok(id)
            }
            Err(error) => Err(failed(error)),
        }
    }
}
