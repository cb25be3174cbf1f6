//! `FileTables`: the operations on a file, within one transaction.
//!
//! Invariants: an operation that fails alone has written nothing. Events are kept until the
//! transaction was committed.

use super::{
    errors::StepResult,
    topic_row::{RowKind, TopicRow},
};
use crate::{
    broker::store::{
        BrokerError, EntryChange, Epoch, History, Partition, PartitionTops, Partitions, Position,
        Publication, Published, ReadFrom, ReadRange, Sequence, StoredEvent, StoredMessage, TopicChange,
        TopicName, TopicSeen, TopicTop,
    },
    sqlite::{CachedStatements, FileResult},
    sync::Random,
};
use rusqlite::{Connection, params};
use std::time::{Duration, Instant};

/// The numbers of the partitions in this generation.
#[derive(Debug, Clone)]
pub(super) struct Sequences {
    pub(super) generation: u64,
    pub(super) numbers: Vec<u64>,
}

pub(super) struct FileTables<'a> {
    pub(super) connection: &'a Connection,
    pub(super) partitions: Partitions,
    /// Milliseconds since 1970.
    pub(super) now: i64,
    /// The time by the clock of the nodes, for leases.
    pub(super) time: Instant,
    /// Milliseconds for which the metadata of an idle topic is kept.
    pub(super) keep_idle: i64,
    pub(super) random: &'a Random,
    pub(super) sequences: Sequences,
    pub(super) events: Vec<StoredEvent>,
}

