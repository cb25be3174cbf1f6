//! A scheduled queue: exact deadlines in an indexed binary heap.
//!
//! # Invariants
//!
//! - Entries are ordered by deadline and then by sequence id. An entry gets its id once, when it is
//!   first inserted. A periodic task that is reinserted keeps its id.
//! - Every entry knows its position in the heap, so a cancel removes the entry and returns its
//!   value at once. The heap never holds cancelled entries.
//! - The slab and the heap grow to the largest number of entries held at once. After that, nothing
//!   is allocated. An entry takes 32 bytes plus an `Option<T>`.
//!
//! A queue has one owner, usually the thread of an event loop. It does not own a clock and does not
//! run tasks. [`ScheduledQueue::pop_due`] returns an entry, and the owner can put a periodic task
//! back with [`ScheduledQueue::reinsert`].
//!
//! The heap is Williams' (*Algorithm 232: Heapsort*, CACM 1964), with the position stored in the
//! entry. Deadlines and ids lie in the heap itself, so that sifting compares without following an
//! index.

use std::fmt;

/// The position of a free entry at the end of the free list.
const NOWHERE: u32 = u32::MAX;

/// A queue of values, each due at an exact deadline in nanoseconds.
///
/// ```
/// use netwheel::timer::ScheduledQueue;
///
/// let mut queue = ScheduledQueue::new();
/// let late = queue.insert(300, "late");
/// queue.insert(100, "periodic");
/// assert_eq!(queue.next_deadline(), Some(100));
///
/// let due = queue.pop_due(150).unwrap();
/// assert_eq!((due.deadline, due.value), (100, "periodic"));
/// queue.reinsert(due, 200);
///
/// assert!(queue.pop_due(150).is_none());
/// assert_eq!(queue.cancel(late), Some("late"));
/// assert_eq!(queue.len(), 1);
/// ```
pub struct ScheduledQueue<T> {
    heap: Vec<Item>,
    nodes: Vec<HeapNode<T>>,
    free: Option<u32>,
    next_sequence: u64,
}

/// A key that identifies an entry of a [`ScheduledQueue`]. After the entry is removed, the key
/// matches nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueueKey {
    index: u32,
    generation: u32,
}

/// An entry that was due and has left the queue.
#[derive(Debug)]
#[non_exhaustive]
pub struct DueEntry<T> {
    /// The key of the entry, which no longer matches anything.
    pub key: QueueKey,
    /// The deadline of the entry, in nanoseconds.
    pub deadline: u64,
    /// The value that was scheduled.
    pub value: T,
    sequence: u64,
}

/// An item of the heap, ordered by its fields in the order of declaration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    deadline: u64,
    sequence: u64,
    index: u32,
}

struct HeapNode<T> {
    generation: u32,
    /// The position in the heap, or the next free node if this node is free.
    position: u32,
    value: Option<T>,
}

impl<T> ScheduledQueue<T> {
    /// Creates an empty queue without allocating.
    pub const fn new() -> Self {
        Self { heap: Vec::new(), nodes: Vec::new(), free: None, next_sequence: 0 }
    }

    /// Schedules `value` for `deadline`, in O(log n), and assigns the next sequence id.
    ///
    /// A deadline in the past is due at once.
    ///
    /// # Panics
    ///
    /// Panics if 2³² − 1 entries are held.
    pub fn insert(&mut self, deadline: u64, value: T) -> QueueKey {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.push(deadline, sequence, value)
    }

    /// Reinserts an entry with another deadline and the same sequence id, in O(log n).
    ///
    /// A periodic task thus keeps its rank among tasks of equal deadline. The entry gets a new key.
    pub fn reinsert(&mut self, due: DueEntry<T>, deadline: u64) -> QueueKey {
        self.push(deadline, due.sequence, due.value)
    }

    /// Removes an entry, in O(log n), and returns its value, or `None` if the entry is gone.
    pub fn cancel(&mut self, key: QueueKey) -> Option<T> {
        let position = self.position(key)?;
        self.remove(position).map(|due| due.value)
    }

    /// Moves an entry to another deadline, in O(log n). Returns `false` if the entry is gone.
    ///
    /// The entry keeps its sequence id.
    pub fn reschedule(&mut self, key: QueueKey, deadline: u64) -> bool {
        let Some(position) = self.position(key) else {
            return false;
        };
        self.heap[position].deadline = deadline;
        self.restore(position);
        true
    }

    /// Returns the earliest deadline in nanoseconds, or `None` if the queue is empty. O(1).
    pub fn next_deadline(&self) -> Option<u64> {
        self.heap.first().map(|item| item.deadline)
    }

    /// Removes the first entry whose deadline is not after `now`, in O(log n).
    pub fn pop_due(&mut self, now: u64) -> Option<DueEntry<T>> {
        if self.next_deadline()? > now {
            return None;
        }
        self.remove(0)
    }

