//! `Ownership`: the partitions of this node.
//!
//! A node that owns more than its share gives the surplus back. A partition with runs that were
//! claimed and have not ended is first drained, so that no run is repeated: the node does not fire
//! its timers any more, but still ends those runs. Draining takes `drain_within` at most. Then the
//! partition is given back in any case, because its other timers wait. A node that is about to stop
//! has no share, so it gives everything back in this way.

use super::{
    Change, Held, Lease, Outcome, PostgresStore, StoreError, counts,
    server_clock::ServerClock,
    session::{Session, column},
};
use crate::durable::{TimerId, unix_millis::duration_millis};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// The longest pause between two renewals.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The number of forgotten keys that one renewal removes at most. While there are more, each
/// renewal goes on, so a node removes that many in about a second.
const KEYS_REMOVED_AT_ONCE: i64 = 20_000;

/// The number of renewals between two searches for keys to forget.
const RENEWALS_PER_SEARCH: u32 = 30;

/// What this node owns, as of the last renewal.
#[derive(Default)]
pub(super) struct Ownership {
    /// The epoch of each partition whose timers fire here.
    active: BTreeMap<u32, i64>,
    /// Partitions that will be given back, and until when they are drained at most.
    draining: BTreeMap<u32, (i64, Instant)>,
    /// The epochs of partitions that were taken over from a node whose lease had ended.
    suspects: BTreeMap<u32, i64>,
    /// The partitions of runs that were claimed and have not ended.
    claimed: BTreeMap<TimerId, u32>,
    /// The number of starts, which spreads them over the partitions.
    starts: usize,
    renewals: u32,
    /// Whether this node is about to stop.
    is_closing: bool,
}

impl Ownership {
    /// Returns the epoch under which timers of a partition are loaded.
    pub(super) fn epoch(&self, partition: u32) -> Option<i64> {
        self.active.get(&partition).copied()
    }

    /// Returns the partitions whose timers fire here.
    pub(super) fn active(&self) -> Vec<i32> {
        self.active.keys().map(|partition| *partition as i32).collect()
    }

    pub(super) fn is_draining(&self, partition: u32) -> bool {
        self.draining.contains_key(&partition)
    }

    /// Makes the following renewals give partitions back.
    pub(super) fn drain(&mut self) {
        self.is_closing = true;
    }

    /// Chooses the partition of a new timer: one of this node, if there is one.
    pub(super) fn place(&mut self, partitions: u32) -> u32 {
        self.starts = self.starts.wrapping_add(1);
        let own = self.active.len().max(1);
        match self.active.keys().nth(self.starts % own) {
            Some(partition) => *partition,
            None => (self.starts % partitions.max(1) as usize) as u32,
        }
    }

    /// Remembers which runs are under way.
    pub(super) fn committed(&mut self, changes: &[Change], outcomes: &[Outcome]) {
        for (change, outcome) in changes.iter().zip(outcomes) {
            match (change, outcome) {
                (Change::Claim { held } | Change::Begin { held, .. }, Outcome::Done(_)) => {
                    self.claimed.insert(held.key.id, held.partition);
                }
                // The engine retries or buries a run whose effect failed.
                (Change::End { .. }, Outcome::Refused(StoreError::Effect(_))) => {}
                (
                    Change::End { held, .. }
                    | Change::Retry { held, .. }
                    | Change::Bury { held, .. }
                    | Change::SkipTo { held, .. }
                    | Change::Begin { held, .. }
                    | Change::Claim { held },
                    _,
                ) => drop(self.claimed.remove(&held.key.id)),
                _ => {}
            }
        }
    }

