//! What is read from a PostgreSQL store.

use super::{
    DueKey, LoadRange, PostgresStore, StoreError, TimerFilter, TimerInfo, TimerRow, TimerState, TopicCounts,
    session::{Session, Value, column},
};
use crate::durable::{TimerId, unix_millis::system_time};
use postgres::Row;
use std::collections::BTreeSet;

/// The largest number of timers in one answer about the changes of others.
const CHANGES_LIMIT: i64 = 8192;

/// The largest number of timers that are read again because of a refused change.
const RECHECK_LIMIT: usize = 65_536;

/// Where the search for changes of others continues.
#[derive(Default)]
pub(super) struct Changes {
    /// Changes in transactions before this one have been seen. The id continues a cut answer.
    since: Option<(i64, i64)>,
    /// The transaction from which to search again after the last of several cut answers: it, or a
    /// later one whose changes were in those answers, had not ended.
    back_to: Option<i64>,
    /// Timers of this node that were not as the engine expected.
    recheck: BTreeSet<i64>,
}

impl Changes {
    /// Makes the next answer contain a timer, if it is pending.
    pub(super) fn recheck(&mut self, id: TimerId) {
        if self.recheck.len() < RECHECK_LIMIT {
            self.recheck.insert(id.get());
        }
    }
}

/// Creates the topics that are missing. Returns the names and ids of all of them.
pub(super) fn attach(session: &mut Session, topics: &[String]) -> Result<Vec<(String, i32)>, StoreError> {
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

/// Loads pending timers of this node's partitions, merged in the order of their keys.
pub(super) fn load(
    store: &mut PostgresStore,
    session: &mut Session,
    range: LoadRange,
) -> Result<Vec<TimerRow>, StoreError> {
    let attached = store.topics.iter().enumerate();
    let wanted = attached.filter(|(index, _)| range.topics.contains(*index));
    let topics: Vec<i32> = wanted.map(|(_, (_, id))| *id).collect();
    let partitions = store.ownership.active();
    if topics.is_empty() || partitions.is_empty() {
        return Ok(Vec::new());
    }
    let limit = i64::try_from(range.limit).unwrap_or(i64::MAX);
    // One index scan for each topic, so that timers of other topics cost nothing.
    let rows = session.query(
        "SELECT t.* FROM unnest($1::integer[]) AS wanted (topic) CROSS JOIN LATERAL (
            SELECT id, partition, topic, due, scheduled, attempts, key, schedule, payload
            FROM {schema}.timers
            WHERE state = 0 AND topic = wanted.topic AND (due, id) > ($3, $4) AND due <= $5
                AND partition = ANY($2)
            ORDER BY due, id LIMIT $6
        ) t ORDER BY t.due, t.id LIMIT $6",
        &[&topics, &partitions, &range.after.due, &range.after.id.get(), &range.until, &limit],
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
        partition,
        epoch,
    }))
}

/// Returns timers that other sessions have changed.
///
/// Each timer has the number of the last transaction that changed it. The snapshot of a query
/// separates transactions that had ended, whose changes the query sees, from the others, which the
/// next query includes. This is exact for transactions of any length, and independent of clocks.
pub(super) fn changed_by_others(
    store: &mut PostgresStore,
    session: &mut Session,
    until: i64,
) -> Result<Vec<TimerRow>, StoreError> {
    let Some(since) = store.changes.since else {
        // The engine loads everything after its first lease.
        let row = session.query_one("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint", &[])?;
        store.changes.since = Some((column(&row, 0)?, i64::MIN));
        return Ok(Vec::new());
    };
    let partitions = store.ownership.active();
    let recheck: Vec<i64> = store.changes.recheck.iter().copied().collect();
    let session_id = session.id();
    let rows = session.query(
        "SELECT s.xmin, t.changed_in, t.id, t.partition, t.topic, t.due, t.scheduled, t.attempts, t.key,
            t.schedule, t.payload, t.is_recheck
        FROM (SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin) s
        LEFT JOIN LATERAL (
            (SELECT *, false AS is_recheck FROM {schema}.timers
            WHERE (changed_in, id) > ($1, $2) AND changed_by <> $3 AND state = 0 AND due <= $4
                AND partition = ANY($5)
            ORDER BY changed_in, id LIMIT $6)
            UNION ALL
            SELECT *, true FROM {schema}.timers
            WHERE id = ANY($7) AND state = 0 AND due <= $4 AND partition = ANY($5)
        ) t ON true",
        &[&since.0, &since.1, &session_id, &until, &partitions, &CHANGES_LIMIT, &recheck],
    )?;
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    let xmin: i64 = column(first, 0)?;
    let mut found = Vec::new();
    let mut last = (i64::MIN, i64::MIN);
    let mut changed = 0;
    for row in &rows {
        // A timer that is missing altogether is the row of the snapshot alone.
        if let Some(changed_in) = column::<Option<i64>>(row, 1)? {
            // Those that are read again are not in the order of the changes.
            if !column::<bool>(row, 11)? {
                changed += 1;
                last = last.max((changed_in, column(row, 2)?));
            }
            found.extend(timer(store, row, 2)?);
        }
    }
    // One that is in both parts of the query.
    found.sort_unstable_by_key(|row| row.key);
    found.dedup_by_key(|row| row.key);
    let is_cut = changed >= CHANGES_LIMIT;
    store.changes.since = Some(if is_cut {
        if last.0 >= xmin {
            store.changes.back_to.get_or_insert(xmin);
        }
        last
    } else {
        (store.changes.back_to.take().unwrap_or(xmin), i64::MIN)
    });
    store.changes.recheck.clear();
    Ok(found)
}

pub(super) fn list(session: &mut Session, filter: &TimerFilter) -> Result<Vec<TimerInfo>, StoreError> {
    let topic = filter.topic.as_deref();
    let key = filter.key.as_deref();
    if [topic, key].into_iter().flatten().any(|text| text.contains('\0')) {
        return Ok(Vec::new());
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
    let values: [Value<'_>; 4] = [&after, &topic, &limit, &key];
    let values = if key.is_some() { &values[..] } else { &values[..3] };
    session.query(sql, values)?.iter().map(info).collect()
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

pub(super) fn counts(session: &mut Session) -> Result<Vec<TopicCounts>, StoreError> {
    let rows = session.query(
        "SELECT n.name, coalesce(sum(c.pending), 0)::bigint, coalesce(sum(c.dead), 0)::bigint
        FROM {schema}.topics n LEFT JOIN {schema}.counts c ON c.topic = n.id
        GROUP BY n.name ORDER BY n.name COLLATE \"C\"",
        &[],
    )?;
    let number = |row: &Row, index| Ok(column::<i64>(row, index)?.max(0).unsigned_abs());
    rows.iter().map(|row| Ok(TopicCounts::new(column(row, 0)?, number(row, 1)?, number(row, 2)?))).collect()
}
