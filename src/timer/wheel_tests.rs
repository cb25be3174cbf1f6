//! Behaviours W of the wheel itself, without a clock or a thread.

use super::*;
use crate::timer::entries::WheelEntry;

const MS: u64 = 1_000_000;
const SEC: u64 = 1000 * MS;

fn wheel(tick_ms: u64, slots: usize) -> Wheel<u64> {
    Wheel::<u64>::builder().tick(Duration::from_millis(tick_ms)).slots(slots).build().unwrap()
}

fn drain(wheel: &mut Wheel<u64>, now: u64) -> Vec<u64> {
    let mut fired = Vec::new();
    // A call that was cut short has moved entries, so this terminates.
    for _ in 0..=wheel.len() * 8 {
        match wheel.expire(now) {
            Some(value) => fired.push(value),
            None if wheel.next_expiry().is_some_and(|at| at <= now) => {}
            None => break,
        }
    }
    fired
}

#[test]
fn w_16_runs_after_its_delay_and_not_before() {
    let mut wheel = wheel(100, 512);
    let long = wheel.insert(10 * SEC, 10);
    let short = wheel.insert(2 * SEC, 2);
    assert!(drain(&mut wheel, 2 * SEC - 1).is_empty());
    assert_eq!(drain(&mut wheel, 3 * SEC), [2]);
    assert!(wheel.contains(long) && !wheel.contains(short));
}

#[test]
fn w_17_never_early_at_any_cadence() {
    let mut wheel = wheel(200, 512);
    let entries = if cfg!(miri) { 300 } else { 100_000 };
    for start in 0..entries {
        wheel.insert(start * 7_919 + 125 * MS, start * 7_919);
    }
    let mut fired = 0;
    for now in (0..2 * SEC).step_by(13 * MS as usize) {
        while let Some(start) = wheel.expire(now) {
            let measured = now - start;
            assert!((125 * MS..125 * MS + 200 * MS + 13 * MS).contains(&measured));
            fired += 1;
        }
    }
    assert_eq!(fired, entries);
}

#[test]
fn w_18_fires_at_the_end_of_the_tick_of_its_deadline() {
    for (deadline, expiry) in [(1, 100), (99, 100), (100, 100), (101, 200)] {
        let mut wheel = wheel(100, 8);
        wheel.insert(deadline * MS, 0);
        assert_eq!(wheel.next_expiry(), Some(expiry * MS));
        assert_eq!(wheel.expire(expiry * MS - 1), None);
        assert_eq!(wheel.expire(expiry * MS), Some(0));
    }
}

#[test]
fn w_19_zero_delay_waits_for_the_next_tick() {
    let mut wheel = wheel(50, 512);
    assert_eq!(wheel.expire(7 * SEC), None);
    wheel.insert(7 * SEC, 1);
    wheel.insert(0, 2); // more than ten seconds in the past
    assert_eq!(wheel.expire(7 * SEC + 49 * MS), None);
    assert_eq!(wheel.next_expiry(), Some(7 * SEC + 50 * MS));
    assert_eq!(drain(&mut wheel, 7 * SEC + 50 * MS), [1, 2]);
}

#[test]
fn w_20_added_while_firing_waits_for_a_later_pass() {
    // The pass catches up over several revolutions and levels. Entries added during the pass stay
    // behind it.
    let mut wheel = wheel(10, 4);
    for i in 0..100 {
        wheel.insert(i * 10 * MS, i);
    }
    let key = wheel.insert(999 * MS, 0);
    let now = 995 * MS;
    let mut passed = 0;
    while wheel.next_expiry().is_some_and(|at| at <= now) {
        if wheel.expire(now).is_some() {
            passed += 1;
            wheel.insert(0, 1000);
            assert!(wheel.rearm(key, 0));
        }
    }
    assert_eq!(passed, 100);
    assert_eq!(wheel.next_expiry(), Some(1000 * MS));
    assert_eq!(drain(&mut wheel, 1000 * MS).len(), 101);
}

#[test]
fn w_21_longer_than_a_revolution_is_not_visited_until_due() {
    let mut wheel = wheel(100, 512);
    let hour = 3600 * SEC;
    wheel.insert(hour, 1);
    assert_eq!(wheel.next_expiry(), Some(hour), "no wake-up per revolution");
    assert!(drain(&mut wheel, hour - 1).is_empty());
    assert_eq!(drain(&mut wheel, hour), [1]);
}

#[test]
fn w_22_rearming_over_several_revolutions() {
    let mut wheel = wheel(100, 32);
    let mut runs = 0;
    wheel.insert(100 * MS, 0);
    while runs < 100 {
        let now = wheel.next_expiry().unwrap();
        assert_eq!(now, (runs + 1) * 100 * MS);
        wheel.expire(now).unwrap();
        wheel.insert(now + 100 * MS, 0);
        runs += 1;
    }
    assert_eq!(wheel.len(), 1);
}

