//! The stores to compare, behind one trait: netwheel's, the limit, and the standard library's.
//!
//! A store's time starts at 0 and advances only in [`Store::advance`]. No store reads a clock.
//! Every timer has a `u64` that is returned when it expires.

use netwheel::timer::{QueueKey, ScheduledQueue, Wheel, WheelKey};
use slab::Slab;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    hint::black_box,
    time::Duration,
};

pub(crate) const MS: u64 = 1_000_000;

/// A set of timers. Delays are in nanoseconds from now.
pub(crate) trait Store {
    type Handle: Copy;
    fn new() -> Self;
    fn start(&mut self, delay: u64, id: u64) -> Self::Handle;
    fn cancel(&mut self, handle: Self::Handle, id: u64);
    fn rearm(&mut self, handle: &mut Self::Handle, delay: u64, id: u64);
    /// Advances the time by `by`. Returns the number of expired timers.
    fn advance(&mut self, by: u64) -> usize;
}

// ---- netwheel ----------------------------------------------------------------------------------

/// The wheel with a tick of `TICK` milliseconds and `SLOTS` slots.
pub(crate) struct Netwheel<const TICK: u64, const SLOTS: usize> {
    wheel: Wheel<u64>,
    now: u64,
}

/// The length of the bare wheel, so that no delay of the bench exceeds a revolution.
pub(crate) type Fitted = Netwheel<16, 4096>;

/// The default settings of a loop: a revolution takes 51 seconds.
pub(crate) type Default = Netwheel<100, 512>;

impl<const TICK: u64, const SLOTS: usize> Store for Netwheel<TICK, SLOTS> {
    type Handle = WheelKey;

    fn new() -> Self {
        let wheel = Wheel::<u64>::builder().tick(Duration::from_millis(TICK)).slots(SLOTS).build();
        Netwheel { wheel: wheel.expect("the settings are in range"), now: 0 }
    }

    fn start(&mut self, delay: u64, id: u64) -> WheelKey {
        self.wheel.insert(self.now + delay, id)
    }

    fn cancel(&mut self, key: WheelKey, _id: u64) {
        black_box(self.wheel.cancel(key));
    }

    fn rearm(&mut self, key: &mut WheelKey, delay: u64, _id: u64) {
        self.wheel.rearm(*key, self.now + delay);
    }

    fn advance(&mut self, by: u64) -> usize {
        self.now += by;
        let mut expired = 0;
        loop {
            while let Some(id) = self.wheel.expire(self.now) {
                black_box(id);
                expired += 1;
            }
            if self.wheel.next_expiry().is_none_or(|at| at > self.now) {
                return expired;
            }
        }
    }
}

pub(crate) struct Queue {
    queue: ScheduledQueue<u64>,
    now: u64,
}

impl Store for Queue {
    type Handle = QueueKey;

    fn new() -> Self {
        Queue { queue: ScheduledQueue::new(), now: 0 }
    }

    fn start(&mut self, delay: u64, id: u64) -> QueueKey {
        self.queue.insert(self.now + delay, id)
    }

    fn cancel(&mut self, key: QueueKey, _id: u64) {
        black_box(self.queue.cancel(key));
    }

    fn rearm(&mut self, key: &mut QueueKey, delay: u64, _id: u64) {
        self.queue.reschedule(*key, self.now + delay);
    }

    fn advance(&mut self, by: u64) -> usize {
        self.now += by;
        std::iter::from_fn(|| self.queue.pop_due(self.now)).inspect(|due| _ = black_box(due.value)).count()
    }
}

// ---- the limit ---------------------------------------------------------------------------------

/// A minimal wheel: one level, a constant tick, no generations, no dropping of values, no bitmap
/// and no next expiry. A timer beyond a revolution would be lost. It has only the slab, the lists,
/// and the lazy re-arming.
pub(crate) struct Bare {
    heads: Vec<u32>,
    nodes: Vec<Node>,
    free: u32,
    now: u64,
    tick: u32,
}

struct Node {
    prev: u32,
    next: u32,
    /// The tick in which the timer is due, and the tick of its list, which may be earlier.
    due: u32,
    linked: u32,
    value: u64,
}

const NIL: u32 = u32::MAX;
const SLOTS: u32 = 4096;
const TICK: u64 = 16 * MS;

impl Bare {
    fn due(&self, delay: u64) -> u32 {
        (self.now + delay).div_ceil(TICK) as u32
    }

    /// Makes the node the first of its list.
    fn push(&mut self, index: u32, due: u32) {
        let head = &mut self.heads[(due % SLOTS) as usize];
        let next = std::mem::replace(head, index);
        if next != NIL {
            self.nodes[next as usize].prev = index;
        }
        let node = &mut self.nodes[index as usize];
        (node.prev, node.next, node.due, node.linked) = (NIL, next, due, due);
    }

    fn take_out(&mut self, index: u32) {
        let Node { prev, next, linked, .. } = self.nodes[index as usize];
        match prev {
            NIL => self.heads[(linked % SLOTS) as usize] = next,
            _ => self.nodes[prev as usize].next = next,
        }
        if next != NIL {
            self.nodes[next as usize].prev = prev;
        }
    }

