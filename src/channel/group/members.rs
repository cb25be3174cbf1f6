//! The members of a group, by loop.
//!
//! Invariants: a channel is a member at most once. A loop is listed as long as it has members.
//! Joining and leaving take constant time. Copies of the membership are made on demand, and shared
//! until it changes. Pure: the group locks it.

use crate::{
    channel::{
        Channel, SizeHint,
        handle::{MailSender, PartReservations},
    },
    id::{ChannelId, Key},
    lookup::LookupMap,
};
use std::sync::Arc;

pub(super) struct Members<M> {
    /// The index of each member among those of its loop.
    places: LookupMap<ChannelId, usize>,
    loops: Vec<OnLoop<M>>,
    /// Copies of the membership, if it has not changed since they were made.
    parts: Option<Arc<[LoopMembers]>>,
    channels: Option<Arc<[Channel<M>]>>,
    is_closed: bool,
}

struct OnLoop<M> {
    event_loop: u32,
    channels: Vec<Channel<M>>,
    /// The keys of the members, if these have not changed since.
    keys: Option<Arc<[Key]>>,
}

/// The members of a group on one loop.
pub(super) struct LoopMembers {
    pub(super) event_loop: u32,
    pub(super) sender: Arc<dyn MailSender>,
    pub(super) keys: Arc<[Key]>,
}

impl<M> Default for Members<M> {
    fn default() -> Self {
        Members { places: LookupMap::new(), loops: Vec::new(), parts: None, channels: None, is_closed: false }
    }
}

impl<M> Members<M> {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn contains(&self, id: ChannelId) -> bool {
        self.places.contains_key(&id)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(super) fn set_closed(&mut self) {
        self.is_closed = true;
    }

    /// Adds a channel that is not a member.
    pub(super) fn insert(&mut self, channel: Channel<M>) {
        self.forget_copies();
        let id = channel.id();
        let at = self.loops.iter().position(|on| on.event_loop == id.event_loop).unwrap_or_else(|| {
            self.loops.push(OnLoop { event_loop: id.event_loop, channels: Vec::new(), keys: None });
            self.loops.len() - 1
        });
        let on = &mut self.loops[at];
        self.places.insert(id, on.channels.len());
        on.channels.push(channel);
        on.keys = None;
    }

    pub(super) fn remove(&mut self, id: ChannelId) -> Option<Channel<M>> {
        let place = self.places.remove(&id)?;
        self.forget_copies();
        let at = self.loops.iter().position(|on| on.event_loop == id.event_loop)?;
        let on = &mut self.loops[at];
        on.keys = None;
        let channel = on.channels.swap_remove(place);
        if let Some(moved) = on.channels.get(place) {
            self.places.insert(moved.id(), place);
        }
        if on.channels.is_empty() {
            self.loops.swap_remove(at);
        }
        Some(channel)
    }

    fn forget_copies(&mut self) {
        self.parts = None;
        self.channels = None;
    }

    pub(super) fn each(&self, f: impl FnMut(&Channel<M>)) {
        self.loops.iter().flat_map(|on| &on.channels).for_each(f);
    }

    /// Returns the members by loop, for a broadcast.
    pub(super) fn parts(&mut self) -> Arc<[LoopMembers]> {
        let loops = &mut self.loops;
        self.parts.get_or_insert_with(|| loops.iter_mut().map(OnLoop::part).collect()).clone()
    }

    /// Returns the members; those of a loop are adjacent.
    pub(super) fn channels(&mut self) -> Arc<[Channel<M>]> {
        let all = || self.loops.iter().flat_map(|on| on.channels.iter().cloned()).collect();
        self.channels.get_or_insert_with(all).clone()
    }
}

impl<M> OnLoop<M> {
    fn part(&mut self) -> LoopMembers {
        let channels = &self.channels;
        let keys = self.keys.get_or_insert_with(|| channels.iter().map(|channel| channel.id().key).collect());
        // A listed loop has members.
        let sender = self.channels[0].shared().sender.clone();
        LoopMembers { event_loop: self.event_loop, sender, keys: keys.clone() }
    }
}

/// Returns the members that `filter` selects. The message counts at once at members that have a
/// permit because the filter saw a writable channel. The `channels` of a loop must be adjacent.
pub(super) fn selected<M: 'static>(
    channels: &[Channel<M>],
    mut filter: impl FnMut(&Channel<M>) -> bool,
    message: &M,
) -> (Arc<[LoopMembers]>, Vec<PartReservations>) {
    let (mut parts, mut reserved) = (Vec::new(), Vec::new());
    let mut size = MessageSize { message, last: None };
    for of_loop in channels.chunk_by(|one, next| one.id().event_loop == next.id().event_loop) {
        let (mut keys, mut reservations) = (Vec::new(), Vec::new());
        for channel in of_loop {
            // A separate handle, so that the permit belongs to this broadcast only.
            let asked = channel.clone();
            if filter(&asked) {
                keys.push(asked.id().key);
                reservations.push(asked.reserve_permitted(|hint| size.of(hint)));
            }
        }
        if let Some(first) = of_loop.first()
            && !keys.is_empty()
        {
            let is_counted = reservations.iter().any(Option::is_some);
            parts.push(LoopMembers {
                event_loop: first.id().event_loop,
                sender: first.shared().sender.clone(),
                keys: keys.into(),
            });
            reserved.push(is_counted.then_some(reservations));
        }
    }
    (parts.into(), reserved)
}

/// The encoded size of one message, computed once for adjacent channels with the same size hint.
struct MessageSize<'a, M> {
    message: &'a M,
    last: Option<(SizeHint, Option<usize>)>,
}

impl<M: 'static> MessageSize<'_, M> {
    fn of(&mut self, hint: SizeHint) -> Option<usize> {
        match self.last {
            Some((last, size)) if std::ptr::fn_addr_eq(last, hint) => size,
            _ => {
                let size = hint(self.message);
                self.last = Some((hint, size));
                size
            }
        }
    }
}
