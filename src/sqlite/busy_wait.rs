//! How the store waits for other connections that write.

use super::file_error::{FileError, FileResult};
use rusqlite::Connection;
use std::time::Duration;

/// The pause between two attempts, and their number: about a second.
const PAUSE: Duration = Duration::from_millis(1);
const ATTEMPTS: i32 = 1000;

/// Makes a connection wait for about a second. Then it fails with [`FileError::Busy`].
///
/// The pauses of SQLite's own timeout grow to 100 ms. A program that commits one transaction after
/// the other would nearly always hold the lock when the store looks.
pub(super) fn wait_for_writers(connection: &Connection) -> Result<(), FileError> {
    connection.busy_handler(Some(wait)).or_file_error()
}

/// Fails at once from now on.
pub(super) fn wait_for_nobody(connection: &Connection) -> Result<(), FileError> {
    connection.busy_handler(None).or_file_error()
}

#[allow(clippy::disallowed_methods, reason = "the lock is held for real time")]
fn wait(attempts: i32) -> bool {
    std::thread::sleep(PAUSE);
    attempts < ATTEMPTS
}
