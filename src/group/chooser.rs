//! Choosers: select the loop that serves the next connection.
//!
//! A connection is counted on its loop as soon as the loop is chosen. The `Assignment` that counts
//! it travels with the connection (through the queue, the connect, the channel) and is dropped
//! after the handler and the socket. So the count is exact however a connection ends, and handlers
//! never exceed the limit of connections. A burst is spread before any loop has received it. Two
//! listeners that choose at the same instant may choose the same loop. The next choice compensates.
//!
//! Invariant: a chooser only returns an index. If the index is out of range or the chooser panics,
//! the group falls back to round robin, so a chooser cannot stop a loop. The same happens if the
//! chosen loop is shutting down or has ended while another loop has not. Any number of threads may
//! choose at the same time. Nothing here takes a lock.

use crate::event_loop::EventLoop;
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

/// Chooses the loop of a group that gets the next connection or task. See
/// [`EventLoopGroupBuilder::chooser`](crate::group::EventLoopGroupBuilder::chooser).
///
/// [`RoundRobin`] is the default. A chooser can base its choice on
/// [`connections`](EventLoop::connections), [`load`](EventLoop::load), [`lag`](EventLoop::lag),
/// [`metrics`](EventLoop::metrics) and [`is_shutting_down`](EventLoop::is_shutting_down) of each
/// loop.
///
/// ```
/// use netwheel::{EventLoop, EventLoopGroup, group::Chooser};
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
    /// Returns the index of the chosen loop. `event_loops` is never empty, and contains the same
    /// loops in each call.
    ///
    /// Called on the accepting loop for each connection, and on any thread that opens a connection,
    /// so it must not block. If the index is out of range or this panics, the group uses round
    /// robin instead. It logs only the first such failure. The group also uses round robin if the
    /// chosen loop is [shutting down](EventLoop::is_shutting_down) or has ended.
    fn choose(&self, event_loops: &[EventLoop]) -> usize;
}

/// Chooses the loops in turn. This is the default. Loops that are shutting down are chosen only if
/// all loops are, and loops that have ended only if all have.
///
/// Round robin is fair if connections are alike. A mix of long and short connections can become
/// unbalanced: see [`LeastConnections`].
#[derive(Debug, Default)]
pub struct RoundRobin {
    next: AtomicUsize,
}

impl RoundRobin {
    /// Creates a chooser that starts with the first loop.
    pub const fn new() -> Self {
        RoundRobin { next: AtomicUsize::new(0) }
    }

    /// Returns the next of `size` numbers. Counts modulo `size`, so that the order never breaks, as
    /// it would if a counter wrapped.
    fn step(&self, size: usize) -> usize {
        let size = size.max(1);
        let n = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| Some((n + 1) % size));
        n.unwrap_or(0) % size
    }

    /// Returns the next loop that is not shutting down, or the next one if all are.
    fn next_open(&self, event_loops: &[EventLoop]) -> usize {
        let first = self.step(event_loops.len());
        if event_loops[first].is_shutting_down() { self.open_after(first, event_loops) } else { first }
    }

    /// Returns the next loop that is not shutting down. If all are, returns the next one that has
    /// not ended: `first` or another, which serves replies in flight. Otherwise `first`.
    #[cold]
    fn open_after(&self, first: usize, event_loops: &[EventLoop]) -> usize {
        let size = event_loops.len();
        // Each step goes past the last loop, so that the one behind it does not get its share too.
        let mut others = (0..size).map(|_| self.step(size));
        let open = others.find(|next| !event_loops[*next].is_shutting_down());
        let in_order = || (first..size).chain(0..first);
        open.or_else(|| in_order().find(|next| !event_loops[*next].is_shut_down())).unwrap_or(first)
    }
}

impl Chooser for RoundRobin {
    fn choose(&self, event_loops: &[EventLoop]) -> usize {
        self.next_open(event_loops)
    }
}

/// Chooses the loop with the lowest total weight of connections ([`EventLoop::load`]), including
/// connections that are still being opened. Ties are broken in turn.
///
/// A connection counts as soon as its loop is chosen, so a burst is spread from its first
/// connection on. Loops that are shutting down are chosen only if all loops are.
///
/// With an [`overload_target`](crate::group::EventLoopGroupBuilder::overload_target), prefer
/// [`LeastLag`]: an overloaded loop with few connections refuses the new ones that it is chosen
/// for, and stays the loop with the fewest.
#[derive(Debug, Default)]
pub struct LeastConnections {
    first: RoundRobin,
}

impl LeastConnections {
    /// Creates a chooser that starts with the first loop.
    pub const fn new() -> Self {
        LeastConnections { first: RoundRobin::new() }
    }
}

impl Chooser for LeastConnections {
    fn choose(&self, event_loops: &[EventLoop]) -> usize {
        least(&self.first, event_loops, EventLoop::load)
    }
}

/// Chooses the loop with the lowest latency ([`EventLoop::lag`], in whole milliseconds). Ties are
/// broken by the number of connections, like [`LeastConnections`].
///
/// Suitable for connections whose cost varies widely: a loop that is held up gets no new
/// connections. Each choice reads the clock once per loop.
#[derive(Debug, Default)]
pub struct LeastLag {
    first: RoundRobin,
}

impl LeastLag {
    /// Creates a chooser that starts with the first loop.
    pub const fn new() -> Self {
        LeastLag { first: RoundRobin::new() }
    }
}

/// The resolution of the comparison. Differences of a few microseconds are noise.
const LAG_STEP: Duration = Duration::from_millis(1);

impl Chooser for LeastLag {
    fn choose(&self, event_loops: &[EventLoop]) -> usize {
        let lag = |event_loop: &EventLoop| event_loop.lag().as_nanos() / LAG_STEP.as_nanos();
        least(&self.first, event_loops, |event_loop| (lag(event_loop), event_loop.load()))
    }
}

/// Returns the index with the least cost. Ties are broken in turn. Loops that are shutting down
/// come last.
fn least<C: Ord>(turns: &RoundRobin, event_loops: &[EventLoop], cost: impl Fn(&EventLoop) -> C) -> usize {
    let size = event_loops.len();
    let first = turns.next_open(event_loops);
    let order = (first..size).chain(0..first);
    let cost = |n: &usize| {
        let event_loop = &event_loops[*n];
        (event_loop.is_shutting_down(), event_loop.is_shut_down(), cost(event_loop))
    };
    order.min_by_key(cost).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e_62_round_robin_keeps_its_order_for_any_size() {
        for size in 1..=17 {
            let round = RoundRobin::new();
            for n in 0..5 * size {
                assert_eq!(round.step(size), n % size);
            }
            assert!(
                round.next.load(Ordering::Relaxed) < size,
                "the counter must stay below the size, so it never wraps"
            );
        }
    }

    #[test]
    fn e_62_round_robin_shared_by_two_groups_stays_in_range() {
        let round = RoundRobin::new();
        for n in 0..100 {
            assert!(round.step(1 + n % 7) < 1 + n % 7);
        }
        assert_eq!(round.step(0), 0);
    }
}
