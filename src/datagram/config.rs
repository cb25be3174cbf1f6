//! Settings of a datagram channel, checked.

/// What the bootstrap was told.
#[derive(Debug, Clone)]
pub(crate) struct DatagramConfig {
    pub(crate) datagrams_per_turn: usize,
    pub(crate) max_outbound: usize,
    pub(crate) max_scheduled_tasks: usize,
}
