//! The numbers of timers by topic and partition.
//!
//! A transaction of the program may be open for long, and keep its rows locked. So it does not
//! change the row of a partition, for which the transactions of the nodes would have to wait. It
//! has a row of its own, with the negative id of its server process instead of a partition. Now and
//! then, the nodes add such rows to the others.

use super::session::PostgresSession;
use crate::durable::store::error::StoreError;

/// The partition of a transaction of the program.
pub(super) const OF_PROGRAM: &str = "-pg_backend_pid()";

/// Returns the statement that adds numbers: rows of topic, partition, pending timers and dead
/// letters.
pub(super) fn add(rows: &str) -> String {
    format!(
        "INSERT INTO {{schema}}.counts AS c (topic, partition, pending, dead) VALUES {rows}
        ON CONFLICT (topic, partition) DO UPDATE
        SET pending = c.pending + excluded.pending, dead = c.dead + excluded.dead"
    )
}

/// Adds the rows of programs to those of a partition, except for those of open transactions.
pub(super) fn fold(session: &mut PostgresSession) -> Result<(), StoreError> {
    let sql = "WITH old AS MATERIALIZED (
            SELECT topic, partition FROM {schema}.counts WHERE partition < 0 FOR UPDATE SKIP LOCKED
        ), gone AS (
            DELETE FROM {schema}.counts c USING old
            WHERE c.topic = old.topic AND c.partition = old.partition
            RETURNING c.topic, c.pending, c.dead
        )
        INSERT INTO {schema}.counts AS c (topic, partition, pending, dead)
        SELECT topic, 0, sum(pending)::bigint, sum(dead)::bigint FROM gone GROUP BY topic ORDER BY topic
        ON CONFLICT (topic, partition) DO UPDATE
        SET pending = c.pending + excluded.pending, dead = c.dead + excluded.dead";
    session.query(sql, &[]).map(drop)
}
