//! The part of a loop that drivers borrow, one driver at a time.
//!
//! After a turn that ran out of bytes or time, sources that got at most one read precede the
//! sources that got their full share.
//!
//! Invariants: once [`TURN_BYTES`] were read in a turn, every driver gets one read. A key is in the
//! carried-over list at most once per driver, which keeps a flag for that. Owned by the loop, or by
//! the loop of the test kit; runs on its thread.

use super::held_handshakes::HeldHandshakes;
use crate::{buffer::ReceiveBuffers, channel::LoopServices, id::Key, metrics::Metrics};
use crossbeam_utils::CachePadded;
use std::{collections::VecDeque, sync::Arc};

/// Bytes read in a turn after which each source that follows gets one read only.
const TURN_BYTES: usize = 8 * 1024 * 1024;

/// The default number of handshake steps in a turn. One takes 0.1 to 1 ms of computation.
pub(crate) const HANDSHAKES_PER_TURN: usize = 8;

pub(crate) struct LoopIo {
    pub(crate) services: LoopServices,
    pub(crate) receive: ReceiveBuffers,
    pub(crate) metrics: Arc<CachePadded<Metrics>>,
    /// Sources to handle in the next turn without an event.
    pub(crate) carried_over: VecDeque<Key>,
    /// Bytes read in this turn.
    pub(crate) turn_bytes: usize,
    /// How many reads of channels that are not established this turn may still handle.
    pub(crate) handshakes_left: usize,
    /// The number of them in each turn.
    pub(crate) handshakes_per_turn: usize,
    /// Channels whose handshakes wait for a later turn, with overload control.
    pub(crate) held_handshakes: HeldHandshakes,
    added: Added,
}

/// What this turn has added to [`LoopIo::carried_over`].
#[derive(Default)]
struct Added {
    all: usize,
    /// The number of sources, the first of them, that had their full share before the bytes of the
    /// turn were used up.
    in_full: usize,
    /// Whether the handshake of a channel is among them.
    handshakes: bool,
}

impl LoopIo {
    pub(crate) fn new(services: LoopServices, metrics: Arc<CachePadded<Metrics>>) -> Self {
        LoopIo {
            services,
            receive: ReceiveBuffers::new(),
            metrics,
            carried_over: VecDeque::new(),
            turn_bytes: 0,
            handshakes_left: HANDSHAKES_PER_TURN,
            handshakes_per_turn: HANDSHAKES_PER_TURN,
            held_handshakes: HeldHandshakes::default(),
            added: Added::default(),
        }
    }

    /// Begins the I/O of a turn. Returns whether something goes before new events: handshakes that
    /// have waited, or ready sources that got no share of the last turn, because its time was up.
    pub(crate) fn begin_turn(&mut self) -> bool {
        let was_cut = self.services.io_time.was_cut();
        self.services.io_time.begin(self.services.now);
        self.handshakes_left = self.handshakes_per_turn;
        let has_begun = self.held_handshakes.begin_turn();
        let Added { all, in_full, handshakes } = std::mem::take(&mut self.added);
        if std::mem::take(&mut self.turn_bytes) >= TURN_BYTES || was_cut {
            // Sources that got at most one read precede the sources that got their full share.
            let begin = self.carried_over.len().saturating_sub(all);
            let added = &mut self.carried_over.make_contiguous()[begin..];
            let in_full = in_full.min(added.len());
            added.rotate_left(in_full);
        }
        was_cut || has_begun || handshakes
    }

    /// Returns whether the next source may have its full share.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.turn_bytes < TURN_BYTES
    }

    /// Schedules a source for the next turn without an event. `in_full`: it got its full share of
    /// this turn.
    pub(crate) fn carry_over(&mut self, key: Key, in_full: bool) {
        self.added.all += 1;
        self.added.in_full += usize::from(in_full);
        self.carried_over.push_back(key);
    }

    /// Schedules a channel whose handshake continues in the next turn. It goes before new events,
    /// which could take all shares of each turn.
    #[cold]
    pub(crate) fn carry_over_handshake(&mut self, key: Key) {
        self.added.handshakes = true;
        self.carry_over(key, false);
    }

    /// Returns whether this turn has a share for a handshake. While others wait to begin, half of
    /// the shares are for them: peers that send their handshakes byte by byte must not take all.
    pub(crate) fn has_handshake_share(&self, has_begun: bool) -> bool {
        let kept = if has_begun { self.held_handshakes.kept_for_others(self.handshakes_per_turn) } else { 0 };
        self.handshakes_left > kept
    }

    /// Holds a channel whose handshake waits for its share of a turn. Returns `false` without
    /// overload control: the channel is then carried over.
    pub(crate) fn hold_handshake(&mut self, key: Key, has_begun: bool) -> bool {
        let holds = !self.has_handshake_share(has_begun) && self.services.limits.is_some();
        if holds {
            self.held_handshakes.push(key, has_begun, self.services.now);
        }
        holds
    }

    /// Returns how many times one source may be read now. After [`TURN_BYTES`] each remaining ready
    /// source still gets one read, so the I/O of a turn ends, however many there are.
    #[inline]
    pub(crate) fn reads_allowed(&self, reads_per_turn: usize) -> usize {
        if self.has_room() { reads_per_turn } else { 1 }
    }
}
