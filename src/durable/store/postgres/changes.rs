//! `Changes`: which timers other sessions have changed.
//!
//! Each timer has the number of the last transaction that changed it. A snapshot of PostgreSQL says
//! exactly which transactions a query sees: those before its end, except for some that were still
//! in progress. So the changes between two snapshots are those of transactions that only the newer
//! one contains. Each change is returned once, for transactions of any length, without clocks.
//!
//! Numbers beyond the newer snapshot are ignored. Timers have such numbers after their tables were
//! restored from a dump into a cluster that counts from the beginning.
//!
//! Snapshots of two servers cannot be compared. A standby that was promoted may lack the last
//! transactions of the old primary, and gives their numbers to other transactions. So after the
//! server was replaced or restarted, the search begins again, and all timers are loaded again.

use super::{
    PostgresStore,
    queries::collect,
    session::{PostgresSession, ServerStart, column},
};
use crate::durable::{
    id::TimerId,
    store::{change::Loaded, error::StoreError, row::TimerRow},
};
use std::collections::BTreeSet;

/// The largest number of timers in one answer.
const ROWS_LIMIT: i64 = 4096;

/// The largest number of timers that are read again because of a refused change.
const RECHECK_LIMIT: usize = 65_536;

/// The place of a timer in the order of the changes: the transaction, and the timer.
type Place = (i64, i64);

/// Comes before all changes.
const FIRST: Place = (i64::MIN, i64::MIN);

/// Where the search for changes of others continues.
#[derive(Default)]
pub(super) struct Changes {
    /// The changes that this snapshot contains have been returned.
    seen: Option<Snapshot>,
    /// The continuation of an answer that was cut.
    cut: Option<Cut>,
    /// Timers of this node that were not as the engine expected.
    recheck: BTreeSet<i64>,
    /// The start time of the server with which the last session was connected.
    server: Option<ServerStart>,
    /// Whether the server is another one since the last renewal.
    needs_reload: bool,
}

/// An answer that was cut.
struct Cut {
    /// The last change in it.
    after: Place,
    /// The snapshot of its first part.
    begun: Snapshot,
}

/// The transactions that had been committed at an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Snapshot {
    /// Transactions from this one on had not ended.
    end: i64,
    /// Those before it that were in progress.
    in_progress: Vec<i64>,
}

impl Snapshot {
    /// Reads the text of a snapshot: `begin:end:in progress, ..`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ':').skip(1);
        let end = parts.next()?.parse().ok()?;
        let in_progress = parts.next()?.split(',').filter(|number| !number.is_empty());
        Some(Snapshot { end, in_progress: in_progress.map(str::parse).collect::<Result<_, _>>().ok()? })
    }

    fn read(text: &str) -> Result<Self, StoreError> {
        Self::parse(text).ok_or_else(|| StoreError::failed(format!("not a snapshot: {text}")))
    }
}

impl Changes {
    /// Makes one of the next answers contain a timer, if it is pending.
    pub(super) fn recheck(&mut self, id: TimerId) {
        if self.recheck.len() < RECHECK_LIMIT {
            self.recheck.insert(id.get());
        }
    }

    /// Notes the server of a new session. If it is another server, the changes seen on the last
    /// server do not count.
    pub(super) fn connected_to(&mut self, server: ServerStart) {
        if self.server.replace(server).is_some_and(|before| before != server) {
            self.seen = None;
            self.cut = None;
            self.needs_reload = true;
        }
    }

    /// Returns whether all timers have to be loaded again. Returns `true` once for each new server.
    pub(super) fn take_reload(&mut self) -> bool {
        std::mem::take(&mut self.needs_reload)
    }
}

