//! The I/O phase of a turn: sources that are ready, and sources that were carried over.
//!
//! A source is carried over if its share of a turn ends before its input does, because an
//! edge-triggered poll does not report that input again. A turn handles at most 1024 carried-over
//! sources. After `max_io_time` all remaining sources wait for the next turn. `channel::driver`
//! reads and writes channels, and `LoopIo` has the limit of bytes per turn.
//!
//! Invariants: sources that were skipped because the time was up, and handshakes that got no share
//! of a turn, come before new events of the next turn. An event is handled or deferred, never
//! dropped. Runs on the loop's thread.

use super::Turn;
use crate::{channel::driver::Ready, clock::nanos, event_loop::sources::Slot, id::Key};

/// The maximum number of held handshakes that are refused or handed on in one turn.
const HELD_PER_TURN: usize = 1024;

/// The maximum number of sources that are handled without an event in one turn. The others wait for
/// the next turn.
const CARRIED_OVER_PER_TURN: usize = 1024;

impl Turn {
    /// Handles the sources that are ready. Returns their number.
    #[inline(always)]
    pub(super) fn handle_io(&mut self, mut events: impl Iterator<Item = (usize, Ready)>) -> u64 {
        let has_earlier = self.io.begin_turn();
        // Sources that are added while events are handled have had their share, and wait for the
        // next turn.
        let waiting = self.io.carried_over.len().min(CARRIED_OVER_PER_TURN);
        // Sources that were cut off in the last turn go first. Otherwise new events could starve
        // them.
        let mut handled = 0;
        if has_earlier {
            handled = self.handle_earlier(waiting);
        }
        self.guarded(|turn, current| {
            for (token, ready) in events.by_ref() {
                if turn.io.services.io_is_over() {
                    turn.defer_event(token, ready);
                    continue;
                }
                handled += 1;
                turn.handle_event(token, ready, current);
            }
        });
        // Usually no source is waiting.
        if waiting > 0 && !has_earlier {
            handled += self.handle_carried_over(waiting);
        }
        if !self.io.held_handshakes.is_empty() {
            handled += self.handle_held_handshakes();
        }
        self.shared.metrics.ready.add(handled);
        handled
    }

    /// Handles begun handshakes and carried-over sources, before the events of this turn. Returns
    /// their number.
    #[cold]
    #[inline(never)]
    fn handle_earlier(&mut self, waiting: usize) -> u64 {
        self.handle_begun_handshakes() + self.handle_carried_over(waiting)
    }

    /// Continues begun handshakes while this turn has shares for them. Returns the number of
    /// channels.
    #[cold]
    fn handle_begun_handshakes(&mut self) -> u64 {
        let mut left = self.io.held_handshakes.begun().min(HELD_PER_TURN);
        let mut handled = 0;
        self.guarded(|turn, current| {
            while left > 0
                && turn.io.has_handshake_share(true)
                && !turn.io.services.io_is_over()
                && let Some(key) = turn.io.held_handshakes.next_begun()
            {
                (left, handled) = (left - 1, handled + 1);
                *current = Some(key);
                turn.continue_handshake(key);
            }
        });
        handled
    }

    /// Refuses handshakes that have waited for too long, and continues others while this turn has
    /// shares left. Returns the number of channels.
    #[cold]
    fn handle_held_handshakes(&mut self) -> u64 {
        let Some(limits) = self.shared.limits.clone() else { return 0 };
        let now = self.io.services.now;
        let (patience, target) = (nanos(limits.patience()), nanos(limits.target()));
        // Those that are held up again wait for the next turn.
        let mut left = self.io.held_handshakes.len();
        let mut handled = 0;
        self.guarded(|turn, current| {
            while left > 0
                && handled < HELD_PER_TURN as u64
                && let Some(key) = turn.io.held_handshakes.next_late(now, patience)
            {
                (left, handled) = (left - 1, handled + 1);
                *current = Some(key);
                let Turn { sources, io, shared, .. } = &mut *turn;
                let Some(slot) = sources.channel(key) else { continue };
                if slot.driver.core.state.may_shed_handshake() {
                    slot.call(io, &shared.metrics, |core, services| core.shed_late_handshake(services));
                } else {
                    // A worker has completed it in the meantime.
                    turn.continue_handshake(key);
                }
            }
            while left > 0
                && turn.io.handshakes_left > 0
                && !turn.io.services.io_is_over()
                && let Some(key) = turn.io.held_handshakes.next(now, target)
            {
                (left, handled) = (left - 1, handled + 1);
                *current = Some(key);
                turn.continue_handshake(key);
            }
        });
        handled + self.handle_begun_handshakes()
    }

    /// Reads a channel whose handshake was held up.
    #[cold]
    #[inline(never)]
    fn continue_handshake(&mut self, key: Key) {
        if let Some(slot) = self.sources.channel(key) {
            slot.read(&mut self.io, &self.shared.metrics);
        }
    }

    /// Handles up to `left` carried-over sources while there is time. Returns their number.
    #[inline(never)]
    fn handle_carried_over(&mut self, mut left: usize) -> u64 {
        let mut handled = 0;
        self.guarded(|turn, current| {
            while left > 0 && !turn.io.services.io_is_over() {
                left -= 1;
                let Some(key) = turn.io.carried_over.pop_front() else { break };
                handled += 1;
                *current = Some(key);
                let Turn { sources, io, shared, .. } = &mut *turn;
                match sources.get(key) {
                    Some(Slot::Channel(slot)) => slot.read(io, &shared.metrics),
                    Some(Slot::Other(_) | Slot::Lingering(_)) => {
                        turn.call_source(key, |source, ctx| source.proceed(ctx))
                    }
                    None => {}
                }
            }
        });
        handled
    }

    #[inline(always)]
    fn handle_event(&mut self, token: usize, ready: Ready, current: &mut Option<Key>) {
        let Turn { sources, io, shared, .. } = self;
        // An event for a source that was closed earlier in this batch finds another generation, or
        // an empty slot.
        let Some((key, slot)) = sources.by_token(token) else { return };
        *current = Some(key);
        match slot {
            Slot::Channel(slot) => slot.handle_ready(io, &shared.metrics, ready),
            Slot::Other(_) | Slot::Lingering(_) => {
                self.call_source(key, |source, ctx| source.ready(ctx, ready))
            }
        }
    }

    /// Records an event that this turn has no time for. The source is handled in the next turn.
    #[cold]
    fn defer_event(&mut self, token: usize, ready: Ready) {
        if let Some((key, _)) = self.sources.by_token(token) {
            self.call_source(key, |source, ctx| source.defer(ctx, ready));
        }
    }
}
