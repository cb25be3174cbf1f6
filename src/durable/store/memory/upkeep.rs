//! Pauses of whole topics, and changes of many dead letters.

use super::{changes::MemoryBatch, reads, tables::Write};
use crate::durable::{
    id::TimerId,
    store::{dead_letters::DeadLetters, row::TimerRow},
};

/// Pauses a topic or lets it go on. Returns whether the store has the topic.
pub(super) fn set_paused(batch: &mut MemoryBatch<'_>, topic: &str, is_paused: bool) -> bool {
    let transaction = batch.transaction();
    let Some(topic) = transaction.tables().topic(topic) else { return false };
    transaction.write(Write::Paused(topic, is_paused));
    true
}

pub(super) fn remove_dead(batch: &mut MemoryBatch<'_>, letters: &DeadLetters) -> u64 {
    let selected = select(batch, letters);
    selected.iter().for_each(|id| drop(batch.cancel(*id)));
    selected.len() as u64
}

pub(super) fn retry_dead(
    batch: &mut MemoryBatch<'_>,
    letters: &DeadLetters,
    dues: &[i64],
) -> Vec<Option<TimerRow>> {
    let selected = select(batch, letters).into_iter().zip(dues);
    selected.map(|(id, due)| batch.move_to(id, *due, true).into_row()).collect()
}

/// Returns the ids of the selected letters.
fn select(batch: &mut MemoryBatch<'_>, letters: &DeadLetters) -> Vec<TimerId> {
    let tables = batch.transaction().tables();
    let Some(topic) = tables.topic(&letters.topic) else { return Vec::new() };
    let dead = tables.topics.get(topic).map_or(0, |topic| topic.dead);
    let limit = letters.limit_of(i64::try_from(dead).unwrap_or(i64::MAX));
    reads::oldest_dead(tables, topic, letters, usize::try_from(limit).unwrap_or(0))
}
