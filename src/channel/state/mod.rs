//! The state of a channel, which every callback may change.
//!
//! Every channel counts its traffic (`counts`). Parts that most channels do without are behind one
//! pointer (`extras`), so a channel without a wire log pays one test of that pointer for each
//! event.
//!
//! Invariants: an idle channel owns no buffer (`outbound` and `partial` are empty). A closed
//! channel neither reads nor writes. `status` holds the facts that take a few bits. The components
//! (`watch`, `tasks`, `pending_writes`, `extras`) hold the rest and know nothing of each other.
//! Each submodule here joins one component to the state. Runs on the channel's loop. Owns neither
//! transport nor pipeline.

mod handles;
#[cfg(feature = "simulation")]
mod invariants;
mod outbound;
mod packed_address;
mod pending_writes;
mod pipeline_settings;
mod shaping;
mod stages;
mod status;
mod tasks;
mod watch;
mod wire_log;
mod writability;

pub(crate) use status::{CloseMode, InputHalf, Memory, Pending, ReadDemand, Readiness, Status};

use super::{
    close_cause::CloseCause,
    config::ChannelConfig,
    extras::Extras,
    handle::{ChannelShared, ChannelStats, Counts},
    outbound::{OutboundLease, PendingWrites},
    services::LoopServices,
    shaping::Direction,
    tasks::Tasks,
    undecoded::Undecoded,
    watch::{Traffic, Watch},
};
use crate::{
    Error,
    clock::TimeSource,
    id::{ChannelId, Key},
    log_throttle::{UNSENT, log_throttled},
};
use log::Level;
use packed_address::PackedAddress;
use std::{cell::OnceCell, net::SocketAddr, sync::Arc};

/// Public only in hidden signatures of the pipeline's links.
pub struct ChannelState {
    id: ChannelId,
    /// Life cycle, stream halves, read demand, readiness and pending work.
    pub(crate) status: Status,
    pub(crate) traffic: Traffic,
    pub(crate) counts: Counts,
    pub(in crate::channel) outbound: Option<Box<OutboundLease>>,
    /// Input that is not decoded yet, in memory of the channel.
    pub(crate) partial: Undecoded,
    pub(crate) config: Arc<ChannelConfig>,
    /// Created with the first handle, which takes a shared reference only.
    pub(crate) shared: OnceCell<Arc<ChannelShared>>,
    /// Kept where messages are confirmed or may be dropped.
    pub(crate) pending_writes: Option<Box<PendingWrites>>,
    /// Idle timeouts, time limits and stage timers.
    pub(crate) watch: Option<Box<Watch>>,
    /// Scheduled tasks of the handler, and the close timeout.
    pub(crate) tasks: Option<Box<Tasks>>,
    pub(crate) extras: Extras,
    peer_address: PackedAddress,
    local_address: PackedAddress,
}

impl ChannelState {
    pub(crate) fn new(
        id: ChannelId,
        config: Arc<ChannelConfig>,
        now: u64,
        local: Option<SocketAddr>,
        peer: Option<SocketAddr>,
    ) -> Self {
        ChannelState {
            id,
            status: Status::new(config.auto_read),
            traffic: Traffic { read: now, written: now },
            counts: Counts::new(now),
            outbound: None,
            partial: Undecoded::default(),
            pending_writes: Self::first_pending_writes(&config),
            config,
            shared: OnceCell::new(),
            watch: None,
            tasks: None,
            extras: Extras::default(),
            peer_address: PackedAddress::pack(peer),
            local_address: PackedAddress::pack(local),
        }
    }

