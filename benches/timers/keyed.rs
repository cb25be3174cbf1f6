//! The bare wheel with the guarantees that a general-purpose wheel needs, to show the cost of these
//! guarantees.
//!
//! Keys have a generation and are checked. A slot has two ends, so that timers expire in the order
//! of insertion. Deadlines are exact to the nanosecond. A bitmap shows the next occupied slot.
//! Still missing: delays beyond a revolution, a tick that is chosen at run time, values that are
//! dropped, a bound for a call.

use crate::stores::{MS, Store};
use std::hint::black_box;

const NIL: u32 = u32::MAX;
const SLOTS: u64 = 4096;
const TICK: u64 = 16 * MS;

pub(crate) struct Keyed {
    /// First and last node of each slot.
    slots: Vec<(u32, u32)>,
    occupied: Vec<u64>,
    nodes: Vec<Node>,
    free: u32,
    now: u64,
    tick: u64,
}

struct Node {
    deadline: u64,
    prev: u32,
    next: u32,
    slot: u16,
    held: bool,
    generation: u32,
    value: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

impl Keyed {
    fn append(&mut self, index: u32, deadline: u64) {
        let slot = deadline.div_ceil(TICK) % SLOTS;
        let (head, tail) = &mut self.slots[slot as usize];
        let prev = std::mem::replace(tail, index);
        if prev == NIL {
            *head = index;
            self.occupied[(slot / 64) as usize] |= 1 << (slot % 64);
        } else {
            self.nodes[prev as usize].next = index;
        }
        let node = &mut self.nodes[index as usize];
        (node.deadline, node.prev, node.next, node.slot) = (deadline, prev, NIL, slot as u16);
    }

    fn take_out(&mut self, index: u32) {
        let Node { prev, next, slot, .. } = self.nodes[index as usize];
        let (head, tail) = &mut self.slots[usize::from(slot)];
        match (prev, next) {
            (NIL, NIL) => {
                (*head, *tail) = (NIL, NIL);
                self.occupied[usize::from(slot / 64)] &= !(1 << (slot % 64));
            }
            (NIL, _) => *head = next,
            (_, NIL) => *tail = prev,
            _ => {}
        }
        if prev != NIL {
            self.nodes[prev as usize].next = next;
        }
        if next != NIL {
            self.nodes[next as usize].prev = prev;
        }
    }

    fn release(&mut self, index: u32) -> u64 {
        self.take_out(index);
        let node = &mut self.nodes[index as usize];
        node.next = std::mem::replace(&mut self.free, index);
        node.generation = node.generation.wrapping_add(1);
        node.held = false;
        node.value
    }

    fn find(&self, key: Key) -> Option<&Node> {
        self.nodes.get(key.index as usize).filter(|node| node.held && node.generation == key.generation)
    }

    /// Returns the tick of the first occupied slot from `tick` on, if it is before `until`.
    fn next_occupied(&self, tick: u64, until: u64) -> Option<u64> {
        let mut at = tick;
        while at <= until {
            let slot = at % SLOTS;
            let word = self.occupied[(slot / 64) as usize] >> (slot % 64);
            if word != 0 {
                return Some(at + u64::from(word.trailing_zeros())).filter(|tick| *tick <= until);
            }
            at += 64 - slot % 64;
        }
        None
    }
}

impl Store for Keyed {
    type Handle = Key;

    fn new() -> Self {
        let (slots, occupied) = (vec![(NIL, NIL); SLOTS as usize], vec![0; SLOTS as usize / 64]);
        Keyed { slots, occupied, nodes: Vec::new(), free: NIL, now: 0, tick: 0 }
    }

    fn start(&mut self, delay: u64, id: u64) -> Key {
        let deadline = self.now + delay;
        let mut index = self.free;
        if index == NIL {
            index = self.nodes.len() as u32;
            let (slot, generation) = (0, 0);
            self.nodes.push(Node { deadline, prev: NIL, next: NIL, slot, held: true, generation, value: id });
        } else {
            let node = &mut self.nodes[index as usize];
            self.free = node.next;
            (node.value, node.held) = (id, true);
        }
        self.append(index, deadline);
        Key { index, generation: self.nodes[index as usize].generation }
    }

    fn cancel(&mut self, key: Key, _id: u64) {
        if self.find(key).is_some() {
            black_box(self.release(key.index));
        }
    }

    fn rearm(&mut self, key: &mut Key, delay: u64, _id: u64) {
        let deadline = self.now + delay;
        let Some(node) = self.find(*key) else { return };
        let later = deadline >= node.deadline;
        if later {
            self.nodes[key.index as usize].deadline = deadline;
        } else {
            self.take_out(key.index);
            self.append(key.index, deadline);
        }
    }

    fn advance(&mut self, by: u64) -> usize {
        self.now += by;
        let until = self.now / TICK;
        let mut expired = 0;
        while let Some(tick) = self.next_occupied(self.tick, until) {
            self.tick = tick;
            let (head, last) = self.slots[(tick % SLOTS) as usize];
            let mut index = head;
            loop {
                let Node { next, deadline, .. } = self.nodes[index as usize];
                if deadline.div_ceil(TICK) <= tick {
                    black_box(self.release(index));
                    expired += 1;
                } else {
                    self.take_out(index);
                    self.append(index, deadline);
                }
                if index == last {
                    break;
                }
                index = next;
            }
            self.tick += 1;
        }
        self.tick = until;
        expired
    }
}
