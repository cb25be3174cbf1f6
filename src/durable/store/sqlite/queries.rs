//! What is read from an SQLite store.

use crate::{
    durable::{
        id::TimerId,
        store::{
            change::{LoadRange, Loaded},
            error::StoreError,
            listing::{TimerFilter, TimerInfo, TimerState, TopicCounts},
            row::{Begun, DueKey, TimerRow},
        },
        unix_millis::system_time,
    },
    sqlite::{CachedStatements, FileResult},
};
use rusqlite::{Connection, Row, Rows, fallible_streaming_iterator::FallibleStreamingIterator, params};
use std::{cmp::Reverse, collections::BinaryHeap};

/// Loads pending timers of the topics, merged in the order of their keys.
///
/// There is one query for each topic, so that timers of topics that the program does not have cost
/// nothing. Each reads its next row when the last one was taken, so time and memory do not depend
/// on the number of topics.
pub(super) fn load(connection: &Connection, topics: &[i64], range: LoadRange) -> Result<Loaded, StoreError> {
    let sql = "SELECT id, due, scheduled, attempts, key, schedule, payload, begun FROM timers
         WHERE state = 0 AND topic = ?1 AND (due, id) > (?2, ?3) AND due <= ?4
         ORDER BY due, id";
    let wanted = topics.iter().enumerate().filter(|(index, _)| range.topics.contains(*index));
    let statements = wanted.map(|(index, id)| Ok((index, *id, connection.prepare_cached(sql)?)));
    let mut statements = statements.collect::<rusqlite::Result<Vec<_>>>().or_file_error()?;
    let mut cursors = Vec::new();
    let mut heads = BinaryHeap::new();
    for (topic, id, statement) in &mut statements {
        let values = params![*id, range.after.due, range.after.id.get(), range.until];
        let mut rows = statement.query(values).or_file_error()?;
        heads.extend(next_key(&mut rows).or_file_error()?.map(|key| Reverse((key, cursors.len()))));
        cursors.push((*topic, rows));
    }
    let mut loaded: Vec<TimerRow> = Vec::new();
    let mut bytes = 0;
    while loaded.len() < range.limit
        && let Some(Reverse((_, index))) = heads.pop()
    {
        let (topic, rows) = &mut cursors[index];
        if let Some(row) = rows.get() {
            let timer = timer(row, *topic).or_file_error()?;
            bytes += timer.data_len();
            if bytes > range.max_bytes && !loaded.is_empty() {
                return Ok(Loaded { rows: loaded, is_complete: false });
            }
            loaded.push(timer);
        }
        heads.extend(next_key(rows).or_file_error()?.map(|key| Reverse((key, index))));
    }
    Ok(Loaded { rows: loaded, is_complete: heads.is_empty() })
}

/// Returns periodic timers behind a key, without their payloads. The index is small, because it has
/// periodic timers only.
pub(super) fn far_periodic(
    connection: &Connection,
    topics: &[i64],
    after: DueKey,
    limit: usize,
) -> Result<Vec<TimerRow>, StoreError> {
    let sql = "SELECT id, due, scheduled, attempts, key, schedule, x'', begun, topic FROM timers
        INDEXED BY timers_periodic WHERE state = 0 AND schedule IS NOT NULL AND attempts = 0 AND moved = 0
        AND (due, id) > (?1, ?2) ORDER BY due, id";
    let mut statement = connection.prepare_cached(sql).or_file_error()?;
    let mut rows = statement.query(params![after.due, after.id.get()]).or_file_error()?;
    let mut found = Vec::new();
    while found.len() < limit
        && let Some(row) = rows.next().or_file_error()?
    {
        let id: i64 = row.get(8).or_file_error()?;
        if let Some(topic) = topics.iter().position(|known| *known == id) {
            found.push(timer(row, topic).or_file_error()?);
        }
    }
    Ok(found)
}