    fn release(&mut self, index: u32) -> u64 {
        let node = &mut self.nodes[index as usize];
        node.next = std::mem::replace(&mut self.free, index);
        node.value
    }
}

impl Store for Bare {
    type Handle = u32;

    fn new() -> Self {
        Bare { heads: vec![NIL; SLOTS as usize], nodes: Vec::new(), free: NIL, now: 0, tick: 0 }
    }

    fn start(&mut self, delay: u64, id: u64) -> u32 {
        let due = self.due(delay);
        let mut index = self.free;
        if index == NIL {
            index = self.nodes.len() as u32;
            self.nodes.push(Node { prev: NIL, next: NIL, due, linked: due, value: id });
        } else {
            let node = &mut self.nodes[index as usize];
            self.free = node.next;
            node.value = id;
        }
        self.push(index, due);
        index
    }

    fn cancel(&mut self, index: u32, _id: u64) {
        self.take_out(index);
        black_box(self.release(index));
    }

    fn rearm(&mut self, index: &mut u32, delay: u64, _id: u64) {
        let due = self.due(delay);
        let node = &mut self.nodes[*index as usize];
        if due >= node.linked {
            node.due = due;
        } else {
            self.take_out(*index);
            self.push(*index, due);
        }
    }

    fn advance(&mut self, by: u64) -> usize {
        self.now += by;
        let until = (self.now / TICK) as u32;
        let mut expired = 0;
        while self.tick < until {
            self.tick += 1;
            let mut index = std::mem::replace(&mut self.heads[(self.tick % SLOTS) as usize], NIL);
            while index != NIL {
                let Node { next, due, .. } = self.nodes[index as usize];
                if due <= self.tick {
                    black_box(self.release(index));
                    expired += 1;
                } else {
                    self.push(index, due);
                }
                index = next;
            }
        }
        expired
    }
}

// ---- std ---------------------------------------------------------------------------------------

/// The standard heap. Cancelled or moved timers leave garbage behind, which is removed once it is
/// more than half.
pub(crate) struct LazyHeap {
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// The sequence number of the timer's valid entry, and its value.
    held: Slab<(u64, u64)>,
    next_sequence: u64,
    garbage: usize,
    now: u64,
}

impl LazyHeap {
    fn push(&mut self, index: u32, delay: u64) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.held[index as usize].0 = sequence;
        self.heap.push(Reverse((self.now + delay, sequence, index)));
    }

    fn add_garbage(&mut self) {
        self.garbage += 1;
        if self.garbage * 2 > self.heap.len() && self.garbage > 64 {
            let held = &self.held;
            let counts =
                |sequence, index: u32| held.get(index as usize).is_some_and(|(id, _)| *id == sequence);
            self.heap.retain(|Reverse((_, sequence, index))| counts(*sequence, *index));
            self.garbage = 0;
        }
    }
}

impl Store for LazyHeap {
    type Handle = u32;

    fn new() -> Self {
        LazyHeap { heap: BinaryHeap::new(), held: Slab::new(), next_sequence: 0, garbage: 0, now: 0 }
    }

    fn start(&mut self, delay: u64, id: u64) -> u32 {
        let index = self.held.insert((0, id)) as u32;
        self.push(index, delay);
        index
    }

    fn cancel(&mut self, index: u32, _id: u64) {
        black_box(self.held.remove(index as usize));
        self.add_garbage();
    }

    fn rearm(&mut self, index: &mut u32, delay: u64, _id: u64) {
        self.push(*index, delay);
        self.add_garbage();
    }

    fn advance(&mut self, by: u64) -> usize {
        self.now += by;
        let mut expired = 0;
        while let Some(&Reverse((deadline, sequence, index))) = self.heap.peek() {
            if deadline > self.now {
                break;
            }
            self.heap.pop();
            if self.held.get(index as usize).is_some_and(|(id, _)| *id == sequence) {
                black_box(self.held.remove(index as usize));
                expired += 1;
            } else {
                self.garbage -= 1;
            }
        }
        expired
    }
}

/// A sorted map. The handle is the deadline.
pub(crate) struct Tree {
    map: BTreeMap<(u64, u64), ()>,
    now: u64,
}

impl Store for Tree {
    type Handle = u64;

    fn new() -> Self {
        Tree { map: BTreeMap::new(), now: 0 }
    }

    fn start(&mut self, delay: u64, id: u64) -> u64 {
        self.map.insert((self.now + delay, id), ());
        self.now + delay
    }

    fn cancel(&mut self, deadline: u64, id: u64) {
        black_box(self.map.remove(&(deadline, id)));
    }

    fn rearm(&mut self, deadline: &mut u64, delay: u64, id: u64) {
        self.cancel(*deadline, id);
        *deadline = self.start(delay, id);
    }

    fn advance(&mut self, by: u64) -> usize {
        self.now += by;
        let due =
            |map: &BTreeMap<(u64, u64), ()>| map.first_key_value().is_some_and(|(key, ())| key.0 <= self.now);
        let mut expired = 0;
        while due(&self.map) {
            black_box(self.map.pop_first());
            expired += 1;
        }
        expired
    }
}
