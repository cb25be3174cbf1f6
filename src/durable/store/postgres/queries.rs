//! What is read from a PostgreSQL store.

use super::{
    PostgresStore,
    session::{PostgresSession, SqlValue, column},
};
use crate::durable::{
    id::TimerId,
    store::{
        error::StoreError,
        listing::{TimerFilter, TimerInfo, TimerState, TopicCounts},
        row::{Begun, DueKey, TimerRow},
    },
    unix_millis::system_time,
};
use postgres::Row;

/// Creates the topics that are missing. Returns the names and ids of all of them.
pub(super) fn attach(
    session: &mut PostgresSession,
    topics: &[String],
) -> Result<Vec<(String, i32)>, StoreError> {
    let mut attached = Vec::with_capacity(topics.len());
    for name in topics {
        if name.contains('\0') {
            return Err(StoreError::failed("the name of a topic has a NUL character"));
        }
        let select = "SELECT id FROM {schema}.topics WHERE name = $1";
        let mut rows = session.query(select, &[name])?;
        if rows.is_empty() {
            let insert = "INSERT INTO {schema}.topics (name) VALUES ($1) ON CONFLICT DO NOTHING";
            session.query(insert, &[name])?;
            rows = session.query(select, &[name])?;
        }
        let row = rows.first().ok_or_else(|| StoreError::failed("a topic was removed"))?;
        attached.push((name.clone(), column(row, 0)?));
    }
    Ok(attached)
}

/// Returns periodic timers behind a key, without their payloads.
pub(super) fn far_periodic(
    store: &mut PostgresStore,
    session: &mut PostgresSession,
    after: DueKey,
    limit: usize,
) -> Result<Vec<TimerRow>, StoreError> {
    let topics: Vec<i32> = store.topics.iter().map(|(_, id)| *id).collect();
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = session.query(
        "SELECT id, partition, topic, due, scheduled, attempts, key, schedule, ''::bytea, begun
        FROM {schema}.timers
        WHERE state = 0 AND schedule IS NOT NULL AND attempts = 0 AND NOT moved
            AND (due, id) > ($1, $2) AND partition = ANY($3) AND topic = ANY($4)
        ORDER BY due, id LIMIT $5",
        &[&after.due, &after.id.get(), &store.active(), &topics, &limit],
    )?;
    collect(store, &rows, 0)
}

/// Reads rows with the columns of a timer from `first` on. Leaves out those of other nodes.
pub(super) fn collect(
    store: &PostgresStore,
    rows: &[Row],
    first: usize,
) -> Result<Vec<TimerRow>, StoreError> {
    let timers = rows.iter().map(|row| timer(store, row, first));
    timers.filter_map(Result::transpose).collect()
}

/// Reads a timer, if it belongs to this node and to an attached topic.
pub(super) fn timer(store: &PostgresStore, row: &Row, first: usize) -> Result<Option<TimerRow>, StoreError> {
    let partition = column::<i32>(row, first + 1)?.unsigned_abs();
    let topic = store.topic_index(column(row, first + 2)?);
    let (Some(epoch), Some(topic)) = (store.ownership.epoch(partition), topic) else { return Ok(None) };
    Ok(Some(TimerRow {
        key: DueKey { id: TimerId::new(column(row, first)?), due: column(row, first + 3)? },
        topic,
        scheduled: column(row, first + 4)?,
        attempts: column::<i32>(row, first + 5)?.unsigned_abs(),
        idempotency_key: column(row, first + 6)?,
        schedule: column(row, first + 7)?,
        payload: column(row, first + 8)?,
        begun: Begun::from_number(column::<i16>(row, first + 9)?.into()),
        partition,
        epoch,
    }))
}

