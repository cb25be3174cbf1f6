//! `PostgresSession`: a connection, its prepared statements, and its id.
//!
//! Invariants: each request has a deadline. Every session has an id of its own in the database, and
//! marks the timers that it changes with that id. So changes of a lost session count as changes of
//! others, and are loaded again.

use super::{
    connector::Connect,
    deadline::Deadline,
    errors::{PostgresResult, text},
    settings::PostgresSettings,
};
use crate::durable::store::{error::StoreError, server_clock::ServerClock};
use postgres::{
    Client, Row, SimpleQueryMessage, Statement,
    error::SqlState,
    types::{FromSql, ToSql},
};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// A connection of the store, or of the program.
pub(super) trait Statements {
    /// Runs a statement in which `{schema}` stands for the schema.
    fn query(&mut self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<Vec<Row>, StoreError>;
}

/// A value of a statement.
pub(super) type SqlValue<'a> = &'a (dyn ToSql + Sync);

/// When a server was started, in microseconds since 1970. Identifies the server: a crash of one of
/// its processes keeps the time, a restart or a promoted standby has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServerStart(pub(super) i64);

pub(super) struct PostgresSession {
    client: Client,
    statements: BTreeMap<&'static str, Statement>,
    schema: String,
    deadline: Deadline,
    settings: PostgresSettings,
    id: i64,
    requests: u64,
    is_read_only: bool,
}

impl PostgresSession {
    /// Connects and applies the time limits.
    pub(super) fn connect(
        settings: &PostgresSettings,
        connector: &mut dyn Connect,
    ) -> Result<Self, StoreError> {
        let deadline = Deadline::new();
        deadline.set(settings.connect_timeout);
        // A server that refuses a client now may accept it later.
        let client = connector
            .connect(&settings.config, &deadline)
            .map_err(|error| StoreError::Busy(format!("no connection: {}", text(&error)).into()))?;
        let mut session = PostgresSession {
            client,
            statements: BTreeMap::new(),
            schema: settings.schema.clone(),
            deadline,
            settings: settings.clone(),
            id: 0,
            requests: 0,
            is_read_only: false,
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

    /// Takes an id from the sequence of the schema. Reads the clock of the server, and when the
    /// server was started.
    pub(super) fn identify(
        &mut self,
        clock: Option<ServerClock>,
    ) -> Result<(ServerClock, ServerStart), StoreError> {
        let id = "SELECT nextval('{schema}.sessions'),
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
            (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint";
        let (row, asked, answered) = self.query_timed(id, &[])?;
        self.id = column(&row, 0)?;
        let clock = ServerClock::read(clock, column(&row, 1)?, asked, answered);
        Ok((clock, ServerStart(column(&row, 2)?)))
    }

    /// Returns the number of the process that serves this connection. Prepares no statement.
    pub(super) fn backend(&mut self) -> Result<Option<String>, StoreError> {
        self.requests += 1;
        let answer = self.client().simple_query("SELECT pg_backend_pid()");
        Ok(self.checked(answer)?.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        }))
    }

    /// Returns whether the last error was that this server takes no writes.
    pub(super) fn is_read_only(&self) -> bool {
        self.is_read_only
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
    pub(super) fn query(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let statement = self.prepare(sql)?;
        self.requests += 1;
        let answer = self.client().query(&statement, values);
        self.checked(answer)
    }

    fn prepare(&mut self, sql: &'static str) -> Result<Statement, StoreError> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let text = sql.replace("{schema}", &self.schema);
        self.requests += 1;
        let answer = self.client().prepare(&text);
        let statement = self.checked(answer)?;
        self.statements.insert(sql, statement.clone());
        Ok(statement)
    }

    /// Converts an answer of the server.
    fn checked<T>(&mut self, answer: Result<T, postgres::Error>) -> Result<T, StoreError> {
        let code = answer.as_ref().err().and_then(postgres::Error::code);
        self.is_read_only |= code == Some(&SqlState::READ_ONLY_SQL_TRANSACTION);
        answer.store()
    }

    /// Returns a row, and the instants before the request and after the answer.
    #[allow(clippy::disallowed_methods, reason = "how long the server takes is real time")]
    pub(super) fn query_timed(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<(Row, Instant, Instant), StoreError> {
        self.prepare(sql)?;
        let asked = Instant::now();
        let row = self.query_one(sql, values)?;
        Ok((row, asked, Instant::now()))
    }

    pub(super) fn query_one(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Row, StoreError> {
        let rows = self.query(sql, values)?;
        rows.into_iter().next().ok_or_else(|| StoreError::failed("a statement has returned no row"))
    }

    /// Runs statements without values in one request.
    pub(super) fn batch(&mut self, sql: &str) -> Result<(), StoreError> {
        self.batch_within(self.settings.request_timeout, sql)
    }

    /// Runs statements without values in one request, for which the store waits for `time`.
    pub(super) fn batch_within(&mut self, time: Duration, sql: &str) -> Result<(), StoreError> {
        let text = sql.replace("{schema}", &self.schema);
        self.requests += 1;
        self.deadline.set(time);
        let answer = self.client.batch_execute(&text);
        self.checked(answer)
    }
}

impl Statements for PostgresSession {
    fn query(&mut self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<Vec<Row>, StoreError> {
        PostgresSession::query(self, sql, values)
    }
}

/// Returns a column of a row.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<T, StoreError> {
    row.try_get(index).map_err(StoreError::failed)
}
