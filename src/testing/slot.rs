//! One channel of an embedded loop: the common channel driver over an in-memory transport.

use super::memory_transport::MemoryTransport;
use crate::{
    channel::{
        ChannelCore,
        driver::{ChannelDriver, LoopIo, Next},
    },
    id::Key,
};
use bytes::Bytes;

pub(crate) struct EmbeddedSlot {
    pub(crate) driver: ChannelDriver<MemoryTransport>,
    /// The transport of a closed channel, from which the test may still take sent bytes.
    closed: Option<MemoryTransport>,
}

impl EmbeddedSlot {
    pub(super) fn new(core: ChannelCore) -> Self {
        let driver = ChannelDriver { core, transport: Some(MemoryTransport::default()) };
        EmbeddedSlot { driver, closed: None }
    }

    pub(super) fn key(&self) -> Key {
        self.driver.core.state.key()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.driver.core.state.status.is_closed()
    }

    /// Returns whether the transport can still receive bytes from the peer.
    pub(super) fn takes_input(&self) -> bool {
        self.driver.transport.as_ref().is_some_and(|transport| !transport.has_ended())
    }

    /// Takes sent bytes with `take`.
    pub(super) fn sent(&mut self, take: impl FnOnce(&mut MemoryTransport) -> Bytes) -> Bytes {
        self.driver.transport.as_mut().or(self.closed.as_mut()).map_or_else(Bytes::new, take)
    }

    /// Carries out the driver's request. Returns whether the channel is closed now, so that the
    /// handler's `inactive` has to be called at the end of the pass.
    pub(super) fn proceed(&mut self, io: &mut LoopIo, next: Next) -> bool {
        if next == Next::Close
            && let Some(transport) = self.driver.transport.take()
        {
            self.closed = Some(transport);
            self.driver.core.handle_closed(&mut io.services);
            return true;
        }
        false
    }
}
