//! `StoreTransaction`: the transaction that ends a timer, for a program's own writes.

use super::{disk_full::is_disk_full, error::StoreError};
use crate::error::{Error, Result, panic_message};
use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// A program's own writes in the transaction that ends a timer. See
/// [`Due::done_with`](crate::durable::Due::done_with).
pub type Effect = Box<dyn FnMut(&mut StoreTransaction<'_>) -> Result<()> + Send>;

/// The transaction that ends a timer. What the program writes with it is stored if, and only if,
/// the timer ends. See [`Due::done_with`](crate::durable::Due::done_with).
///
/// It gives access to the store's connection, inside the transaction. Do not commit or roll back,
/// also not with a transaction of the connection: the store then stops with an error. Do not change
/// settings of the session, because they apply to the store's own statements later.
pub struct StoreTransaction<'a> {
    connection: &'a mut dyn Any,
    /// Whether the disk was full for the effect. SQLite then rolls back the whole transaction.
    pub(super) is_disk_full: bool,
}

impl<'a> StoreTransaction<'a> {
    /// Creates a transaction for a store whose connection has the type of `connection`.
    pub fn new(connection: &'a mut dyn Any) -> Self {
        StoreTransaction { connection, is_disk_full: false }
    }

    /// Runs an effect, for stores. The caller rolls back what it has written if it fails.
    ///
    /// # Errors
    ///
    /// [`StoreError::Effect`] if the effect fails or panics.
    pub fn run(&mut self, effect: &mut Effect) -> std::result::Result<(), StoreError> {
        // The error is the program's, too: its text may panic as well.
        let described = |error: Error| (format!("{error:#}"), is_caused_by_full_disk(&error));
        let result = catch_unwind(AssertUnwindSafe(|| effect(self).map_err(described)));
        let error = match result {
            Ok(Ok(())) => return Ok(()),
            Ok(Err((text, is_disk_full))) => {
                self.is_disk_full = is_disk_full;
                text
            }
            Err(panic) => format!("panicked: {}", panic_message(panic)),
        };
        Err(StoreError::Effect(error.into()))
    }

    /// Returns the connection of an SQLite store.
    ///
    /// # Errors
    ///
    /// [`Error::Other`] if the store is of another kind.
    pub fn sqlite(&mut self) -> Result<&rusqlite::Connection> {
        self.connection::<rusqlite::Connection>().map(|connection| &*connection)
    }

    /// Returns the client of a PostgreSQL store. Use `SAVEPOINT` instead of `Client::transaction`,
    /// and `SET LOCAL` instead of `SET`.
    ///
    /// # Errors
    ///
    /// [`Error::Other`] if the store is of another kind.
    #[cfg(feature = "durable-postgres")]
    pub fn postgres(&mut self) -> Result<&mut postgres::Client> {
        self.connection::<postgres::Client>()
    }

    /// Returns the connection of any store.
    pub(super) fn any(&mut self) -> &mut dyn Any {
        self.connection
    }

    /// Returns the connection of a store of another kind, as that store documents it.
    ///
    /// # Errors
    ///
    /// [`Error::Other`] if the store's connection has another type.
    pub fn connection<C: Any>(&mut self) -> Result<&mut C> {
        let wanted = std::any::type_name::<C>();
        let other = || Error::other(format!("the connection of the timer store is not a {wanted}"));
        self.connection.downcast_mut::<C>().ok_or_else(other)
    }
}

/// Looks for the error of SQLite among the causes of an error.
fn is_caused_by_full_disk(error: &Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = match error {
        Error::Other(cause) => Some(&**cause),
        other => std::error::Error::source(other),
    };
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<rusqlite::Error>() {
            return is_disk_full(error);
        }
        if let Some(error) = error.downcast_ref::<Error>() {
            return is_caused_by_full_disk(error);
        }
        cause = error.source();
    }
    false
}

impl fmt::Debug for StoreTransaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreTransaction").finish_non_exhaustive()
    }
}
