//! Cost of submitting a task to a loop from another thread, and the latency of a sleeping loop.
//!
//! In `benches/`: `cargo bench --bench tasks`; `-- --help` lists the settings. Compares
//! [`EventLoop::execute`] with tokio's current-thread `spawn` and two bare loops of
//! crossbeam-channel and mio's `Waker`. One of these boxes closures. The other stores a closure in
//! the queue's entry, as a function and three words. This second bare loop is the lower limit: it
//! has only the queue and the sleep, without a task limit, a shutdown, or reports of panics.
//!
//! The loop's thread is on one core and the producers are on another. The rounds of all lines are
//! interleaved, so that temporary disturbances of the machine affect all of them. The results are
//! medians, with minimum and maximum in parentheses. Ratios are within the same round.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a program, not a library")]

use clap::Parser;
use core_affinity::CoreId;
use crossbeam_channel::{Receiver, Sender, unbounded};
use hdrhistogram::Histogram;
use netwheel::{EventLoop, EventLoopGroup};
use std::{
    future::pending,
    hint::spin_loop,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::*, fence},
    },
    thread,
    time::{Duration, Instant},
};

/// Measures tasks submitted to event loops from other threads: tasks per second, and the time to
/// wake a sleeping loop.
#[derive(Parser)]
#[command(name = "tasks")]
struct Settings {
    /// Rounds; every line is measured once in each.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Tasks per round, of all producers together.
    #[arg(long, default_value_t = 1_000_000)]
    tasks: u64,
    /// Tasks per round that find the loop asleep.
    #[arg(long, default_value_t = 20_000)]
    wakes: u64,
    /// Measures only the lines whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Checks only that it works, in a moment.
    #[arg(long)]
    test: bool,
    /// Passed by `cargo bench`; ignored.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Cores of the loop and of the producers.
#[derive(Clone, Copy)]
struct Cores {
    event_loop: CoreId,
    producers: CoreId,
}

impl Cores {
    fn of_this_machine() -> Cores {
        let ids = core_affinity::get_core_ids().unwrap_or_default();
        let (Some(first), Some(last)) = (ids.first(), ids.last()) else {
            eprintln!("the cores cannot be determined: nothing is pinned");
            return Cores { event_loop: CoreId { id: 0 }, producers: CoreId { id: 0 } };
        };
        if ids.len() < 2 {
            eprintln!("the loop and the producers share one core: the results mean little");
        }
        Cores { event_loop: *first, producers: *last }
    }
}

fn pin(core: CoreId) {
    core_affinity::set_for_current(core);
}

// ---- the tasks ---------------------------------------------------------------------------------

/// Counts the tasks that have run.
#[inline]
fn count(done: &AtomicU64) {
    // Only the loop writes it.
    done.store(done.load(Relaxed) + 1, Release);
}

/// Records the latency of the task.
#[inline]
fn arrive(took: &AtomicU64, began: Instant) {
    took.store((began.elapsed().as_nanos() as u64).max(1), Release);
}

/// A running loop whose thread is pinned and lives until the process ends.
trait Subject: Send + Sync + 'static {
    fn start(cores: Cores) -> Self
    where
        Self: Sized;
    fn submit_count(&self, done: &'static AtomicU64);
    fn submit_arrival(&self, took: &'static AtomicU64, began: Instant);
}

/// A loop that runs closures.
trait Executor: Send + Sync + 'static {
    fn start(cores: Cores) -> Self;
    fn submit(&self, task: impl FnOnce() + Send + 'static);
}

impl<E: Executor> Subject for E {
    fn start(cores: Cores) -> Self {
        E::start(cores)
    }

    fn submit_count(&self, done: &'static AtomicU64) {
        self.submit(move || count(done));
    }

    fn submit_arrival(&self, took: &'static AtomicU64, began: Instant) {
        self.submit(move || arrive(took, began));
    }
}

// ---- netwheel ----------------------------------------------------------------------------------

impl Executor for EventLoop {
    fn start(cores: Cores) -> Self {
        let group = EventLoopGroup::builder().threads(1).max_pending_tasks(usize::MAX).build();
        let event_loop = group.expect("a group").next().clone();
        event_loop.execute(move || pin(cores.event_loop)).expect("the loop runs");
        event_loop
    }

    fn submit(&self, task: impl FnOnce() + Send + 'static) {
        self.execute(task).expect("the loop runs, and its queue has room");
    }
}

// ---- tokio -------------------------------------------------------------------------------------

/// With its I/O driver, like a server. Without it, tokio would not wait in epoll.
struct Tokio(tokio::runtime::Handle);

impl Executor for Tokio {
    fn start(cores: Cores) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let handle = runtime.handle().clone();
        thread::spawn(move || {
            pin(cores.event_loop);
            runtime.block_on(pending::<()>());
        });
        Tokio(handle)
    }

    fn submit(&self, task: impl FnOnce() + Send + 'static) {
        drop(self.0.spawn(async move { task() }));
    }
}

// ---- a queue and a waker -----------------------------------------------------------------------

/// A job of a bare loop.
trait Job: Send + 'static {
    fn run(self);
}

