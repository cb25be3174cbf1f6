//! `CachedStatements`: statements that a connection keeps prepared, in one call.

use super::file_error::{FileError, FileResult};
use rusqlite::{Connection, OptionalExtension, Params, Result as SqliteResult, Row};
use std::borrow::Borrow;

pub(crate) trait CachedStatements: Borrow<Connection> {
    /// Runs a statement. Returns the number of rows that it has changed.
    fn run(&self, sql: &str, values: impl Params) -> Result<usize, FileError> {
        let statement = self.borrow().prepare_cached(sql);
        statement.and_then(|mut statement| statement.execute(values)).or_file_error()
    }

    /// Returns the first row of a query.
    fn one<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> SqliteResult<T>,
    ) -> Result<Option<T>, FileError> {
        let statement = self.borrow().prepare_cached(sql);
        statement.and_then(|mut statement| statement.query_row(values, read)).optional().or_file_error()
    }

    /// Returns all rows of a query.
    fn all<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> SqliteResult<T>,
    ) -> Result<Vec<T>, FileError> {
        let statement = self.borrow().prepare_cached(sql);
        statement.and_then(|mut statement| statement.query_map(values, read)?.collect()).or_file_error()
    }
}

impl CachedStatements for Connection {}