/// Reads the next row, and returns its key.
fn next_key(rows: &mut Rows<'_>) -> rusqlite::Result<Option<DueKey>> {
    rows.advance()?;
    rows.get().map(key).transpose()
}

fn key(row: &Row<'_>) -> rusqlite::Result<DueKey> {
    Ok(DueKey { id: TimerId::new(row.get(0)?), due: row.get(1)? })
}

/// Reads the columns of [`load`].
pub(super) fn timer(row: &Row<'_>, topic: usize) -> rusqlite::Result<TimerRow> {
    Ok(TimerRow {
        key: key(row)?,
        topic,
        scheduled: row.get(2)?,
        attempts: row.get(3)?,
        idempotency_key: row.get(4)?,
        schedule: row.get(5)?,
        payload: row.get(6)?,
        begun: Begun::from_number(row.get(7)?),
        partition: 0,
        epoch: 0,
    })
}

/// Lists timers. Dead letters are few, so their listing uses the indexes of them. Without
/// statistics SQLite would read all timers instead.
pub(super) fn list(connection: &Connection, filter: &TimerFilter) -> Result<Vec<TimerInfo>, StoreError> {
    let limit = i64::try_from(filter.effective_limit()).unwrap_or(i64::MAX);
    let Some(behind) = filter.by_due else {
        let after = filter.after.map_or(i64::MIN, TimerId::get);
        return Ok(connection.all(
            &listing(filter),
            params![after, filter.topic, limit, filter.key],
            info,
        )?);
    };
    let mut keys = Vec::new();
    let sql = "SELECT id FROM topics WHERE ?1 IS NULL OR name = ?1";
    for topic in connection.all(sql, [&filter.topic], |row| row.get::<_, i64>(0))? {
        for state in [TimerState::Pending, TimerState::Dead] {
            if filter.state.is_none_or(|wanted| wanted == state) {
                let values = params![topic, behind.due, behind.id.get(), filter.key, limit];
                keys.extend(connection.all(due_keys(state), values, key)?);
            }
        }
    }
    keys.sort_unstable();
    keys.truncate(filter.effective_limit());
    let columns = info_columns();
    let mut statement =
        connection.prepare_cached(&format!("SELECT {columns} FROM timers WHERE id = ?1")).or_file_error()?;
    keys.iter().map(|key| Ok(statement.query_row([key.id.get()], info).or_file_error()?)).collect()
}

/// Returns the query of the first timers of a topic in the order of due times. It reads an index
/// only, unless there is a key.
fn due_keys(state: TimerState) -> &'static str {
    match state {
        TimerState::Pending => {
            "SELECT id, due FROM timers INDEXED BY timers_due WHERE state = 0 AND topic = ?1
            AND (due, id) > (?2, ?3) AND (?4 IS NULL OR key = ?4) ORDER BY due, id LIMIT ?5"
        }
        TimerState::Dead => {
            "SELECT id, due FROM timers INDEXED BY timers_dead_due WHERE state = 1 AND topic = ?1
            AND (due, id) > (?2, ?3) AND (?4 IS NULL OR key = ?4) ORDER BY due, id LIMIT ?5"
        }
    }
}

fn info_columns() -> &'static str {
    "timers.id, (SELECT name FROM topics WHERE topics.id = topic), state, due, scheduled, attempts, key,
        schedule, payload, error"
}

/// Reads the columns of [`info_columns`].
fn info(row: &Row<'_>) -> rusqlite::Result<TimerInfo> {
    let state = if row.get::<_, i64>(2)? == 0 { TimerState::Pending } else { TimerState::Dead };
    let payload: Vec<u8> = row.get(8)?;
    let mut info = TimerInfo::new(TimerId::new(row.get(0)?), row.get(1)?, state, system_time(row.get(3)?));
    info.scheduled = system_time(row.get(4)?);
    info.attempts = row.get(5)?;
    info.key = row.get(6)?;
    info.schedule = row.get(7)?;
    info.payload = String::from_utf8_lossy(&payload).into_owned();
    info.error = row.get(9)?;
    Ok(info)
}

