//! Converts errors of PostgreSQL.

use crate::durable::store::error::StoreError;
use postgres::error::SqlState;

/// Converts the error of a result.
pub(super) trait PostgresResult<T> {
    fn store(self) -> Result<T, StoreError>;
}

impl<T> PostgresResult<T> for Result<T, postgres::Error> {
    fn store(self) -> Result<T, StoreError> {
        self.map_err(|error| convert(&error))
    }
}

/// Errors without a code are those of the connection. After one of them, the server has rolled
/// back, or its answer to a commit was lost. A batch that is repeated then finds its changes made,
/// because each of them names the state that it expects. After an error with a code, the server has
/// rolled back. The exception is a transaction that the program itself has ended: part of it is
/// stored.
fn convert(error: &postgres::Error) -> StoreError {
    let text = || text(error);
    let Some(code) = error.code() else {
        return StoreError::Busy(text().into());
    };
    // The first two characters are the class of the error.
    match (code, code.code().get(..2)) {
        (&SqlState::DISK_FULL, _) => StoreError::DiskFull,
        // A connection, a transaction that was rolled back, resources, an operator, a server that
        // was demoted, a transaction that idled.
        (_, Some("08" | "40" | "53" | "57"))
        | (&SqlState::READ_ONLY_SQL_TRANSACTION | &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT, _) => {
            StoreError::Busy(text().into())
        }
        // The state of a transaction or of a savepoint is not as the store left it.
        (_, Some("25" | "3B")) => StoreError::Failed(text().into()),
        // A lock that another transaction holds too: one change of the batch waits for it.
        _ => StoreError::Server(text().into()),
    }
}

/// Describes an error with its causes, because the error of a server does not show its message.
pub(super) fn text(error: &postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => {
            // A pool that was busy when the store was opened is not noticed there.
            let is_lost =
                [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT].contains(error.code());
            let hint = if is_lost { "; is there a pool in transaction mode?" } else { "" };
            format!("{} ({}){hint}", error.message(), error.code().code())
        }
        None => {
            let mut text = error.to_string();
            let mut cause = std::error::Error::source(error);
            while let Some(error) = cause {
                text = format!("{text}: {error}");
                cause = error.source();
            }
            text
        }
    }
}
