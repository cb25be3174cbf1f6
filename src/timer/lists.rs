//! The linked lists of a wheel: a circular list for each slot, closed by the slot's head, and a
//! list of free places.
//!
//! Invariants: heads and entries are nodes of one index space. So entries are linked and unlinked
//! without special cases for the first or last of a list. A list is empty exactly if its head links
//! to itself. A free node is in no slot's list, and its `next` is the next free node.
//!
//! ```text
//! 0 ..  slots             the heads of level 0
//! slots .. nodes.len()    the entries, and free places
//! down from NIL - 1       the heads of upper levels, which take no memory until first used
//! ```
//!
//! Links are stored apart from entries, 8 bytes for each node. Neighbours are thus updated in a
//! table a quarter of the total size, and walking a list does not load the entries themselves.

use std::mem;

use super::level::WheelPlace;

/// The index that stands for "none".
pub(super) const NIL: u32 = u32::MAX;

/// The lowest index of a head of an upper level. No wheel has more than 2¹⁸ of them.
const FIRST_ABOVE: u32 = NIL - (1 << 20);

#[derive(Clone, Copy)]
struct ListNode {
    prev: u32,
    next: u32,
}

pub(super) struct Lists {
    nodes: Vec<ListNode>,
    /// The number of heads of level 0, a power of two.
    slots: u32,
    free: u32,
    /// The heads of each upper level, if it has been used.
    above: Vec<Vec<ListNode>>,
}

impl Lists {
    pub(super) fn new(slots: usize) -> Self {
        let heads = 0..slots as u32;
        let nodes = heads.map(|head| ListNode { prev: head, next: head }).collect();
        Self { nodes, slots: slots as u32, free: NIL, above: Vec::new() }
    }

    /// Returns the head of the list in `place`.
    #[inline]
    pub(super) fn head(&self, place: WheelPlace) -> u32 {
        match place.level {
            0 => place.slot,
            level => NIL - 1 - ((u32::from(level) - 1) * self.slots + place.slot),
        }
    }

    /// Returns the place whose list has this head.
    #[inline]
    pub(super) fn place(&self, head: u32) -> WheelPlace {
        if head < self.slots {
            return WheelPlace { level: 0, slot: head };
        }
        let above = NIL - 1 - head;
        let bits = self.slots.trailing_zeros();
        WheelPlace { level: (above >> bits) as u8 + 1, slot: above & (self.slots - 1) }
    }

    /// Allocates the heads of an upper level, unless they exist.
    pub(super) fn allocate(&mut self, level: u8) {
        let above = usize::from(level) - 1;
        if above >= self.above.len() {
            self.above.resize_with(above + 1, Vec::new);
        }
        if self.above[above].is_empty() {
            let heads = (0..self.slots).map(|slot| self.head(WheelPlace { level, slot }));
            self.above[above] = heads.map(|head| ListNode { prev: head, next: head }).collect();
        }
    }

    /// Takes a free place.
    #[inline]
    pub(super) fn take(&mut self) -> Option<u32> {
        let id = self.free;
        // There is no node `NIL`, so the lookup fails if no place is free.
        self.free = self.nodes.get(id as usize)?.next;
        Some(id)
    }

    /// Adds free places at the end, to be taken in ascending order. Reserves memory for `capacity`
    /// places in all.
    ///
    /// # Panics
    ///
    /// Panics if there are not enough indices left.
    pub(super) fn add(&mut self, places: usize, capacity: usize) {
        let nodes = &mut self.nodes;
        let (first, end) = (nodes.len(), nodes.len() + places);
        assert!(end < FIRST_ABOVE as usize, "too many timeouts: the wheel holds nearly 2^32");
        // Reserves exactly, because doubling would also count the heads.
        nodes.reserve_exact((self.slots as usize + capacity).saturating_sub(first).max(places));
        nodes.extend((first + 1..=end).map(|next| ListNode { prev: NIL, next: next as u32 }));
        nodes[end - 1].next = mem::replace(&mut self.free, first as u32);
    }

    /// Frees a place that is in no slot's list.
    #[inline]
    pub(super) fn give(&mut self, id: u32) {
        self.nodes[id as usize].next = self.free;
        self.free = id;
    }

    /// Returns the first entry of a list of level 0, or its head if the list is empty.
    #[inline]
    pub(super) fn first(&self, head: u32) -> u32 {
        self.nodes[head as usize].next
    }

    /// Appends an entry to a list of level 0.
    #[inline]
    pub(super) fn append(&mut self, head: u32, id: u32) {
        let last = mem::replace(&mut self.nodes[head as usize].prev, id);
        self.nodes[last as usize].next = id;
        self.nodes[id as usize] = ListNode { prev: last, next: head };
    }

    /// Like [`append`](Self::append), for any level.
    pub(super) fn append_to(&mut self, head: u32, id: u32) {
        let last = mem::replace(&mut self.node(head).prev, id);
        self.node(last).next = id;
        self.nodes[id as usize] = ListNode { prev: last, next: head };
    }

    /// Unlinks an entry and frees its place, if both neighbours are entries or heads of level 0.
    /// Returns `None` and does nothing otherwise. The inner value is the head of the list if the
    /// list is empty now.
    #[inline]
    pub(super) fn release_below(&mut self, id: u32) -> Option<Option<u32>> {
        let ListNode { prev, next } = self.nodes[id as usize];
        let nodes = self.nodes.len();
        if prev as usize >= nodes || next as usize >= nodes {
            return None;
        }
        self.nodes[prev as usize].next = next;
        self.nodes[next as usize].prev = prev;
        self.nodes[id as usize].next = mem::replace(&mut self.free, id);
        Some((prev == next).then_some(prev))
    }

