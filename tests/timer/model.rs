//! Compares the wheel and the scheduled queue with sorted maps under random operations.
//!
//! Entries are never early, at most a tick late, never lost and never duplicated. Counts are exact,
//! and the next expiry is never late. The operations include stalls of hours, a clock that steps
//! back, and delays from zero to the maximum. They also put more entries into a slot than one call
//! of the wheel can move.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use netwheel::timer::{DueEntry, QueueKey, ScheduledQueue, Wheel, WheelKey};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const HOUR: u64 = 3_600_000 * MS;

#[derive(Clone, Debug)]
enum Op {
    Insert(u64),
    /// Number of entries, time span and delay before it: more entries than one call of the wheel
    /// moves.
    Burst(u64, u64, u64),
    /// Inserts with an absolute deadline instead of a delay, which may have passed.
    InsertAt(u64),
    Cancel(usize),
    Rearm(usize, u64),
    /// Advances the clock by a time, and takes at most this number of due entries.
    Expire(u64, usize),
    StepBack(u64),
}

fn delay() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0),
        6 => 0..300 * MS,
        6 => 0..60_000 * MS,
        3 => 0..50 * HOUR,
        1 => any::<u64>(),
        1 => Just(u64::MAX),
    ]
}

fn advance() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => Just(0),
        8 => 0..20 * MS,
        8 => 0..2_000 * MS,
        3 => 0..2 * HOUR,
        1 => 0..10_000 * HOUR,
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => delay().prop_map(Op::Insert),
        1 => (0..HOUR).prop_map(Op::InsertAt),
        1 => (delay(), 0..200 * MS, 50..200_u64).prop_map(|(delay, within, n)| Op::Burst(delay, within, n)),
        3 => any::<usize>().prop_map(Op::Cancel),
        4 => (any::<usize>(), delay()).prop_map(|(i, delay)| Op::Rearm(i, delay)),
        6 => (advance(), prop_oneof![0..4_usize, Just(usize::MAX)])
            .prop_map(|(by, most)| Op::Expire(by, most)),
        1 => prop_oneof![Just(MS), 0..HOUR].prop_map(Op::StepBack),
    ];
    proptest::collection::vec(op, 1..200)
}

/// The expected state of the wheel: the due tick of each id.
struct WheelModel {
    wheel: Wheel<u64>,
    tick: u64,
    /// `seen` is the largest time passed to the wheel. `clock` may step back.
    seen: u64,
    clock: u64,
    pending: BTreeMap<u64, (WheelKey, u64)>,
    /// Pending entries by tick.
    order: BTreeSet<(u64, u64)>,
    keys: Vec<(u64, WheelKey)>,
    next_id: u64,
    /// True if no entry was cancelled or moved, so `next_expiry` must be exact.
    untouched: bool,
}

impl WheelModel {
    fn new(tick_ms: u64, slots: usize) -> Self {
        Self {
            wheel: Wheel::<u64>::builder().tick(Duration::from_millis(tick_ms)).slots(slots).build().unwrap(),
            tick: tick_ms * MS,
            seen: 0,
            clock: 0,
            pending: BTreeMap::new(),
            order: BTreeSet::new(),
            keys: Vec::new(),
            next_id: 0,
            untouched: true,
        }
    }

    fn tick_reached(&self) -> u64 {
        match self.seen {
            u64::MAX => u64::MAX.div_ceil(self.tick),
            seen => seen / self.tick,
        }
    }

    fn target(&self, deadline: u64) -> u64 {
        let end_of_time = u64::MAX.div_ceil(self.tick);
        let next = (self.tick_reached() + 1).min(end_of_time);
        deadline.div_ceil(self.tick).max(next)
    }

    fn insert(&mut self, deadline: u64) {
        let id = self.next_id;
        self.next_id += 1;
        let key = self.wheel.insert(deadline, id);
        let target = self.target(deadline);
        self.pending.insert(id, (key, target));
        self.order.insert((target, id));
        self.keys.push((id, key));
    }

    fn earliest(&self) -> Option<u64> {
        self.order.first().map(|(target, _)| *target)
    }

