//! `PostgresStarts`: starts of timers in transactions of the program.

use super::{
    PostgresStore, counts,
    errors::PostgresResult,
    session::{SqlValue, Statements},
    starts::{self, ATTEMPTS, Found, Start},
};
use crate::durable::{
    id::TimerId,
    store::{change::NewTimer, error::StoreError, remembered::Remembered, start_in::StartTimers},
};
use crate::machine::Mutex;
use postgres::{Client, GenericClient, Row, error::SqlState, types::ToSql};
use std::{
    any::Any,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// No session has this number, so every node learns of the timers as of those of others.
const NO_SESSION: i64 = 0;

/// Chooses partitions for timers: those of this node as of its last renewal, if it has any, because
/// it looks for them first. Any other would be right too.
pub(super) struct Placement {
    partitions: u32,
    active: Mutex<Vec<u32>>,
    starts: AtomicUsize,
}

impl Placement {
    pub(super) fn new(partitions: u32) -> Self {
        Placement { partitions, active: Mutex::default(), starts: AtomicUsize::new(0) }
    }

    pub(super) fn set(&self, active: Vec<u32>) {
        *self.active.lock() = active;
    }

    fn choose(&self) -> u32 {
        let start = self.starts.fetch_add(1, Ordering::Relaxed);
        let active = self.active.lock();
        match active.get(start % active.len().max(1)) {
            Some(partition) => *partition,
            None => (start % self.partitions.max(1) as usize) as u32,
        }
    }
}

pub(super) struct PostgresStarts {
    schema: String,
    store_id: String,
    /// The id of each attached topic.
    topics: Vec<i32>,
    /// How long the keys of ended timers are remembered.
    key_memory: Duration,
    placement: Arc<Placement>,
}

impl PostgresStarts {
    pub(super) fn new(store: &PostgresStore) -> Self {
        PostgresStarts {
            schema: store.settings.schema.clone(),
            store_id: store.store_id.clone(),
            topics: store.topics.iter().map(|(_, id)| *id).collect(),
            key_memory: store.settings.key_memory,
            placement: store.placement.clone(),
        }
    }

    /// Checks that a connection is to the database of the store. The store is open, so its tables
    /// are those of this version.
    fn check(&self, client: &mut dyn PostgresClient) -> Result<(), StoreError> {
        let sql = "SELECT FROM {schema}.store WHERE id::text = $1".replace("{schema}", &self.schema);
        match client.query(&sql, &[&self.store_id]) {
            Ok(rows) if rows.len() == 1 => Ok(()),
            Ok(_) => Err(StoreError::OtherStore),
            Err(error) => match error.code() {
                Some(&SqlState::UNDEFINED_TABLE | &SqlState::UNDEFINED_COLUMN) => Err(StoreError::OtherStore),
                _ => Err(error).store(),
            },
        }
    }

    /// Starts a timer in the transaction of a client.
    pub(super) fn start_in_program(
        &self,
        client: &mut dyn PostgresClient,
        timer: &NewTimer,
        now: i64,
    ) -> Result<TimerId, StoreError> {
        self.check(client)?;
        let topic = *self.topics.get(timer.topic).ok_or(StoreError::OtherStore)?;
        let start = Start { topic, partition: self.placement.choose() as i32, timer };
        starts::check_key(timer)?;
        let remembered = Remembered::at(now, self.key_memory);
        for _ in 0..ATTEMPTS {
            let mut connection = OfProgram { client, schema: &self.schema };
            let found = starts::insert(&mut connection, NO_SESSION, &remembered, &[start])?;
            match found.into_iter().next().flatten() {
                Some(Found::Started(id)) => {
                    let count = counts::add(&format!("({topic}, {}, 1, 0)", counts::OF_PROGRAM));
                    client.batch(&count.replace("{schema}", &self.schema)).store()?;
                    return Ok(id);
                }
                Some(Found::Stored(_, schedule)) if timer.has_other_schedule(schedule.as_deref()) => {
                    return Err(StoreError::OtherSchedule);
                }
                Some(Found::Stored(id, _) | Found::Ended(id)) => return Ok(id),
                None => {}
            }
        }
        Err(starts::keys_change())
    }
}

impl StartTimers for PostgresStarts {
    fn start_in(&self, connection: &mut dyn Any, timer: &NewTimer, now: i64) -> Result<TimerId, StoreError> {
        let client = connection.downcast_mut::<Client>().ok_or(StoreError::OtherStore)?;
        self.start_in_program(client, timer, now)
    }
}

/// A client of PostgreSQL, or a transaction of one.
pub(super) trait PostgresClient {
    fn query(&mut self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, postgres::Error>;

    fn batch(&mut self, sql: &str) -> Result<(), postgres::Error>;
}

impl<C: GenericClient> PostgresClient for C {
    fn query(&mut self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, postgres::Error> {
        GenericClient::query(self, sql, values)
    }

    fn batch(&mut self, sql: &str) -> Result<(), postgres::Error> {
        self.batch_execute(sql)
    }
}

/// A connection of the program.
struct OfProgram<'a> {
    client: &'a mut dyn PostgresClient,
    schema: &'a str,
}

impl Statements for OfProgram<'_> {
    fn query(&mut self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<Vec<Row>, StoreError> {
        self.client.query(&sql.replace("{schema}", self.schema), values).store()
    }
}

impl fmt::Debug for PostgresStarts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStarts").field("schema", &self.schema).finish_non_exhaustive()
    }
}
