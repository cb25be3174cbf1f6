//! `Session`: a connection, its prepared statements, and its id.
//!
//! Invariants: each request has a deadline. Every session has an id of its own in the database, and
//! marks the timers that it changes with that id. So changes of a lost session count as changes of
//! others, and are loaded again.

use super::{
    connector::Connect,
    deadline::Deadline,
    errors::{StoreResult, text},
    settings::Settings,
};
use crate::durable::StoreError;
use postgres::{
    Client, Row, Statement,
    types::{FromSql, ToSql},
};
use std::collections::BTreeMap;

/// A connection of the store, or of the program.
pub(super) trait Statements {
    /// Runs a statement in which `{schema}` stands for the schema.
    fn query(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<Row>, StoreError>;
}

/// A value of a statement.
pub(super) type Value<'a> = &'a (dyn ToSql + Sync);

pub(super) struct Session {
    client: Client,
    statements: BTreeMap<&'static str, Statement>,
    schema: String,
    deadline: Deadline,
    settings: Settings,
    id: i64,
    requests: u64,
}

impl Session {
    /// Connects and applies the time limits.
    pub(super) fn connect(settings: &Settings, connector: &mut dyn Connect) -> Result<Self, StoreError> {
        let deadline = Deadline::new();
        deadline.set(settings.connect_timeout);
        // A server that refuses a client now may accept it later.
        let client = connector
            .connect(&settings.config, &deadline)
            .map_err(|error| StoreError::Busy(format!("no connection: {}", text(&error)).into()))?;
        let mut session = Session {
            client,
            statements: BTreeMap::new(),
            schema: settings.schema.clone(),
            deadline,
            settings: settings.clone(),
            id: 0,
            requests: 0,
        };
        let statement = settings.request_timeout.as_millis();
        let lock = (statement / 2).max(1);
        let idle = settings.lease.as_millis();
        // `off` would lose commits that the store has confirmed.
        session.batch(&format!(
            "SET statement_timeout = {statement};
            SET lock_timeout = {lock};
            SET idle_in_transaction_session_timeout = {idle};
            SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
            SELECT set_config('synchronous_commit', 'on', false)
                WHERE current_setting('synchronous_commit') = 'off'"
        ))?;
        Ok(session)
    }

    /// Takes an id from the sequence of the schema.
    pub(super) fn identify(&mut self) -> Result<(), StoreError> {
        let row = self.query_one("SELECT nextval('{schema}.sessions')", &[])?;
        self.id = column(&row, 0)?;
        Ok(())
    }

    pub(super) fn id(&self) -> i64 {
        self.id
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Returns the client for a program's own statements, with a new deadline.
    pub(super) fn client(&mut self) -> &mut Client {
        self.deadline.set(self.settings.request_timeout);
        &mut self.client
    }

    /// Runs a statement in which `{schema}` stands for the schema.
    pub(super) fn query(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<Row>, StoreError> {
        let statement = match self.statements.get(sql) {
            Some(statement) => statement.clone(),
            None => {
                let text = sql.replace("{schema}", &self.schema);
                self.requests += 1;
                let statement = self.client().prepare(&text).store()?;
                self.statements.insert(sql, statement.clone());
                statement
            }
        };
        self.requests += 1;
        self.client().query(&statement, values).store()
    }

    pub(super) fn query_one(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Row, StoreError> {
        let rows = self.query(sql, values)?;
        rows.into_iter().next().ok_or_else(|| StoreError::failed("a statement has returned no row"))
    }

    /// Runs statements without values in one request.
    pub(super) fn batch(&mut self, sql: &str) -> Result<(), StoreError> {
        let text = sql.replace("{schema}", &self.schema);
        self.requests += 1;
        self.client().batch_execute(&text).store()
    }
}

impl Statements for Session {
    fn query(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<Row>, StoreError> {
        Session::query(self, sql, values)
    }
}

/// Returns a column of a row.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<T, StoreError> {
    row.try_get(index).map_err(StoreError::failed)
}
