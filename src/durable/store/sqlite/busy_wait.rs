//! How the store waits for other connections that write.

use super::errors::SqliteResult;
use crate::durable::store::error::StoreError;
use rusqlite::Connection;
use std::time::Duration;

/// The pause between two attempts, and their number: about a second.
const PAUSE: Duration = Duration::from_millis(1);
const ATTEMPTS: i32 = 1000;

/// Makes a connection wait for about a second. Then it fails with [`StoreError::Busy`].
///
/// The pauses of SQLite's own timeout grow to 100 ms. A program that commits one transaction after
/// the other would nearly always hold the lock when the store looks.
pub(super) fn wait_for_writers(connection: &Connection) -> Result<(), StoreError> {
    connection.busy_handler(Some(wait)).store()
}

/// Fails at once from now on.
pub(super) fn wait_for_nobody(connection: &Connection) -> Result<(), StoreError> {
    connection.busy_handler(None).store()
}

#[allow(clippy::disallowed_methods, reason = "the lock is held for real time")]
fn wait(attempts: i32) -> bool {
    std::thread::sleep(PAUSE);
    attempts < ATTEMPTS
}
