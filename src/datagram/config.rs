//! Settings of a datagram channel.

use crate::{error::Result, settings::check_range};

/// The settings of a datagram channel, as set on its bootstrap.
#[derive(Debug, Clone)]
pub(crate) struct DatagramConfig {
    pub(crate) datagrams_per_turn: usize,
    pub(crate) max_outbound: usize,
    pub(crate) max_scheduled_tasks: usize,
}

impl Default for DatagramConfig {
    fn default() -> Self {
        DatagramConfig { datagrams_per_turn: 64, max_outbound: 1024 * 1024, max_scheduled_tasks: 1024 }
    }
}

impl DatagramConfig {
    /// Refuses the first setting that is out of its range.
    pub(crate) fn check(&self) -> Result {
        let DatagramConfig { datagrams_per_turn, max_outbound, max_scheduled_tasks } = *self;
        check_range("datagrams_per_turn", datagrams_per_turn, 1.., "1 or more")?;
        check_range("max_outbound", max_outbound, 1.., "1 byte or more")?;
        check_range("max_scheduled_tasks", max_scheduled_tasks, 1..=65_536, "1 to 65536 tasks")
    }
}
