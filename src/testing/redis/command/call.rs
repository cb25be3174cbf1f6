//! `CommandCall`: the keyspace and the time during a command, and the effects of it.

use super::super::{
    keyspace::{DATABASES, Entry, Keyspace, StoredValue, ValueKind},
    number,
    pubsub::{Protocol, PubSub},
    refusal::{NOT_INTEGER, Refusal, WRONG_TYPE},
};
use bytes::Bytes;

/// A command with the database that it ran in.
pub(crate) type Executed = (usize, Vec<Bytes>);

/// What commands have changed.
#[derive(Debug, Default)]
pub(crate) struct CallEffects {
    /// The commands that have changed the keyspace, in order.
    pub(crate) commands: Vec<Executed>,
    /// The keys that were changed, for `WATCH`.
    pub(crate) touched: Vec<(usize, Bytes)>,
}

/// A running command.
pub(crate) struct CommandCall<'a> {
    pub(crate) keyspace: &'a mut Keyspace,
    pub(crate) pubsub: &'a mut PubSub,
    pub(crate) effects: &'a mut CallEffects,
    pub(crate) database: usize,
    /// Microseconds since the Unix epoch.
    pub(crate) now_micros: i64,
    pub(crate) protocol: Protocol,
    /// Whether the running command has changed the keyspace.
    pub(crate) is_dirty: bool,
}

impl CommandCall<'_> {
    /// Returns the time in milliseconds since the Unix epoch.
    pub(crate) fn now(&self) -> i64 {
        self.now_micros / 1000
    }

    /// Removes the key if it has expired.
    pub(crate) fn expire(&mut self, key: &Bytes) {
        let now = self.now();
        let database = self.keyspace.database_mut(self.database);
        if database.get(key).is_some_and(|entry| entry.has_expired(now)) {
            database.remove(key);
            self.effects.touched.push((self.database, key.clone()));
            let delete = vec![Bytes::from_static(b"DEL"), key.clone()];
            self.effects.commands.push((self.database, delete));
        }
    }

    pub(crate) fn entry(&mut self, key: &Bytes) -> Option<&mut Entry> {
        self.expire(key);
        self.keyspace.database_mut(self.database).get_mut(key)
    }

    /// Returns the value of a key, or an error if it is of another type.
    pub(crate) fn read<K: ValueKind>(&mut self, key: &Bytes) -> Result<Option<&K>, Refusal> {
        Ok(self.write(key)?.map(|value| &*value))
    }

    /// Like [`read`](Call::read), to change the value. [`changed`](Call::changed) must follow.
    pub(crate) fn write<K: ValueKind>(&mut self, key: &Bytes) -> Result<Option<&mut K>, Refusal> {
        match self.entry(key) {
            None => Ok(None),
            Some(entry) => K::of_mut(&mut entry.value).map(Some).ok_or(WRONG_TYPE),
        }
    }

    /// Like [`write`](Call::write), but creates the key.
    pub(crate) fn create<K: ValueKind>(&mut self, key: &Bytes) -> Result<&mut K, Refusal> {
        self.expire(key);
        let database = self.keyspace.database_mut(self.database);
        let new = || Entry { value: K::empty(), expires_at: None };
        let entry = database.entry(key.clone()).or_insert_with(new);
        K::of_mut(&mut entry.value).ok_or(WRONG_TYPE)
    }

    /// Notes that the value of a key has changed. Removes the key if nothing is left.
    pub(crate) fn changed(&mut self, key: &Bytes) {
        let database = self.keyspace.database_mut(self.database);
        if database.get(key).is_some_and(|entry| entry.value.is_void()) {
            database.remove(key);
        }
        self.is_dirty = true;
        self.effects.touched.push((self.database, key.clone()));
    }

    /// Sets the value of a key of any type, without an expiry.
    pub(crate) fn set(&mut self, key: &Bytes, value: StoredValue) {
        let entry = Entry { value, expires_at: None };
        self.keyspace.database_mut(self.database).insert(key.clone(), entry);
        self.changed(key);
    }

    /// Removes a key. Returns whether it was there.
    pub(crate) fn remove(&mut self, key: &Bytes) -> bool {
        self.expire(key);
        let is_removed = self.keyspace.database_mut(self.database).remove(key).is_some();
        if is_removed {
            self.changed(key);
        }
        is_removed
    }
}

/// Parses an argument that is an integer.
pub(crate) fn integer(text: &[u8]) -> Result<i64, Refusal> {
    number::integer(text).ok_or(NOT_INTEGER)
}

/// Parses the index of a database.
pub(crate) fn database_index(text: &[u8]) -> Result<usize, Refusal> {
    let index = i32::try_from(integer(text)?).map_err(|_| {
        Refusal::of("ERR value is out of range, value must between -2147483648 and 2147483647")
    })?;
    let index = usize::try_from(index).ok().filter(|index| *index < DATABASES);
    index.ok_or(Refusal::of("ERR DB index is out of range"))
}

/// Resolves the range of a list or sorted set. Negative positions count from the end.
pub(crate) fn range(start: i64, end: i64, length: usize) -> std::ops::Range<usize> {
    let length = length as i64;
    let from_end = |position: i64| if position < 0 { position.saturating_add(length) } else { position };
    let start = from_end(start).max(0);
    let end = from_end(end).min(length - 1) + 1;
    if start >= end { 0..0 } else { start as usize..end as usize }
}