pub(super) fn list(
    session: &mut PostgresSession,
    filter: &TimerFilter,
) -> Result<Vec<TimerInfo>, StoreError> {
    let topic = filter.topic.as_deref();
    let key = filter.key.as_deref();
    if [topic, key].into_iter().flatten().any(|text| text.contains('\0')) {
        return Ok(Vec::new());
    }
    if let Some(behind) = filter.by_due {
        return list_by_due(session, filter, behind);
    }
    let after = filter.after.map_or(i64::MIN, TimerId::get);
    let limit = i64::try_from(filter.effective_limit()).unwrap_or(i64::MAX);
    // A statement for each condition, so that dead letters and keys are found with their indexes.
    macro_rules! listing {
        ($condition:literal) => {
            concat!(
                "SELECT t.id, n.name, t.state, t.due, t.scheduled, t.attempts, t.key, t.schedule, t.payload,
                    t.error
                FROM {schema}.timers t JOIN {schema}.topics n ON n.id = t.topic
                WHERE t.id > $1 AND ($2::text IS NULL OR n.name = $2) ",
                $condition,
                " ORDER BY t.id LIMIT $3"
            )
        };
    }
    let sql = match (filter.state, key) {
        (None, None) => listing!(""),
        (Some(TimerState::Pending), None) => listing!("AND t.state = 0"),
        (Some(TimerState::Dead), None) => listing!("AND t.state = 1"),
        (None, Some(_)) => listing!("AND t.key = $4"),
        (Some(TimerState::Pending), Some(_)) => listing!("AND t.key = $4 AND t.state = 0"),
        (Some(TimerState::Dead), Some(_)) => listing!("AND t.key = $4 AND t.state = 1"),
    };
    let values: [SqlValue<'_>; 4] = [&after, &topic, &limit, &key];
    let values = if key.is_some() { &values[..] } else { &values[..3] };
    session.query(sql, values)?.iter().map(info).collect()
}

/// Lists timers in the order of due times, merged over the topics.
fn list_by_due(
    session: &mut PostgresSession,
    filter: &TimerFilter,
    behind: DueKey,
) -> Result<Vec<TimerInfo>, StoreError> {
    // The keys are found with an index for each state.
    macro_rules! first {
        ($state:literal) => {
            concat!(
                "(SELECT id, due FROM {schema}.timers WHERE state = ",
                $state,
                " AND topic = w.id AND (due, id) > ($1, $2) AND ($5::text IS NULL OR key = $5)
                ORDER BY due, id LIMIT $4)"
            )
        };
    }
    macro_rules! listing {
        ($($first:expr),+) => {
            concat!(
                "SELECT t.id, n.name, t.state, t.due, t.scheduled, t.attempts, t.key, t.schedule, t.payload,
                    t.error
                FROM (
                    SELECT f.id, f.due FROM {schema}.topics w CROSS JOIN LATERAL (",
                $($first),+,
                ") f WHERE $3::text IS NULL OR w.name = $3 ORDER BY f.due, f.id LIMIT $4
                ) k JOIN {schema}.timers t ON t.id = k.id JOIN {schema}.topics n ON n.id = t.topic
                ORDER BY k.due, k.id"
            )
        };
    }
    let sql = match filter.state {
        Some(TimerState::Pending) => listing!(first!("0")),
        Some(TimerState::Dead) => listing!(first!("1")),
        None => listing!(first!("0"), " UNION ALL ", first!("1")),
    };
    let limit = i64::try_from(filter.effective_limit()).unwrap_or(i64::MAX);
    let id = behind.id.get();
    let values: [SqlValue<'_>; 5] = [&behind.due, &id, &filter.topic, &limit, &filter.key];
    session.query(sql, &values)?.iter().map(info).collect()
}

fn info(row: &Row) -> Result<TimerInfo, StoreError> {
    let state = if column::<i16>(row, 2)? == 0 { TimerState::Pending } else { TimerState::Dead };
    let payload: Vec<u8> = column(row, 8)?;
    let due = system_time(column(row, 3)?);
    let mut info = TimerInfo::new(TimerId::new(column(row, 0)?), column(row, 1)?, state, due);
    info.scheduled = system_time(column(row, 4)?);
    info.attempts = column::<i32>(row, 5)?.unsigned_abs();
    info.key = column(row, 6)?;
    info.schedule = column(row, 7)?;
    info.payload = String::from_utf8_lossy(&payload).into_owned();
    info.error = column(row, 9)?;
    Ok(info)
}

pub(super) fn counts(session: &mut PostgresSession) -> Result<Vec<TopicCounts>, StoreError> {
    let rows = session.query(
        "SELECT n.name, coalesce(sum(c.pending), 0)::bigint, coalesce(sum(c.dead), 0)::bigint, n.paused
        FROM {schema}.topics n LEFT JOIN {schema}.counts c ON c.topic = n.id
        GROUP BY n.name, n.paused ORDER BY n.name COLLATE \"C\"",
        &[],
    )?;
    let number = |row: &Row, index| Ok::<_, StoreError>(column::<i64>(row, index)?.max(0).unsigned_abs());
    let counts = |row: &Row| {
        let mut counts = TopicCounts::new(column(row, 0)?, number(row, 1)?, number(row, 2)?);
        counts.is_paused = column(row, 3)?;
        Ok(counts)
    };
    rows.iter().map(counts).collect()
}