impl Job for Box<dyn FnOnce() + Send> {
    fn run(self) {
        self();
    }
}

/// An unboxed closure: a function, and three words of captures.
struct InPlace {
    call: fn(Captures),
    captures: Captures,
}

struct Captures {
    number: &'static AtomicU64,
    began: Instant,
}

impl Job for InPlace {
    fn run(self) {
        (self.call)(self.captures);
    }
}

/// A queue, a poll that sleeps, and a waker that is written only when the loop sleeps or is about
/// to.
struct Bare<J> {
    queue: Sender<J>,
    sleeper: Arc<Sleeper>,
    epoch: Instant,
}

struct Sleeper {
    asleep: AtomicBool,
    waker: mio::Waker,
}

impl<J: Job> Bare<J> {
    fn start(cores: Cores) -> Self {
        let (queue, inbox) = unbounded();
        let poll = mio::Poll::new().expect("a poll");
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).expect("a waker");
        let sleeper = Arc::new(Sleeper { asleep: AtomicBool::new(false), waker });
        let ours = sleeper.clone();
        thread::spawn(move || {
            pin(cores.event_loop);
            ours.run(poll, &inbox);
        });
        Bare { queue, sleeper, epoch: Instant::now() }
    }

    fn submit(&self, job: J) {
        self.queue.send(job).expect("the loop runs");
        fence(SeqCst);
        if self.sleeper.asleep.load(Relaxed) && self.sleeper.asleep.swap(false, AcqRel) {
            self.sleeper.waker.wake().expect("the poll can be woken");
        }
    }
}

impl Sleeper {
    fn run<J: Job>(&self, mut poll: mio::Poll, inbox: &Receiver<J>) {
        let mut events = mio::Events::with_capacity(16);
        loop {
            while let Ok(job) = inbox.try_recv() {
                job.run();
            }
            self.asleep.store(true, Relaxed);
            fence(SeqCst);
            if inbox.is_empty() {
                // The queue is checked next, whatever ended the sleep.
                let _ = poll.poll(&mut events, None);
            }
            self.asleep.store(false, Relaxed);
        }
    }
}

struct Boxed(Bare<Box<dyn FnOnce() + Send>>);

impl Executor for Boxed {
    fn start(cores: Cores) -> Self {
        Boxed(Bare::start(cores))
    }

    fn submit(&self, task: impl FnOnce() + Send + 'static) {
        self.0.submit(Box::new(task));
    }
}

impl Subject for Bare<InPlace> {
    fn start(cores: Cores) -> Self {
        Bare::start(cores)
    }

    fn submit_count(&self, done: &'static AtomicU64) {
        let captures = Captures { number: done, began: self.epoch };
        self.submit(InPlace { call: |captures| count(captures.number), captures });
    }

    fn submit_arrival(&self, took: &'static AtomicU64, began: Instant) {
        let captures = Captures { number: took, began };
        self.submit(InPlace { call: |captures| arrive(captures.number, captures.began), captures });
    }
}

// ---- measuring ---------------------------------------------------------------------------------

/// Returns millions of tasks per second, from the first submission to the last run.
fn throughput(subject: &impl Subject, cores: Cores, producers: u64, tasks: u64) -> f64 {
    let done: &'static AtomicU64 = Box::leak(Box::default());
    let each = (tasks / producers).max(1);
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..producers {
            scope.spawn(|| {
                pin(cores.producers);
                (0..each).for_each(|_| subject.submit_count(done));
            });
        }
    });
    while done.load(Acquire) < each * producers {
        thread::sleep(Duration::from_micros(50));
    }
    (each * producers) as f64 / began.elapsed().as_secs_f64() / 1e6
}

