//! Queries of a memory store.

use super::{
    STARTS_LIMIT,
    tables::{Tables, Timer, View},
};
use crate::durable::{
    id::TimerId,
    store::{
        change::{LoadRange, Loaded},
        dead_letters::DeadLetters,
        listing::{TimerFilter, TimerInfo, TopicCounts},
        row::{DueKey, TimerRow},
    },
    unix_millis::system_time,
};
use std::{
    collections::{BTreeSet, VecDeque},
    ops::Bound::{Excluded, Included},
};

/// Loads pending timers of the topics in the order of their keys.
pub(super) fn load(tables: &Tables, view: View<'_>, range: LoadRange) -> Loaded {
    let wanted = view.topics.iter().enumerate().filter(|(index, _)| range.topics.contains(*index));
    // One more than the limit of each topic tells whether the answer is complete.
    let limit = range.limit.saturating_add(1);
    let mut keys = Vec::new();
    for (_, topic) in wanted {
        let due = behind(&tables.pending, *topic, range.after).take_while(|key| key.due <= range.until);
        let own = due.filter_map(|key| view.row(key.id.get(), tables.timers.get(&key.id.get())?));
        keys.extend(own.take(limit));
    }
    keys.sort_unstable_by_key(|row| row.key);
    let mut rows: Vec<TimerRow> = Vec::new();
    let mut bytes = 0;
    for row in keys {
        bytes += row.data_len();
        if rows.len() >= range.limit || (bytes > range.max_bytes && !rows.is_empty()) {
            return Loaded { rows, is_complete: false };
        }
        rows.push(row);
    }
    Loaded { rows, is_complete: true }
}

/// Returns the keys of a topic's timers behind another one.
fn behind(places: &BTreeSet<(usize, i64, i64)>, topic: usize, after: DueKey) -> impl Iterator<Item = DueKey> {
    let first = (topic, after.due, after.id.get());
    let places = places.range((Excluded(first), Included((topic, i64::MAX, i64::MAX))));
    places.map(|(_, due, id)| DueKey { due: *due, id: TimerId::new(*id) })
}

/// Returns periodic timers behind a key, without their payloads.
pub(super) fn far_periodic(tables: &Tables, view: View<'_>, after: DueKey, limit: usize) -> Vec<TimerRow> {
    let places =
        tables.on_schedule.range((Excluded((after.due, after.id.get())), Included((i64::MAX, i64::MAX))));
    let rows = places.filter_map(|(_, id)| {
        Some(TimerRow { payload: Vec::new(), ..view.row(*id, tables.timers.get(id)?)? })
    });
    rows.take(limit).collect()
}

/// Takes timers that transactions of the program have started. Those that are due after `until`
/// are loaded later.
pub(super) fn started(
    tables: &Tables,
    view: View<'_>,
    starts: &mut VecDeque<i64>,
    until: i64,
    max_bytes: usize,
) -> Loaded {
    let mut rows: Vec<TimerRow> = Vec::new();
    let mut bytes = 0;
    while let Some(id) = starts.pop_front() {
        let is_near = |timer: &&Timer| timer.is_pending() && timer.due <= until;
        let Some(timer) = tables.timers.get(&id).filter(is_near) else { continue };
        let Some(row) = view.row(id, timer) else { continue };
        bytes += row.weight();
        rows.push(row);
        if rows.len() >= STARTS_LIMIT || bytes >= max_bytes {
            return Loaded { rows, is_complete: starts.is_empty() };
        }
    }
    Loaded { rows, is_complete: true }
}