#[test]
fn w_23_a_passed_target_does_not_wait_for_a_revolution() {
    let mut wheel = wheel(100, 8);
    assert_eq!(wheel.expire(10 * SEC), None);
    wheel.insert(9 * SEC, 1);
    assert_eq!(wheel.next_expiry(), Some(10 * SEC + 100 * MS));
}

#[test]
fn w_24_after_a_stall_due_entries_come_in_tick_order() {
    let mut wheel = wheel(20, 4);
    let deadlines: Vec<u64> = (1..=200).map(|i| (i * 7919) % 4000).collect();
    for &deadline in &deadlines {
        wheel.insert(deadline * MS, deadline.div_ceil(20).max(1));
    }
    let fired = drain(&mut wheel, 600 * SEC);
    assert_eq!(fired.len(), 200);
    assert!(fired.is_sorted());
}

#[test]
fn w_25_ticks_are_absolute_and_do_not_drift() {
    let mut wheel = wheel(100, 512);
    for late in [3, 99, 250, 417, 730] {
        drain(&mut wheel, late * MS);
        wheel.insert(late * MS, 0);
        assert_eq!(wheel.next_expiry(), Some((late / 100 + 1) * 100 * MS));
    }
}

#[test]
fn w_26_within_a_tick_the_order_is_that_of_insertion() {
    let mut wheel = wheel(100, 4);
    for (value, deadline) in [(0, 1950), (1, 1910), (2, 1999)] {
        wheel.insert(deadline * MS, value);
    }
    wheel.expire(1800 * MS); // moves the three to a lower level
    wheel.insert(1901 * MS, 3);
    assert_eq!(drain(&mut wheel, 2000 * MS), [0, 1, 2, 3]);
}

#[test]
fn w_30_cancelled_never_runs() {
    let mut wheel = wheel(100, 512);
    let key = wheel.insert(SEC, 7);
    assert_eq!(wheel.get(key), Some(&7));
    assert_eq!(wheel.cancel(key), Some(7));
    assert_eq!(wheel.cancel(key), None);
    assert_eq!((wheel.len(), wheel.next_expiry()), (0, None));
    assert_eq!(wheel.expire(2 * SEC), None);
}

#[test]
fn w_31_expired_cannot_be_cancelled() {
    let mut wheel = wheel(100, 512);
    let key = wheel.insert(SEC, 7);
    assert_eq!(wheel.expire(SEC), Some(7));
    let reused = wheel.insert(3 * SEC, 8);
    assert_eq!(reused.index, key.index);
    assert_eq!((wheel.cancel(key), wheel.get(key)), (None, None));
    assert!(!wheel.rearm(key, 9 * SEC) && wheel.deadline(key).is_none());
    assert_eq!(wheel.deadline(reused), Some(3 * SEC));
}

#[test]
fn w_33_cancelled_leaves_its_slot_and_its_value_at_once() {
    let mut wheel = Wheel::<std::rc::Rc<()>>::builder().build().unwrap();
    let value = std::rc::Rc::new(());
    for seconds in [1, 60, 3600, 100_000] {
        let key = wheel.insert(seconds * SEC, value.clone());
        drop(wheel.cancel(key));
        assert_eq!(wheel.next_expiry(), None);
    }
    assert_eq!(std::rc::Rc::strong_count(&value), 1);
}

#[test]
fn w_35_due_and_waiting_can_be_cancelled() {
    let mut wheel = wheel(100, 512);
    let keys: Vec<_> = (0..11).map(|i| wheel.insert(SEC, i)).collect();
    assert_eq!(wheel.expire(2 * SEC), Some(0));
    assert_eq!(wheel.next_expiry(), Some(2 * SEC), "the rest is due");
    for key in &keys[1..] {
        assert!(wheel.cancel(*key).is_some());
    }
    assert_eq!((wheel.expire(2 * SEC), wheel.len()), (None, 0));
}

#[test]
fn w_39_the_largest_deadline_is_held_and_cancellable() {
    for slots in [2, 512, if cfg!(miri) { 1 << 10 } else { 1 << 16 }] {
        let mut wheel = wheel(7, slots);
        let key = wheel.insert(u64::MAX, 1);
        wheel.insert(i64::MAX as u64, 2);
        assert!(drain(&mut wheel, SEC).is_empty());
        assert_eq!(drain(&mut wheel, u64::MAX - 1), [2]);
        assert_eq!(wheel.next_expiry(), Some(u64::MAX));
        assert_eq!(wheel.cancel(key), Some(1));
        wheel.insert(u64::MAX, 3);
        assert_eq!(drain(&mut wheel, u64::MAX), [3]);
    }
}