/// Returns the median and the 99th percentile of the microseconds from submission to run. The loop
/// is asleep before each submission.
fn latency(subject: &impl Subject, cores: Cores, wakes: u64) -> [f64; 2] {
    let took: &'static AtomicU64 = Box::leak(Box::default());
    let mut histogram = Histogram::<u64>::new_with_bounds(1, 10_000_000_000, 3).expect("bounds in order");
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(cores.producers);
            for _ in 0..wakes {
                let rest = Instant::now();
                while rest.elapsed() < Duration::from_micros(30) {
                    spin_loop();
                }
                took.store(0, Relaxed);
                subject.submit_arrival(took, Instant::now());
                while took.load(Acquire) == 0 {
                    spin_loop();
                }
                histogram.saturating_record(took.load(Relaxed));
            }
        });
    });
    [0.5, 0.99].map(|quantile| histogram.value_at_quantile(quantile) as f64 / 1e3)
}

/// Throughput with one producer and with two, and the latency's median and 99th percentile.
type Figures = [f64; 4];

struct Line {
    name: &'static str,
    measure: fn(Cores, &Settings) -> Figures,
}

fn line<S: Subject>(name: &'static str) -> Line {
    Line {
        name,
        measure: |cores, settings| {
            let subject = S::start(cores);
            let one = throughput(&subject, cores, 1, settings.tasks);
            let two = throughput(&subject, cores, 2, settings.tasks);
            let [half, most] = latency(&subject, cores, settings.wakes);
            [one, two, half, most]
        },
    }
}

const LIMIT: &str = "crossbeam-channel + mio Waker, closures in place";

fn lines() -> Vec<Line> {
    vec![
        line::<EventLoop>("netwheel EventLoop::execute"),
        line::<Bare<InPlace>>(LIMIT),
        line::<Boxed>("crossbeam-channel + mio Waker, boxed closures"),
        line::<Tokio>("tokio current_thread spawn"),
    ]
}

/// Formats the median, the minimum and the maximum.
fn summary(values: impl Iterator<Item = f64>) -> String {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match (values.first(), values.get(values.len() / 2), values.last()) {
        (Some(low), Some(median), Some(high)) => format!("{median:.2} ({low:.2}..{high:.2})"),
        _ => "-".to_owned(),
    }
}

fn main() {
    let mut settings = Settings::parse();
    if settings.test {
        (settings.rounds, settings.tasks, settings.wakes) = (1, 1_000, 10);
    }
    let cores = Cores::of_this_machine();
    let lines: Vec<Line> = lines().into_iter().filter(|line| line.name.contains(&settings.only)).collect();
    let mut results: Vec<Vec<Figures>> = lines.iter().map(|_| Vec::new()).collect();
    for round in 1..=settings.rounds {
        for (line, results) in lines.iter().zip(&mut results) {
            let figures = (line.measure)(cores, &settings);
            eprintln!("round {round} of {}: {}: {figures:.2?}", settings.rounds, line.name);
            results.push(figures);
        }
    }

    println!(
        "| event loop | 1 producer, M tasks/s | 2 producers, M tasks/s | wake-up p50, us | wake-up p99, us |"
    );
    println!("|---|---:|---:|---:|---:|");
    for (line, results) in lines.iter().zip(&results) {
        let column = |n: usize| summary(results.iter().map(|figures| figures[n]));
        println!("| {} | {} | {} | {} | {} |", line.name, column(0), column(1), column(2), column(3));
    }
    let Some(limit) = lines.iter().position(|line| line.name == LIMIT) else { return };
    println!();
    println!("| ratio to: {LIMIT} | 1 producer | 2 producers | wake-up p50 | wake-up p99 |");
    println!("|---|---:|---:|---:|---:|");
    for (line, ours) in lines.iter().zip(&results).filter(|(line, _)| line.name != LIMIT) {
        let pairs = || ours.iter().zip(&results[limit]);
        let column = |n: usize| summary(pairs().map(|(ours, limit)| ours[n] / limit[n]));
        println!("| {} | {} | {} | {} | {} |", line.name, column(0), column(1), column(2), column(3));
    }
}
