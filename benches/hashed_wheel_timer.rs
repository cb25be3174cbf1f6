//! Scalability when many threads add and cancel timeouts.
//!
//! In `benches/`: `cargo bench --bench hashed_wheel_timer`; `-- --help` lists the settings. Every
//! thread adds timeouts of one minute and cancels each of them sixteen additions later, like
//! requests whose replies arrive. The comparison is a sorted map behind a lock, a simple
//! replacement for a timer, but without a thread that runs expired timeouts. Rounds of both are
//! interleaved. The results are medians in millions of pairs per second of all threads together,
//! with minimum and maximum.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a program, not a library")]

use clap::Parser;
use netwheel::timer::HashedWheelTimer;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Measures timeouts that several threads add and cancel, in pairs per second.
#[derive(Parser)]
#[command(name = "hashed_wheel_timer")]
struct Settings {
    /// Rounds; every line is measured once in each.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Pairs per round, of all threads together.
    #[arg(long, default_value_t = 400_000)]
    pairs: usize,
    /// Timeouts that stay pending all the time.
    #[arg(long, default_value_t = 100_000)]
    resident: usize,
    /// Checks only that it works, in a moment.
    #[arg(long)]
    test: bool,
    /// Passed by `cargo bench`; ignored.
    #[arg(long, hide = true)]
    bench: bool,
}

const MINUTE: Duration = Duration::from_secs(60);
const THREADS: [usize; 4] = [1, 2, 4, 8];

/// Timeouts of one thread that wait for their reply.
const UNDER_WAY: usize = 16;

trait Timers: Sync {
    type Key: Send;
    fn add(&self) -> Self::Key;
    fn cancel(&self, key: Self::Key);
}

impl Timers for HashedWheelTimer {
    type Key = netwheel::timer::Timeout;

    fn add(&self) -> Self::Key {
        self.new_timeout(MINUTE, |_| Ok(())).expect("the timer runs")
    }

    fn cancel(&self, timeout: Self::Key) {
        assert!(timeout.cancel(), "a minute has not passed");
    }
}

type Task = Box<dyn FnOnce() + Send>;

/// Deadlines in order, behind a lock.
#[derive(Default)]
struct SortedMap {
    tasks: Mutex<BTreeMap<(Instant, u64), Task>>,
    ids: AtomicU64,
}

impl Timers for SortedMap {
    type Key = (Instant, u64);

    fn add(&self) -> Self::Key {
        let key = (Instant::now() + MINUTE, self.ids.fetch_add(1, Relaxed));
        // The closure has captures, so boxing it allocates.
        let task: Task = Box::new(move || _ = key);
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).insert(key, task);
        key
    }

    fn cancel(&self, key: Self::Key) {
        let task = self.tasks.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        assert!(task.is_some(), "only its own thread removes it");
    }
}

/// Returns millions of pairs per second.
fn measure(timers: &impl Timers, threads: usize, pairs: usize) -> f64 {
    let each = (pairs / threads).max(1);
    let begun = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut under_way = VecDeque::with_capacity(UNDER_WAY + 1);
                for _ in 0..each {
                    under_way.push_back(timers.add());
                    if under_way.len() > UNDER_WAY
                        && let Some(oldest) = under_way.pop_front()
                    {
                        timers.cancel(oldest);
                    }
                }
                under_way.into_iter().for_each(|key| timers.cancel(key));
            });
        }
    });
    (each * threads) as f64 / begun.elapsed().as_secs_f64() / 1e6
}

fn main() {
    let mut settings = Settings::parse();
    if settings.test {
        (settings.rounds, settings.pairs, settings.resident) = (1, 1_000, 1_000);
    }
    let timer = HashedWheelTimer::builder().build().expect("the default settings are in range");
    let map = SortedMap::default();
    (0..settings.resident).for_each(|_| drop((timer.add(), map.add())));
    let mut results = vec![[Vec::new(), Vec::new()]; THREADS.len()];
    for round in 1..=settings.rounds {
        for (threads, [wheel, sorted]) in THREADS.iter().zip(&mut results) {
            wheel.push(measure(&timer, *threads, settings.pairs));
            sorted.push(measure(&map, *threads, settings.pairs));
        }
        eprintln!("round {round} of {}", settings.rounds);
    }
    assert_eq!(timer.pending_timeouts(), settings.resident);
    println!("| threads | HashedWheelTimer, M pairs/s | sorted map behind a lock | ratio |");
    println!("|---:|---:|---:|---:|");
    for (threads, [wheel, sorted]) in THREADS.iter().zip(&results) {
        let ratios: Vec<f64> = wheel.iter().zip(sorted).map(|(a, b)| a / b).collect();
        println!("| {threads} | {} | {} | {} |", summary(wheel), summary(sorted), summary(&ratios));
    }
}

/// Formats the median, the minimum and the maximum.
fn summary(values: &[f64]) -> String {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values[0], values[values.len() - 1]);
    format!("{:.2} ({low:.2}..{high:.2})", values[values.len() / 2])
}
