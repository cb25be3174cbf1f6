//! Invariants of a channel while its loop sleeps. Simulations check them.
//!
//! A sleeping loop has done all its work. So each channel waits for an event of its socket, a timer
//! or mail.

use super::{ChannelState, ReadDemand, status::Memory};
use crate::channel::{Pending, Readiness, shaping::Direction};

/// Requests that the loop has to handle before it sleeps.
const REQUESTS: Pending = Pending::LISTED
    .with(Pending::FLUSH)
    .with(Pending::REPLACED)
    .with(Pending::FAILED)
    .with(Pending::TASK_REFUSED);

impl ChannelState {
    /// Returns a violation if the loop sleeps. `is_racing`: a thread is suspended in an operation.
    pub(crate) fn violation_asleep(&self, is_racing: bool) -> Option<&'static str> {
        let status = self.status;
        if status.is_closed() || status.closes_at_once() {
            return Some("the channel is to be closed, and its loop sleeps");
        }
        if status.has(REQUESTS) {
            return Some("the channel has requests, and its loop sleeps");
        }
        if status.has(Readiness::CARRIED_OVER) || self.wants_read() {
            return Some("the channel wants to read without an event, and its loop sleeps");
        }
        if self.extras.has_filters() || status.has(ReadDemand::HANDSHAKING) {
            // Filters may hold output back.
            return None;
        }
        let has_output = self.outbound.pending_bytes() > 0;
        if has_output && !status.has(Readiness::WRITE_BLOCKED) && !self.is_held_up(Direction::Write) {
            return Some("the channel has output that nothing is going to send");
        }
        // Producers on other threads may make the channel unwritable before their mail arrives. A
        // suspended one may have released its reservation, and not have sent its mail.
        let may_be_late = (status.has(Memory::WRITABLE) || is_racing) && self.shared.get().is_some();
        if status.is_open() && self.has_flipped() && !may_be_late {
            return Some("the writability has changed, and the channel was not notified");
        }
        None
    }

    /// Returns a violation if the socket holds input or is writable, the channel does not know, and
    /// no event of the poll is pending.
    pub(crate) fn violation_of_socket(&self, has_input: bool, has_room: bool) -> Option<&'static str> {
        let status = self.status;
        if !status.is_open() {
            return None;
        }
        let knows = status.has(Readiness::MAYBE_READABLE.with(Readiness::CARRIED_OVER));
        if has_input && !knows && !status.input_ended() {
            return Some("the socket has input that the channel does not know of, and no event is pending");
        }
        if has_room && status.has(Readiness::WRITE_BLOCKED) {
            return Some("the channel takes its socket for full, but it is not, and no event is pending");
        }
        None
    }

    /// Returns the status as bits, for a count of different states.
    pub(crate) fn status_bits(&self) -> u64 {
        self.status.bits()
    }
}
