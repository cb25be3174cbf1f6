//! Clients of the crate `postgres`, in the version that the feature `postgres-019` names.

use super::{connector::with_tls, program_starts::PostgresStarts, settings::PostgresStoreBuilder};
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
use postgres::{
    Client, Config, Error, Socket, Transaction,
    error::SqlState,
    tls::{MakeTlsConnect, TlsConnect},
};

impl PostgresStoreBuilder {
    /// Creates a builder with default settings for a server. Like
    /// [`PostgresStore::builder`](super::PostgresStore::builder), with a configuration of the crate
    /// `postgres`.
    pub fn from_config(config: Config) -> Self {
        PostgresStoreBuilder::new(Ok(config))
    }

    /// Uses TLS, as the `sslmode` of the configuration says. Connectors are in crates such as
    /// postgres-native-tls and tokio-postgres-rustls.
    pub fn tls<T>(self, connector: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + 'static,
        T::TlsConnect: Send,
        T::Stream: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        self.connect_with(with_tls(connector))
    }
}

impl StoreTransaction<'_> {
    /// Returns the client of a PostgreSQL store. Use `SAVEPOINT` instead of `Client::transaction`,
    /// and `SET LOCAL` instead of `SET`.
    ///
    /// # Errors
    ///
    /// [`Error::Other`](crate::Error::Other) if the store is of another kind.
    pub fn postgres(&mut self) -> Result<&mut Client> {
        self.connection::<Client>()
    }
}

impl sealed::StartIn for &mut Transaction<'_> {
    fn start(self, starter: &Starter, timer: &NewTimer, now: i64) -> Result<TimerId, StoreError> {
        starter.of::<PostgresStarts>()?.start_in_program(self, timer, now)
    }
}

/// A client may have begun a transaction with a statement of its own, which must not be committed
/// here. Only the server knows.
impl sealed::StartIn for &mut Client {
    fn start(self, starter: &Starter, timer: &NewTimer, now: i64) -> Result<TimerId, StoreError> {
        let starts = starter.of::<PostgresStarts>()?;
        let failed = |error: Error| StoreError::failed(error);
        match self.batch_execute("SAVEPOINT netwheel_start; RELEASE netwheel_start") {
            Ok(()) => starts.start_in_program(self, timer, now),
            Err(error) if error.code() == Some(&SqlState::NO_ACTIVE_SQL_TRANSACTION) => {
                let mut transaction = self.transaction().map_err(failed)?;
                let id = starts.start_in_program(&mut transaction, timer, now)?;
                transaction.commit().map_err(failed)?;
                Ok(id)
            }
            Err(error) => Err(failed(error)),
        }
    }
}
