//! The clock of a simulated machine.

use super::Shared;
use crate::clock::Clock;
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

/// The time of day at the beginning of a simulation, after the Unix epoch.
const EPOCH: Duration = Duration::from_secs(1_700_000_000);

/// A clock that shows the virtual time of the world, as one of its nodes measures it.
pub(crate) struct MachineClock {
    shared: Arc<Shared>,
    node: usize,
}

impl MachineClock {
    pub(super) fn new(shared: Arc<Shared>, node: usize) -> Self {
        MachineClock { shared, node }
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Instant {
        let time = self.shared.lock().read_clock(self.node);
        self.shared.origin.checked_add(Duration::from_nanos(time)).unwrap_or(self.shared.origin)
    }

    fn wall_time(&self) -> SystemTime {
        let world = self.shared.lock();
        let node = &world.nodes[self.node];
        let elapsed = Duration::from_nanos(node.local(world.now()));
        let shift = Duration::from_nanos(node.wall_shift.unsigned_abs());
        let time = SystemTime::UNIX_EPOCH + EPOCH + elapsed;
        let shifted = if node.wall_shift < 0 { time.checked_sub(shift) } else { time.checked_add(shift) };
        shifted.unwrap_or(time)
    }
}

impl fmt::Debug for MachineClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineClock").field("node", &self.node).finish_non_exhaustive()
    }
}
