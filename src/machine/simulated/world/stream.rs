//! The state of one end of a TCP connection.

use crate::machine::simulated::{digest::Digest, ids::SocketId, run::ReadyEvent};
use std::{collections::VecDeque, io, net::SocketAddr};

/// How many bytes of a cut write are remembered.
const REMEMBERED: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamPhase {
    Connecting,
    Established,
    /// Reset, refused or timed out.
    Failed,
}

pub(super) struct StreamSocket {
    pub(super) phase: StreamPhase,
    pub(super) remote: SocketAddr,
    pub(super) remote_node: usize,
    pub(super) peer: Option<SocketId>,
    /// The listener that the connection of a server waits for, until the handshake is complete.
    pub(super) listener: Option<SocketId>,
    pub(super) input: VecDeque<u8>,
    /// The peer's FIN has arrived.
    pub(super) input_ended: bool,
    /// Since when the program has left available bytes unread.
    pub(super) unread_since: Option<u64>,
    pub(super) error: Option<io::ErrorKind>,
    /// What is under way, with the time of its arrival.
    pub(super) output: VecDeque<(u64, Segment)>,
    /// Bytes of the output that the peer has not acknowledged.
    pub(super) unacknowledged: usize,
    /// Bytes that the peer has, and whose acknowledgement was lost. `Some(0)` if that was the
    /// acknowledgement of the end only.
    pub(super) unheard: Option<usize>,
    /// The timer of retransmissions and of probes of the window runs.
    pub(super) is_timed: bool,
    /// The write half is shut down.
    pub(super) is_shut: bool,
    /// The peer has the end of the output.
    pub(super) is_end_acknowledged: bool,
    /// The close resets the connection (`SO_LINGER` 0).
    pub(super) resets_on_close: bool,
    /// The program has closed the socket.
    pub(super) is_closed: bool,
    /// A write has found no room, so the next room is an edge.
    pub(super) wants_room: bool,
    /// The head of the output waits for room in the peer's receive buffer.
    pub(super) waits_for_window: bool,
    pub(super) send_buffer: usize,
    pub(super) receive_buffer: usize,
    /// When the last segment that was sent arrives. Later ones do not overtake it.
    pub(super) last_arrival: u64,
    /// Nothing arrives before the handshake does.
    pub(super) first_arrival: u64,
    pub(super) attempts: u32,
    /// All bytes that the program has written and read.
    pub(super) written: Digest,
    pub(super) read: Digest,
    /// The beginning of the bytes that the last write refused. The next write has to continue
    /// with them, unless a channel has dropped output since.
    pub(super) refused: Vec<u8>,
    /// How often channels had dropped output at the last write.
    pub(super) drops: u64,
}

pub(super) enum Segment {
    Bytes(Vec<u8>),
    End,
    Reset,
}

impl StreamSocket {
    pub(super) fn readiness(&self, event: &mut ReadyEvent) {
        if self.phase == StreamPhase::Connecting {
            return;
        }
        let has_failed = self.phase == StreamPhase::Failed;
        let input_over = self.input_ended || has_failed;
        event.readable = !self.input.is_empty() || input_over;
        event.read_closed = input_over;
        event.writable = has_failed || self.is_shut || self.has_room();
        event.hang_up = has_failed || (self.input_ended && self.is_shut);
        event.error = self.error.is_some();
    }

    /// Returns whether the system reports room: at least a third of the buffer is free.
    pub(super) fn has_room(&self) -> bool {
        self.send_buffer.saturating_sub(self.unacknowledged) * 2 >= self.unacknowledged
            && self.unacknowledged < self.send_buffer
    }

    /// Returns whether a write continues where the last one was cut, and remembers where this one
    /// is cut: after `n` bytes. `drops` is how often channels have dropped output.
    pub(super) fn note_continuation(&mut self, slices: &[&[u8]], n: usize, drops: u64) -> bool {
        let mut bytes = slices.iter().copied().flatten();
        let continues = self.drops != drops || self.refused.iter().zip(&mut bytes).all(|(a, b)| a == b);
        self.drops = drops;
        self.refused.clear();
        let mut left = n;
        for slice in slices {
            let rest = &slice[left.min(slice.len())..];
            left -= left.min(slice.len());
            let room = REMEMBERED - self.refused.len();
            self.refused.extend_from_slice(&rest[..rest.len().min(room)]);
        }
        continues
    }

    /// Lets nothing arrive at the peer before `at`.
    pub(super) fn open_at(&mut self, at: u64) {
        (self.first_arrival, self.last_arrival) = (at, at);
    }

    /// Returns whether the send buffer is the reason that the socket is not writable.
    pub(super) fn lacks_room(&self) -> bool {
        self.phase == StreamPhase::Established && !self.is_shut && !self.has_room()
    }

    /// Returns whether the socket sends no new output, because a retransmission is unacknowledged.
    pub(super) fn is_recovering(&self) -> bool {
        self.unheard.is_some() && self.attempts > 0
    }

    /// Returns whether both directions have ended in order. The connection does not exist any more.
    pub(super) fn is_over(&self) -> bool {
        self.input_ended && self.is_end_acknowledged
    }

    /// Returns the result of a read without input.
    pub(super) fn read_nothing(&mut self) -> io::Result<usize> {
        // After the end of the stream, reads do not return the error of a reset.
        if self.input_ended {
            return Ok(0);
        }
        if let Some(error) = self.error.take() {
            return Err(error.into());
        }
        if self.phase == StreamPhase::Failed { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    /// Returns whether a program or the backlog of a listener has the socket. During the handshake
    /// only the kernel knows it.
    pub(super) fn is_held(&self) -> bool {
        !self.is_closed && self.listener.is_none()
    }
}
