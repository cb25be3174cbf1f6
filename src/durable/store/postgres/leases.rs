//! The leases of this node in the database: renewals, takeovers, and the end.

use super::{
    PostgresStore, counts,
    session::{PostgresSession, column},
};
use crate::durable::{
    store::{error::StoreError, lease::Lease, ownership::Ownership, server_clock::ServerClock},
    unix_millis::duration_millis,
};
use std::{collections::BTreeSet, time::Instant};

/// The number of forgotten keys that one renewal removes at most. While there are more, each
/// renewal goes on, so a node removes that many in about a second.
const KEYS_REMOVED_AT_ONCE: i64 = 20_000;

/// The number of renewals between two searches for keys to forget.
const RENEWALS_PER_SEARCH: u32 = 30;

/// Renews the leases, gives surplus back, and takes over partitions without an owner.
#[allow(clippy::disallowed_methods, reason = "leases are real time, as other nodes see it")]
pub(super) fn renew(
    store: &mut PostgresStore,
    session: &mut PostgresSession,
    busy: &BTreeSet<u32>,
) -> Result<Lease, StoreError> {
    let lease = store.settings.lease;
    let millis = duration_millis(lease) as f64;
    let now = Instant::now();
    // Others do not leave a share to a node that is about to stop.
    let is_closing = store.ownership.is_closing();
    let alive = if is_closing { 0.0 } else { millis };
    let (row, asked, answered) = session.query_timed(
        "WITH beat AS (
            INSERT INTO {schema}.nodes (id, name, alive_until)
            VALUES ($1, $2, clock_timestamp() + $4 * interval '1 millisecond')
            ON CONFLICT (id) DO UPDATE SET alive_until = excluded.alive_until
        ), mine AS (
            UPDATE {schema}.partitions SET lease_until = clock_timestamp() + $3 * interval '1 millisecond'
            WHERE owner = $1 RETURNING id, epoch
        )
        SELECT (SELECT count(*) FROM {schema}.nodes WHERE id <> $1 AND alive_until > clock_timestamp()),
            (SELECT count(*) FROM {schema}.partitions
                WHERE owner IS DISTINCT FROM $1 AND (owner IS NULL OR lease_until <= clock_timestamp())),
            ARRAY(SELECT id FROM mine ORDER BY id),
            ARRAY(SELECT epoch FROM mine ORDER BY id),
            (SELECT count(*) FROM {schema}.partitions),
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
        &[&store.node, &store.settings.node, &millis, &alive],
    )?;
    store.clock = Some(ServerClock::read(store.clock, column(&row, 5)?, asked, answered));
    let others: i64 = column(&row, 0)?;
    let free: i64 = column(&row, 1)?;
    let ids: Vec<i32> = column(&row, 2)?;
    let epochs: Vec<i64> = column(&row, 3)?;
    let total: i64 = column(&row, 4)?;
    if total != i64::from(store.partitions) {
        // The timers of a missing partition would never fire, and nothing else would tell.
        let expected = store.partitions;
        return Err(StoreError::failed(format!("the store has {total} of {expected} partitions")));
    }
    let owned = ids.into_iter().map(i32::unsigned_abs).zip(epochs).collect();
    let share = store.ownership.share(store.partitions, usize::try_from(others).unwrap_or_default());
    let surplus = store.ownership.update(owned, share, busy, now + store.settings.drain_timeout, now);
    let surplus: Vec<i32> = surplus.into_iter().map(|partition| partition as i32).collect();
    if !surplus.is_empty() {
        session.query(
            "UPDATE {schema}.partitions SET owner = NULL, lease_until = '-infinity'
            WHERE owner = $1 AND id = ANY($2)",
            &[&store.node, &surplus],
        )?;
    }
    let wanted = store.ownership.wanted(share) as i64;
    if wanted > 0 && free > 0 {
        take_over(store, session, wanted, millis)?;
    }
    if let Err(error) = forget_keys(store, session) {
        // Not at the next renewal: the lease is renewed, so no other node would fire the timers of
        // this one.
        store.renewals = 0;
        if session.is_closed() || session.is_read_only() {
            return Err(error);
        }
        log::warn!("the timer store was not cleaned, which is tried again: {error}");
    }
    store.placement.set(store.ownership.active());
    let needs_reload = store.changes.take_reload();
    Ok(store.ownership.lease(lease, needs_reload))
}

fn take_over(
    store: &mut PostgresStore,
    session: &mut PostgresSession,
    wanted: i64,
    millis: f64,
) -> Result<(), StoreError> {
    let rows = session.query(
        "WITH free AS (
            SELECT id, owner IS NOT NULL AS is_suspect FROM {schema}.partitions
            WHERE owner IS NULL OR lease_until <= clock_timestamp()
            ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
        )
        UPDATE {schema}.partitions p SET owner = $1, epoch = p.epoch + 1,
            lease_until = clock_timestamp() + $3 * interval '1 millisecond'
        FROM free WHERE p.id = free.id RETURNING p.id, p.epoch, free.is_suspect",
        &[&store.node, &wanted, &millis],
    )?;
    for row in rows {
        let partition = column::<i32>(&row, 0)?.unsigned_abs();
        let epoch = column(&row, 1)?;
        store.ownership.take_over(partition, epoch, column(&row, 2)?);
    }
    log::info!("this node has {} partitions of the timer store", store.ownership.active().len());
    Ok(())
}

/// Now and then, removes keys of timers that ended long ago and nodes that are gone, and adds up
/// numbers of timers.
fn forget_keys(store: &mut PostgresStore, session: &mut PostgresSession) -> Result<(), StoreError> {
    store.renewals += 1;
    if store.renewals < RENEWALS_PER_SEARCH {
        return Ok(());
    }
    let memory = duration_millis(store.settings.key_memory);
    let removed = session.query(
        "WITH old AS (
            DELETE FROM {schema}.nodes WHERE alive_until < clock_timestamp() - interval '1 day'
        )
        DELETE FROM {schema}.ended_keys WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM {schema}.ended_keys
            WHERE ended < (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $1
            ORDER BY ended LIMIT $2 FOR UPDATE SKIP LOCKED
        )) RETURNING 1",
        &[&memory, &KEYS_REMOVED_AT_ONCE],
    )?;
    counts::fold(session)?;
    // Goes on at the next renewal if there are more.
    if removed.len() < KEYS_REMOVED_AT_ONCE as usize {
        store.renewals = 0;
    }
    Ok(())
}

/// Gives all partitions back.
pub(super) fn release(store: &mut PostgresStore, session: &mut PostgresSession) -> Result<(), StoreError> {
    session.query(
        "WITH node AS (DELETE FROM {schema}.nodes WHERE id = $1)
        UPDATE {schema}.partitions SET owner = NULL, lease_until = '-infinity' WHERE owner = $1",
        &[&store.node],
    )?;
    store.ownership = Ownership::default();
    Ok(())
}
