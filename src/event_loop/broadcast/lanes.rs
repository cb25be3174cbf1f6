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

use crate::{
    channel::{Delivery, Recipient},
    id::Key,
    lookup::LookupMap,
};
use std::collections::VecDeque;

/// The number of deliveries of one group before the next group has its turn.
const QUANTUM: usize = 256;

/// The number of channel counts whose memory is kept for reuse.
const MAX_SPARE_COUNTS: usize = 64 * 1024;

/// A broadcast in progress on this loop.
struct WaitingDelivery {
    delivery: Box<Delivery>,
    /// Increases in the order of arrival.
    number: u64,
}

/// A waiting delivery to one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::event_loop) struct WaitingPlace {
    group: usize,
    /// The number of the broadcast.
    number: u64,
    /// The place of the channel in the broadcast.
    place: usize,
}

/// The number of waiting deliveries to one channel.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    generation: u32,
    deliveries: u32,
}

impl Count {
    /// Counts a delivery. One to an earlier channel of the slot, which has closed, is not counted.
    fn add(&mut self, key: Key) {
        match key.generation.wrapping_sub(self.generation) as i32 {
            0 => self.deliveries += 1,
            1.. => *self = Count { generation: key.generation, deliveries: 1 },
            _ => {}
        }
    }

    /// Records that a delivery is made. It was counted when its broadcast arrived.
    fn remove(&mut self, key: Key) {
        if key.generation == self.generation {
            self.deliveries -= 1;
        }
    }
}

#[derive(Default)]
pub(in crate::event_loop) struct Lanes {
    lanes: LookupMap<usize, VecDeque<WaitingDelivery>>,
    /// The groups with waiting broadcasts, in the order of their turns.
    turns: VecDeque<usize>,
    /// The number of deliveries left in the turn of the first group.
    quantum: usize,
    /// The waiting deliveries of the last channel of each slot.
    counts: Vec<Count>,
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
                self.counts.resize(index + 1, Count::default());
            }
            self.counts[index].add(key);
        }
        let group = delivery.group();
        self.next_number += 1;
        let pending = WaitingDelivery { delivery, number: self.next_number };
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
    pub(in crate::event_loop) fn next(&mut self) -> Option<(Recipient, &mut Delivery)> {
        if self.quantum == 0 && !self.is_empty() && !self.is_first_done() {
            self.turns.rotate_left(1);
            self.quantum = QUANTUM;
        }
        let pending = self.lanes.get_mut(self.turns.front()?)?.front_mut()?;
        let recipient = pending.delivery.next()?;
        self.quantum -= 1;
        self.counts[recipient.key().index as usize].remove(recipient.key());
        Some((recipient, &mut pending.delivery))
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

    /// Returns whether a delivery to this channel is waiting.
    #[inline]
    pub(in crate::event_loop) fn has_for(&self, channel: Key) -> bool {
        !self.is_empty() && self.count(channel) > 0
    }

    fn count(&self, channel: Key) -> usize {
        let count = self.counts.get(channel.index as usize);
        count
            .filter(|count| count.generation == channel.generation)
            .map_or(0, |count| count.deliveries as usize)
    }

    /// Returns the waiting deliveries to this channel, in the order of their arrival.
    #[allow(clippy::disallowed_methods, reason = "all are found, and sorted by their numbers")]
    pub(in crate::event_loop) fn waiting_for(&self, channel: Key) -> Vec<WaitingPlace> {
        let most = self.count(channel);
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
                if let Some(place) = pending.delivery.place_of(channel) {
                    found.push(WaitingPlace { group: *group, number: pending.number, place });
                }
            }
        }
        found.sort_unstable_by_key(|waiting| waiting.number);
        found
    }

    /// Takes a delivery to one channel out of its turn. The caller makes it.
    pub(in crate::event_loop) fn take_for(
        &mut self,
        waiting: WaitingPlace,
    ) -> Option<(Recipient, &mut Delivery)> {
        let lane = self.lanes.get_mut(&waiting.group)?;
        let at = lane.binary_search_by_key(&waiting.number, |pending| pending.number).ok()?;
        let pending = lane.get_mut(at)?;
        let recipient = pending.delivery.take(waiting.place)?;
        self.counts[recipient.key().index as usize].remove(recipient.key());
        Some((recipient, &mut pending.delivery))
    }
}

