//! `Presence`: the members of a room on all nodes, as a map whose entries the nodes own.
//!
//! An entry vanishes with the lease of its node. A store that has lost its data has lost the
//! entries too, so each node compares the map with its sessions from time to time.

use netwheel::{
    broker::{
        NodeId, Position, TopicName, Topics,
        store::{Changed, MapChange, MapCondition, MapUpdate, Snapshot},
    },
    prelude::*,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub(super) struct Presence {
    topics: Topics,
    map: TopicName,
    /// Name of the node, the value of its entries.
    node: String,
    members: Mutex<BTreeMap<String, Member>>,
}

/// A member on this node.
struct Member {
    session: ChannelId,
    /// Where its entry was set.
    entry: Option<Position>,
}

impl Presence {
    /// Creates the map of a room.
    ///
    /// # Errors
    /// If the name is not allowed.
    pub(super) fn new(topics: Topics, room: &str, node: String) -> Result<Arc<Self>> {
        let map = TopicName::new(format!("members-of-{room}"))?;
        Ok(Arc::new(Presence { topics, map, node, members: Mutex::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn join(self: &Arc<Self>, user: &str, session: ChannelId) {
        self.lock().insert(user.to_owned(), Member { session, entry: None });
        self.set(user);
    }

    fn set(self: &Arc<Self>, user: &str) {
        // Without the lease, nothing would remove the entry if this node dies.
        let Some(owner) = self.topics.authority() else { return };
        let change = MapChange::set(user.to_owned(), self.node.clone());
        let (me, user) = (self.clone(), user.to_owned());
        self.change(change, Some(owner)).on_complete(move |changed| match changed {
            Ok(Changed { position, .. }) => {
                if let Some(member) = me.lock().get_mut(&user) {
                    member.entry = Some(position);
                    return;
                }
                // The member has left meanwhile.
                me.remove(&user, position);
            }
            Err(error) => log::info!("{user} is not listed yet: {error:#}"),
        });
    }

    /// Removes a member, unless another session has the name by now.
    pub(super) fn leave(self: &Arc<Self>, user: &str, session: ChannelId) {
        let mut members = self.lock();
        if members.get(user).is_none_or(|member| member.session != session) {
            return;
        }
        let entry = members.remove(user).and_then(|member| member.entry);
        drop(members);
        if let Some(entry) = entry {
            self.remove(user, entry);
        }
    }

    /// Removes an entry, unless it was set again, perhaps by another node.
    fn remove(self: &Arc<Self>, user: &str, entry: Position) {
        let mut change = MapChange::remove(user.to_owned());
        change.condition = Some(MapCondition::Unchanged(entry));
        self.change(change, None).on_complete(|removed| {
            if let Err(error) = removed {
                log::info!("an entry is not removed yet: {error:#}");
            }
        });
    }

    fn change(&self, change: MapChange, owner: Option<NodeId>) -> Completion<Changed> {
        let mut update = MapUpdate::new(self.map.clone(), vec![change]);
        update.owner = owner;
        self.topics.broker().change(update)
    }

    /// Returns the members on all nodes.
    pub(super) fn list(&self) -> Completion<Snapshot> {
        self.topics.broker().snapshot(&self.map, None)
    }

    /// Sets the entries that are missing, and removes entries of this node without a session.
    pub(super) fn audit(self: &Arc<Self>) {
        let me = self.clone();
        self.list().on_complete(move |snapshot| {
            let Ok(snapshot) = snapshot else { return };
            let own = me.topics.authority();
            let mut missing: Vec<String> = me.lock().keys().cloned().collect();
            for entry in snapshot.entries {
                let user = String::from_utf8_lossy(&entry.key).into_owned();
                match missing.iter().position(|missing| *missing == user) {
                    Some(at) => drop(missing.swap_remove(at)),
                    None if own.is_some() && entry.owner == own => me.remove(&user, entry.position),
                    None => {}
                }
            }
            missing.iter().for_each(|user| me.set(user));
        });
    }
}
