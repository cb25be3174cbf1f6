//! Loads of pending timers, bounded by their number and bytes.
//!
//! Adding up the sizes costs the server as much time as reading the rows. So a load first asks for
//! the payloads that are small enough for all rows of it together, and the others are `NULL`. The
//! rows behind the first of those are left for the next load, which begins at it and adds up the
//! sizes. Loads go on with that while the payloads are large.
//!
//! Invariant: the rows of a load take at most `max_bytes`, or there is only one. Runs on the thread
//! of the store.

use super::{
    PostgresStore,
    queries::collect,
    session::{PostgresSession, SqlValue, column},
};
use crate::durable::store::{
    change::{LoadRange, Loaded},
    error::StoreError,
};
use postgres::Row;

/// One index scan for each topic, so that timers of other topics cost nothing. A payload in another
/// table is not read for its size, which is beside the reference to it.
macro_rules! pending {
    ($columns:literal) => {
        concat!(
            "SELECT t.id, t.partition, t.topic, t.due, t.scheduled, t.attempts, t.key, t.schedule, ",
            $columns,
            " FROM unnest($1::integer[]) AS wanted (topic) CROSS JOIN LATERAL (
                SELECT id, partition, topic, due, scheduled, attempts, key, schedule, payload, begun,
                    octet_length(payload) + coalesce(octet_length(key), 0)
                        + coalesce(octet_length(schedule), 0) AS size
                FROM {schema}.timers
                WHERE state = 0 AND topic = wanted.topic AND (due, id) > ($3, $4) AND due <= $5
                    AND partition = ANY($2)
                ORDER BY due, id LIMIT $6
            ) t ORDER BY t.due, t.id LIMIT $6"
        )
    };
}

/// Rows with their payloads, if these are at most `$7` bytes long.
const SMALL: &str = pending!("CASE WHEN t.size <= $7::bigint THEN t.payload END, t.begun");

/// Rows of at most `$7` bytes together, or a single larger row. Another row follows without its
/// payload if the limit has cut the answer.
const SIZED: &str = concat!(
    "SELECT id, partition, topic, due, scheduled, attempts, key, schedule,
        CASE WHEN place = 1 OR bytes <= $7 THEN payload END, begun
    FROM (
        SELECT *, row_number() OVER dues AS place, sum(size) OVER dues AS bytes FROM (",
    pending!("t.payload, t.begun, t.size"),
    ") sized WINDOW dues AS (ORDER BY due, id ROWS UNBOUNDED PRECEDING)
    ) summed WHERE place <= 2 OR bytes - size <= $7 ORDER BY due, id"
);

/// The position of the payload in the rows.
const PAYLOAD: usize = 8;

/// What the store remembers of its loads.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// The last payloads were too large for a load that does not add up their sizes.
    are_large: bool,
}

/// Loads pending timers of this node's partitions, merged in the order of their keys.
pub(super) fn load(
    store: &mut PostgresStore,
    session: &mut PostgresSession,
    range: LoadRange,
) -> Result<Loaded, StoreError> {
    let attached = store.topics.iter().enumerate();
    let wanted = attached.filter(|(index, _)| range.topics.contains(*index));
    let topics: Vec<i32> = wanted.map(|(_, (_, id))| *id).collect();
    let partitions = store.active();
    if topics.is_empty() || partitions.is_empty() {
        return Ok(Loaded { rows: Vec::new(), is_complete: true });
    }
    let limit = i64::try_from(range.limit).unwrap_or(i64::MAX);
    let max_bytes = i64::try_from(range.max_bytes).unwrap_or(i64::MAX);
    let share = max_bytes / limit.max(1);
    let (due, id) = (range.after.due, range.after.id.get());
    let mut values: [SqlValue<'_>; 7] = [&topics, &partitions, &due, &id, &range.until, &limit, &share];
    if !store.loads.are_large {
        let rows = session.query(SMALL, &values)?;
        let whole = whole_rows(&rows)?;
        if whole > 0 || rows.is_empty() {
            return loaded(store, &rows, whole, range.limit);
        }
    }
    values[6] = &max_bytes;
    let rows = session.query(SIZED, &values)?;
    let whole = whole_rows(&rows)?;
    let loaded = loaded(store, &rows, whole, range.limit)?;
    let share = usize::try_from(share).unwrap_or(usize::MAX);
    store.loads.are_large = loaded.rows.iter().any(|row| row.data_len() > share);
    Ok(loaded)
}

/// Returns the number of rows before the first one without a payload.
fn whole_rows(rows: &[Row]) -> Result<usize, StoreError> {
    for (place, row) in rows.iter().enumerate() {
        if column::<Option<&[u8]>>(row, PAYLOAD)?.is_none() {
            return Ok(place);
        }
    }
    Ok(rows.len())
}

fn loaded(store: &PostgresStore, rows: &[Row], whole: usize, limit: usize) -> Result<Loaded, StoreError> {
    let is_complete = whole == rows.len() && rows.len() < limit;
    Ok(Loaded { rows: collect(store, &rows[..whole], 0)?, is_complete })
}
