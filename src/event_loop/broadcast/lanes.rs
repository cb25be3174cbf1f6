//! Waiting broadcasts, in one lane for each group.
//!
//! Groups take turns after [`QUANTUM`] deliveries each (round robin), so the backlog of one group
//! does not delay the others. The loop counts the waiting deliveries of each channel. When mail for
//! a channel arrives, its waiting deliveries are made first, in order (`take_for`). There is no
//! order between groups. Otherwise a member of two groups would make each of them wait for the
//! backlog of the other.
//!
//! Invariants: the broadcasts of a group are delivered in the order of their arrival. No delivery
//! is made twice. Pure: the loop writes to the channels. Runs on the loop's thread.

use crate::{channel::Delivery, id::Key};
use std::collections::{HashMap, HashSet, VecDeque};

/// The number of deliveries of one group before the next group has its turn.
const QUANTUM: usize = 256;

/// The number of channel counts whose memory is kept for reuse.
const MAX_SPARE_COUNTS: usize = 64 * 1024;

/// A broadcast in progress on this loop.
pub(in crate::event_loop) struct WaitingDelivery {
    pub(in crate::event_loop) delivery: Box<Delivery>,
    /// Increases in the order of arrival.
    number: u64,
    /// Members that received the broadcast out of turn.
    early: HashSet<Key>,
}

#[derive(Default)]
pub(in crate::event_loop) struct Lanes {
    lanes: HashMap<usize, VecDeque<WaitingDelivery>>,
    /// The groups with waiting broadcasts, in the order of their turns.
    turns: VecDeque<usize>,
    /// The number of deliveries left in the turn of the first group.
    quantum: usize,
    /// The number of waiting deliveries, by the channel's slot. When a slot is reused, its number
    /// still includes deliveries to the previous channel. `waiting_for` then finds fewer
    /// broadcasts.
    counts: Vec<u32>,
    next_number: u64,
}

impl Lanes {
    pub(in crate::event_loop) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Appends a broadcast to the lane of its group.
    pub(in crate::event_loop) fn push(&mut self, delivery: Box<Delivery>) {
        for key in delivery.rest() {
            let index = key.index as usize;
            if self.counts.len() <= index {
                self.counts.resize(index + 1, 0);
            }
            self.counts[index] += 1;
        }
        let group = delivery.group();
        self.next_number += 1;
        let pending = WaitingDelivery { delivery, number: self.next_number, early: HashSet::new() };
        let lane = self.lanes.entry(group).or_default();
        if lane.is_empty() {
            self.turns.push_back(group);
            if self.turns.len() == 1 {
                self.quantum = QUANTUM;
            }
        }
        lane.push_back(pending);
    }

    /// Returns the next delivery, which the caller makes. Returns `None` if the first broadcast is
    /// finished. The caller then removes it with [`Lanes::take_finished`].
    #[inline]
    pub(in crate::event_loop) fn next(&mut self) -> Option<(Key, &mut WaitingDelivery)> {
        if self.quantum == 0 && !self.is_first_done() {
            self.turns.rotate_left(1);
            self.quantum = QUANTUM;
        }
        let pending = self.lanes.get_mut(self.turns.front()?)?.front_mut()?;
        loop {
            let key = pending.delivery.next()?;
            if pending.early.is_empty() || !pending.early.remove(&key) {
                self.quantum -= 1;
                // Cannot underflow, since the delivery was counted when the broadcast arrived.
                self.counts[key.index as usize] -= 1;
                return Some((key, pending));
            }
        }
    }

    fn is_first_done(&self) -> bool {
        let lane = self.turns.front().and_then(|group| self.lanes.get(group));
        lane.and_then(VecDeque::front).is_some_and(|pending| pending.delivery.is_done())
    }

    /// Removes the first broadcast if it is finished.
    pub(in crate::event_loop) fn take_finished(&mut self) -> Option<Box<Delivery>> {
        if !self.is_first_done() {
            return None;
        }
        let group = *self.turns.front()?;
        let lane = self.lanes.get_mut(&group)?;
        let finished = lane.pop_front()?;
        if lane.is_empty() {
            self.lanes.remove(&group);
            self.turns.pop_front();
            self.quantum = QUANTUM;
            if self.turns.is_empty() && self.counts.len() > MAX_SPARE_COUNTS {
                self.counts = Vec::new();
            }
        }
        Some(finished.delivery)
    }

    /// Returns whether a delivery to this channel may be waiting.
    #[inline]
    pub(in crate::event_loop) fn has_for(&self, channel: Key) -> bool {
        !self.is_empty() && self.counts.get(channel.index as usize).is_some_and(|count| *count > 0)
    }

    /// Returns the waiting broadcasts to this channel as groups and numbers, in the order of their
    /// arrival.
    #[allow(clippy::disallowed_methods, reason = "all are found, and sorted by their numbers")]
    pub(in crate::event_loop) fn waiting_for(&self, channel: Key) -> Vec<(usize, u64)> {
        let most = self.counts.get(channel.index as usize).map_or(0, |count| *count as usize);
        let mut found = Vec::new();
        // Search short lanes and late broadcasts first, so that the search seldom walks through the
        // backlog of a flood.
        let mut groups: Vec<_> = self.lanes.iter().collect();
        groups.sort_unstable_by_key(|(_, lane)| lane.len());
        for (group, lane) in groups {
            for pending in lane.iter().rev() {
                if found.len() == most {
                    break;
                }
                if pending.delivery.is_for(channel) && !pending.early.contains(&channel) {
                    found.push((pending.number, *group));
                }
            }
        }
        found.sort_unstable();
        found.into_iter().map(|(number, group)| (group, number)).collect()
    }

    /// Takes a delivery to one channel out of its turn. The caller makes it.
    pub(in crate::event_loop) fn take_for(
        &mut self,
        channel: Key,
        (group, number): (usize, u64),
    ) -> Option<&mut WaitingDelivery> {
        let lane = self.lanes.get_mut(&group)?;
        let at = lane.binary_search_by_key(&number, |pending| pending.number).ok()?;
        let pending = lane.get_mut(at)?;
        pending.early.insert(channel).then(|| {
            self.counts[channel.index as usize] -= 1;
            pending
        })
    }
}
