//! Submitting a task does not allocate if its closure is small and the queue is short.

use crate::{heap, own_process};
use netwheel::{EventLoopGroup, shutdown::ShutdownOptions, time::Periodic};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread::{self, Thread},
    time::Duration,
};

const TASKS: u64 = 10_000;

/// Tasks submitted without waiting for them: as many as a loop's queue retains memory for.
const WAVE: u64 = 1000;

/// Entries in a chunk of the queue. A chunk is one allocation, unless a used one is available.
const ENTRIES_PER_CHUNK: u64 = 128;

/// Counts down tasks and wakes a thread at the last one.
struct Tally {
    left: AtomicU64,
    waiting: Thread,
}

impl Tally {
    fn count(&self) {
        if self.left.fetch_sub(1, SeqCst) == 1 {
            self.waiting.unpark();
        }
    }
}

/// Returns the blocks allocated by [`TASKS`] submissions and runs, with closures that `submit`
/// makes.
fn blocks_for(submit: impl Fn(Arc<Tally>)) -> u64 {
    blocks_for_waves(TASKS, submit)
}

/// Returns the blocks allocated by [`TASKS`] submissions and runs, in waves of `wave` tasks.
fn blocks_for_waves(wave: u64, submit: impl Fn(Arc<Tally>)) -> u64 {
    let tally = Arc::new(Tally { left: AtomicU64::new(0), waiting: thread::current() });
    let before = heap::total_blocks();
    for _ in 0..TASKS / wave {
        tally.left.store(wave, SeqCst);
        (0..wave).for_each(|_| submit(tally.clone()));
        while tally.left.load(SeqCst) > 0 {
            thread::park();
        }
    }
    heap::total_blocks() - before
}

#[test]
fn a_small_task_allocates_nothing() {
    own_process!();
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let event_loop = group.next();
    let numbers = [1, 2, 3, 4];
    let one_word = || {
        blocks_for(|tally| event_loop.execute(move || tally.count()).unwrap());
        blocks_for(|tally| event_loop.execute(move || tally.count()).unwrap())
    };
    let three_words = || {
        let [a, b, ..] = numbers;
        let counted = |tally: Arc<Tally>| {
            move || {
                assert_eq!(a + b, 3);
                tally.count();
            }
        };
        blocks_for(|tally| event_loop.execute(counted(tally)).unwrap())
    };
    let lazily = || blocks_for(|tally| event_loop.execute_lazily(move || tally.count()).unwrap());
    let large = || {
        let counted = |tally: Arc<Tally>| {
            move || {
                assert_eq!(numbers.iter().sum::<u64>(), 10);
                tally.count();
            }
        };
        blocks_for(|tally| event_loop.execute(counted(tally)).unwrap())
    };

    let steady = |_| blocks_for_waves(WAVE, |tally| event_loop.execute(move || tally.count()).unwrap());
    // A chunk grows to its full size during its first use, that is when as many tasks wait.
    let steady = [(); 8].map(steady);
    assert!(steady.contains(&0), "blocks for {TASKS} small tasks, {WAVE} at a time: {steady:?}");
    let share = TASKS / ENTRIES_PER_CHUNK + 10;
    let small = [one_word(), three_words()];
    assert!(
        small.iter().all(|blocks| *blocks <= share),
        "{small:?} blocks for a flood of {TASKS} small tasks"
    );
    // Lazy tasks do not wake the loop, so a timer must.
    let waker = event_loop
        .schedule_periodic(
            Periodic::fixed_rate(Duration::from_millis(1)).initial_delay(Duration::ZERO),
            || Ok(()),
        )
        .unwrap();
    lazily();
    let lazy = lazily();
    assert!(lazy <= share, "{lazy} blocks for {TASKS} lazy tasks");
    waker.cancel();
    let large = large();
    assert!(
        (TASKS..=TASKS + share).contains(&large),
        "{large} blocks for {TASKS} large tasks: one box per task"
    );
    group
        .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(60)))
        .wait()
        .unwrap();
}