impl FileTables<'_> {
    pub(super) fn open(
        &self,
        name: &TopicName,
        kind: Option<RowKind>,
        seen: Option<Position>,
    ) -> StepResult<TopicRow> {
        TopicRow::open(self.connection, name, kind, seen, || Epoch::id_from(self.random.next()))
    }

    /// Adds an event, which is delivered after the commit.
    pub(super) fn event(&mut self, topic: &TopicName, change: TopicChange) {
        let partition = self.partitions.of(topic);
        let number = &mut self.sequences.numbers[usize::from(partition.get())];
        *number += 1;
        let sequence = Sequence::new(self.sequences.generation, *number);
        self.events.push(StoredEvent::new(partition, sequence, topic.clone(), change));
    }

    /// Ends an operation that has changed nothing itself.
    pub(super) fn finish_read(&mut self, topic: &mut TopicRow) -> StepResult<()> {
        topic.store_changed(self.connection, self.now, self.now.saturating_sub(self.keep_idle / 4))?;
        if topic.has_begun {
            let position = topic.epochs.at(topic.top);
            self.event(&topic.name, TopicChange::EpochBegan(position));
        }
        Ok(())
    }

    pub(super) fn publish(&mut self, publication: &Publication) -> StepResult<Published> {
        let Publication { topic: name, payload, seen, id, window, limits, .. } = publication;
        let mut topic = self.open(name, Some(RowKind::Messages), *seen)?;
        if let Some(id) = id
            && let Some(position) = self.stored_id(&topic, id.as_bytes())?
        {
            self.finish_read(&mut topic)?;
            return Ok(Published::duplicate(position));
        }
        topic.expire(self.connection, self.now)?;
        topic.top += 1;
        let (position, size) = (topic.epochs.at(topic.top), payload.len() as i64);
        let before = topic.sum;
        topic.sum += size;
        if limits.max_messages() == 0 || payload.len() as u64 > limits.max_bytes() {
            topic.clear(self.connection, self.now)?;
            topic.store(self.connection, self.now)?;
        } else {
            // The first message needs the id of its topic.
            if topic.id == 0 {
                topic.store(self.connection, self.now)?;
            }
            self.insert(&topic, before, payload)?;
            topic.expires = Some(self.now.saturating_add(millis(limits.max_age())));
            self.trim(&mut topic, limits.max_messages(), limits.max_bytes(), limits.max_age())?;
            topic.store(self.connection, self.now)?;
        }
        if let Some(id) = id {
            let sql = "INSERT INTO message_ids (topic, id, epoch, offset, ends) VALUES (?1, ?2, ?3, ?4, ?5)
                ON CONFLICT DO UPDATE SET epoch = excluded.epoch, offset = excluded.offset, ends = excluded.ends";
            let ends = self.now.saturating_add(millis(*window));
            let (epoch, offset) = (position.epoch as i64, position.offset as i64);
            self.connection.run(sql, params![topic.id, id.as_bytes(), epoch, offset, ends])?;
        }
        let message = StoredMessage::new(position, payload.clone());
        self.event(name, TopicChange::Message(message));
        Ok(Published::new(position))
    }

    /// Returns the position of the message with an id, if it counts. An id that counts for longer
    /// than any window has the time of a clock that was ahead.
    fn stored_id(&self, topic: &TopicRow, id: &[u8]) -> StepResult<Option<Position>> {
        let sql = "SELECT epoch, offset FROM message_ids
            WHERE topic = ?1 AND id = ?2 AND ends > ?3 AND ends <= ?4";
        let last = self.now.saturating_add(millis(Publication::LONGEST_WINDOW));
        let found = self.connection.one(sql, params![topic.id, id, self.now, last], |row| {
            let numbers = [row.get::<_, i64>(0)?, row.get(1)?].map(i64::unsigned_abs);
            Ok(Position::new(numbers[0], numbers[1]))
        });
        Ok(found?.filter(|position| topic.epochs.is_valid(*position, topic.top)))
    }

    fn insert(&self, topic: &TopicRow, before: i64, payload: &[u8]) -> StepResult<()> {
        let sql = "INSERT INTO messages (topic, offset, before, time, payload) VALUES (?1, ?2, ?3, ?4, ?5)";
        self.connection.run(sql, params![topic.id, topic.top as i64, before, self.now, payload])?;
        Ok(())
    }

    /// Removes messages beyond the limits, but not the newest one.
    fn trim(&self, topic: &mut TopicRow, messages: u64, bytes: u64, age: Duration) -> StepResult<()> {
        let first = (topic.top + 1).saturating_sub(messages).max(topic.oldest) as i64;
        // The sum of the bytes behind `low` is within the limit.
        let low = topic.sum.saturating_sub_unsigned(bytes);
        let time = self.now.saturating_sub(millis(age));
        let sql =
            "SELECT offset FROM messages WHERE topic = ?1 AND offset >= ?2 AND before >= ?3 AND time >= ?4
            ORDER BY offset LIMIT 1";
        let values = params![topic.id, first, low, time];
        let oldest: Option<i64> = self.connection.one(sql, values, |row| row.get(0))?;
        let oldest = oldest.map_or(topic.top, i64::unsigned_abs);
        if oldest > topic.oldest {
            topic.oldest = oldest;
            topic.remove_old(self.connection)?;
        }
        Ok(())
    }

    pub(super) fn read(&mut self, name: &TopicName, range: ReadRange) -> StepResult<History> {
        let mut topic = self.open(name, Some(RowKind::Messages), range.seen)?;
        topic.expire(self.connection, self.now)?;
        self.finish_read(&mut topic)?;
        let (after, most) = match range.from {
            ReadFrom::After(offset) => (offset, range.max_messages),
            ReadFrom::Last(messages) => {
                let messages = messages.min(range.max_messages);
                (topic.top.saturating_sub(messages), messages)
            }
        };
        // Messages of epochs that are not in the list any more cannot be resumed.
        let oldest = topic.oldest.max(topic.epochs.as_slice()[0].first);
        let after = after.max(oldest - 1);
        let sql =
            "SELECT offset, payload FROM messages WHERE topic = ?1 AND offset > ?2 ORDER BY offset LIMIT ?3";
        let mut statement = self.connection.prepare_cached(sql).or_file_error()?;
        let bound = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![topic.id, bound(after), bound(most)]).or_file_error()?;
        let (mut messages, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.next().or_file_error()? {
            let offset = row.get::<_, i64>(0).or_file_error()?.unsigned_abs();
            let payload: Vec<u8> = row.get(1).or_file_error()?;
            bytes += payload.len() as u64;
            if !messages.is_empty() && bytes > range.max_bytes {
                break;
            }
            let position = Position::new(topic.epochs.of(offset), offset);
            messages.push(StoredMessage::new(position, payload.into()));
        }
        Ok(History::new(topic.epochs, topic.top, oldest, messages))
    }

    pub(super) fn tops(&mut self, partition: Partition, topics: &[TopicSeen]) -> StepResult<PartitionTops> {
        if partition.get() >= self.partitions.get() {
            return Err(BrokerError::Refused("the partition does not exist".into()).into());
        }
        let mut answers = Vec::with_capacity(topics.len());
        for seen in topics {
            let mut topic = self.open(&seen.topic, None, seen.seen)?;
            self.finish_read(&mut topic)?;
            answers.push(TopicTop::new(topic.epochs, topic.top));
        }
        let number = self.sequences.numbers.get(usize::from(partition.get())).copied().unwrap_or_default();
        Ok(PartitionTops::new(Sequence::new(self.sequences.generation, number), answers))
    }

    /// Tells the nodes that entries of a map have changed.
    pub(super) fn entries_event(&mut self, topic: &TopicRow, changes: Vec<EntryChange>) {
        let position = topic.epochs.at(topic.top);
        self.event(&topic.name, TopicChange::Entries(position, changes));
    }
}

pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
