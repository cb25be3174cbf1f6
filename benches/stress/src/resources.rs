//! What the process holds: heap, descriptors, threads.

use cap::Cap;
use std::{
    alloc::System,
    fmt, fs, thread,
    time::{Duration, Instant},
};

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// Growth of the heap that no round may leave behind, all rounds together. A list that keeps its
/// capacity, and lazily made state of the standard library, fit into it.
const SLACK: usize = 192 * 1024;

pub(crate) fn heap() -> usize {
    HEAP.allocated()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resources {
    heap: usize,
    descriptors: usize,
    threads: usize,
}

fn entries(directory: &str) -> usize {
    fs::read_dir(directory).map_or(0, Iterator::count)
}

impl Resources {
    pub(crate) fn now() -> Self {
        Resources { heap: heap(), descriptors: entries("/proc/self/fd"), threads: entries("/proc/self/task") }
    }

    fn exceeds(&self, baseline: &Self) -> bool {
        self.heap > baseline.heap + SLACK
            || self.descriptors > baseline.descriptors
            || self.threads > baseline.threads
    }

    /// Waits until everything that was begun has ended. Threads end a moment after their results.
    pub(crate) fn settled(baseline: Option<&Self>, patience: Duration) -> Self {
        let until = Instant::now() + patience;
        loop {
            let now = Self::now();
            match baseline {
                Some(baseline) if !now.exceeds(baseline) => return now,
                _ if Instant::now() > until => return now,
                _ => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Returns the resources that were not released.
    pub(crate) fn left_behind(&self, baseline: &Self) -> Option<String> {
        self.exceeds(baseline).then(|| format!("{self}; before: {baseline}"))
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Resources { heap, descriptors, threads } = self;
        write!(f, "{heap} bytes, {descriptors} descriptors, {threads} threads")
    }
}

/// A thread's time on a processor, and its time waiting for one.
struct Wanted {
    thread: String,
    time: Duration,
}

/// How much time each thread with one of these name prefixes has wanted. On a busy machine a
/// spinning thread runs only some of the time.
fn wanted(prefixes: &[&str]) -> Vec<Wanted> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return vec![] };
    let wanted = |path: std::path::PathBuf| {
        let name = fs::read_to_string(path.join("comm")).ok()?;
        let statistics = fs::read_to_string(path.join("schedstat")).ok()?;
        let nanos: u64 =
            statistics.split_whitespace().take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        let number = path.file_name()?.to_string_lossy().into_owned();
        let is_asked_for = prefixes.iter().any(|prefix| name.starts_with(prefix));
        let thread = format!("{} ({number})", name.trim());
        is_asked_for.then(|| Wanted { thread, time: Duration::from_nanos(nanos) })
    };
    tasks.flatten().filter_map(|task| wanted(task.path())).collect()
}

/// Returns the loops that want a processor most of the time, for a time in which nothing happens.
pub(crate) fn spinning(over: Duration) -> Vec<String> {
    let names = ["clients", "relays", "servers"];
    let (before, began) = (wanted(&names), Instant::now());
    thread::sleep(over);
    let (after, elapsed) = (wanted(&names), began.elapsed());
    let spins = |end: &Wanted| {
        let begin = before.iter().find(|begin| begin.thread == end.thread)?;
        let used = end.time.saturating_sub(begin.time);
        (used > elapsed * 6 / 10).then(|| format!("{}: {used:.0?} of {elapsed:.0?}", end.thread))
    };
    after.iter().filter_map(spins).collect()
}