    /// Like [`ScheduledQueue::pop_due`], but ignores an entry inserted at `mark` or later.
    pub(crate) fn pop_due_before(&mut self, now: u64, mark: u64) -> Option<DueEntry<T>> {
        let first = self.heap.first()?;
        (first.deadline <= now && first.sequence < mark).then(|| self.remove(0)).flatten()
    }

    /// Returns the sequence id of the next insertion.
    pub(crate) fn mark(&self) -> u64 {
        self.next_sequence
    }

    /// Removes all entries and returns their values in the order in which they would have been due.
    /// O(n log n).
    ///
    /// All existing keys become invalid.
    pub fn clear(&mut self) -> Vec<T> {
        let mut values = Vec::with_capacity(self.len());
        while let Some(due) = self.pop_due(u64::MAX) {
            values.push(due.value);
        }
        values
    }

    /// Removes the entries whose values satisfy `wanted`, in the order in which they would have
    /// been due. O(n), plus O(log n) for each removed entry.
    ///
    /// The other entries keep their keys.
    pub fn take_if(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Vec<T> {
        let nodes = &self.nodes;
        let mut is_wanted = |item: &Item| nodes[item.index as usize].value.as_ref().is_some_and(&mut wanted);
        let mut taken: Vec<Item> = self.heap.iter().filter(|item| is_wanted(item)).copied().collect();
        taken.sort_unstable();
        let take = |item: Item| self.remove(self.nodes[item.index as usize].position as usize);
        taken.into_iter().filter_map(take).map(|due| due.value).collect()
    }

    /// Returns the deadline of an entry in nanoseconds, or `None` if the entry is gone. O(1).
    pub fn deadline(&self, key: QueueKey) -> Option<u64> {
        Some(self.heap[self.position(key)?].deadline)
    }

    /// Returns whether the entry is still scheduled.
    pub fn contains(&self, key: QueueKey) -> bool {
        self.position(key).is_some()
    }

    /// Returns the value of an entry, or `None` if the entry is gone.
    pub fn get(&self, key: QueueKey) -> Option<&T> {
        self.position(key)?;
        self.nodes[key.index as usize].value.as_ref()
    }

    /// Returns the values of all entries, in no order.
    #[cfg(feature = "simulation")]
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.nodes.iter().filter_map(|node| node.value.as_ref())
    }

    /// Returns the number of scheduled entries.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    fn position(&self, key: QueueKey) -> Option<usize> {
        // Freeing a node changes its generation, so a match means that the entry is in the heap.
        let node = self.nodes.get(key.index as usize)?;
        (node.generation == key.generation).then_some(node.position as usize)
    }

    fn push(&mut self, deadline: u64, sequence: u64, value: T) -> QueueKey {
        let index = self.allocate(value);
        self.heap.push(Item { deadline, sequence, index });
        self.sift_up(self.heap.len() - 1);
        let generation = self.nodes[index as usize].generation;
        QueueKey { index, generation }
    }

    fn allocate(&mut self, value: T) -> u32 {
        if let Some(index) = self.free {
            let node = &mut self.nodes[index as usize];
            self.free = (node.position != NOWHERE).then_some(node.position);
            node.value = Some(value);
            return index;
        }
        let count = self.nodes.len();
        assert!(count < NOWHERE as usize, "too many tasks: the queue holds 2^32 - 1");
        self.nodes.push(HeapNode { generation: 0, position: NOWHERE, value: Some(value) });
        count as u32
    }

    fn remove(&mut self, position: usize) -> Option<DueEntry<T>> {
        let item = self.heap.swap_remove(position);
        if position < self.heap.len() {
            self.restore(position);
        }
        let node = &mut self.nodes[item.index as usize];
        let key = QueueKey { index: item.index, generation: node.generation };
        node.generation = node.generation.wrapping_add(1);
        node.position = self.free.replace(item.index).unwrap_or(NOWHERE);
        Some(DueEntry { key, deadline: item.deadline, value: node.value.take()?, sequence: item.sequence })
    }

    /// Restores the heap order for the item at `position`, which may have to move up or down.
    fn restore(&mut self, position: usize) {
        if self.sift_up(position) == position {
            self.sift_down(position);
        }
    }

    fn sift_up(&mut self, mut position: usize) -> usize {
        let item = self.heap[position];
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.heap[parent] < item {
                break;
            }
            self.put(position, self.heap[parent]);
            position = parent;
        }
        self.put(position, item);
        position
    }

    fn sift_down(&mut self, mut position: usize) {
        let item = self.heap[position];
        loop {
            let mut child = 2 * position + 1;
            if child >= self.heap.len() {
                break;
            }
            if child + 1 < self.heap.len() && self.heap[child + 1] < self.heap[child] {
                child += 1;
            }
            if item < self.heap[child] {
                break;
            }
            self.put(position, self.heap[child]);
            position = child;
        }
        self.put(position, item);
    }

    fn put(&mut self, position: usize, item: Item) {
        self.heap[position] = item;
        self.nodes[item.index as usize].position = position as u32;
    }
}