    pub(crate) fn id(&self) -> ChannelId {
        self.id
    }

    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        self.local_address.unpack()
    }

    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        self.peer_address.unpack()
    }

    /// Replaces the addresses by those that a filter has announced.
    pub(in crate::channel) fn set_addresses(&mut self, local: Option<SocketAddr>, peer: Option<SocketAddr>) {
        self.local_address = PackedAddress::pack(local);
        self.peer_address = PackedAddress::pack(peer);
    }

    pub(crate) fn key(&self) -> Key {
        self.id.key
    }

    // ---- decisions of the status and a component ----

    /// Returns whether `read_complete` may be called right behind a message: nothing that the
    /// handler did has to happen before it, and nothing logs the order of the callbacks.
    #[inline]
    pub(crate) fn may_complete(&self) -> bool {
        self.status.may_complete() && !self.extras.are_used() && !self.has_flipped()
    }

    /// Returns whether there is work for the driver besides sending the outbound buffer.
    #[inline]
    pub(crate) fn wants_driver(&self) -> bool {
        self.status.wants_driver() || self.wants_read()
    }

    /// Returns whether there is input, here or in the transport, that may be read now without an
    /// event.
    #[inline]
    pub(crate) fn wants_read(&self) -> bool {
        let readable = self.status.has(Readiness::MAYBE_READABLE) && !self.is_held_up(Direction::Read);
        (self.status.has(Pending::UNDECODED) || readable)
            && self.status.may_read()
            && !self.status.input_ended()
            && self.status.is_open()
            || readable && self.filters_read()
    }

    /// Returns whether the transport may be read, for the pipeline or for the filters.
    #[inline]
    pub(crate) fn may_read(&self) -> bool {
        self.status.may_read() || self.filters_read()
    }

    /// Returns whether filters read for themselves, whatever the pipeline wants. A channel that
    /// closes completes a handshake for which messages wait.
    #[inline]
    pub(crate) fn filters_read(&self) -> bool {
        self.extras.are_used() && self.filters_read_now()
    }

    #[cold]
    fn filters_read_now(&self) -> bool {
        self.extras.filters().is_some_and(|filters| filters.read_for_themselves())
            && (self.status.is_open() || self.completes_handshake())
    }

    /// Returns whether input is read for the pipeline.
    #[inline]
    pub(in crate::channel) fn pipeline_reads(&self) -> bool {
        self.status.is_open() && self.status.may_read()
    }

    /// Returns whether the channel closes, and messages wait for a handshake.
    #[cold]
    pub(in crate::channel) fn completes_handshake(&self) -> bool {
        self.status.closes_gracefully()
            && !self.status.input_ended()
            && self.pending_bytes() > 0
            && self.extras.filters().is_some_and(|filters| !filters.is_established() && !filters.has_failed())
    }

    /// Updates what the status says about the filters, after each call of them.
    pub(in crate::channel) fn note_filters(&mut self) {
        if self.extras.filters().is_some_and(|filters| !filters.is_established()) {
            self.status.set(ReadDemand::HANDSHAKING);
        } else {
            self.status.unset(ReadDemand::HANDSHAKING);
        }
    }

    /// Grants the requested read, if any, to the bytes that are decoded next.
    #[inline]
    pub(crate) fn grant_read(&mut self) {
        if self.status.has(ReadDemand::WANTED) {
            self.status.grant_read(self.config.one_message_per_read);
        }
    }

    /// Flushes when the running callback has returned.
    #[inline]
    pub(crate) fn request_flush(&mut self) {
        self.status.set(Pending::FLUSH);
    }

    // ---- closing ----

    /// Ends the output once the outbound buffer was sent.
    pub(crate) fn request_end_of_output(&mut self) {
        if self.status.request_end_of_output() && self.extras.are_used() {
            self.log_closing("ending the output");
        }
        if let Some(shared) = self.shared.get() {
            shared.set_output_ended();
        }
    }

    /// Closes the channel after the outbound buffer was sent.
    pub(crate) fn request_close(&mut self, cause: CloseCause) {
        self.begin_close(CloseMode::Graceful, cause);
    }

    /// Closes the channel without sending the rest.
    pub(crate) fn request_close_now(&mut self, cause: CloseCause) {
        self.begin_close(CloseMode::Now, cause);
    }

    pub(crate) fn request_reset(&mut self, cause: CloseCause) {
        self.begin_close(CloseMode::Reset, cause);
    }

    fn begin_close(&mut self, mode: CloseMode, cause: CloseCause) {
        self.note_cause(cause);
        let was_abrupt = self.status.closes_at_once();
        if self.status.request_close(mode) && self.extras.are_used() && !was_abrupt {
            self.log_closing(if mode == CloseMode::Graceful { "closing" } else { "closing now" });
        }
        if let Some(shared) = self.shared.get() {
            shared.set_closing();
        }
    }

    /// Calls `f` before the channel closes after its pending bytes: `f` may still write. Does
    /// nothing if the channel stays open, or must not send the rest.
    pub(crate) fn before_graceful_close(&mut self, f: impl FnOnce(&mut Self)) {
        if self.status.suspend_graceful_close() {
            f(self);
            self.status.request_close(CloseMode::Graceful);
        }
    }

    /// Records why the channel ends. A channel that is closed, or has a cause besides `Clean`,
    /// keeps its own.
    pub(crate) fn note_cause(&mut self, cause: CloseCause) {
        if !self.status.is_closed() {
            self.extras.note_close_cause(cause);
        }
    }

    /// Returns why the channel has ended, or why it would end now.
    pub(crate) fn close_cause(&self) -> CloseCause {
        self.extras.close_cause()
    }

    // ---- attention ----

    /// Puts the channel into the loop's attention list, once.
    pub(crate) fn want_attention(&mut self, services: &mut LoopServices) {
        if !self.status.has(Pending::LISTED) {
            self.status.set(Pending::LISTED);
            services.attention.push(self.key());
        }
    }

    pub(crate) fn stats(&self, time: &TimeSource) -> ChannelStats {
        let Counts { bytes_read, bytes_written, messages_read, messages_written, connected } = self.counts;
        ChannelStats {
            bytes_read,
            bytes_written,
            messages_read,
            messages_written,
            messages_dropped: self.extras.messages_dropped(),
            pending_bytes: self.pending_bytes(),
            connected: time.instant(connected),
            last_read: (bytes_read > 0).then(|| time.instant(self.traffic.read)),
            last_written: (bytes_written > 0).then(|| time.instant(self.traffic.written)),
        }
    }

    // ---- end ----

    /// Cancels timers and tasks, fails confirmations and drops unsent bytes.
    pub(crate) fn end(&mut self, services: &mut LoopServices) {
        self.status.close();
        self.confirm_nothing_more();
        self.end_watch(services);
        self.end_shaper(services);
        services.tally.channel_tasks_dropped += self.cancel_tasks(services, &Error::Closed) as u64;
        let dropped = self.drop_outbound(services);
        if dropped > 0 {
            let id = self.id;
            log_throttled!(
                services,
                UNSENT,
                Level::Debug,
                "channel {id}: closed with {dropped} bytes unsent"
            );
        }
        self.partial = Undecoded::default();
    }
}
