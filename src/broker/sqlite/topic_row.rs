//! `TopicRow`: the metadata of a topic.

use super::errors::StepResult;
use crate::{
    broker::{
        epochs_text::{epochs_text, parse_epochs},
        store::{BrokerError, Epochs, Position, TopicName},
    },
    sqlite::CachedStatements,
};
use rusqlite::{Connection, params};

/// The largest number of rows of a kind that a step removes.
pub(super) const AT_ONCE: usize = 1000;

/// What a topic has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowKind {
    Messages = 0,
    Map = 1,
}

/// The metadata of a topic. Changes are made in memory, and then [stored](TopicRow::store).
#[derive(Debug)]
pub(super) struct TopicRow {
    /// Zero for a topic that is not stored yet.
    pub(super) id: i64,
    pub(super) name: TopicName,
    pub(super) kind: Option<RowKind>,
    pub(super) epochs: Epochs,
    pub(super) top: u64,
    /// The offset of the oldest message that is kept, or the one behind the top.
    pub(super) oldest: u64,
    /// The running total of the bytes of messages.
    pub(super) sum: i64,
    /// The number of entries of the map.
    pub(super) entries: u64,
    /// When the newest message reaches its age. `None` if no message is kept.
    pub(super) expires: Option<i64>,
    /// Whether an epoch has begun because messages were lost.
    pub(super) has_begun: bool,
    /// When the metadata was stored last.
    used: i64,
    is_changed: bool,
}

impl TopicRow {
    /// Reads the metadata of a topic. Begins a topic that there is not, and a new epoch if messages
    /// were lost that a node has seen.
    pub(super) fn open(
        connection: &Connection,
        name: &TopicName,
        kind: Option<RowKind>,
        seen: Option<Position>,
        new_id: impl FnOnce() -> u64,
    ) -> StepResult<Self> {
        let Some(mut topic) = Self::find(connection, name)? else {
            return Ok(TopicRow {
                id: 0,
                name: name.clone(),
                kind,
                epochs: Epochs::first(new_id()),
                top: 0,
                oldest: 1,
                sum: 0,
                entries: 0,
                expires: None,
                has_begun: false,
                used: 0,
                is_changed: true,
            });
        };
        if kind.is_some() && topic.kind.is_some() && topic.kind != kind {
            return Err(BrokerError::WrongKind.into());
        }
        if topic.kind.is_none() && kind.is_some() {
            topic.kind = kind;
            topic.is_changed = true;
        }
        if seen.is_some_and(|seen| topic.epochs.was_rewound(seen, topic.top)) {
            topic.epochs.begin(new_id(), topic.top);
            topic.has_begun = true;
            topic.is_changed = true;
        }
        Ok(topic)
    }

    fn find(connection: &Connection, name: &TopicName) -> StepResult<Option<Self>> {
        let sql =
            "SELECT id, kind, epochs, top, oldest, sum, entries, expires, used FROM topics WHERE name = ?1";
        let row = connection.one(sql, [name.as_str()], |row| {
            let kind = match row.get(1)? {
                Some(0_i64) => Some(RowKind::Messages),
                Some(_) => Some(RowKind::Map),
                None => None,
            };
            let numbers = [row.get::<_, i64>(3)?, row.get(4)?, row.get(6)?].map(i64::unsigned_abs);
            let epochs: String = row.get(2)?;
            Ok((row.get(0)?, kind, epochs, numbers, row.get(5)?, row.get(7)?, row.get(8)?))
        });
        let Some((id, kind, epochs, [top, oldest, entries], sum, expires, used)) = row? else {
            return Ok(None);
        };
        Ok(Some(TopicRow {
            id,
            name: name.clone(),
            kind,
            epochs: parse_epochs(&epochs)?,
            top,
            oldest,
            sum,
            entries,
            expires,
            has_begun: false,
            used,
            is_changed: false,
        }))
    }

    /// Stores the metadata.
    pub(super) fn store(&mut self, connection: &Connection, now: i64) -> StepResult<()> {
        self.epochs.trim(self.oldest);
        let kind = self.kind.map(|kind| kind as i64);
        let [top, oldest, entries] = [self.top, self.oldest, self.entries].map(|number| number as i64);
        let epochs = epochs_text(&self.epochs);
        if self.id == 0 {
            let sql = "INSERT INTO topics (name, kind, epochs, top, oldest, sum, entries, expires, used)
                VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
            let name = self.name.as_str();
            let values = params![name, kind, epochs, top, oldest, self.sum, entries, self.expires, now];
            connection.run(sql, values)?;
            self.id = connection.last_insert_rowid();
        } else {
            let sql =
                "UPDATE topics SET kind = ?2, epochs = ?3, top = ?4, oldest = ?5, sum = ?6, entries = ?7,
                expires = ?8, used = ?9 WHERE id = ?1";
            let values = params![self.id, kind, epochs, top, oldest, self.sum, entries, self.expires, now];
            connection.run(sql, values)?;
        }
        self.is_changed = false;
        Ok(())
    }

    /// Stores the metadata if [`open`](TopicRow::open) has changed it, or if it was stored before
    /// `renewed`, so that a topic with readers stays.
    pub(super) fn store_changed(
        &mut self,
        connection: &Connection,
        now: i64,
        renewed: i64,
    ) -> StepResult<()> {
        if self.is_changed || self.used < renewed { self.store(connection, now) } else { Ok(()) }
    }

    /// Ends all messages if the newest one has reached its age.
    pub(super) fn expire(&mut self, connection: &Connection, now: i64) -> StepResult<()> {
        if self.expires.is_some_and(|expires| expires <= now) {
            self.clear(connection, now)?;
            self.is_changed = true;
        }
        Ok(())
    }

    /// Ends all messages. Those that one step does not remove have expired.
    pub(super) fn clear(&mut self, connection: &Connection, now: i64) -> StepResult<()> {
        self.oldest = self.top + 1;
        let is_empty = self.remove_old(connection)?;
        self.expires = (!is_empty).then_some(now);
        Ok(())
    }

    /// Removes some messages before the oldest one that is kept. Returns whether all of them are
    /// removed. Readers do not get the others.
    pub(super) fn remove_old(&self, connection: &Connection) -> StepResult<bool> {
        let sql = "DELETE FROM messages WHERE (topic, offset) IN
            (SELECT topic, offset FROM messages WHERE topic = ?1 AND offset < ?2 ORDER BY offset LIMIT ?3)";
        let values = params![self.id, self.oldest as i64, AT_ONCE as i64];
        Ok(connection.run(sql, values)? < AT_ONCE)
    }
}