/// Returns the query of a listing. SQLite uses a partial index only if its condition is a literal
/// part of the query.
fn listing(filter: &TimerFilter) -> String {
    let state = match filter.state {
        Some(TimerState::Dead) => "AND state = 1",
        Some(TimerState::Pending) => "AND state = 0",
        None => "",
    };
    let index = match (&filter.key, filter.state, &filter.topic) {
        (Some(_), ..) => "INDEXED BY timers_key",
        (None, Some(TimerState::Dead), None) => "INDEXED BY timers_dead",
        (None, Some(TimerState::Dead), Some(_)) => "INDEXED BY timers_dead_topic",
        (None, ..) => "",
    };
    let topic = match filter.topic {
        Some(_) => "AND topic = (SELECT id FROM topics WHERE name = ?2)",
        // Each parameter has to appear.
        None if filter.key.is_some() => "AND topic IN (SELECT id FROM topics) AND ?2 IS NULL",
        None => "AND ?2 IS NULL",
    };
    let key = if filter.key.is_some() { "AND key = ?4" } else { "AND ?4 IS NULL" };
    let columns = info_columns();
    format!(
        "SELECT {columns} FROM timers {index} WHERE timers.id > ?1 {state} {topic} {key} ORDER BY timers.id LIMIT ?3"
    )
}

pub(super) fn counts(connection: &Connection) -> Result<Vec<(i64, TopicCounts)>, StoreError> {
    let sql = "SELECT id, name, pending, dead, paused FROM topics ORDER BY name";
    let rows = connection.all(sql, [], |row| {
        let number = |index| row.get(index).map(|count: i64| count.max(0).unsigned_abs());
        let mut counts = TopicCounts::new(row.get(1)?, number(2)?, number(3)?);
        counts.is_paused = row.get(4)?;
        Ok((row.get(0)?, counts))
    });
    Ok(rows?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::store::sqlite::SqliteStore;
    use rusqlite::ToSql;

    /// Returns how SQLite executes a query.
    fn plan(store: &SqliteStore, sql: &str) -> String {
        plan_of(store, sql, params![0, None::<String>, 10, None::<String>])
    }

    fn plan_of(store: &SqliteStore, sql: &str, values: &[&dyn ToSql]) -> String {
        let mut statement = store.database.connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let rows = statement.query_map(values, |row| row.get::<_, String>(3)).unwrap();
        rows.collect::<rusqlite::Result<Vec<_>>>().unwrap().join("; ")
    }

    #[test]
    fn listings_of_dead_letters_and_keys_read_nothing_else() {
        let store = SqliteStore::in_memory().unwrap();
        let dead = TimerFilter::new().state(TimerState::Dead);
        for (filter, index) in [
            (dead.clone(), "SEARCH timers USING INDEX timers_dead (id>?)"),
            (dead.topic("topic"), "SEARCH timers USING INDEX timers_dead_topic (topic=? AND id>?)"),
        ] {
            let plan = plan(&store, &listing(&filter));
            assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{plan}");
        }
        let key = TimerFilter::new().key("k");
        for filter in [key.clone(), key.clone().topic("topic"), key.state(TimerState::Dead)] {
            let plan = plan(&store, &listing(&filter));
            assert!(plan.contains("SEARCH timers USING INDEX timers_key (topic=? AND key=?"), "{plan}");
        }
        for (state, index) in [
            (TimerState::Pending, "INDEX timers_due (topic=? AND "),
            (TimerState::Dead, "INDEX timers_dead_due (topic=? AND "),
        ] {
            let plan = plan_of(&store, due_keys(state), params![1, 0, 0, None::<String>, 100]);
            assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{plan}");
        }
        let pending = plan(&store, &listing(&TimerFilter::new().state(TimerState::Pending)));
        assert!(pending.contains("SEARCH timers USING INTEGER PRIMARY KEY (rowid>?)"), "{pending}");
    }
}
