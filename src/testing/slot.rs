//! One channel of an embedded loop: the common channel driver over an in-memory transport.
//!
//! Invariant: the handler is dropped in the pass in which the channel closes, after its `inactive`.

use super::memory_transport::MemoryTransport;
use crate::{
    channel::{
        ChannelCore, ChannelShared, LoopServices,
        driver::{ChannelDriver, LoopIo, Next},
    },
    id::Key,
};
use bytes::Bytes;
use std::sync::Arc;

pub(crate) struct EmbeddedSlot {
    key: Key,
    life: Life,
}

#[expect(clippy::large_enum_variant, reason = "most slots of a test have a channel")]
enum Life {
    Channel {
        driver: ChannelDriver<MemoryTransport>,
        /// The transport of a closed channel, from which the test may still take sent bytes.
        closed: Option<MemoryTransport>,
    },
    /// `inactive` was called, and the handler is dropped.
    Ended {
        closed: Option<MemoryTransport>,
        shared: Arc<ChannelShared>,
        handler: &'static str,
        has_ended_output: bool,
    },
}

impl EmbeddedSlot {
    pub(super) fn new(core: ChannelCore) -> Self {
        let key = core.state.key();
        let driver = ChannelDriver { core, transport: Some(MemoryTransport::default()) };
        EmbeddedSlot { key, life: Life::Channel { driver, closed: None } }
    }

    pub(super) fn key(&self) -> Key {
        self.key
    }

    fn core(&self) -> Option<&ChannelCore> {
        match &self.life {
            Life::Channel { driver, .. } => Some(&driver.core),
            Life::Ended { .. } => None,
        }
    }

    /// Returns the driver of a channel whose handler was not dropped.
    pub(super) fn driver(&mut self) -> Option<&mut ChannelDriver<MemoryTransport>> {
        match &mut self.life {
            Life::Channel { driver, .. } => Some(driver),
            Life::Ended { .. } => None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.core().is_some_and(|core| core.state.status.is_open())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.core().is_none_or(|core| core.state.status.is_closed())
    }

    pub(super) fn has_ended_output(&self) -> bool {
        match &self.life {
            Life::Channel { driver, .. } => driver.core.state.status.output_has_ended(),
            Life::Ended { has_ended_output, .. } => *has_ended_output,
        }
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.core().map_or(0, |core| core.state.outbound.pending_bytes())
    }

    pub(super) fn handler_name(&self) -> &'static str {
        match &self.life {
            Life::Channel { driver, .. } => driver.core.handler_name(),
            Life::Ended { handler, .. } => handler,
        }
    }

    /// Returns the state that handles to the channel share.
    pub(super) fn share(&mut self, services: &LoopServices) -> Arc<ChannelShared> {
        match &mut self.life {
            Life::Channel { driver, .. } => driver.core.share(services),
            Life::Ended { shared, .. } => shared.clone(),
        }
    }

    /// Returns whether the transport can still receive bytes from the peer.
    pub(super) fn takes_input(&mut self) -> bool {
        let transport = self.driver().and_then(|driver| driver.transport.as_ref());
        transport.is_some_and(|transport| !transport.has_ended())
    }

    /// Takes sent bytes with `take`.
    pub(super) fn sent(&mut self, take: impl FnOnce(&mut MemoryTransport) -> Bytes) -> Bytes {
        let transport = match &mut self.life {
            Life::Channel { driver, closed } => driver.transport.as_mut().or(closed.as_mut()),
            Life::Ended { closed, .. } => closed.as_mut(),
        };
        transport.map_or_else(Bytes::new, take)
    }

    /// Carries out the driver's request. Returns whether the channel is closed now, so that
    /// [`end`](Self::end) has to be called at the end of the pass.
    pub(super) fn proceed(&mut self, io: &mut LoopIo, next: Next) -> bool {
        if next == Next::Close
            && let Life::Channel { driver, closed } = &mut self.life
            && let Some(transport) = driver.transport.take()
        {
            *closed = Some(transport);
            driver.core.handle_closed(&mut io.services);
            return true;
        }
        false
    }

    /// Calls the handler's `inactive`, and drops it.
    pub(super) fn end(&mut self, services: &mut LoopServices) {
        let Life::Channel { driver, closed } = &mut self.life else { return };
        let core = &mut driver.core;
        core.handle_inactive(services);
        self.life = Life::Ended {
            closed: closed.take(),
            shared: core.share(services),
            handler: core.handler_name(),
            has_ended_output: core.state.status.output_has_ended(),
        };
    }
}