impl Drop for Lanes {
    /// Drops the broadcasts in the order of their turns. Their reports complete during the drop.
    fn drop(&mut self) {
        for group in self.turns.drain(..) {
            drop(self.lanes.remove(&group));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        channel::{Pipeline, TestGroup},
        codec::RawBytes,
        testing::EmbeddedChannel,
    };
    use proptest::prelude::*;

    const CHANNELS: usize = 8;
    const GROUPS: usize = 3;

    #[derive(Debug, Clone)]
    enum Step {
        /// A group broadcasts to the channels in the mask. Those in the second mask have tickets.
        Broadcast { group: usize, to: u8, tickets: u8, except: Option<usize> },
        /// This number of deliveries is made in turn.
        Next(usize),
        /// Mail for a channel arrives: its deliveries are made out of turn, or only the first ones.
        CatchUp { channel: usize, at_most: usize },
        /// Another channel takes the slot.
        Reuse(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let broadcast = (0..GROUPS, any::<u8>(), any::<u8>(), prop::option::of(0..CHANNELS));
        prop_oneof![
            4 => broadcast.prop_map(|(group, to, tickets, except)| Step::Broadcast { group, to, tickets, except }),
            2 => (0..30_usize).prop_map(Step::Next),
            3 => (0..CHANNELS, 0..6_usize).prop_map(|(channel, at_most)| Step::CatchUp { channel, at_most }),
            1 => (0..CHANNELS).prop_map(Step::Reuse),
        ]
    }

    /// A delivery that the model expects.
    #[derive(Debug, Clone, PartialEq)]
    struct Expected {
        group: usize,
        channel: Key,
        /// Identifies the broadcast and the channel.
        weight: Option<u32>,
    }

    proptest! {
        /// The model is a list of deliveries in the order of their broadcasts. Each is made once,
        /// with the ticket of its own member, and in order for each group and channel.
        #[test]
        fn deliveries_and_tickets_agree_with_a_model(steps in prop::collection::vec(step(), 0..80)) {
            let mut member = EmbeddedChannel::new(Pipeline::codec(RawBytes).on_read(|_, _| Ok(())));
            let groups: Vec<_> = (0..GROUPS).map(|_| TestGroup::new(&member.channel())).collect();
            let mut keys: Vec<_> = (0..CHANNELS as u32).map(|index| Key { index, generation: 0 }).collect();
            let mut lanes = Lanes::default();
            let mut expected = Vec::<Expected>::new();
            let mut number = 0;
            let make = |recipient: Recipient, delivery: &mut Delivery, expected: &mut Vec<Expected>| {
                let made = Expected {
                    group: delivery.group(),
                    channel: recipient.key(),
                    weight: delivery.take_weight(&recipient),
                };
                let first = expected.iter().position(|it| it.group == made.group && it.channel == made.channel);
                let first = first.map(|at| expected.remove(at));
                assert_eq!(first, Some(made), "the next one of this group for this channel");
            };
            for step in steps.into_iter().chain([Step::Next(usize::MAX)]) {
                match step {
                    Step::Broadcast { group, to, tickets, except } => {
                        number += 1;
                        let chosen = keys.iter().enumerate().filter(|(at, _)| to >> at & 1 == 1);
                        let weight = |at: usize| (tickets >> at & 1 == 1).then_some(number * 100 + at as u32);
                        let members: Vec<_> = chosen.map(|(at, key)| (*key, weight(at))).collect();
                        if members.is_empty() {
                            continue;
                        }
                        let except = except.map(|at| keys[at]).filter(|key| members.iter().any(|(one, _)| one == key));
                        let group = &groups[group];
                        let receives = members.iter().filter(|(key, _)| Some(*key) != except);
                        expected.extend(receives.map(|(channel, weight)| Expected {
                            group: group.id(),
                            channel: *channel,
                            weight: *weight,
                        }));
                        lanes.push(group.delivery(&members, except));
                    }
                    Step::Next(n) => {
                        for _ in 0..n {
                            if let Some((recipient, delivery)) = lanes.next() {
                                make(recipient, delivery, &mut expected);
                            } else if lanes.take_finished().is_none() {
                                break;
                            }
                        }
                    }
                    Step::CatchUp { channel, at_most } => {
                        let key = keys[channel];
                        let waits = expected.iter().filter(|it| it.channel == key).count();
                        prop_assert_eq!(lanes.has_for(key), waits > 0);
                        let waiting = lanes.waiting_for(key);
                        prop_assert_eq!(waiting.len(), waits);
                        for place in waiting.into_iter().take(at_most) {
                            let (recipient, delivery) = lanes.take_for(place).expect("it waits");
                            prop_assert_eq!(recipient.key(), key);
                            make(recipient, delivery, &mut expected);
                            prop_assert!(lanes.take_for(place).is_none(), "it is taken once");
                        }
                    }
                    Step::Reuse(channel) => keys[channel].generation += 1,
                }
            }
            prop_assert!(expected.is_empty(), "{:?}", expected);
            prop_assert!(lanes.is_empty() && lanes.counts.iter().all(|count| count.deliveries == 0));
        }
    }
}
