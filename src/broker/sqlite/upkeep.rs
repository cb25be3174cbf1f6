//! Removes messages, ids and topics that have expired.
//!
//! Each call removes a limited number of rows, so that its transaction is short.

use super::{
    errors::{Statement, StepResult},
    tables::FileTables,
};
use rusqlite::params;

/// The largest number of topics, and of ids, that a call removes.
const AT_ONCE: i64 = 1000;

pub(super) fn remove_expired(tables: &mut FileTables<'_>, keep_idle: i64) -> StepResult<()> {
    let idle = tables.now.saturating_sub(keep_idle);
    let expired = "SELECT id FROM topics WHERE expires <= ?1 ORDER BY expires LIMIT ?2";
    let unused = "SELECT id FROM topics WHERE used <= ?1 AND expires IS NULL AND entries = 0 LIMIT ?2";
    let ids = "SELECT topic, id FROM message_ids WHERE ends <= ?1 ORDER BY ends LIMIT ?2";
    let now = tables.now;
    for (sql, time) in [
        (format!("DELETE FROM message_ids WHERE (topic, id) IN ({ids})"), now),
        (format!("DELETE FROM messages WHERE topic IN ({expired})"), now),
        (format!("UPDATE topics SET expires = NULL, oldest = top + 1 WHERE id IN ({expired})"), now),
        (format!("DELETE FROM message_ids WHERE topic IN ({unused})"), idle),
        (format!("DELETE FROM topics WHERE id IN ({unused})"), idle),
    ] {
        tables.connection.prepare_cached(&sql).done()?.execute(params![time, AT_ONCE]).done()?;
    }
    Ok(())
}
