//! The links between the nodes of a simulation.

use crate::machine::simulated::LinkSettings;
use std::time::Duration;

/// The longest latency. Longer than connections and tests wait.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Latency, rate and buffers of the links between nodes. The default is a local network: 0.5 to 0.7
/// ms in each direction, no limit of the rate, and buffers of 256 KiB.
///
/// Sockets of one node reach each other in 10 µs.
#[derive(Debug, Clone, Copy, Default)]
#[must_use]
pub struct Network(pub(super) LinkSettings);

impl Network {
    /// Returns the default network.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the network between cities: 20 to 30 ms, 10 MB/s.
    pub fn wide() -> Self {
        let ms = Duration::from_millis;
        Self::new().latency(ms(20)).jitter(ms(10)).rate(10_000_000)
    }

    /// Sets the least time that bytes take from one node to another. At most a day.
    pub fn latency(mut self, latency: Duration) -> Self {
        self.0.latency = latency.min(DAY);
        self
    }

    /// Sets the largest random addition to the latency. At most a day.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.0.jitter = jitter.min(DAY);
        self
    }

    /// Sets how many bytes per second a link carries in one direction. At least 1.
    pub fn rate(mut self, bytes_per_second: u64) -> Self {
        self.0.rate = Some(bytes_per_second.max(1));
        self
    }

    /// Sets the size of the send buffer and of the receive buffer of each socket, in bytes. At
    /// least 1 and at most 1 GiB each.
    pub fn buffers(mut self, send: usize, receive: usize) -> Self {
        let size = |size: usize| size.clamp(1, 1 << 30);
        (self.0.send_buffer, self.0.receive_buffer) = (size(send), size(receive));
        self
    }
}
