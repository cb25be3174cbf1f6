//! `Registry`: the sinks of each channel, and the state of the channel at the server.
//!
//! Invariants: a channel is in place if its last request was `SUBSCRIBE` and all requests for it
//! are confirmed. A sink gets messages only between `Subscribed` and `Lost`. A channel has an entry
//! only while it has a sink, is subscribed, or has unconfirmed requests. Pure.

use super::event::Sink;
use bytes::Bytes;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// A sink of a channel.
#[derive(Clone)]
pub(super) struct ChannelSink {
    pub(super) id: u64,
    pub(super) sink: Sink,
    /// Whether the sink has received `Subscribed`.
    is_notified: bool,
}

#[derive(Default)]
struct ChannelEntry {
    members: Arc<Vec<ChannelSink>>,
    /// Whether the last request to the server was `SUBSCRIBE`.
    is_asked: bool,
    /// Requests that the server has not confirmed.
    unconfirmed: usize,
}

impl ChannelEntry {
    fn is_in_place(&self) -> bool {
        self.is_asked && self.unconfirmed == 0
    }

    fn is_unused(&self) -> bool {
        self.members.is_empty() && !self.is_asked && self.unconfirmed == 0
    }
}

/// The actions for a batch of changes.
#[derive(Default)]
pub(super) struct SubscriptionChanges {
    pub(super) subscribe: Vec<Bytes>,
    pub(super) unsubscribe: Vec<Bytes>,
    /// Sinks of channels that are in place already.
    pub(super) subscribed: Vec<Sink>,
}

#[derive(Default)]
pub(super) struct Registry {
    channels: BTreeMap<Bytes, ChannelEntry>,
    /// Channels whose requests have not been sent.
    changed: BTreeSet<Bytes>,
    members: usize,
    last_id: u64,
}

impl Registry {
    /// Returns the number of sinks.
    pub(super) fn len(&self) -> usize {
        self.members
    }

    pub(super) fn join(&mut self, channel: Bytes, sink: Sink) -> u64 {
        self.last_id += 1;
        self.members += 1;
        let member = ChannelSink { id: self.last_id, sink, is_notified: false };
        let entry = self.channels.entry(channel.clone()).or_default();
        Arc::make_mut(&mut entry.members).push(member);
        self.changed.insert(channel);
        self.last_id
    }

    /// Removes a sink, and returns it.
    pub(super) fn leave(&mut self, channel: &Bytes, id: u64) -> Option<ChannelSink> {
        let entry = self.channels.get_mut(channel)?;
        let at = entry.members.iter().position(|member| member.id == id)?;
        let member = Arc::make_mut(&mut entry.members).remove(at);
        self.members -= 1;
        self.changed.insert(channel.clone());
        // While the client is disconnected, nothing takes the changes.
        self.tidy(channel);
        Some(member)
    }

    pub(super) fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Takes up to `limit` changes.
    pub(super) fn take_changes(&mut self, limit: usize) -> SubscriptionChanges {
        let mut changes = SubscriptionChanges::default();
        for _ in 0..limit {
            let Some(channel) = self.changed.pop_first() else { break };
            let Some(entry) = self.channels.get_mut(&channel) else { continue };
            let is_wanted = !entry.members.is_empty();
            if is_wanted == entry.is_asked {
                if entry.is_in_place() {
                    changes.subscribed.extend(notify(entry));
                }
            } else {
                entry.is_asked = is_wanted;
                entry.unconfirmed += 1;
                let list = if is_wanted { &mut changes.subscribe } else { &mut changes.unsubscribe };
                list.push(channel.clone());
            }
            self.tidy(&channel);
        }
        changes
    }

    /// Handles a confirmation. Returns the sinks for which the subscription is in place now.
    pub(super) fn confirmed(&mut self, channel: &Bytes) -> Vec<Sink> {
        let Some(entry) = self.channels.get_mut(channel) else { return Vec::new() };
        entry.unconfirmed = entry.unconfirmed.saturating_sub(1);
        let notified = if entry.is_in_place() { notify(entry) } else { Vec::new() };
        self.tidy(channel);
        notified
    }

    /// Handles a refusal of `SUBSCRIBE`. Returns the sinks that wait for it.
    pub(super) fn refused(&mut self, channel: &Bytes) -> Vec<Sink> {
        let Some(entry) = self.channels.get_mut(channel) else { return Vec::new() };
        entry.unconfirmed = entry.unconfirmed.saturating_sub(1);
        let mut sinks = Vec::new();
        if entry.is_asked && entry.unconfirmed == 0 {
            entry.is_asked = false;
            sinks.extend(entry.members.iter().map(|member| member.sink.clone()));
        }
        self.tidy(channel);
        sinks
    }

    /// Handles a refusal of one `SUBSCRIBE` for several channels. Returns whether this channel is
    /// to be subscribed alone. It is not if a later request for it was sent.
    pub(super) fn refused_with_others(&mut self, channel: &Bytes) -> bool {
        let Some(entry) = self.channels.get(channel) else { return false };
        let is_last = entry.unconfirmed == 1;
        if !is_last {
            self.refused(channel);
        }
        is_last
    }

    /// Returns the sinks for a message.
    pub(super) fn sinks(&self, channel: &Bytes) -> Option<Arc<Vec<ChannelSink>>> {
        self.channels.get(channel).filter(|entry| entry.is_in_place()).map(|entry| entry.members.clone())
    }

    /// Resets the state of all channels. Returns the sinks of the channels that were in place.
    pub(super) fn lose(&mut self) -> Vec<Sink> {
        self.changed.clear();
        self.channels.retain(|_, entry| !entry.members.is_empty());
        let mut sinks = Vec::new();
        for (channel, entry) in &mut self.channels {
            (entry.is_asked, entry.unconfirmed) = (false, 0);
            for member in Arc::make_mut(&mut entry.members) {
                if std::mem::take(&mut member.is_notified) {
                    sinks.push(member.sink.clone());
                }
            }
            self.changed.insert(channel.clone());
        }
        sinks
    }

    /// Removes everything, and returns all sinks.
    pub(super) fn clear(&mut self) -> Vec<Sink> {
        let channels = std::mem::take(self).channels;
        let members = channels.into_values().flat_map(|entry| (*entry.members).clone());
        members.map(|member| member.sink).collect()
    }

    fn tidy(&mut self, channel: &Bytes) {
        if self.channels.get(channel).is_some_and(ChannelEntry::is_unused) {
            self.channels.remove(channel);
            self.changed.remove(channel);
        }
    }
}

impl ChannelSink {
    pub(super) fn gets_messages(&self) -> bool {
        self.is_notified
    }
}

/// Marks the members of a channel that is in place. Returns the sinks that have not received
/// `Subscribed`.
fn notify(entry: &mut ChannelEntry) -> Vec<Sink> {
    if entry.members.iter().all(|member| member.is_notified) {
        return Vec::new();
    }
    let members = Arc::make_mut(&mut entry.members).iter_mut();
    let untold = members.filter_map(|member| {
        let was_notified = std::mem::replace(&mut member.is_notified, true);
        (!was_notified).then(|| member.sink.clone())
    });
    untold.collect()
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
