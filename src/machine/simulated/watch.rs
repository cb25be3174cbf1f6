//! Reports a turn of a loop that does not end.
//!
//! The driver runs all loops itself, so nothing can take the turn from a handler that blocks, for
//! example in a lock of a thread that waits. One thread of the process, which the first simulation
//! starts, looks at all simulations now and then, and writes a report to the standard error.

use super::Shared;
use crate::machine::system_mutex::SystemMutex;
use std::{
    sync::{
        Arc, Once, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// The time between two looks. A turn that two looks have seen is reported.
const INTERVAL: Duration = Duration::from_secs(15);

/// The turn that the driver runs.
#[derive(Default)]
pub(crate) struct LoopTurn {
    /// Counts beginnings and ends, so the count is odd within a turn.
    count: AtomicU64,
    node: AtomicUsize,
}

impl LoopTurn {
    /// Notes the beginning of a turn. It ends when the result is dropped.
    pub(crate) fn begin(&self, node: usize) -> InLoopTurn<'_> {
        self.node.store(node, Ordering::Relaxed);
        self.step();
        InLoopTurn(self)
    }

    /// Only the driver counts, so no addition is lost.
    fn step(&self) {
        self.count.store(self.count.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

pub(crate) struct InLoopTurn<'a>(&'a LoopTurn);

impl Drop for InLoopTurn<'_> {
    fn drop(&mut self) {
        self.0.step();
    }
}

/// The simulations of the process.
static WATCHED: SystemMutex<Vec<Weak<Shared>>> = SystemMutex::new(Vec::new());

/// Watches a simulation until it is dropped.
pub(super) fn watch(shared: &Arc<Shared>) {
    static STARTED: Once = Once::new();
    {
        let mut watched = WATCHED.lock();
        watched.retain(|shared| shared.strong_count() > 0);
        watched.push(Arc::downgrade(shared));
    }
    STARTED.call_once(|| {
        // Without the thread, only the report is missing.
        let _ = thread::Builder::new().name("netwheel-watch".to_owned()).spawn(look_again_and_again);
    });
}

#[allow(clippy::disallowed_methods, reason = "measures the real time of turns")]
fn look_again_and_again() {
    let mut looks = Looks::default();
    loop {
        thread::sleep(INTERVAL);
        let watched = WATCHED.lock().clone();
        for report in looks.look(watched.iter().filter_map(Weak::upgrade)) {
            eprintln!("{report}");
        }
    }
}

/// The turns that the last look has seen.
#[derive(Default)]
struct Looks {
    /// The identity of a simulation, the count of its turn, and whether that was reported.
    seen: Vec<(*const Shared, u64, bool)>,
}

impl Looks {
    /// Returns a report of each turn that the last look has seen as well.
    fn look(&mut self, simulations: impl Iterator<Item = Arc<Shared>>) -> Vec<String> {
        let before = std::mem::take(&mut self.seen);
        let mut reports = Vec::new();
        for shared in simulations {
            let count = shared.loop_turn.count.load(Ordering::Acquire);
            if count % 2 == 0 {
                continue;
            }
            let identity = Arc::as_ptr(&shared);
            let earlier = before.iter().find(|seen| (seen.0, seen.1) == (identity, count));
            if let Some((.., false)) = earlier {
                reports.push(report(&shared));
            }
            self.seen.push((identity, count, earlier.is_some()));
        }
        reports
    }
}

fn report(shared: &Shared) -> String {
    let node = shared.loop_turn.node.load(Ordering::Relaxed);
    let (seed, name) = {
        let world = shared.lock();
        (world.seed, world.nodes.get(node).map_or_else(String::new, |node| node.name.clone()))
    };
    format!(
        "seed {seed}: node {name}: the turn of a loop has lasted for more than {INTERVAL:?} of real time; a \
         handler computes, or it blocks in something that the simulation does not control, for example in a \
         lock of a thread that waits"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::simulated::faults::FaultSource;
    use std::net::Ipv4Addr;

    #[test]
    fn a_turn_that_two_looks_have_seen_is_reported_once() {
        let shared = Shared::new(7, FaultSource::default()).unwrap();
        shared.lock().add_node("slow", Ipv4Addr::LOCALHOST.into());
        let mut looks = Looks::default();
        let mut look = || looks.look([shared.clone()].into_iter());
        assert!(look().is_empty() && look().is_empty(), "no turn");
        for _ in 0..2 {
            let turn = shared.loop_turn.begin(0);
            assert!(look().is_empty());
            let reports = look();
            assert!(reports.len() == 1 && reports[0].starts_with("seed 7: node slow: "), "{reports:?}");
            assert!(look().is_empty());
            drop(turn);
            assert!(look().is_empty());
        }
        let short = shared.loop_turn.begin(0);
        assert!(look().is_empty());
        drop(short);
        let _another = shared.loop_turn.begin(0);
        assert!(look().is_empty());
    }
}
