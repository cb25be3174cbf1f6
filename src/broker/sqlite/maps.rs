//! Operations on maps.

use super::{
    errors::StepResult,
    tables::FileTables,
    topic_row::{RowKind, TopicRow},
};
use crate::{
    broker::store::{
        BrokerError, Changed, EntryChange, MapChange, MapEntry, MapUpdate, NodeId, NodeLeases, Position,
        Snapshot, TopicName,
    },
    sqlite::CachedStatements,
};
use rusqlite::{Row, params};

impl FileTables<'_> {
    pub(super) fn change(&mut self, update: &MapUpdate, leases: &NodeLeases) -> StepResult<Changed> {
        if update.owner.as_ref().is_some_and(|owner| !leases.is_alive(owner, self.time)) {
            return Err(BrokerError::LeaseEnded.into());
        }
        let mut topic = self.open(&update.topic, Some(RowKind::Map), update.seen)?;
        if topic.id == 0 {
            topic.store(self.connection, self.now)?;
        }
        let position = topic.epochs.at(topic.top + 1);
        let owner = update.owner.as_ref();
        let mut made = Vec::with_capacity(update.changes.len());
        let mut changes = Vec::new();
        for change in &update.changes {
            let stored = self.entry_position(&topic, &change.key)?;
            let is_made = change.is_possible(stored, topic.entries < update.max_entries);
            made.push(is_made);
            if is_made {
                self.apply(&mut topic, change, stored.is_some(), owner, position)?;
                let mut changed = EntryChange::new(change.key.clone(), change.value.clone());
                changed.owner = owner.filter(|_| change.value.is_some()).cloned();
                changes.push(changed);
            }
        }
        if changes.is_empty() {
            self.finish_read(&mut topic)?;
            return Ok(Changed::new(topic.epochs.at(topic.top), made));
        }
        self.finish_update(&mut topic, changes)?;
        Ok(Changed::new(position, made))
    }

    /// Stores an update that has changed entries.
    pub(super) fn finish_update(
        &mut self,
        topic: &mut TopicRow,
        changes: Vec<EntryChange>,
    ) -> StepResult<()> {
        topic.top += 1;
        topic.store(self.connection, self.now)?;
        self.entries_event(topic, changes);
        Ok(())
    }

    fn entry_position(&self, topic: &TopicRow, key: &[u8]) -> StepResult<Option<Position>> {
        let sql = "SELECT epoch, offset FROM entries WHERE topic = ?1 AND key = ?2";
        Ok(self.connection.one(sql, params![topic.id, key], |row| position(row, 0))?)
    }

    fn apply(
        &self,
        topic: &mut TopicRow,
        change: &MapChange,
        is_stored: bool,
        owner: Option<&NodeId>,
        position: Position,
    ) -> StepResult<()> {
        let Some(value) = &change.value else {
            let sql = "DELETE FROM entries WHERE topic = ?1 AND key = ?2";
            self.connection.run(sql, params![topic.id, &change.key[..]])?;
            topic.entries = topic.entries.saturating_sub(1);
            return Ok(());
        };
        let sql =
            "INSERT INTO entries (topic, key, value, owner, epoch, offset) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
            ON CONFLICT DO UPDATE SET value = excluded.value, owner = excluded.owner, epoch = excluded.epoch,
            offset = excluded.offset";
        let (epoch, offset) = (position.epoch as i64, position.offset as i64);
        let owner = owner.map(NodeId::to_string);
        self.connection.run(sql, params![topic.id, &change.key[..], &value[..], owner, epoch, offset])?;
        topic.entries += u64::from(!is_stored);
        Ok(())
    }

    pub(super) fn snapshot(&mut self, name: &TopicName, seen: Option<Position>) -> StepResult<Snapshot> {
        let mut topic = self.open(name, Some(RowKind::Map), seen)?;
        self.finish_read(&mut topic)?;
        let sql = "SELECT key, value, owner, epoch, offset FROM entries WHERE topic = ?1";
        let entries = self.connection.all(sql, [topic.id], |row| {
            let (key, value): (Vec<u8>, Vec<u8>) = (row.get(0)?, row.get(1)?);
            let owner: Option<String> = row.get(2)?;
            let mut entry = MapEntry::new(key.into(), value.into(), position(row, 3)?);
            entry.owner = owner.and_then(|owner| NodeId::parse(&owner));
            Ok(entry)
        })?;
        Ok(Snapshot::new(topic.epochs, topic.top, entries))
    }

    /// Returns the nodes that own entries.
    pub(super) fn owners(&self) -> StepResult<Vec<NodeId>> {
        let sql = "SELECT DISTINCT owner FROM entries WHERE owner IS NOT NULL";
        let owners = self.connection.all(sql, [], |row| row.get::<_, String>(0))?;
        Ok(owners.iter().filter_map(|owner| NodeId::parse(owner)).collect())
    }

    /// Removes all entries of a node.
    pub(super) fn remove_entries_of(&mut self, node: &NodeId) -> StepResult<()> {
        let owner = node.to_string();
        let sql =
            "SELECT DISTINCT name FROM topics JOIN entries ON topics.id = entries.topic WHERE owner = ?1";
        for name in self.connection.all(sql, [&owner], |row| row.get::<_, String>(0))? {
            let Ok(name) = TopicName::new(name) else { continue };
            let mut topic = self.open(&name, Some(RowKind::Map), None)?;
            let sql = "DELETE FROM entries WHERE topic = ?1 AND owner = ?2 RETURNING key";
            let values = params![topic.id, owner];
            let removed = self.connection.all(sql, values, |row| row.get::<_, Vec<u8>>(0))?;
            topic.entries = topic.entries.saturating_sub(removed.len() as u64);
            let changes = removed.into_iter().map(|key| EntryChange::new(key.into(), None)).collect();
            self.finish_update(&mut topic, changes)?;
        }
        Ok(())
    }
}

fn position(row: &Row<'_>, first: usize) -> rusqlite::Result<Position> {
    let [epoch, offset] = [row.get::<_, i64>(first)?, row.get(first + 1)?].map(i64::unsigned_abs);
    Ok(Position::new(epoch, offset))
}