    fn take(&mut self, id: u64) -> Option<(WheelKey, u64)> {
        let (key, target) = self.pending.remove(&id)?;
        assert!(self.order.remove(&(target, id)));
        Some((key, target))
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Insert(delay) => self.insert(self.clock.saturating_add(delay)),
            Op::Burst(delay, within, n) => burst(self.clock, delay, within, n).for_each(|at| self.insert(at)),
            Op::InsertAt(deadline) => self.insert(deadline),
            Op::Cancel(i) if !self.keys.is_empty() => {
                let (id, key) = self.keys[i % self.keys.len()];
                let expected = self.take(id).map(|_| id);
                assert_eq!(self.wheel.contains(key), expected.is_some());
                assert_eq!(self.wheel.cancel(key), expected);
                self.untouched = false;
            }
            Op::Rearm(i, delay) if !self.keys.is_empty() => {
                let (id, key) = self.keys[i % self.keys.len()];
                let deadline = self.clock.saturating_add(delay);
                let target = self.target(deadline);
                let held = self.take(id);
                assert_eq!(self.wheel.rearm(key, deadline), held.is_some());
                if held.is_some() {
                    self.pending.insert(id, (key, target));
                    self.order.insert((target, id));
                }
                self.untouched = false;
            }
            Op::Cancel(_) | Op::Rearm(..) => {}
            Op::Expire(by, most) => {
                self.clock = self.clock.saturating_add(by);
                self.expire(most);
            }
            Op::StepBack(by) => self.clock = self.clock.saturating_sub(by),
        }
        self.check();
    }

    /// Takes up to `most` entries. Checks that each is due and the next in order, and that none is
    /// withheld.
    fn expire(&mut self, most: usize) {
        let mut last = None;
        let (mut taken, mut cut_short) = (0, 0);
        while taken < most {
            self.seen = self.seen.max(self.clock);
            let earliest = self.earliest();
            let Some(id) = self.wheel.expire(self.clock) else {
                if self.wheel.next_expiry().is_some_and(|at| at <= self.seen) {
                    // The wheel has moved as many entries as one call may. Each may be moved once
                    // for each of 64 levels, and once more if it was re-armed.
                    cut_short += 1;
                    assert!(
                        cut_short <= 65 * self.keys.len() / Wheel::<u64>::MOVES_PER_EXPIRE,
                        "no progress"
                    );
                    // Do not continue at once: operations between the calls must not matter.
                    if most < usize::MAX {
                        return;
                    }
                    continue;
                }
                assert!(earliest.is_none_or(|tick| tick > self.tick_reached()));
                return;
            };
            taken += 1;
            let (key, target) = self.take(id).expect("an entry fires only once");
            assert!(target <= self.tick_reached(), "early");
            assert_eq!(Some(target), earliest, "out of tick order");
            assert!(!self.wheel.contains(key));
            if self.untouched {
                assert!(last < Some((target, id)), "out of insertion order");
            }
            last = Some((target, id));
        }
    }

    fn check(&self) {
        assert_eq!(self.wheel.len(), self.pending.len());
        assert_eq!(self.wheel.is_empty(), self.pending.is_empty());
        let next = self.wheel.next_expiry();
        let Some(earliest) = self.earliest() else {
            assert_eq!(next, None);
            return;
        };
        let next = next.expect("entries are pending");
        if earliest <= self.tick_reached() {
            assert!(next <= self.seen);
        } else {
            let due = earliest.saturating_mul(self.tick);
            assert!(next <= due, "next_expiry is too late");
            // It is now if entries have yet to be moved.
            assert!(!self.untouched || next == due || next <= self.seen, "next_expiry is too early");
        }
    }

    /// Sleeps until each `next_expiry` until no entries are left.
    fn run_out(&mut self) {
        let mut wakes = 0;
        let most_wakes = (self.pending.len() + 1) * 64;
        while let Some(at) = self.wheel.next_expiry() {
            self.clock = at;
            self.expire(usize::MAX);
            self.check();
            wakes += 1;
            assert!(wakes <= most_wakes, "no progress");
        }
        assert!(self.pending.is_empty());
    }
}

/// Returns deadlines that are close to each other.
fn burst(now: u64, delay: u64, within: u64, n: u64) -> impl Iterator<Item = u64> {
    let first = now.saturating_add(delay);
    (0..n).map(move |i| first.saturating_add(i * 7_919 * MS % within.max(1)))
}

#[derive(Default)]
struct QueueModel {
    queue: ScheduledQueue<u64>,
    /// By deadline and sequence number, which is the id, as in the queue.
    pending: BTreeMap<(u64, u64), QueueKey>,
    keys: Vec<(u64, QueueKey)>,
    next_id: u64,
    clock: u64,
}

