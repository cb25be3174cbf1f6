//! The transfer of bytes between the sockets of a TCP connection. `retransmit` contains
//! acknowledgements and retransmissions.
//!
//! A write puts bytes into the output of a socket, which holds at most the send buffer. The head of
//! the output arrives at the peer after the delay of the link, if the peer's receive buffer has
//! room. The end of the stream (FIN) follows the last byte.

use super::{
    World,
    queue::TimedAction,
    retransmit::PROBE,
    stream::{Segment, StreamPhase},
};
use crate::machine::simulated::{fault::Fault, ids::SocketId, trace::Happening};
use std::io;

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
            !stream.waits_for_window
                && !stream.is_recovering()
                && stream.output.front().is_some_and(|(at, _)| *at <= now)
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
        let (to, peer, is_timed) = (stream.remote_node, stream.peer, stream.unheard.is_some());
        if self.links.is_cut(from, to, self.now()) || !self.nodes[to].has_power {
            // The timer of earlier output counts the attempts.
            if !is_timed {
                self.send_again(id, TimedAction::Arrive(id));
            }
            return false;
        }
        let Some(stream) = self.sockets.stream(id) else { return false };
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
        self.hear(peer);
        match segment {
            Segment::Bytes(bytes) => self.deliver(id, peer, bytes, from, to),
            Segment::End => {
                if let Some(peer) = self.sockets.stream(peer) {
                    peer.input_ended = true;
                }
                self.edge_of_input(peer);
                self.acknowledge(id, 0);
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
            self.start_timer(id, PROBE);
        }
        if taken > 0 {
            self.edge_of_input(peer);
            self.acknowledge(id, taken);
        }
    }

    /// Sends a reset back to a socket whose output has reached a node that does not accept it.
    pub(super) fn send_reset(&mut self, id: SocketId, from: usize, to: usize) {
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
}