/// Returns timers that other sessions have changed.
pub(super) fn changed_by_others(
    store: &mut PostgresStore,
    session: &mut PostgresSession,
    until: i64,
    max_bytes: usize,
) -> Result<Loaded, StoreError> {
    let Some(seen) = store.changes.seen.clone() else {
        // The engine loads everything after its first lease.
        let row = session.query_one("SELECT pg_current_snapshot()::text", &[])?;
        store.changes.seen = Some(Snapshot::read(column(&row, 0)?)?);
        return Ok(Loaded { rows: Vec::new(), is_complete: true });
    };
    let after = store.changes.cut.as_ref().map_or(FIRST, |cut| cut.after);
    // Both searches of the index begin at their changes. With two lower bounds, PostgreSQL may
    // begin at the lower one and read the entries of all timers. With `changed_in = ANY`, it may
    // prefer the order of the index to that condition, and read them too.
    let later = after.max((seen.end, i64::MIN));
    let max_bytes = i64::try_from(max_bytes).unwrap_or(i64::MAX);
    let partitions = store.active();
    let session_id = session.id();
    let rows = session.query(
        "SELECT s.snapshot, t.is_cut, t.changed_in, t.id, t.partition, t.topic, t.due, t.scheduled,
            t.attempts, t.key, t.schedule, t.payload, t.begun
        FROM (SELECT pg_current_snapshot()::text AS snapshot) s
        LEFT JOIN LATERAL (
            SELECT *, rows >= $8 OR (total > $9 AND rows > 1) AS is_cut FROM (
                SELECT *, row_number() OVER changes AS place, sum(size) OVER changes AS bytes,
                    count(*) OVER () AS rows, sum(size) OVER () AS total
                FROM (
                    SELECT *, octet_length(payload) + coalesce(octet_length(key), 0)
                        + coalesce(octet_length(schedule), 0) AS size
                    FROM (
                        (SELECT * FROM {schema}.timers
                        WHERE (changed_in, id) > ($3, $10)
                            AND changed_in < pg_snapshot_xmax(pg_current_snapshot())::text::bigint
                            AND changed_by <> $5 AND state = 0 AND due <= $6 AND partition = ANY($7)
                        ORDER BY changed_in, id LIMIT $8)
                        UNION ALL
                        (SELECT ended.* FROM unnest($4::bigint[]) AS open (number) CROSS JOIN LATERAL (
                            SELECT * FROM {schema}.timers
                            WHERE changed_in = open.number AND (changed_in, id) > ($1, $2)
                                AND changed_by <> $5 AND state = 0 AND due <= $6 AND partition = ANY($7)
                            ORDER BY id LIMIT $8
                        ) ended ORDER BY changed_in, id LIMIT $8)
                    ) changed ORDER BY changed_in, id LIMIT $8
                ) sized WINDOW changes AS (ORDER BY changed_in, id)
            ) summed WHERE place = 1 OR bytes <= $9
        ) t ON true ORDER BY t.changed_in, t.id",
        &[
            &after.0,
            &after.1,
            &later.0,
            &seen.in_progress,
            &session_id,
            &until,
            &partitions,
            &ROWS_LIMIT,
            &max_bytes,
            &later.1,
        ],
    )?;
    let Some(first) = rows.first() else { return Err(StoreError::failed("no snapshot")) };
    let snapshot = Snapshot::read(column(first, 0)?)?;
    // Without a change, there is the row of the snapshot alone.
    let is_cut = column::<Option<bool>>(first, 1)?.unwrap_or(false);
    let mut last = after;
    let mut changed = Vec::new();
    for row in rows {
        if let Some(changed_in) = column::<Option<i64>>(&row, 2)? {
            last = (changed_in, column(&row, 3)?);
            changed.push(row);
        }
    }
    let mut found = collect(store, &changed, 3)?;
    // If it fails, so does this search, and its changes are searched for again.
    let is_rechecked = recheck(store, session, until, max_bytes, &mut found)?;
    // What has changed since the first part of a cut answer is searched for again: it may be before
    // the place at which the answer was cut.
    let begun = store.changes.cut.take().map_or(snapshot, |cut| cut.begun);
    if is_cut {
        store.changes.cut = Some(Cut { after: last, begun });
    } else {
        store.changes.seen = Some(begun);
    }
    // A timer that is in both answers.
    found.sort_unstable_by_key(|row| row.key);
    found.dedup_by_key(|row| row.key);
    Ok(Loaded { rows: found, is_complete: !is_cut && is_rechecked })
}

