//! Reads and writes of TCP connections, as Linux performs them.

use super::{
    World,
    queue::TimedAction,
    stream::{Segment, StreamPhase},
};
use crate::machine::simulated::{digest::Digest, fault::Fault, ids::SocketId, trace::Happening};
use std::io;

impl World {
    pub(crate) fn read(&mut self, id: SocketId, buffer: &mut [u8]) -> io::Result<usize> {
        let node = self.sockets.get(id).ok_or(io::ErrorKind::NotConnected)?.node;
        if self.fails(Fault::Interrupted) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let has_input = self.sockets.stream(id).is_some_and(|stream| !stream.input.is_empty());
        if has_input && self.fails(Fault::ReadWouldBlock) {
            let after = self.faults.size(Fault::ReadWouldBlock, 1_000..10_000_000);
            self.edge_later(id, after);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if let Some(stream) = self.sockets.stream(id) {
            stream.unread_since = None;
        }
        let now = self.now();
        // A short read stands for bytes that arrive later, so there is none behind the end.
        let has_end = self.sockets.stream(id).is_some_and(|stream| stream.input_ended);
        let is_short = has_input && !has_end && self.fails(Fault::ShortRead);
        let draw = if is_short { self.faults.size(Fault::ShortRead, 0..65_536) as usize } else { 0 };
        let stream = self.sockets.stream(id).ok_or(io::ErrorKind::NotConnected)?;
        if stream.input.is_empty() {
            return stream.read_nothing();
        }
        let mut n = stream.input.len().min(buffer.len());
        if is_short {
            n = n.min(1 + draw % n.max(1));
        }
        let (front, back) = stream.input.as_slices();
        let first = front.len().min(n);
        buffer[..first].copy_from_slice(&front[..first]);
        buffer[first..n].copy_from_slice(&back[..n - first]);
        stream.input.drain(..n);
        stream.read.update(&buffer[..n]);
        let read = stream.read;
        if !stream.input.is_empty() || stream.input_ended {
            stream.unread_since = Some(now);
        }
        let (is_left, peer) = (!stream.input.is_empty(), stream.peer);
        self.note_contents(Happening::Read, node, id.number(), n as u64, read.value());
        self.check_contents(id, peer, read);
        if is_short && is_left {
            // A short read says that the socket is empty, so the rest must be an edge of its own.
            let after = self.faults.size(Fault::ShortRead, 1_000..5_000_000);
            self.edge_later(id, after);
        }
        if let Some(peer) = peer
            && let Some(from) = self.sockets.get(peer).map(|socket| socket.node)
            && !self.links.is_cut(node, from, now)
            && self.sockets.stream(peer).is_some_and(|stream| std::mem::take(&mut stream.waits_for_window))
        {
            let delay = self.links.delay(node, from, 0, self.now());
            self.schedule(self.now() + delay, TimedAction::Arrive(peer));
        }
        Ok(n)
    }

    /// Checks that the bytes read equal the bytes that the peer has written.
    fn check_contents(&mut self, id: SocketId, peer: Option<SocketId>, read: Digest) {
        let Some(peer) = peer.and_then(|peer| self.sockets.stream(peer)) else { return };
        let written = peer.written;
        if read.count() > written.count()
            || (read.count() == written.count() && read.value() != written.value())
        {
            self.violate(|| format!("socket {id}: the bytes that were read are not those that were written"));
        }
    }

    pub(crate) fn peek(&mut self, id: SocketId) -> io::Result<usize> {
        let stream = self.sockets.stream(id).ok_or(io::ErrorKind::NotConnected)?;
        if stream.input.is_empty() { stream.read_nothing() } else { Ok(1) }
    }

    pub(crate) fn write(&mut self, id: SocketId, slices: &[&[u8]]) -> io::Result<usize> {
        let node = self.sockets.get(id).ok_or(io::ErrorKind::NotConnected)?.node;
        if self.fails(Fault::Interrupted) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let is_short = self.fails(Fault::ShortWrite);
        let draw = if is_short { self.faults.size(Fault::ShortWrite, 0..65_536) as usize } else { 0 };
        let drops = self.dropped_output;
        let stream = self.sockets.stream(id).ok_or(io::ErrorKind::NotConnected)?;
        if let Some(error) = stream.error.take() {
            return Err(error.into());
        }
        if stream.is_shut || stream.phase == StreamPhase::Failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if stream.phase == StreamPhase::Connecting {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
        let room = stream.send_buffer.saturating_sub(stream.unacknowledged);
        let mut n = wanted.min(room);
        if is_short && n > 0 {
            n = draw % (n + 1);
        }
        let is_partial = n < wanted;
        if is_partial {
            stream.wants_room = true;
        }
        let continues = stream.note_continuation(slices, n, drops);
        let mut bytes = Vec::with_capacity(n);
        for slice in slices {
            let left = n - bytes.len();
            bytes.extend_from_slice(&slice[..slice.len().min(left)]);
        }
        stream.unacknowledged += n;
        stream.written.update(&bytes);
        let written = stream.written.value();
        if !continues {
            self.violate(|| format!("socket {id}: a write does not continue where the last one was cut"));
        }
        if is_partial && is_short {
            let after = self.faults.size(Fault::ShortWrite, 1_000..5_000_000);
            self.edge_later(id, after);
        }
        if n == 0 && wanted > 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.note_contents(Happening::Wrote, node, id.number(), n as u64, written);
        if n > 0 {
            self.send(id, Segment::Bytes(bytes));
        }
        Ok(n)
    }

    pub(crate) fn shut_down_write(&mut self, id: SocketId) -> io::Result<()> {
        let node = self.sockets.get(id).ok_or(io::ErrorKind::NotConnected)?.node;
        let stream = self.sockets.stream(id).ok_or(io::ErrorKind::NotConnected)?;
        if stream.phase != StreamPhase::Established || stream.is_over() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if !std::mem::replace(&mut stream.is_shut, true) {
            self.note(Happening::ShutDown, node, id.number(), 0);
            self.send(id, Segment::End);
        }
        self.edge(id);
        Ok(())
    }
}
