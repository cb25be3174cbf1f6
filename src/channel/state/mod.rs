//! The state of a channel that every callback may touch.
//!
//! Always holds: an idle channel owns no buffer (`outbound` and `partial` are empty); once `CLOSED` is set
//! nothing is written or read any more. Runs on the channel's loop. It owns neither socket nor pipeline.

mod extras;
mod flags;
mod handles;
mod outbound;
mod packed_address;
mod pending_writes;
mod pipeline_settings;
mod shaping;
mod tasks;
mod watch;
mod wire_log;
mod writability;

pub(crate) use flags::Flags;

use super::{
    config::ChannelConfig,
    extras::Extras,
    handle::{ChannelShared, ChannelStats, Counts},
    outbound::{OutboundLease, PendingWrites},
    services::LoopServices,
    shaping::Direction,
    tasks::Timers,
    undecoded::Undecoded,
    watch::{Traffic, Watch},
};
use crate::{
    clock::TimeSource,
    id::{ChannelId, Key},
    log_throttle::{UNSENT, log_throttled},
};
use log::Level;
use packed_address::PackedAddress;
use std::{net::SocketAddr, sync::Arc};

/// Public only in the signatures of the pipeline's links, which nobody outside can name.
pub struct ChannelState {
    id: ChannelId,
    flags: Flags,
    pub(crate) traffic: Traffic,
    pub(crate) counts: Counts,
    pub(in crate::channel) outbound: Option<Box<OutboundLease>>,
    /// Bytes that came and were not decoded; the memory is the channel's own.
    pub(crate) partial: Undecoded,
    pub(crate) config: Arc<ChannelConfig>,
    /// Made when somebody asks for a handle.
    pub(crate) shared: Option<Arc<ChannelShared>>,
    /// Messages that wait, where somebody asks; see `pending_writes`.
    pub(crate) pending_writes: Option<Box<PendingWrites>>,
    /// What it waits for by itself; see `watch`.
    pub(crate) watch: Option<Box<Watch>>,
    /// Tasks of the handler that wait for their time; see `timers`.
    pub(crate) timers: Option<Box<Timers>>,
    /// What most channels do without; see `extras`.
    pub(crate) extras: Option<Box<Extras>>,
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
        let mut flags = Flags::WRITABLE;
        if config.auto_read {
            flags = flags.with(Flags::AUTO_READ);
        }
        ChannelState {
            id,
            flags,
            traffic: Traffic { read: now, written: now },
            counts: Counts::new(now),
            outbound: None,
            partial: Undecoded::default(),
            pending_writes: Self::first_pending_writes(&config),
            config,
            shared: None,
            watch: None,
            timers: None,
            extras: None,
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

    pub(crate) fn key(&self) -> Key {
        self.id.key
    }

    // ---- flags ---------------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn has(&self, any: Flags) -> bool {
        self.flags.0 & any.0 != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, flags: Flags) {
        self.flags.0 |= flags.0;
    }

    #[inline]
    pub(crate) fn unset(&mut self, flags: Flags) {
        self.flags.0 &= !flags.0;
    }

    /// Unsets `flag`; whether it was set.
    #[inline]
    pub(crate) fn take(&mut self, flag: Flags) -> bool {
        let was = self.has(flag);
        self.unset(flag);
        was
    }