/// Returns near timers that others have changed after the change `seen`, and those to be checked
/// again. Returns also the change up to which nothing is left out.
pub(super) fn changed(
    tables: &Tables,
    view: View<'_>,
    (seen, session): (u64, u64),
    recheck: &BTreeSet<i64>,
    until: i64,
    max_bytes: usize,
) -> (Loaded, u64) {
    let mut rows: Vec<TimerRow> = Vec::new();
    let mut bytes = 0;
    let near = |id: &i64| {
        let timer = tables.timers.get(id).filter(|timer| timer.is_pending() && timer.due <= until)?;
        Some((timer, view.row(*id, timer)?))
    };
    for row in recheck.iter().filter_map(near).map(|(_, row)| row) {
        bytes += row.weight();
        rows.push(row);
    }
    let (mut last, mut is_complete) = (tables.last_change, true);
    for (change, id) in tables.changes.range((Excluded((seen, i64::MAX)), Included((u64::MAX, i64::MAX)))) {
        let Some((_, row)) = near(id).filter(|(timer, _)| timer.changed.1 != session) else { continue };
        bytes += row.weight();
        rows.push(row);
        if rows.len() >= STARTS_LIMIT || bytes >= max_bytes {
            (last, is_complete) = (*change, false);
            break;
        }
    }
    rows.sort_unstable_by_key(|row| row.key);
    rows.dedup_by_key(|row| row.key);
    (Loaded { rows, is_complete }, last)
}

pub(super) fn list(tables: &Tables, filter: &TimerFilter) -> Vec<TimerInfo> {
    let limit = filter.effective_limit();
    let topic = filter.selected_topic().map(|name| tables.topic(name));
    let is_selected = |timer: &Timer| {
        topic.is_none_or(|topic| topic == Some(timer.topic))
            && filter.selected_state().is_none_or(|state| state == timer.state)
            && filter.selected_key().is_none_or(|key| timer.key.as_deref() == Some(key))
    };
    let Some(after) = filter.selected_by_due() else {
        let after = filter.selected_after().map_or(i64::MIN, TimerId::get);
        let timers = tables.timers.range((Excluded(after), Included(i64::MAX)));
        let selected = timers.filter(|(_, timer)| is_selected(timer));
        return selected.take(limit).map(|(id, timer)| info(tables, *id, timer)).collect();
    };
    let mut keys = Vec::new();
    for number in 0..tables.topics.len() {
        if topic.is_some_and(|topic| topic != Some(number)) {
            continue;
        }
        for places in [&tables.pending, &tables.dead] {
            let stored = behind(places, number, after);
            let selected = stored.filter(|key| tables.timers.get(&key.id.get()).is_some_and(is_selected));
            keys.extend(selected.take(limit));
        }
    }
    keys.sort_unstable();
    keys.truncate(limit);
    let timers = keys.iter().filter_map(|key| Some((key.id.get(), tables.timers.get(&key.id.get())?)));
    timers.map(|(id, timer)| info(tables, id, timer)).collect()
}

fn info(tables: &Tables, id: i64, timer: &Timer) -> TimerInfo {
    let topic = tables.topics.get(timer.topic).map(|topic| topic.name.clone()).unwrap_or_default();
    let mut info = TimerInfo::new(TimerId::new(id), topic, timer.state, system_time(timer.due));
    info.scheduled = system_time(timer.scheduled);
    info.attempts = timer.attempts;
    info.key.clone_from(&timer.key);
    info.schedule.clone_from(&timer.schedule);
    info.payload = String::from_utf8_lossy(&timer.payload).into_owned();
    info.error.clone_from(&timer.error);
    info
}

/// Returns the numbers of timers of each topic, in the order of their names.
pub(super) fn counts(tables: &Tables) -> Vec<TopicCounts> {
    let mut counts: Vec<TopicCounts> = Vec::new();
    for topic in &tables.topics {
        let mut count = TopicCounts::new(topic.name.clone(), topic.pending, topic.dead);
        count.is_paused = topic.is_paused;
        counts.push(count);
    }
    counts.sort_unstable_by(|a, b| a.topic.cmp(&b.topic));
    counts
}

/// Returns the ids of the oldest dead letters of a topic that died by `until`.
pub(super) fn oldest_dead(
    tables: &Tables,
    topic: usize,
    letters: &DeadLetters,
    limit: usize,
) -> Vec<TimerId> {
    let dead = behind(&tables.dead, topic, DueKey::FIRST).skip_while(|key| key.due <= letters.after);
    dead.take_while(|key| key.due <= letters.until).take(limit).map(|key| key.id).collect()
}