/// Reads timers again that were not as the engine expected. Returns whether none is left.
fn recheck(
    store: &mut PostgresStore,
    session: &mut PostgresSession,
    until: i64,
    max_bytes: i64,
    found: &mut Vec<TimerRow>,
) -> Result<bool, StoreError> {
    if store.changes.recheck.is_empty() {
        return Ok(true);
    }
    let ids: Vec<i64> = store.changes.recheck.iter().copied().collect();
    let rows = session.query(
        "SELECT id, partition, topic, due, scheduled, attempts, key, schedule, payload, begun,
            rows >= $4 OR (total > $5 AND rows > 1)
        FROM (
            SELECT *, row_number() OVER ids AS place, sum(size) OVER ids AS bytes, count(*) OVER () AS rows,
                sum(size) OVER () AS total
            FROM (
                SELECT *, octet_length(payload) + coalesce(octet_length(key), 0)
                    + coalesce(octet_length(schedule), 0) AS size
                FROM {schema}.timers
                WHERE id = ANY($1) AND state = 0 AND due <= $2 AND partition = ANY($3)
                ORDER BY id LIMIT $4
            ) sized WINDOW ids AS (ORDER BY id)
        ) summed WHERE place = 1 OR bytes <= $5 ORDER BY id",
        &[&ids, &until, &store.active(), &ROWS_LIMIT, &max_bytes],
    )?;
    found.extend(collect(store, &rows, 0)?);
    let is_cut = rows.first().map(|row| column::<bool>(row, 10)).transpose()?.unwrap_or(false);
    match rows.last() {
        Some(last) if is_cut => {
            let last: i64 = column(last, 0)?;
            store.changes.recheck = store.changes.recheck.split_off(&last.saturating_add(1));
        }
        _ => store.changes.recheck.clear(),
    }
    Ok(!is_cut)
}

#[cfg(test)]
mod tests {
    use super::{Changes, Cut, FIRST, Snapshot};
    use crate::durable::store::postgres::session::ServerStart;

    /// The state within an answer that was cut.
    fn searching() -> Changes {
        let snapshot = Snapshot { end: 1000, in_progress: Vec::new() };
        let cut = Cut { after: FIRST, begun: snapshot.clone() };
        Changes { seen: Some(snapshot), cut: Some(cut), ..Changes::default() }
    }

    #[test]
    fn another_server_begins_the_search_again_and_asks_for_a_reload_once() {
        let mut changes = searching();
        changes.connected_to(ServerStart(7));
        assert!(!changes.take_reload(), "the first connection");
        changes.connected_to(ServerStart(7));
        assert!(changes.seen.is_some() && changes.cut.is_some() && !changes.take_reload());
        changes.connected_to(ServerStart(5));
        assert!(changes.seen.is_none() && changes.cut.is_none());
        assert!(changes.take_reload() && !changes.take_reload());
    }

    #[test]
    fn a_snapshot_has_its_end_and_the_transactions_in_progress() {
        let snapshot = |end, in_progress: &[i64]| Snapshot { end, in_progress: in_progress.to_vec() };
        for (text, expected) in [
            ("10:20:10,14,15", Some(snapshot(20, &[10, 14, 15]))),
            ("700:700:", Some(snapshot(700, &[]))),
            ("", None),
            ("1:2", None),
            ("1:x:", None),
            ("1:2:3,x", None),
        ] {
            assert_eq!(Snapshot::parse(text), expected, "{text}");
        }
    }
}
