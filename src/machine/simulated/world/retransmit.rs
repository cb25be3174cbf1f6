//! Acknowledgements, retransmissions and window probes of TCP.
//!
//! A cut link loses acknowledgements. The socket then retransmits its output until an
//! acknowledgement arrives, and fails after [`RETRIES`] attempts. It also probes the receive buffer
//! of its peer in intervals, because the peer reports room only once.

use super::{
    World,
    link::retransmission,
    queue::{TimedAction, narrow},
    stream::StreamPhase,
};
use crate::machine::simulated::ids::SocketId;
use std::io;

/// How often output is sent again before the connection has failed, as `tcp_retries2` of Linux.
/// About four minutes.
const RETRIES: u32 = 15;

/// The interval in which a socket asks whether its peer has room, in nanoseconds. The intervals of
/// Linux grow from 200 ms to two minutes.
pub(super) const PROBE: u64 = 5_000_000_000;

impl World {
    /// Schedules `action` for the next retransmission of a socket, or fails the connection after
    /// [`RETRIES`] attempts. A connection has one timer for this (RFC 6298), so only its first
    /// segment counts attempts.
    pub(super) fn send_again(&mut self, id: SocketId, action: TimedAction) {
        let now = self.now();
        let Some(pause) = self.count_attempt(id) else { return };
        let Some(stream) = self.sockets.stream(id) else { return };
        if let Some((due, _)) = stream.output.front_mut() {
            *due = now + pause;
        }
        self.schedule(now + pause, action);
    }

    /// Counts an attempt without an answer. Returns the pause before the next one. `None` if there
    /// were too many, and the connection has failed.
    fn count_attempt(&mut self, id: SocketId) -> Option<u64> {
        let stream = self.sockets.stream(id)?;
        stream.attempts += 1;
        if stream.attempts > RETRIES {
            self.fail(id, io::ErrorKind::TimedOut);
            return None;
        }
        Some(retransmission(stream.attempts - 1))
    }

    /// Starts the timer of a socket's retransmissions and probes, unless it is running.
    pub(super) fn start_timer(&mut self, id: SocketId, pause: u64) {
        let Some(stream) = self.sockets.stream(id) else { return };
        if !std::mem::replace(&mut stream.is_timed, true) {
            self.schedule(self.now() + pause, TimedAction::Retransmit(id));
        }
    }

    /// Retransmits unacknowledged output, and probes the window.
    pub(crate) fn retransmit(&mut self, id: SocketId) {
        let now = self.now();
        let Some(from) = self.sockets.get(id).map(|socket| socket.node) else { return };
        let Some(stream) = self.sockets.stream(id) else { return };
        stream.is_timed = false;
        let is_answered = stream.unheard.is_none() && !stream.waits_for_window;
        if is_answered || stream.phase != StreamPhase::Established {
            return;
        }
        let (to, peer) = (stream.remote_node, stream.peer);
        let is_lost = self.links.is_cut(from, to, now) || self.links.is_cut(to, from, now);
        if is_lost || !self.nodes[to].has_power {
            if let Some(pause) = self.count_attempt(id) {
                self.start_timer(id, pause);
            }
            return;
        }
        let peer = peer.and_then(|peer| self.sockets.stream(peer));
        let Some(peer) = peer.filter(|peer| peer.phase != StreamPhase::Failed) else {
            // The node does not know the connection.
            return self.send_reset(id, from, to);
        };
        let has_room = peer.is_closed || peer.input.len() < peer.receive_buffer;
        self.hear(id);
        let Some(stream) = self.sockets.stream(id) else { return };
        stream.attempts = 0;
        stream.waits_for_window &= !has_room;
        if stream.waits_for_window {
            self.start_timer(id, PROBE);
        }
        self.arrive(id);
    }

    /// Lets the acknowledgement of bytes that the peer has taken, or of the end, travel back.
    pub(super) fn acknowledge(&mut self, id: SocketId, taken: usize) {
        let now = self.now();
        let Some(from) = self.sockets.get(id).map(|socket| socket.node) else { return };
        let Some(to) = self.sockets.stream(id).map(|stream| stream.remote_node) else { return };
        let is_lost = self.links.is_cut(to, from, now);
        let Some(stream) = self.sockets.stream(id) else { return };
        let bytes = stream.unheard.take().unwrap_or(0) + taken;
        if is_lost {
            stream.unheard = Some(bytes);
            return self.start_timer(id, retransmission(0));
        }
        stream.attempts = 0;
        let has_end = stream.is_shut && stream.output.is_empty();
        if bytes > 0 && stream.wants_room {
            let at = now + self.links.delay(to, from, 0, now);
            self.schedule(at, TimedAction::Acknowledged { socket: id, bytes: narrow(bytes) });
        } else if bytes > 0 {
            self.acknowledged(id, bytes);
        }
        if has_end {
            let at = now + self.links.delay(to, from, 0, now);
            self.schedule(at, TimedAction::EndAcknowledged(id));
        }
    }

    /// Acknowledges all bytes that the peer of a socket has received. Each packet of the peer does
    /// that.
    pub(super) fn hear(&mut self, id: SocketId) {
        let Some(stream) = self.sockets.stream(id) else { return };
        if stream.unheard.is_some() {
            self.acknowledge(id, 0);
            // The socket sends its waiting output now.
            self.schedule(self.now(), TimedAction::Arrive(id));
        }
    }

    pub(crate) fn acknowledged(&mut self, id: SocketId, bytes: usize) {
        let Some(stream) = self.sockets.stream(id) else { return };
        stream.unacknowledged = stream.unacknowledged.saturating_sub(bytes);
        if stream.wants_room && stream.has_room() {
            stream.wants_room = false;
            self.edge(id);
        }
        self.forget_if_done(id);
    }

    pub(crate) fn end_acknowledged(&mut self, id: SocketId) {
        let Some(stream) = self.sockets.stream(id) else { return };
        stream.is_end_acknowledged = true;
        self.edge(id);
    }
}