#[test]
fn e_03_a_saturated_deadline_does_not_overflow() {
    let mut wheel = wheel(1, 512);
    let key = wheel.insert(super::super::deadline_after(SEC, Duration::MAX), 1);
    assert!(wheel.next_expiry().is_some_and(|at| at > i64::MAX as u64));
    assert_eq!(wheel.cancel(key), Some(1));
}

#[test]
fn rearming_later_is_lazy_and_earlier_is_exact() {
    let mut wheel = wheel(100, 8);
    let key = wheel.insert(SEC, 1);
    let place = |wheel: &Wheel<u64>| wheel.entries.find(key).unwrap().place();
    let before = place(&wheel);
    assert!(wheel.rearm(key, 60 * SEC));
    assert_eq!(place(&wheel), before, "the entry was not moved");
    assert_eq!(wheel.expire(SEC), None);
    assert_eq!(wheel.next_expiry(), Some(60 * SEC), "a stale expiry advances");
    for seconds in [59, 40, 2] {
        assert!(wheel.rearm(key, seconds * SEC));
        assert_eq!(wheel.next_expiry(), Some(seconds * SEC));
    }
    assert_eq!(drain(&mut wheel, 2 * SEC), [1]);
}

#[test]
fn rearming_moves_an_entry_only_to_an_earlier_slot() {
    let mut wheel = wheel(100, 512);
    let key = wheel.insert(40 * SEC, 1);
    let slot = |wheel: &Wheel<u64>| wheel.entries.find(key).unwrap().place().unwrap().slot;
    assert_eq!(slot(&wheel), 400);
    for (seconds, lies) in [(20, 200), (30, 200), (25, 200), (10, 100), (9, 90), (50, 90)] {
        assert!(wheel.rearm(key, seconds * SEC));
        assert_eq!(slot(&wheel), lies);
    }
    assert_eq!(drain(&mut wheel, 50 * SEC), [1]);
}

#[test]
fn a_stale_minimum_is_early_once() {
    let mut wheel = wheel(100, 8);
    let first = wheel.insert(4 * SEC, 1);
    wheel.insert(4500 * MS, 2);
    wheel.cancel(first);
    assert_eq!(wheel.next_expiry(), Some(4 * SEC));
    assert_eq!(wheel.expire(4 * SEC), None);
    assert_eq!(wheel.next_expiry(), Some(4500 * MS));
}

/// The maximum number of moves per call.
const MOST: usize = Wheel::<u64>::MOVES_PER_EXPIRE;

/// Returns how many of the entries lie on level 0.
fn moved_down(wheel: &Wheel<u64>, keys: &[WheelKey]) -> usize {
    keys.iter()
        .filter(|key| {
            wheel.entries.find(**key).and_then(WheelEntry::place).is_some_and(|place| place.level == 0)
        })
        .count()
}

#[test]
fn entering_a_slot_moves_a_bounded_number_per_call() {
    let mut wheel = wheel(100, 8);
    let keys: Vec<_> = (0..300).map(|i| wheel.insert(900 * MS + i % 2 * 100 * MS, i)).collect();
    for call in 1..=300 / MOST {
        assert_eq!(wheel.expire(800 * MS), None);
        assert_eq!(moved_down(&wheel, &keys), call * MOST);
        assert_eq!(wheel.next_expiry(), Some(800 * MS), "entries are waiting to be moved");
    }
    assert_eq!(wheel.expire(800 * MS), None);
    assert_eq!(moved_down(&wheel, &keys), 300);
    assert_eq!(wheel.next_expiry(), Some(900 * MS));
    let (first, second): (Vec<u64>, Vec<u64>) = (0..300).partition(|i| i % 2 == 0);
    assert_eq!(drain(&mut wheel, 900 * MS), first);
    assert_eq!(drain(&mut wheel, 1000 * MS), second);
}

#[test]
fn passing_rearmed_entries_moves_a_bounded_number_per_call() {
    let mut wheel = wheel(100, 512);
    let keys: Vec<_> = (0..4 * MOST).map(|_| wheel.insert(SEC, 0)).collect();
    wheel.insert(SEC, 1);
    assert!(keys.iter().all(|key| wheel.rearm(*key, 2 * SEC)));
    let moved = |wheel: &Wheel<u64>| {
        let place = |key: &WheelKey| wheel.entries.find(*key).unwrap().place().unwrap();
        keys.iter().filter(|key| place(key).slot == 20).count()
    };
    for call in 1..4 {
        assert_eq!(wheel.expire(SEC), None);
        assert_eq!(moved(&wheel), call * MOST);
        assert_eq!(wheel.next_expiry(), Some(SEC), "entries are waiting to be moved");
    }
    assert_eq!(wheel.expire(SEC), Some(1));
    assert_eq!((wheel.len(), moved(&wheel)), (4 * MOST, 4 * MOST));
    assert_eq!(wheel.next_expiry(), Some(2 * SEC));
    assert_eq!(drain(&mut wheel, 2 * SEC).len(), 4 * MOST);
}

