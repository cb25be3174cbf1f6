//! The members of a group, by loop.
//!
//! Invariants: a channel is a member at most once. A loop is listed as long as it has members.
//! Joining and leaving take constant time. Copies of the membership are made on demand, and shared
//! until it changes. Pure: the group locks it.

use crate::{
    channel::handle::{Channel, MailSender, SizeHint, WriteTicket},
    id::{ChannelId, Key},
};
use std::{collections::HashMap, sync::Arc};

pub(super) struct Members<M> {
    /// The index of each member among those of its loop.
    places: HashMap<ChannelId, usize>,
    loops: Vec<OnLoop<M>>,
    /// Copies of the membership, if it has not changed since they were made.
    parts: Option<Arc<[Part]>>,
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
pub(super) struct Part {
    pub(super) event_loop: u32,
    pub(super) outlet: Arc<dyn MailSender>,
    pub(super) members: PartMembers,
}

/// The members of a group on one loop that receive a broadcast.
#[derive(Clone)]
pub(super) enum PartMembers {
    /// All of them.
    All(Arc<[Key]>),
    /// The selected ones. Those that were selected because they are writable have a ticket.
    Selected(Arc<[(Key, Option<WriteTicket>)]>),
}

impl PartMembers {
    pub(super) fn len(&self) -> usize {
        match self {
            PartMembers::All(keys) => keys.len(),
            PartMembers::Selected(members) => members.len(),
        }
    }

    /// Returns a member and its ticket.
    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<(Key, Option<WriteTicket>)> {
        match self {
            PartMembers::All(keys) => keys.get(at).map(|key| (*key, None)),
            PartMembers::Selected(members) => members.get(at).copied(),
        }
    }

    /// Returns the place of a member, if it is at `from` or later.
    pub(super) fn position(&self, key: Key, from: usize) -> Option<usize> {
        let found = match self {
            PartMembers::All(keys) => keys.get(from..)?.iter().position(|one| *one == key),
            PartMembers::Selected(members) => members.get(from..)?.iter().position(|(one, _)| *one == key),
        };
        found.map(|at| from + at)
    }
}

/// A member that was selected because it is writable. The message counts as soon as its loop has
/// it.
pub(super) struct Permitted<M> {
    /// The index of its part.
    pub(super) part: usize,
    channel: Channel<M>,
    ticket: WriteTicket,
}

impl<M> Permitted<M> {
    pub(super) fn add(&self) {
        self.channel.shared().producers.add(self.ticket);
    }
}

impl<M> Default for Members<M> {
    fn default() -> Self {
        Members { places: HashMap::new(), loops: Vec::new(), parts: None, channels: None, is_closed: false }
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
    pub(super) fn parts(&mut self) -> Arc<[Part]> {
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
    fn part(&mut self) -> Part {
        let channels = &self.channels;
        let keys = self.keys.get_or_insert_with(|| channels.iter().map(|channel| channel.id().key).collect());
        // A listed loop has members.
        let outlet = self.channels[0].shared().outlet.clone();
        Part { event_loop: self.event_loop, outlet, members: PartMembers::All(keys.clone()) }
    }
}

/// Returns the members that `filter` selects, and the subset that has a permit because the filter
/// saw a writable channel. The `channels` of a loop must be adjacent.
pub(super) fn selected<M: 'static>(
    channels: &[Channel<M>],
    mut filter: impl FnMut(&Channel<M>) -> bool,
    message: &M,
) -> (Arc<[Part]>, Vec<Permitted<M>>) {
    let (mut parts, mut entitled) = (Vec::new(), Vec::new());
    let mut size = MessageSize { message, last: None };
    for of_loop in channels.chunk_by(|one, next| one.id().event_loop == next.id().event_loop) {
        let mut selected = Vec::new();
        for channel in of_loop {
            // A separate handle, so that the permit belongs to this broadcast only.
            let asked = channel.clone();
            if !filter(&asked) {
                continue;
            }
            let ticket = if asked.take_permit() { asked.admit(size.of(&asked), true).ok() } else { None };
            selected.push((asked.id().key, ticket));
            if let Some(ticket) = ticket {
                entitled.push(Permitted { part: parts.len(), channel: asked, ticket });
            }
        }
        if let Some(first) = of_loop.first()
            && !selected.is_empty()
        {
            let is_counted = selected.iter().any(|(_, ticket)| ticket.is_some());
            parts.push(Part {
                event_loop: first.id().event_loop,
                outlet: first.shared().outlet.clone(),
                members: if is_counted {
                    PartMembers::Selected(selected.into())
                } else {
                    PartMembers::All(selected.into_iter().map(|(key, _)| key).collect())
                },
            });
        }
    }
    (parts.into(), entitled)
}

/// The encoded size of one message, computed once for adjacent channels with the same size hint.
struct MessageSize<'a, M> {
    message: &'a M,
    last: Option<(SizeHint, Option<usize>)>,
}

impl<M: 'static> MessageSize<'_, M> {
    fn of(&mut self, channel: &Channel<M>) -> Option<usize> {
        let hint = channel.size_hint();
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
