//! The channel core: a state machine that does no I/O.
//!
//! Bytes, commands and time go in through `handle_*`. Bytes to write, requests to close and calls
//! of the handler come out. `driver` moves the bytes, and states the contract between the two.
//!
//! # Parts
//! [`ChannelState`] is what every callback may change. It has a part for each thing that happens to
//! a channel, and each part is changed in its own folder only:
//!
//! | part | folder | purpose |
//! |---|---|---|
//! | [`Inbound`] | `inbound/` | bytes are decoded and delivered; reading pauses and resumes; the peer's stream ends |
//! | [`Outbound`] | `outbound/` | messages are encoded, dropped or confirmed; bytes are sealed and sent; writability |
//! | [`Timing`] | `timing/` | tasks, idle timeouts, time limits, traffic limits, the close timeout |
//! | [`Status`] | `status/` | facts of a few bits, in one word |
//!
//! `life/` has the way of a channel from its handshake to its end, and replaced pipelines.
//! `calls` calls the pipeline. A method that needs one part only belongs to that part. One that
//! needs several belongs to the state, and one that calls the pipeline to [`ChannelCore`].
//!
//! # Invariants
//! An idle channel owns no buffer. A closed channel neither reads nor writes. `inactive` is the
//! last call, made if and only if `active` was. A replacement pipeline takes over between two
//! calls. What most channels do without is behind one pointer (`extras`), so a channel without a
//! wire log pays one test of that pointer for each event. Runs on the channel's loop. Owns the
//! pipeline, but not the transport.

mod any_pipeline;
mod calls;
mod inbound;
#[cfg(feature = "simulation")]
mod invariants;
mod life;
pub(crate) mod links;
mod mail;
mod outbound;
mod packed_address;
mod pipeline_settings;
mod services;
mod status;
pub(crate) mod timing;
mod wire_log;

pub use any_pipeline::AnyPipeline;
pub(in crate::channel) use life::Action;
pub(crate) use pipeline_settings::PipelineSettings;
pub(crate) use services::{IoTime, LoopServices};
pub(crate) use status::{InputHalf, Pending, ReadDemand, Readiness};

use super::{
    ChannelShared, ChannelStats, DecodePass, Establish, PipelineTypes,
    config::{ChannelConfig, Overflow},
    event::Event,
    extras::Extras,
    shared_message::{EncodingMemo, SharedMessage},
};
use crate::{
    clock::TimeSource,
    error::Result,
    id::{ChannelId, Key},
    sync::TypeName,
};
use bytes::Bytes;
use inbound::Inbound;

use outbound::Outbound;
use packed_address::PackedAddress;
use status::{Memory, Status};
use std::{any::Any, cell::OnceCell, net::SocketAddr, ops::ControlFlow, sync::Arc};
use timing::Timing;

pub(crate) struct ChannelCore {
    pub(crate) state: ChannelState,
    pub(in crate::channel) links: Box<dyn ErasedPipeline>,
}

impl ChannelCore {
    pub(crate) fn new(
        id: ChannelId,
        config: Arc<ChannelConfig>,
        pipeline: AnyPipeline,
        addresses: (Option<SocketAddr>, Option<SocketAddr>),
        services: &mut LoopServices,
    ) -> Self {
        let mut state = ChannelState::new(id, config, services.now, addresses.0, addresses.1);
        // A new channel has no extras, so none are replaced.
        state.apply(services, pipeline.settings);
        let links = pipeline.links;
        #[cfg(feature = "simulation")]
        let links = {
            let Key { index, generation } = id.key;
            crate::machine::simulated::note_channel(id.event_loop, index, generation);
            links::checked(links)
        };
        ChannelCore { state, links }
    }

    pub(crate) fn handler_name(&self) -> &'static str {
        (self.links.handler_type())()
    }
}

/// The state of a channel, which every callback may change.
///
/// Public only in hidden signatures of the pipeline's links.
pub struct ChannelState {
    id: ChannelId,
    /// Life cycle, stream halves, read demand, readiness and pending work.
    pub(crate) status: Status,
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
    pub(crate) timing: Timing,
    pub(crate) config: Arc<ChannelConfig>,
    /// Created with the first handle, which takes a shared reference only.
    pub(crate) shared: OnceCell<Arc<ChannelShared>>,
    pub(crate) extras: Extras,
    /// The time of the turn in which the channel was created.
    connected: u64,
    peer_address: PackedAddress,
    local_address: PackedAddress,
}

impl ChannelState {
    fn new(
        id: ChannelId,
        config: Arc<ChannelConfig>,
        now: u64,
        local: Option<SocketAddr>,
        peer: Option<SocketAddr>,
    ) -> Self {
        let mut status = Status::new(config.auto_read);
        if matches!(config.overflow, Overflow::DropNewest | Overflow::DropOldest) {
            status.set(Memory::DROPS);
        }
        ChannelState {
            id,
            status,
            inbound: Inbound::new(now),
            outbound: Outbound::new(now),
            timing: Timing::default(),
            config,
            shared: OnceCell::new(),
            extras: Extras::default(),
            connected: now,
            peer_address: PackedAddress::pack(peer),
            local_address: PackedAddress::pack(local),
        }
    }

