//! `StartGroup`: starts without keys that share a statement.
//!
//! SQLite opens a table, its indexes and its sequence for each execution of an `INSERT`. Rows of
//! one statement share that, which saves a third of the instructions.

use super::Connection;
use crate::{
    durable::{
        id::TimerId,
        store::{
            change::{Change, NewTimer, Outcome},
            error::StoreError,
        },
    },
    sqlite::FileResult,
};
use std::sync::LazyLock;

/// The number of timers in a group.
const SIZE: usize = 8;

/// The values of a row: topic, due time, schedule and payload.
const VALUES: usize = 4;

/// An error ends the transaction, so `OR FAIL` suffices. Without it, SQLite writes each changed
/// page to a temporary file, in order to undo the statement alone.
static INSERT: LazyLock<String> = LazyLock::new(|| {
    let row = |n: usize| format!("(?{}, 0, ?{1}, ?{1}, 0, ?{2}, ?{3})", n + 1, n + 2, n + 3, n + 4);
    let rows: Vec<String> = (0..SIZE).map(|n| row(VALUES * n)).collect();
    let columns = "topic, state, due, scheduled, attempts, schedule, payload";
    format!("INSERT OR FAIL INTO timers ({columns}) VALUES {}", rows.join(", "))
});

/// Timers and the ids of their topics.
pub(super) struct StartGroup<'a>([(i64, &'a NewTimer); SIZE]);

impl<'a> StartGroup<'a> {
    /// Returns the first changes as a group, if all of them are starts without keys.
    pub(super) fn first_of(changes: &'a [Change], topics: &[i64]) -> Option<Self> {
        let changes = changes.first_chunk::<SIZE>()?;
        let start = |change: &'a Change| match change {
            Change::Start(timer) if timer.idempotency_key.is_none() => {
                topics.get(timer.topic).map(|topic| (*topic, timer))
            }
            _ => None,
        };
        let mut group = [start(&changes[0])?; SIZE];
        for (place, change) in group.iter_mut().zip(changes) {
            *place = start(change)?;
        }
        Some(StartGroup(group))
    }

    pub(super) fn topics(&self) -> impl Iterator<Item = i64> {
        self.0.map(|(topic, _)| topic).into_iter()
    }

    /// Stores the timers. Returns an outcome for each.
    pub(super) fn insert(&self, connection: &Connection) -> Result<[Outcome; SIZE], StoreError> {
        let mut statement = connection.prepare_cached(&INSERT).or_file_error()?;
        for (row, (topic, timer)) in self.0.iter().enumerate() {
            let first = row * VALUES;
            statement.raw_bind_parameter(first + 1, topic).or_file_error()?;
            statement.raw_bind_parameter(first + 2, timer.due).or_file_error()?;
            statement.raw_bind_parameter(first + 3, &timer.schedule).or_file_error()?;
            statement.raw_bind_parameter(first + 4, &timer.payload).or_file_error()?;
        }
        statement.raw_execute().or_file_error()?;
        // Numbers grow by one, because no other connection writes in this transaction.
        let mut id = connection.last_insert_rowid() - SIZE as i64;
        Ok(self.0.map(|(_, timer)| {
            id += 1;
            Outcome::Started(timer.stored_row(TimerId::new(id)))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::store::{TimerStore, listing::TimerFilter, sqlite::SqliteStore};

    fn start(number: i64) -> Change {
        Change::Start(NewTimer {
            topic: usize::from(number % 2 == 0),
            due: 100 - number,
            idempotency_key: (number == 12).then(|| "key".to_owned()),
            schedule: (number % 3 == 0).then(|| "every 5".to_owned()),
            payload: number.to_string().into_bytes(),
            replaces_payload: false,
        })
    }

    #[test]
    fn timers_of_a_group_are_stored_as_if_alone() {
        let changes: Vec<Change> = (1..=30).map(start).collect();
        assert!(StartGroup::first_of(&changes, &[1, 2]).is_some());
        assert!(StartGroup::first_of(&changes, &[1]).is_none(), "a topic that is not attached");
        assert!(StartGroup::first_of(&changes[4..], &[1, 2]).is_none(), "a start with a key");
        assert!(StartGroup::first_of(&changes[23..], &[1, 2]).is_none(), "seven");

        let stored = |together: usize| {
            let mut store = SqliteStore::in_memory().unwrap();
            store.attach(&["odd".to_owned(), "even".to_owned()]).unwrap();
            let mut changes: Vec<Change> = (1..=30).map(start).collect();
            let chunks = changes.chunks_mut(together);
            let outcomes: Vec<_> = chunks.flat_map(|chunk| store.commit(chunk, 0).unwrap()).collect();
            let listed = store.list(&TimerFilter::new()).unwrap();
            format!("{outcomes:#?} {listed:#?} {:#?}", store.counts().unwrap())
        };
        assert_eq!(stored(30), stored(1));
    }
}