    /// Whether the channel takes writes.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        !self.has(Flags::CLOSING.with(Flags::CLOSE_NOW).with(Flags::CLOSED))
    }

    /// Whether messages may be handed to the handler.
    #[inline]
    pub(crate) fn may_deliver(&self) -> bool {
        const LOOKED_AT: Flags = Flags(Flags::STOP.0 | Flags::PAUSE.0 | Flags::AUTO_READ.0);
        // One comparison for the usual case.
        self.flags.0 & LOOKED_AT.0 == Flags::AUTO_READ.0
            || !self.has(Flags::STOP) && (self.has(Flags::GRANTED) || self.reads_by_itself())
    }

    /// Whether the handler may hear that all is read right behind a message: nothing that it did asks for something else
    /// to happen before, and nobody logs the order of its callbacks.
    #[inline]
    pub(crate) fn may_complete(&self) -> bool {
        const ASKED: Flags = Flags(Flags::STOP.0 | Flags::GRANTED.0 | Flags::PAUSE.0 | Flags::TASK_REFUSED.0);
        const USUAL: Flags = Flags(Flags::AUTO_READ.0 | Flags::SERVED.0);
        self.flags.0 & (ASKED.0 | USUAL.0) == USUAL.0 && self.extras.is_none() && !self.has_flipped()
    }

    /// Whether the socket may be read.
    #[inline]
    pub(crate) fn may_read(&self) -> bool {
        self.has(Flags::READ_WANTED) || self.reads_by_itself()
    }

    /// Whether bytes are read as they come.
    #[inline]
    fn reads_by_itself(&self) -> bool {
        self.has(Flags::AUTO_READ) && !self.has(Flags::PAUSE)
    }

    /// Whether there is something to do for the driver besides sending what waits.
    #[inline]
    pub(crate) fn wants_driver(&self) -> bool {
        const ALWAYS: Flags =
            Flags(Flags::CLOSING.0 | Flags::CLOSE_NOW.0 | Flags::FLUSH.0 | Flags::READ_WANTED.0);
        self.has(ALWAYS) || self.wants_read() || self.wants_to_end_output()
    }

    /// Whether there are bytes, here or in the socket, that may be read now and that no event will announce.
    #[inline]
    pub(crate) fn wants_read(&self) -> bool {
        (self.has(Flags::UNDECODED) || self.has(Flags::MAYBE_READABLE) && !self.is_held_up(Direction::Read))
            && self.may_read()
            && !self.has(Flags::INPUT_ENDED)
            && self.is_open()
    }

    /// Whether the peer is still to be told that no more comes.
    #[inline]
    pub(crate) fn wants_to_end_output(&self) -> bool {
        self.has(Flags::END_OUTPUT) && !self.has(Flags::OUTPUT_ENDED)
    }

    /// No more is written after what waits.
    pub(crate) fn request_end_of_output(&mut self) {
        if self.extras.is_some() && !self.has(Flags::END_OUTPUT) {
            self.log_closing(Flags::END_OUTPUT);
        }
        self.set(Flags::END_OUTPUT);
        if let Some(shared) = &self.shared {
            shared.set_output_ended();
        }
    }

    pub(crate) fn request_close(&mut self) {
        self.begin_close(Flags::CLOSING);
    }

    pub(crate) fn request_close_now(&mut self) {
        self.begin_close(Flags::CLOSE_NOW);
    }

    pub(crate) fn request_reset(&mut self) {
        self.set(Flags::RESET);
        self.begin_close(Flags::CLOSE_NOW);
    }

    fn begin_close(&mut self, how: Flags) {
        if self.extras.is_some() && !self.has(how.with(Flags::CLOSED)) {
            self.log_closing(how);
        }
        self.set(how);
        if let Some(shared) = &self.shared {
            shared.set_closing();
        }
    }

    pub(crate) fn set_auto_read(&mut self, on: bool) {
        if on {
            self.set(Flags::AUTO_READ);
        } else {
            self.unset(Flags::AUTO_READ.with(Flags::READ_WANTED).with(Flags::GRANTED));
        }
    }

    /// A message goes to the handler. If it is the one that was asked for, no other follows.
    #[inline]
    pub(crate) fn note_message(&mut self) {
        const ENDED: Flags = Flags::STUCK.with(Flags::ONE_GRANTED);
        // Looked at first: a store for each message would hold up the loads of the other flags.
        if self.has(ENDED) {
            self.unset(ENDED);
        }
    }

    /// A read that was asked for is used up by the bytes that are to be decoded now.
    pub(crate) fn grant_read(&mut self) {
        if self.take(Flags::READ_WANTED) {
            let one = self.config.one_message_per_read;
            self.set(if one { Flags::ONE_GRANTED } else { Flags::READ_GRANTED });
        }
    }

    /// The bytes of a read that was asked for are decoded. If they brought no message it is still asked for.
    pub(crate) fn end_grant(&mut self, brought_none: bool) {
        if self.has(Flags::GRANTED) && brought_none && !self.reads_by_itself() {
            self.set(Flags::READ_WANTED);
        }
        self.unset(Flags::GRANTED);
    }

    // ---- attention -----------------------------------------------------------------------------------

    /// Puts the channel into the loop's attention list, once.
    pub(crate) fn want_attention(&mut self, services: &mut LoopServices) {
        if !self.has(Flags::LISTED) {
            self.set(Flags::LISTED);
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
            messages_dropped: self.messages_dropped(),
            pending_bytes: self.pending_bytes(),
            connected: time.instant(connected),
            last_read: (bytes_read > 0).then(|| time.instant(self.traffic.read)),
            last_written: (bytes_written > 0).then(|| time.instant(self.traffic.written)),
        }
    }

    // ---- end -----------------------------------------------------------------------------------------

    /// Ends everything that would come later: timers, tasks, unsent bytes.
    pub(crate) fn end(&mut self, services: &mut LoopServices) {
        self.set(Flags::CLOSED);
        self.confirm_nothing_more();
        self.end_watch(services);
        self.end_shaper(services);
        self.cancel_tasks(services);
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