#[test]
fn changes_while_entries_move_down_keep_the_order() {
    let mut wheel = wheel(100, 8);
    let keys: Vec<_> = (0..3 * MOST as u64).map(|i| wheel.insert(900 * MS, i)).collect();
    assert_eq!(wheel.expire(800 * MS), None);
    wheel.insert(850 * MS, 1000); // behind all earlier entries
    assert!(wheel.rearm(keys[0], 870 * MS), "was moved; stays first");
    assert!(wheel.rearm(keys[1], 2 * SEC));
    assert!(wheel.rearm(keys[1], 890 * MS), "was moved; stays second");
    assert!(wheel.rearm(keys[3 * MOST - 1], 801 * MS), "was not moved; stays in its slot");
    let mut expected: Vec<u64> = (0..3 * MOST as u64).collect();
    expected.push(1000);
    assert_eq!(drain(&mut wheel, 900 * MS), expected);
}

#[test]
fn rearmed_to_an_earlier_tick_while_entries_move_down() {
    let mut wheel = wheel(100, 8);
    let keys: Vec<_> = (0..3 * MOST as u64).map(|i| wheel.insert(1200 * MS, i)).collect();
    let far = wheel.insert(60 * SEC, 1000);
    assert_eq!(wheel.expire(800 * MS), None);
    for key in [keys[0], keys[3 * MOST - 1], far] {
        assert!(wheel.rearm(key, 900 * MS));
    }
    assert!(drain(&mut wheel, 800 * MS).is_empty());
    assert_eq!(wheel.next_expiry(), Some(900 * MS));
    let mut first = drain(&mut wheel, 900 * MS);
    first.sort_unstable();
    assert_eq!(first, [0, 3 * MOST as u64 - 1, 1000]);
    assert_eq!(drain(&mut wheel, 1200 * MS).len(), 3 * MOST - 2);
}

#[test]
fn cancelling_the_remaining_entries_ends_the_move() {
    let mut wheel = wheel(100, 8);
    let keys: Vec<_> = (0..3 * MOST as u64).map(|i| wheel.insert(1200 * MS, i)).collect();
    assert_eq!(wheel.expire(800 * MS), None);
    for key in &keys[MOST..] {
        assert!(wheel.cancel(*key).is_some());
    }
    assert_eq!(wheel.next_expiry(), Some(1200 * MS));
    wheel.insert(900 * MS, 1000);
    assert_eq!(wheel.next_expiry(), Some(900 * MS));
    assert_eq!(drain(&mut wheel, 900 * MS), [1000]);
    assert_eq!(drain(&mut wheel, 1200 * MS).len(), MOST);
}

#[test]
fn a_clock_that_steps_back_counts_as_the_largest_time_seen() {
    let mut wheel = wheel(100, 8);
    wheel.insert(SEC, 1);
    wheel.insert(SEC, 2);
    assert_eq!(wheel.expire(SEC), Some(1));
    assert_eq!(wheel.expire(0), Some(2));
    wheel.insert(0, 3);
    assert_eq!(wheel.next_expiry(), Some(SEC + 100 * MS));
}

#[test]
fn memory_is_as_documented() {
    // The links take another 8 bytes each.
    assert_eq!(size_of::<WheelEntry<u64>>(), 24);
    assert_eq!(size_of::<WheelEntry<crate::id::Key>>(), 24);
    assert_eq!(size_of::<WheelEntry<u32>>(), 20);
    let mut wheel = wheel(100, 512);
    let bytes = |wheel: &Wheel<u64>| wheel.levels.heap_bytes() + size_of::<Wheel<u64>>();
    assert!(bytes(&wheel) <= 4500, "{}", bytes(&wheel));

    for seconds in 0..200 {
        wheel.insert(seconds * SEC, 0);
    }
    let (before, slab) = (bytes(&wheel), wheel.entries.capacity());
    for seconds in 0..if cfg!(miri) { 300 } else { 10_000 } {
        while wheel.expire(seconds * SEC).is_some() {
            wheel.insert((seconds + 200) * SEC, 0);
        }
    }
    assert_eq!((bytes(&wheel), wheel.entries.capacity()), (before, slab));
}
