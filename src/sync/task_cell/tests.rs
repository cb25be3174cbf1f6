//! Task cells: run, drop and panic, for closures that are in place, boxed, over-aligned or without
//! captures.

use super::*;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Returns a capture whose copies are counted by the strong count.
fn counted() -> (Arc<()>, Arc<()>) {
    let count = Arc::new(());
    (count.clone(), count)
}

fn is_in_place<F: FnOnce()>(_: &F) -> bool {
    fits::<F>()
}

#[test]
fn a_cell_takes_four_words() {
    assert_eq!(size_of::<TaskCell>(), (1 + WORDS) * size_of::<usize>());
}

#[test]
fn three_words_are_in_place_and_dropped_once_run() {
    let (count, capture) = counted();
    let ran = Arc::new(AtomicUsize::new(0));
    let (mine, number) = (ran.clone(), 7usize);
    let task = move || {
        mine.fetch_add(number, Ordering::Relaxed);
        drop(capture);
    };
    assert!(is_in_place(&task));
    let mut cell = TaskCell::new(task);
    assert_eq!(Arc::strong_count(&count), 2);
    cell.run();
    assert_eq!((ran.load(Ordering::Relaxed), Arc::strong_count(&count)), (7, 1));
}

#[test]
fn dropping_a_cell_drops_its_closure_without_a_call() {
    let (count, capture) = counted();
    let small = TaskCell::new(move || panic!("run, with {capture:?}"));
    let (large_count, capture) = counted();
    let ballast = [1u64; 32];
    let large = TaskCell::new(move || panic!("run, with {capture:?} and {ballast:?}"));
    drop((small, large));
    assert_eq!((Arc::strong_count(&count), Arc::strong_count(&large_count)), (1, 1));
}

#[test]
fn four_words_are_boxed() {
    let (count, capture) = counted();
    let sum = Arc::new(AtomicUsize::new(0));
    let (mine, numbers) = (sum.clone(), [1usize, 2]);
    let task = move || {
        mine.fetch_add(numbers.iter().sum(), Ordering::Relaxed);
        drop(capture);
    };
    assert!(!is_in_place(&task));
    TaskCell::new(task).run();
    assert_eq!((sum.load(Ordering::Relaxed), Arc::strong_count(&count)), (3, 1));
}

#[test]
fn an_over_aligned_closure_is_boxed_and_stays_aligned() {
    #[repr(align(64))]
    struct Aligned(u8);
    let (capture, at) = (Aligned(5), Arc::new(AtomicUsize::new(1)));
    let mine = at.clone();
    let task = move || {
        let capture = &capture;
        mine.store((&raw const *capture).addr() % 64 + usize::from(capture.0), Ordering::Relaxed);
    };
    assert!(!is_in_place(&task));
    let cell = TaskCell::new(task);
    // The closure must stay aligned when the cell is moved.
    let cells = [cell];
    for mut cell in cells {
        cell.run();
    }
    assert_eq!(at.load(Ordering::Relaxed), 5);

    // A zero-sized capture with an alignment above a word's does not fit either.
    #[repr(align(64))]
    struct Nothing;
    let nothing = Nothing;
    let task = move || {
        let _nothing = &nothing;
    };
    assert!(!is_in_place(&task));
    TaskCell::new(task).run();
}

#[test]
fn a_closure_without_captures_is_run() {
    static RAN: AtomicUsize = AtomicUsize::new(0);
    let task = || {
        RAN.fetch_add(1, Ordering::Relaxed);
    };
    assert_eq!(size_of_val(&task), 0);
    TaskCell::new(task).run();
    drop(TaskCell::new(task));
    assert_eq!(RAN.load(Ordering::Relaxed), 1);
}

#[test]
fn a_panic_drops_the_captures_once() {
    let (count, capture) = counted();
    let small = TaskCell::new(move || {
        let _capture = capture;
        panic!("on purpose");
    });
    let (large_count, capture) = counted();
    let ballast = [1u64; 32];
    let large = TaskCell::new(move || {
        let _capture = capture;
        assert!(ballast.is_empty(), "on purpose");
    });
    for mut cell in [small, large] {
        assert!(catch_unwind(AssertUnwindSafe(|| cell.run())).is_err());
    }
    assert_eq!((Arc::strong_count(&count), Arc::strong_count(&large_count)), (1, 1));
}

#[test]
fn a_panic_while_dropping_a_capture_propagates_to_the_dropper() {
    struct Bomb {
        _capture: Arc<()>,
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let (count, capture) = counted();
    let bomb = Bomb { _capture: capture };
    let cell = TaskCell::new(move || {
        let _bomb = &bomb;
    });
    assert!(catch_unwind(AssertUnwindSafe(|| drop(cell))).is_err());
    assert_eq!(Arc::strong_count(&count), 1);
}

#[test]
fn a_cell_is_run_on_another_thread() {
    let (count, capture) = counted();
    let cells = [TaskCell::new(move || drop(capture)), TaskCell::new(|| ())];
    std::thread::spawn(move || cells.into_iter().for_each(|mut cell| cell.run())).join().unwrap();
    assert_eq!(Arc::strong_count(&count), 1);
}
