//! `StoreTransaction`: the transaction that ends a timer, for a program's own writes.

use super::error::StoreError;
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
/// It gives access to the store's connection, inside the transaction.
/// [`connection`](StoreTransaction::connection) returns one that has a type of this crate or of the
/// program. The features that name the version of a client crate add a method for its connections.
///
/// Do not commit or roll back, also not with a transaction of the connection: the store then stops
/// with an error. Do not change settings of the session, because they apply to the store's own
/// statements later.
pub struct StoreTransaction<'a> {
    connection: &'a mut dyn Any,
}

impl<'a> StoreTransaction<'a> {
    /// Creates a transaction for a store whose connection has the type of `connection`.
    pub fn new(connection: &'a mut dyn Any) -> Self {
        StoreTransaction { connection }
    }

    /// Runs an effect, for stores. The caller rolls back the effect's writes if it fails.
    ///
    /// # Errors
    ///
    /// [`StoreError::Effect`] if the effect fails or panics.
    pub fn run(&mut self, effect: &mut Effect) -> std::result::Result<(), StoreError> {
        self.run_watched(effect, |_| ())
    }

    /// Like `run`. Calls `watch` with the error of the effect first, before anything else may fail.
    pub(super) fn run_watched(
        &mut self,
        effect: &mut Effect,
        watch: impl FnOnce(&Error),
    ) -> std::result::Result<(), StoreError> {
        // The error is the program's, too: its text may panic as well.
        let described = |error: Error| {
            watch(&error);
            format!("{error:#}")
        };
        let result = catch_unwind(AssertUnwindSafe(|| effect(self).map_err(described)));
        let error = match result {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(text)) => text,
            Err(panic) => format!("panicked: {}", panic_message(panic)),
        };
        Err(StoreError::Effect(error.into()))
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

impl fmt::Debug for StoreTransaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreTransaction").finish_non_exhaustive()
    }
}