    /// Unlinks an entry from a list of level 0. Returns the head of the list if the list is empty
    /// now.
    #[inline]
    pub(super) fn take_out_below(&mut self, id: u32) -> Option<u32> {
        let ListNode { prev, next } = self.nodes[id as usize];
        self.nodes[prev as usize].next = next;
        self.nodes[next as usize].prev = prev;
        (prev == next).then_some(prev)
    }

    /// Like [`take_out_below`](Self::take_out_below), for any level.
    #[inline]
    pub(super) fn take_out(&mut self, id: u32) -> Option<u32> {
        let ListNode { prev, next } = self.nodes[id as usize];
        self.node(prev).next = next;
        self.node(next).prev = prev;
        (prev == next).then_some(prev)
    }

    /// Unlinks the first entry of a list of level 0.
    #[inline]
    pub(super) fn take_first(&mut self, head: u32, id: u32) {
        let next = self.nodes[id as usize].next;
        self.nodes[head as usize].next = next;
        self.nodes[next as usize].prev = head;
    }

    /// Unlinks the first entry of a list of an upper level, which must not be empty. Returns the
    /// entry, and whether it was the last.
    #[inline]
    pub(super) fn take_first_above(&mut self, place: WheelPlace) -> (u32, bool) {
        let head = self.head(place);
        let ends = &mut self.above[usize::from(place.level) - 1][place.slot as usize];
        let id = ends.next;
        let next = self.nodes[id as usize].next;
        ends.next = next;
        if next == head {
            ends.prev = head;
        } else {
            self.nodes[next as usize].prev = head;
        }
        (id, next == head)
    }

    #[inline]
    fn node(&mut self, id: u32) -> &mut ListNode {
        let index = id as usize;
        if index < self.nodes.len() { &mut self.nodes[index] } else { self.node_above_mut(id) }
    }

    #[cold]
    #[inline(never)]
    fn node_above_mut(&mut self, head: u32) -> &mut ListNode {
        let WheelPlace { level, slot } = self.place(head);
        &mut self.above[usize::from(level) - 1][slot as usize]
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        let above: usize = self.above.iter().map(Vec::capacity).sum();
        (self.slots as usize + above) * size_of::<ListNode>()
            + self.above.capacity() * size_of::<Vec<ListNode>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists() -> Lists {
        let mut lists = Lists::new(4);
        lists.add(3, 3);
        lists
    }

    fn walk(lists: &mut Lists, head: u32) -> Vec<u32> {
        let mut forth = Vec::new();
        let mut at = lists.node(head).next;
        while at != head {
            forth.push(at);
            at = lists.node(at).next;
        }
        let mut back = Vec::new();
        let mut at = lists.node(head).prev;
        while at != head {
            back.push(at);
            at = lists.node(at).prev;
        }
        back.reverse();
        assert_eq!(forth, back);
        forth
    }

    #[test]
    fn places_are_taken_in_order_and_freed_places_first_in_reverse() {
        let mut lists = lists();
        assert_eq!(
            [lists.take(), lists.take(), lists.take(), lists.take()],
            [Some(4), Some(5), Some(6), None]
        );
        lists.give(4);
        lists.give(6);
        lists.add(1, 4);
        assert_eq!(
            [lists.take(), lists.take(), lists.take(), lists.take()],
            [Some(7), Some(6), Some(4), None]
        );
    }

    #[test]
    fn entries_are_unlinked_at_either_end_and_in_the_middle() {
        for leaves in [[4, 5, 6], [6, 5, 4], [5, 4, 6], [5, 6, 4]] {
            let mut lists = lists();
            let mut left = vec![4, 5, 6];
            left.iter().for_each(|id| lists.append(3, *id));
            for id in leaves {
                assert_eq!(walk(&mut lists, 3), left);
                left.retain(|other| *other != id);
                assert_eq!(lists.take_out(id), left.is_empty().then_some(3));
            }
            assert_eq!((lists.first(3), walk(&mut lists, 3)), (3, vec![]));
        }
    }

    #[test]
    fn taking_the_first_entry_makes_the_next_one_first() {
        let mut lists = lists();
        lists.append(0, 5);
        lists.append(0, 4);
        lists.take_first(0, 5);
        assert_eq!((lists.first(0), walk(&mut lists, 0)), (4, vec![4]));
        lists.take_first(0, 4);
        assert_eq!(lists.first(0), 0);
    }

    #[test]
    fn release_below_refuses_neighbours_of_upper_heads() {
        let mut lists = lists();
        for place in [
            WheelPlace { level: 1, slot: 0 },
            WheelPlace { level: 3, slot: 3 },
            WheelPlace { level: 0, slot: 2 },
        ] {
            assert_eq!(lists.place(lists.head(place)), place);
        }
        let place = WheelPlace { level: 2, slot: 1 };
        let head = lists.head(place);
        lists.allocate(2);
        [4, 5, 6].iter().for_each(|id| lists.append_to(head, *id));
        assert_eq!(walk(&mut lists, head), [4, 5, 6]);
        assert_eq!(
            (lists.release_below(4), lists.release_below(6)),
            (None, None),
            "both are next to the head"
        );
        assert_eq!(lists.release_below(5), Some(None));
        assert_eq!(walk(&mut lists, head), [4, 6]);
        assert_eq!((lists.take_out(6), lists.take_out(4)), (None, Some(head)));
        assert!(walk(&mut lists, head).is_empty());
        [5, 6].iter().for_each(|id| lists.append_to(head, *id));
        assert_eq!((lists.take_first_above(place), walk(&mut lists, head)), ((5, false), vec![6]));
        assert_eq!((lists.take_first_above(place), walk(&mut lists, head)), ((6, true), vec![]));
    }
}