    /// Applies the owned partitions of the database. Returns surplus partitions to give back now.
    fn update(
        &mut self,
        owned: BTreeMap<u32, i64>,
        share: usize,
        drain_until: Instant,
        now: Instant,
    ) -> Vec<i32> {
        self.draining.retain(|partition, (epoch, _)| owned.get(partition) == Some(epoch));
        self.suspects.retain(|partition, epoch| owned.get(partition) == Some(epoch));
        self.claimed.retain(|_, partition| owned.contains_key(partition));
        let busy: BTreeSet<u32> = self.claimed.values().copied().collect();
        self.active = owned.iter().map(|(partition, epoch)| (*partition, *epoch)).collect();
        // After another node has left, the share grows, and draining stops.
        let keep = share.saturating_sub(self.active.len().saturating_sub(self.draining.len()));
        for _ in 0..keep {
            self.draining.pop_first();
        }
        self.active.retain(|partition, _| !self.draining.contains_key(partition));
        let mut surplus: Vec<u32> = self.active.keys().copied().collect();
        // Those without runs first.
        surplus.sort_by_key(|partition| busy.contains(partition));
        surplus.truncate(self.active.len().saturating_sub(share));
        for partition in surplus {
            if let Some(epoch) = self.active.remove(&partition) {
                self.draining.insert(partition, (epoch, drain_until));
            }
        }
        let is_drained = |(partition, (_, until)): (&u32, &(i64, Instant))| {
            (!busy.contains(partition) || *until <= now).then_some(*partition)
        };
        let drained: Vec<u32> = self.draining.iter().filter_map(is_drained).collect();
        for partition in &drained {
            self.draining.remove(partition);
        }
        drained.into_iter().map(|partition| partition as i32).collect()
    }
}

/// Renews the leases, gives surplus back, and takes over partitions without an owner.
#[allow(clippy::disallowed_methods, reason = "leases are real time, as other nodes see it")]
pub(super) fn renew(store: &mut PostgresStore, session: &mut Session) -> Result<Lease, StoreError> {
    let lease = store.settings.lease;
    let millis = duration_millis(lease) as f64;
    let now = Instant::now();
    // Others do not leave a share to a node that is about to stop.
    let is_closing = store.ownership.is_closing;
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
    let nodes = usize::try_from(others).unwrap_or_default() + 1;
    let share = if is_closing { 0 } else { (store.partitions as usize).div_ceil(nodes) };
    let surplus = store.ownership.update(owned, share, now + store.settings.drain_within, now);
    if !surplus.is_empty() {
        session.query(
            "UPDATE {schema}.partitions SET owner = NULL, lease_until = '-infinity'
            WHERE owner = $1 AND id = ANY($2)",
            &[&store.node, &surplus],
        )?;
    }
    let wanted = share.saturating_sub(store.ownership.active.len()) as i64;
    if wanted > 0 && free > 0 {
        take_over(store, session, wanted, millis)?;
    }
    forget_keys(store, session)?;
    store.placement.set(store.ownership.active.keys().copied().collect());
    Ok(Lease {
        partitions: store.ownership.active.iter().map(|(partition, epoch)| (*partition, *epoch)).collect(),
        draining: store.ownership.draining.iter().map(|(id, (epoch, _))| (*id, *epoch)).collect(),
        suspects: store.ownership.suspects.iter().map(|(partition, epoch)| (*partition, *epoch)).collect(),
        needs_reload: store.changes.take_reload(),
        valid_for: lease / 2,
        renew_after: (lease / 6).min(LONGEST_PAUSE),
    })
}

fn take_over(
    store: &mut PostgresStore,
    session: &mut Session,
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
        store.ownership.active.insert(partition, epoch);
        if column(&row, 2)? {
            store.ownership.suspects.insert(partition, epoch);
        }
    }
    log::info!("this node has {} partitions of the timer store", store.ownership.active.len());
    Ok(())
}

/// Now and then, removes keys of timers that ended long ago and nodes that are gone, and adds up
/// numbers of timers.
fn forget_keys(store: &mut PostgresStore, session: &mut Session) -> Result<(), StoreError> {
    store.ownership.renewals += 1;
    if store.ownership.renewals < RENEWALS_PER_SEARCH {
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
        store.ownership.renewals = 0;
    }
    Ok(())
}

/// Gives all partitions back.
pub(super) fn release(store: &mut PostgresStore, session: &mut Session) -> Result<(), StoreError> {
    session.query(
        "WITH node AS (DELETE FROM {schema}.nodes WHERE id = $1)
        UPDATE {schema}.partitions SET owner = NULL, lease_until = '-infinity' WHERE owner = $1",
        &[&store.node],
    )?;
    store.ownership = Ownership::default();
    Ok(())
}

/// Returns whether a run may be claimed here.
pub(super) fn may_claim(ownership: &Ownership, held: Held) -> bool {
    !ownership.is_draining(held.partition)
}
