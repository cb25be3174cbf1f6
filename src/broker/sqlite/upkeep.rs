//! Removes messages, ids and topics that have expired.
//!
//! Each call removes a limited number of rows, so that its transaction is short.

use super::{errors::StepResult, tables::FileTables, topic_row::AT_ONCE};
use crate::sqlite::CachedStatements;
use rusqlite::params;

/// Removes some rows. Returns whether all have been removed.
pub(super) fn remove_expired(tables: &mut FileTables<'_>) -> StepResult<bool> {
    let idle = tables.now.saturating_sub(tables.keep_idle);
    let expired = "SELECT id FROM topics WHERE expires <= ?1 ORDER BY expires LIMIT ?2";
    // The ids of messages count only with the epochs of their topic.
    let unused = "SELECT id FROM topics WHERE used <= ?1 AND expires IS NULL AND entries = 0
        AND NOT EXISTS (SELECT 1 FROM message_ids WHERE topic = topics.id) LIMIT ?2";
    let old_ids = "SELECT topic, id FROM message_ids WHERE ends <= ?1 ORDER BY ends LIMIT ?2";
    let messages = format!("SELECT topic, offset FROM messages WHERE topic IN ({expired}) LIMIT ?2");
    let now = tables.now;
    let mut is_done = true;
    for (sql, time) in [
        (format!("DELETE FROM message_ids WHERE (topic, id) IN ({old_ids})"), now),
        (format!("DELETE FROM messages WHERE (topic, offset) IN ({messages})"), now),
        (
            format!(
                "UPDATE topics SET expires = NULL, oldest = top + 1 WHERE id IN ({expired})
                AND NOT EXISTS (SELECT 1 FROM messages WHERE topic = topics.id)"
            ),
            now,
        ),
        (format!("DELETE FROM topics WHERE id IN ({unused})"), idle),
    ] {
        is_done &= tables.connection.run(&sql, params![time, AT_ONCE as i64])? < AT_ONCE;
    }
    Ok(is_done)
}
