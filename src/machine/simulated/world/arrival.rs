//! What happens to bytes between the sockets of a TCP connection.
//!
//! A write puts bytes into the output of a socket, which holds at most the send buffer. The head of
//! the output arrives at the peer after the delay of the link, if the peer's receive buffer has
//! room. The end of the stream (FIN) follows the last byte.

use super::{
    World,
    link::retransmission,
    queue::{TimedAction, narrow},
    stream::{Segment, StreamPhase},
};
use crate::machine::simulated::{fault::Fault, ids::SocketId, trace::Happening};
use std::io;

/// How often output is sent again before the connection has failed, as `tcp_retries2` of Linux.
/// About four minutes.
const RETRIES: u32 = 15;

impl World {
    /// Queues a segment behind the others, and schedules its arrival.
    pub(super) fn send(&mut self, id: SocketId, segment: Segment) {
        let now = self.now();
        let Some(socket) = self.sockets.get(id) else { return };
        let from = socket.node;
        let slow = self.fails(Fault::SlowSegment);
        let extra = if slow { self.faults.size(Fault::SlowSegment, 1_000_000..400_000_000) } else { 0 };
        let Some(stream) = self.sockets.stream(id) else { return };
        let to = stream.remote_node;
        let bytes = if let Segment::Bytes(bytes) = &segment { bytes.len() } else { 0 };
        let delay = self.links.delay(from, to, bytes, now) + extra;
        let Some(stream) = self.sockets.stream(id) else { return };
        stream.last_arrival = stream.last_arrival.max(now + delay);
        let at = stream.last_arrival;
        stream.output.push_back((at, segment));
        self.schedule(at, TimedAction::Arrive(id));
    }

    /// Handles the arrival of a socket's output at its peer, as far as it is due.
    pub(crate) fn arrive(&mut self, id: SocketId) {
        let now = self.now();
        while self.sockets.stream(id).is_some_and(|stream| {
            !stream.waits_for_window && stream.output.front().is_some_and(|(at, _)| *at <= now)
        }) {
            if !self.arrive_one(id) {
                break;
            }
        }
    }

    /// Returns whether a segment has arrived.
    fn arrive_one(&mut self, id: SocketId) -> bool {
        let Some(socket) = self.sockets.get(id) else { return false };
        let from = socket.node;
        let Some(stream) = self.sockets.stream(id) else { return false };
        let (to, peer) = (stream.remote_node, stream.peer);
        if self.links.is_cut(from, to, self.now()) || !self.nodes[to].has_power {
            self.send_again(id, TimedAction::Arrive(id));
            return false;
        }
        let Some(stream) = self.sockets.stream(id) else { return false };
        stream.attempts = 0;
        let Some((_, segment)) = stream.output.pop_front() else { return false };
        let peer = peer
            .filter(|peer| self.sockets.stream(*peer).is_some_and(|peer| peer.phase != StreamPhase::Failed));
        let Some(peer) = peer else {
            // The node does not know the connection: a reset comes back.
            if matches!(segment, Segment::Reset) {
                self.sockets.remove(id);
            } else {
                self.send_reset(id, from, to);
            }
            return true;
        };
        let bytes = if let Segment::Bytes(bytes) = &segment { bytes.len() } else { 0 };
        self.note(Happening::Arrived, to, peer.number(), bytes as u64);
        match segment {
            Segment::Bytes(bytes) => self.deliver(id, peer, bytes, from, to),
            Segment::End => {
                if let Some(peer) = self.sockets.stream(peer) {
                    peer.input_ended = true;
                }
                self.edge_of_input(peer);
                let delay = self.links.delay(to, from, 0, self.now());
                self.schedule(self.now() + delay, TimedAction::EndAcknowledged(id));
            }
            Segment::Reset => {
                self.fail(peer, io::ErrorKind::ConnectionReset);
                self.sockets.remove(id);
            }
        }
        self.forget_if_done(id);
        self.forget_if_done(peer);
        true
    }

    fn deliver(&mut self, id: SocketId, peer: SocketId, bytes: Vec<u8>, from: usize, to: usize) {
        let Some(receiver) = self.sockets.stream(peer) else { return };
        if receiver.is_closed {
            // Input for a closed socket resets the connection.
            self.fail(peer, io::ErrorKind::ConnectionReset);
            self.send_reset(id, from, to);
            return;
        }
        let room = receiver.receive_buffer.saturating_sub(receiver.input.len());
        let taken = room.min(bytes.len());
        receiver.input.extend(&bytes[..taken]);
        if taken < bytes.len()
            && let Some(stream) = self.sockets.stream(id)
        {
            stream.output.push_front((0, Segment::Bytes(bytes[taken..].to_vec())));
            stream.waits_for_window = true;
        }
        if taken > 0 {
            self.edge_of_input(peer);
            let wants_room = self.sockets.stream(id).is_some_and(|stream| stream.wants_room);
            if wants_room {
                let delay = self.links.delay(to, from, 0, self.now());
                self.schedule(
                    self.now() + delay,
                    TimedAction::Acknowledged { socket: id, bytes: narrow(taken) },
                );
            } else {
                self.acknowledged(id, taken);
            }
        }
    }

    /// Sends a reset back to a socket whose output has reached a node that does not accept it.
    fn send_reset(&mut self, id: SocketId, from: usize, to: usize) {
        let delay = self.links.delay(to, from, 0, self.now());
        self.schedule(self.now() + delay, TimedAction::Reset(id));
    }

    pub(crate) fn reset_arrives(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get(id) else { return };
        let node = socket.node;
        let Some(stream) = self.sockets.stream(id) else { return };
        if stream.phase == StreamPhase::Connecting {
            return self.connect_fails(id, io::ErrorKind::ConnectionRefused);
        }
        let remote_node = stream.remote_node;
        if !self.links.is_cut(remote_node, node, self.now()) {
            return self.fail(id, io::ErrorKind::ConnectionReset);
        }
        // The reset is lost. The output is sent again, and causes another one.
        self.send_again(id, TimedAction::Reset(id));
    }

    /// Lets `action` happen when the output of a socket is sent again, or fails the connection
    /// after many attempts. A connection has one timer for this (RFC 6298), so the segments behind
    /// the first one are no further attempts.
    fn send_again(&mut self, id: SocketId, action: TimedAction) {
        let now = self.now();
        let Some(stream) = self.sockets.stream(id) else { return };
        stream.attempts += 1;
        if stream.attempts > RETRIES {
            return self.fail(id, io::ErrorKind::TimedOut);
        }
        let again = now + retransmission(stream.attempts - 1);
        if let Some((due, _)) = stream.output.front_mut() {
            *due = again;
        }
        self.schedule(again, action);
    }

    pub(crate) fn end_acknowledged(&mut self, id: SocketId) {
        let Some(stream) = self.sockets.stream(id) else { return };
        stream.is_end_acknowledged = true;
        self.edge(id);
    }

    /// Reports input to the poll, possibly late.
    pub(super) fn edge_of_input(&mut self, id: SocketId) {
        let now = self.now();
        if let Some(stream) = self.sockets.stream(id) {
            stream.unread_since.get_or_insert(now);
        }
        if self.fails(Fault::LateEdge) {
            let after = self.faults.size(Fault::LateEdge, 1_000..20_000_000);
            self.edge_later(id, after);
            return;
        }
        self.edge(id);
        if self.fails(Fault::SpuriousEdge) {
            let after = self.faults.size(Fault::SpuriousEdge, 1_000..20_000_000);
            self.edge_later(id, after);
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
}
