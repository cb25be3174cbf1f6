//! `MemberMap`: the members of a room at all servers of the store.
//!
//! Each server shows its own members in a map, and follows it while it has members itself. The
//! store removes the entries of a server when its lease ends. Joins and leaves at this server do
//! not wait for the map.

use super::{
    Room,
    format::{MEMBERS, topic_name},
};
use crate::hub::{Hub, lock};
use netwheel::{
    Completion, Error, Result,
    broker::{MapEntry, MapEvent, MapTopic, TopicName, store::Snapshot},
};
use std::sync::{Arc, OnceLock};

/// The value of each entry. The key is the name of the user.
const VALUE: &str = "here";
/// Maximum number of entries. More than members may join: several servers may let the last ones
/// in.
const MAX_ENTRIES: usize = 2 * super::MAX_MEMBERS;

#[derive(Default)]
pub(super) struct MemberMap {
    map: OnceLock<MapTopic>,
}

impl MemberMap {
    /// Shows to other servers whether a user is a member of a room at this server.
    ///
    /// A member whose name belongs to another server is shown there. Its session here may take
    /// several seconds to close.
    pub(super) fn show(room: &Arc<Room>, user: &Arc<str>, hub: &Arc<Hub>) {
        let _order = lock(&hub.rooms.show_order);
        // A later room may have the name by now. Both share the entries of the map.
        let current = hub.rooms.find(room.name());
        let is_here = current.as_ref().is_some_and(|room| room.has_local(user)) && hub.find(user).is_some();
        let map = match (current.as_ref().unwrap_or(room).shared.map.get(), &current) {
            (Some(map), _) => map,
            // Nothing was shown.
            (None, None) => return,
            (None, Some(room)) => match Self::open(room, hub) {
                Ok(map) => {
                    hub.rooms.unshown.opened();
                    room.shared.map.get_or_init(|| map)
                }
                Err(error) => return hub.rooms.unshown.not_opened(room.name(), user, hub.now(), &error),
            },
        };
        let (hub, room, user) = (Arc::downgrade(hub), room.name().clone(), user.clone());
        if !is_here {
            return map.release(user.to_string()).on_complete(move |released| {
                // After other errors, the map removes the entry later.
                if let (Err(Error::Full { .. }), Some(hub)) = (released, hub.upgrade()) {
                    hub.rooms.unshown.add(&room, &user, hub.now());
                }
            });
        }
        map.hold(user.to_string(), VALUE, None).on_complete(move |held| {
            if let (Err(error), Some(hub)) = (held, hub.upgrade()) {
                log::debug!("{user} is not shown in {room}: {error:#}");
                hub.rooms.unshown.add(&room, &user, hub.now());
            }
        });
    }

    fn open(room: &Arc<Room>, hub: &Arc<Hub>) -> Result<MapTopic> {
        let (node, weak, name) = (hub.nodes.name().to_owned(), Arc::downgrade(hub), room.name().clone());
        let own = node.clone();
        // The map may outlive this room. So its events look for the room that has the name.
        let on_event = move |event: MapEvent<'_>| {
            let Some(hub) = weak.upgrade() else { return };
            match event {
                MapEvent::Changed { key, before, now, .. } => {
                    let [was_elsewhere, is_elsewhere] = [before, now].map(|entry| is_elsewhere(entry, &own));
                    if was_elsewhere != is_elsewhere
                        && let Ok(user) = std::str::from_utf8(key)
                        && let Some(room) = hub.rooms.find(&name)
                        && room.note_elsewhere(user, is_elsewhere)
                    {
                        hub.rooms.announcer.add(room);
                    }
                }
                // Usually the session here is about to end.
                MapEvent::Lost { key, .. } => {
                    if let Ok(user) = std::str::from_utf8(key) {
                        hub.rooms.unshown.add(&name, &user.into(), hub.now());
                    }
                }
                _ => {}
            }
        };
        let map = hub.rooms.topics.map(topic_name(MEMBERS, room.name()));
        let map = map.max_entries(MAX_ENTRIES as u64).max_held(MAX_ENTRIES).on_event(on_event).open()?;
        // If the map was open before, its entries were reported before this room existed.
        room.load_elsewhere(|| names_of(map.entries(), &node));
        Ok(map)
    }

    /// Completes when the members at other servers are known. `None` if they are.
    pub(super) fn ready(&self) -> Option<Completion> {
        let ready = self.map.get()?.ready();
        (!ready.is_done()).then_some(ready)
    }

    /// Reads the members of a room without members at this server.
    pub(super) fn read(hub: &Hub, room: &str) -> Result<Completion<Snapshot>> {
        let topic = TopicName::new(topic_name(MEMBERS, room))?;
        Ok(hub.rooms.topics.broker().snapshot(&topic, None))
    }
}

/// Returns the names of the users of a snapshot, in alphabetical order.
pub(super) fn names(snapshot: Snapshot) -> Vec<String> {
    let mut names: Vec<_> = snapshot.entries.into_iter().filter_map(name).collect();
    names.sort_unstable();
    names
}

/// Returns the names of the users of other servers.
fn names_of(entries: Vec<MapEntry>, node: &str) -> Vec<String> {
    entries.into_iter().filter(|entry| is_elsewhere(Some(entry), node)).filter_map(name).collect()
}

fn name(entry: MapEntry) -> Option<String> {
    String::from_utf8(entry.key.into()).ok()
}

fn is_elsewhere(entry: Option<&MapEntry>, node: &str) -> bool {
    entry.and_then(|entry| entry.owner.as_ref()).is_some_and(|owner| owner.name() != node)
}