    pub(crate) fn id(&self) -> ChannelId {
        self.id
    }

    pub(crate) fn key(&self) -> Key {
        self.id.key
    }

    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        self.local_address.unpack()
    }

    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        self.peer_address.unpack()
    }

    /// Replaces the addresses with the addresses that a filter has announced.
    fn set_addresses(&mut self, local: Option<SocketAddr>, peer: Option<SocketAddr>) {
        self.local_address = PackedAddress::pack(local);
        self.peer_address = PackedAddress::pack(peer);
    }

    /// Puts the channel into the loop's attention list, once.
    pub(crate) fn want_attention(&mut self, services: &mut LoopServices) {
        if !self.status.has(Pending::LISTED) {
            self.status.set(Pending::LISTED);
            services.attention.push(self.key());
        }
    }

    /// Returns whether there is work for the driver besides sending the outbound buffer.
    #[inline]
    fn wants_driver(&self) -> bool {
        self.status.wants_driver() || self.wants_read()
    }

    pub(crate) fn stats(&self, time: &TimeSource) -> ChannelStats {
        let (bytes_read, bytes_written) = (self.inbound.bytes(), self.outbound.bytes());
        ChannelStats {
            bytes_read,
            bytes_written,
            messages_read: self.inbound.messages(),
            messages_written: self.outbound.messages(),
            messages_dropped: self.extras.messages_dropped(),
            messages_conflated: self.extras.messages_conflated(),
            pending_bytes: self.outbound.pending_bytes(),
            connected: time.instant(self.connected),
            last_read: (bytes_read > 0).then(|| time.instant(self.inbound.last_read())),
            last_written: (bytes_written > 0).then(|| time.instant(self.outbound.last_written())),
        }
    }
}

/// A whole pipeline with all types erased: the only trait object that an event passes through.
pub(crate) trait ErasedPipeline {
    /// Decodes `input` and hands each message to the handler, while the channel may deliver. After
    /// the last message of a complete batch, calls `read_complete` unless other work comes first,
    /// and notes that in the pass.
    fn read(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        input: &mut Bytes,
        pass: &mut DecodePass,
    ) -> Result;

    /// Returns whether the codec or a stage has queued messages.
    fn has_more(&self) -> bool;

    /// Returns whether a stage has begun a message to the peer whose rest is not written yet.
    fn has_unfinished_output(&self) -> bool;

    /// Writes a message from a `Channel` handle. Fails with `Error::PipelineReplaced` if this
    /// pipeline writes another type.
    fn write(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        message: Box<dyn Any + Send>,
    ) -> Result;

    /// Writes a message from a `Channel` handle that replaces a waiting one with this key.
    ///
    /// # Errors
    /// Those of [`write`](ErasedPipeline::write).
    fn write_latest(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        key: u64,
        message: Box<dyn Any + Send>,
    ) -> Result;

    /// Writes a message for many channels, encoded by these links or by equivalent ones.
    fn write_shared(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        message: &dyn SharedMessage,
        memo: &mut EncodingMemo,
    ) -> Result;

    /// Passes an event to the stages, in the order from the socket, and then to the handler. The
    /// handler is called also if a stage fails. Returns the first error.
    fn event(&mut self, state: &mut ChannelState, services: &mut LoopServices, event: Event) -> Result;

    /// Runs a task of the handler or of a stage, or one from a handle. Drops a task for another
    /// pipeline.
    fn run(&mut self, state: &mut ChannelState, services: &mut LoopServices, task: Box<dyn Any>) -> Result;

    /// Runs a periodic task of the handler or of a stage, or one from a handle. Returns whether it
    /// goes on. A task for another pipeline does not.
    fn run_periodic(
        &mut self,
        state: &mut ChannelState,
        services: &mut LoopServices,
        task: &mut dyn Any,
    ) -> Result<ControlFlow<()>>;

    /// Makes later messages independent of those encoded before, because encoded bytes were taken
    /// back.
    fn forget_encoded(&mut self);

    /// Returns the name of the handler's type, for reports.
    fn handler_type(&self) -> TypeName;

    /// Returns the types that handles to this pipeline must match.
    fn types(&self) -> PipelineTypes;

    /// Returns what continues the start of a channel whose filters are not established.
    fn establish(&mut self) -> Option<&mut dyn Establish> {
        None
    }

    /// Takes what continues the start of a channel whose filters are not established.
    fn take_establish(&mut self) -> Option<Box<dyn Establish>> {
        None
    }

    /// Notes that another pipeline takes over, so that `inactive` is not called.
    #[cfg(feature = "simulation")]
    fn note_replaced(&mut self) {}
}