impl QueueModel {
    fn insert(&mut self, deadline: u64) {
        let id = self.next_id;
        self.next_id += 1;
        let key = self.queue.insert(deadline, id);
        self.hold(deadline, id, key);
    }

    fn hold(&mut self, deadline: u64, id: u64, key: QueueKey) {
        self.pending.insert((deadline, id), key);
        self.keys.push((id, key));
    }

    fn place(&self, key: QueueKey) -> Option<(u64, u64)> {
        let mut pending = self.pending.iter();
        pending.find_map(|(place, held)| (*held == key).then_some(*place))
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Insert(delay) => self.insert(self.clock.saturating_add(delay)),
            Op::Burst(delay, within, n) => burst(self.clock, delay, within, n).for_each(|at| self.insert(at)),
            Op::InsertAt(deadline) => self.insert(deadline),
            Op::Cancel(i) if !self.keys.is_empty() => {
                let (id, key) = self.keys[i % self.keys.len()];
                let place = self.place(key);
                let expected = place.map(|_| id);
                assert_eq!(self.queue.get(key).copied(), expected);
                assert_eq!(self.queue.cancel(key), expected);
                assert!(!self.queue.contains(key));
                place.map(|place| self.pending.remove(&place));
            }
            Op::Rearm(i, delay) if !self.keys.is_empty() => {
                let (id, key) = self.keys[i % self.keys.len()];
                let deadline = self.clock.saturating_add(delay);
                let place = self.place(key);
                assert_eq!(self.queue.reschedule(key, deadline), place.is_some());
                if let Some(place) = place {
                    self.pending.remove(&place);
                    self.pending.insert((deadline, id), key);
                }
            }
            Op::Cancel(_) | Op::Rearm(..) => {}
            Op::Expire(by, most) => {
                self.clock = self.clock.saturating_add(by);
                self.expire(most.min(1000));
            }
            Op::StepBack(by) => self.clock = self.clock.saturating_sub(by),
        }
        assert_eq!(self.queue.len(), self.pending.len());
        let earliest = self.pending.keys().next().map(|place| place.0);
        assert_eq!(self.queue.next_deadline(), earliest);
    }

    fn expire(&mut self, most: usize) {
        for _ in 0..most {
            let first = self.pending.first_key_value();
            let first = first.map(|(place, key)| (*place, *key));
            let first = first.filter(|((deadline, _), _)| *deadline <= self.clock);
            let due = self.queue.pop_due(self.clock);
            let popped = due.as_ref();
            let popped = popped.map(|due| ((due.deadline, due.value), due.key));
            assert_eq!(popped, first);
            let Some(due) = due else { return };
            self.pending.pop_first();
            self.maybe_put_back(due);
        }
    }

    /// Every third entry is periodic, and keeps its id.
    fn maybe_put_back(&mut self, due: DueEntry<u64>) {
        let id = due.value;
        if id.is_multiple_of(3) && self.clock < u64::MAX {
            let deadline = due.deadline.saturating_add(10 * MS).max(self.clock);
            let key = self.queue.reinsert(due, deadline);
            self.hold(deadline, id, key);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn w_24_wheel_agrees_with_a_sorted_map(
        ops in ops(),
        tick_ms in prop_oneof![Just(1), Just(7), Just(100), 1..2000_u64],
        slots in prop_oneof![Just(1), Just(2), Just(4), Just(32), Just(512), Just(8192_usize)],
    ) {
        let mut model = WheelModel::new(tick_ms, slots);
        for op in ops {
            model.apply(op);
        }
        model.run_out();
    }

    #[test]
    fn w_21_wheel_without_cancels_wakes_exactly(
        delays in proptest::collection::vec((delay(), advance()), 1..100),
        slots in prop_oneof![Just(2), Just(8), Just(512_usize)],
    ) {
        let mut model = WheelModel::new(10, slots);
        for (delay, by) in delays {
            model.apply(Op::Insert(delay));
            model.apply(Op::Expire(by, usize::MAX));
        }
        model.run_out();
    }

    #[test]
    fn e_21_queue_agrees_with_a_sorted_map(ops in ops()) {
        let mut model = QueueModel::default();
        for op in ops {
            model.apply(op);
        }
        let expected: Vec<u64> = model.pending.keys().map(|place| place.1).collect();
        prop_assert_eq!(model.queue.clear(), expected);
    }
}
