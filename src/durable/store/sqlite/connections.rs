//! Connections of the crate `rusqlite`, in the version that the feature `rusqlite-040` names.

use super::starts::SqliteStarts;
use crate::{
    durable::{
        id::TimerId,
        store::{
            change::NewTimer,
            error::StoreError,
            start_in::{Starter, sealed},
            transaction::StoreTransaction,
        },
    },
    error::Result,
};
use rusqlite::{Connection, Savepoint, Transaction};

impl StoreTransaction<'_> {
    /// Returns the connection of an SQLite store.
    ///
    /// # Errors
    ///
    /// [`Error::Other`](crate::Error::Other) if the store is of another kind.
    pub fn sqlite(&mut self) -> Result<&Connection> {
        self.connection::<Connection>().map(|connection| &*connection)
    }
}

impl sealed::StartIn for &Connection {
    fn start(self, starter: &Starter, timer: &NewTimer, now: i64) -> Result<TimerId, StoreError> {
        starter.of::<SqliteStarts>()?.start_in_program(self, timer, now)
    }
}

impl sealed::StartIn for &Transaction<'_> {
    fn start(self, starter: &Starter, timer: &NewTimer, now: i64) -> Result<TimerId, StoreError> {
        starter.of::<SqliteStarts>()?.start_in_program(self, timer, now)
    }
}

impl sealed::StartIn for &Savepoint<'_> {
    fn start(self, starter: &Starter, timer: &NewTimer, now: i64) -> Result<TimerId, StoreError> {
        starter.of::<SqliteStarts>()?.start_in_program(self, timer, now)
    }
}
