//! Chooses the loop that serves the next connection.
//!
//! A connection is counted on its loop as soon as the loop is chosen. The `Assignment` that counts
//! it travels with the connection (through the queue, the connect, the channel) and is dropped
//! after the handler and the socket. So the count is exact however a connection ends, there are
//! never more handlers than connections allowed, and a burst is spread before any loop has received
//! it. Two listeners that choose at the same instant may choose the same loop; the next choice
//! compensates.
//!
//! Invariant: a chooser only returns an index. The group corrects an index out of range and a panic
//! by going round, so a chooser cannot stop a loop. Any thread may choose, several at once; nothing
//! here takes a lock.

use crate::EventLoop;
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

/// Chooses which loop of a group gets the next connection or task; see
/// [`EventLoopGroupBuilder::chooser`](crate::EventLoopGroupBuilder::chooser).
///
/// [`RoundRobin`] is the default. What a chooser may go by is what every loop tells of itself:
/// [`connections`](EventLoop::connections), [`load`](EventLoop::load), [`lag`](EventLoop::lag),
/// [`metrics`](EventLoop::metrics), [`is_shutting_down`](EventLoop::is_shutting_down).
///
/// ```
/// use netwheel::{Chooser, EventLoop, EventLoopGroup};
///
/// /// Leaves the first loop to the listeners.
/// struct NotTheFirst;
///
/// impl Chooser for NotTheFirst {
///     fn choose(&self, event_loops: &[EventLoop]) -> usize {
///         let least = (1..event_loops.len()).min_by_key(|n| event_loops[*n].connections());
///         least.unwrap_or(0)
///     }
/// }
///
/// let group = EventLoopGroup::builder().threads(3).chooser(NotTheFirst).build()?;
/// assert_eq!(group.next().name(), "netwheel-1");
/// # Ok::<(), netwheel::Error>(())
/// ```
pub trait Chooser: Send + Sync {
    /// The index of the loop whose turn it is; there is at least one loop, and they are always the same ones.
    ///
    /// Called on the accepting loop for each connection, and on any thread that makes one: it must not block. If the
    /// index is out of range, or this panics, the group goes round in order instead, and logs the first time.
    fn choose(&self, event_loops: &[EventLoop]) -> usize;
}

/// Each loop in order, round and round: the default.
///
/// Fair as long as connections are alike; long and short ones mixed can drift apart ([`LeastConnections`]).
#[derive(Debug, Default)]
pub struct RoundRobin {
    next: AtomicUsize,
}

impl RoundRobin {
    /// Begins with the first loop.
    pub const fn new() -> Self {
        RoundRobin { next: AtomicUsize::new(0) }
    }

    /// The next of `size` numbers. Counted modulo the size, so that the order holds for ever and not only until a
    /// counter wraps.
    fn step(&self, size: usize) -> usize {
        let size = size.max(1);
        let n = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| Some((n + 1) % size));
        n.unwrap_or(0) % size
    }
}

impl Chooser for RoundRobin {
    fn choose(&self, event_loops: &[EventLoop]) -> usize {
        self.step(event_loops.len())
    }
}

/// The loop with the fewest connections, open or on their way to it, each by its weight
/// ([`EventLoop::load`]); among equals, in order.
///
/// A burst is spread from its first connection on, since a connection counts as soon as its loop is chosen. Loops that
/// are shutting down are left out as long as there are others.
#[derive(Debug, Default)]
pub struct LeastConnections {
    first: RoundRobin,
}

impl LeastConnections {
    /// Begins with the first loop.
    pub const fn new() -> Self {
        LeastConnections { first: RoundRobin::new() }
    }
}

impl Chooser for LeastConnections {
    fn choose(&self, event_loops: &[EventLoop]) -> usize {
        least(&self.first, event_loops, EventLoop::load)
    }
}

/// The loop that something would wait for the shortest time on ([`EventLoop::lag`], in whole milliseconds); among
/// equals the one with the fewest connections, as [`LeastConnections`].
///
/// For loops whose connections are very unlike in what they cost: a loop that is held up gets nothing new. It reads
/// the clock once for each loop.
#[derive(Debug, Default)]
pub struct LeastLag {
    first: RoundRobin,
}

impl LeastLag {
    /// Begins with the first loop.
    pub const fn new() -> Self {
        LeastLag { first: RoundRobin::new() }
    }
}

/// Below this loops are alike: who lags by some microseconds less than the others is chance.
const LAG_STEP: Duration = Duration::from_millis(1);

impl Chooser for LeastLag {
    fn choose(&self, event_loops: &[EventLoop]) -> usize {
        let lag = |event_loop: &EventLoop| event_loop.lag().as_nanos() / LAG_STEP.as_nanos();
        least(&self.first, event_loops, |event_loop| (lag(event_loop), event_loop.load()))
    }
}

/// The one with the least cost; among equals they take turns. Those that are shutting down come last.
fn least<C: Ord>(turns: &RoundRobin, event_loops: &[EventLoop], cost: impl Fn(&EventLoop) -> C) -> usize {
    let size = event_loops.len();
    let first = turns.step(size);
    let order = (first..size).chain(0..first);
    let cost = |n: &usize| (event_loops[*n].is_shutting_down(), cost(&event_loops[*n]));
    order.min_by_key(cost).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e_62_round_robin_keeps_its_order_for_any_size_and_for_ever() {
        for size in 1..=17 {
            let round = RoundRobin::new();
            for n in 0..5 * size {
                assert_eq!(round.step(size), n % size);
            }
            assert!(round.next.load(Ordering::Relaxed) < size, "there is no counter that could wrap");
        }
    }

    #[test]
    fn e_62_round_robin_that_two_groups_share_stays_in_range() {
        let round = RoundRobin::new();
        for n in 0..100 {
            assert!(round.step(1 + n % 7) < 1 + n % 7);
        }
        assert_eq!(round.step(0), 0);
    }
}