impl<T> Default for ScheduledQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for ScheduledQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduledQueue")
            .field("len", &self.len())
            .field("next_deadline", &self.next_deadline())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &mut ScheduledQueue<u32>, now: u64) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop_due(now).map(|due| due.value)).collect()
    }

    #[test]
    fn e_01_zero_delay_is_due_at_once_and_once() {
        let mut queue = ScheduledQueue::new();
        queue.insert(0, 1);
        queue.insert(7, 2);
        assert_eq!(drain(&mut queue, 7), [1, 2]);
        assert!(queue.is_empty());
    }

    #[test]
    fn e_03_largest_deadline_is_held_and_cancellable() {
        let mut queue = ScheduledQueue::new();
        let key = queue.insert(u64::MAX, 1);
        assert!(queue.pop_due(u64::MAX - 1).is_none());
        assert_eq!(queue.next_deadline(), Some(u64::MAX));
        assert_eq!(queue.cancel(key), Some(1));
    }

    #[test]
    fn e_11_equal_deadlines_run_in_the_order_of_their_ids() {
        let mut queue = ScheduledQueue::new();
        queue.insert(10, 0); // periodic
        for value in 1..100 {
            queue.insert(20, value);
        }
        let due = queue.pop_due(10).unwrap();
        queue.reinsert(due, 20);
        assert_eq!(drain(&mut queue, 20), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn e_16_cancelled_leaves_the_heap_at_once() {
        let mut queue = ScheduledQueue::new();
        let keys: Vec<_> = (0..64).map(|i| queue.insert(i % 7, i as u32)).collect();
        let (gone, kept) = (keys[20], keys[21]);
        assert_eq!(queue.cancel(gone), Some(20));
        assert_eq!(queue.len(), 63);
        assert_eq!((queue.cancel(gone), queue.get(gone)), (None, None));
        assert!(!queue.contains(gone) && !queue.reschedule(gone, 0));

        let reused = queue.insert(3, 99);
        assert_eq!(reused.index, gone.index);
        assert!(!queue.contains(gone) && queue.contains(kept));
        assert_eq!(queue.get(reused), Some(&99));
    }

    #[test]
    fn e_21_rescheduled_entries_are_in_order() {
        let mut queue = ScheduledQueue::new();
        let keys: Vec<_> = (0..50).map(|i| queue.insert(100 + i, i as u32)).collect();
        for (i, key) in keys.iter().enumerate() {
            assert!(queue.reschedule(*key, 100 - i as u64));
        }
        assert_eq!(drain(&mut queue, 100), (0..50).rev().collect::<Vec<_>>());
        assert!(keys.iter().all(|key| !queue.contains(*key)));
    }

    #[test]
    fn clear_returns_values_in_order_and_invalidates_keys() {
        let mut queue = ScheduledQueue::new();
        let late = queue.insert(9, 'b');
        queue.insert(1, 'a');
        assert_eq!(queue.clear(), ['a', 'b']);
        assert!(queue.is_empty() && queue.cancel(late).is_none());
    }

    #[test]
    fn take_if_returns_values_in_order_and_keeps_the_other_keys() {
        let mut queue = ScheduledQueue::new();
        let keys: Vec<_> = (0..100).map(|i| queue.insert(i * 37 % 10, i)).collect();
        let taken = queue.take_if(|value| value % 3 == 0);
        let mut expected: Vec<_> = (0..100).filter(|i| i % 3 == 0).collect();
        expected.sort_by_key(|i| i * 37 % 10);
        assert_eq!(taken, expected);
        assert!(keys.iter().enumerate().all(|(i, key)| queue.contains(*key) == (i % 3 != 0)));
        assert_eq!(queue.cancel(keys[50]), Some(50));
        let mut expected: Vec<_> = (0..100).filter(|i| i % 3 != 0 && *i != 50).collect();
        expected.sort_by_key(|i| i * 37 % 10);
        assert_eq!(queue.clear(), expected);
    }

    #[test]
    fn steady_state_allocates_nothing() {
        let mut queue = ScheduledQueue::new();
        for i in 0..64 {
            queue.insert(i, i);
        }
        let capacity = (queue.heap.capacity(), queue.nodes.capacity());
        for i in 0..if cfg!(miri) { 100 } else { 1000 } {
            let due = queue.pop_due(u64::MAX).unwrap();
            queue.reinsert(due, i);
        }
        assert_eq!(capacity, (queue.heap.capacity(), queue.nodes.capacity()));
        assert_eq!(size_of::<Item>() + size_of::<HeapNode<u64>>(), 24 + 24);
    }
}
