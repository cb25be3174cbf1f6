//! The ends of sockets: closes, resets and failed connections.
//!
//! A close with unread input, or input for a closed socket, resets the connection (RST), which
//! discards the bytes that are under way.

use super::{
    World,
    sockets::SocketKind,
    stream::{Segment, StreamPhase},
};
use crate::machine::simulated::{ids::SocketId, trace::Happening};
use std::io;

impl World {
    /// Closes a socket, as close(2) does.
    pub(crate) fn close(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let node = socket.node;
        socket.watch = None;
        match &mut socket.kind {
            SocketKind::Listener { backlog, .. } => {
                let waiting: Vec<_> = backlog.drain(..).map(|(id, _)| id).collect();
                self.sockets.remove(id);
                for connection in waiting {
                    self.reset(connection);
                }
            }
            SocketKind::Datagrams(_) => self.sockets.remove(id),
            SocketKind::Stream(stream) => {
                if std::mem::replace(&mut stream.is_closed, true) {
                    return;
                }
                self.note(Happening::Closed, node, id.number(), 0);
                let Some(stream) = self.sockets.stream(id) else { return };
                match stream.phase {
                    StreamPhase::Connecting | StreamPhase::Failed => self.sockets.remove(id),
                    StreamPhase::Established if stream.is_over() => self.sockets.remove(id),
                    StreamPhase::Established if stream.resets_on_close || !stream.input.is_empty() => {
                        self.reset(id);
                    }
                    // A connection that no listener has yet.
                    StreamPhase::Established if stream.listener.is_some() => self.reset(id),
                    StreamPhase::Established => {
                        if !std::mem::replace(&mut stream.is_shut, true) {
                            self.send(id, Segment::End);
                        }
                        self.forget_if_done(id);
                    }
                }
            }
        }
    }

    /// Lets the close of a socket reset the connection.
    pub(crate) fn reset_on_close(&mut self, id: SocketId) {
        if let Some(stream) = self.sockets.stream(id) {
            stream.resets_on_close = true;
        }
    }

    /// Closes a socket and resets its connection.
    pub(super) fn reset(&mut self, id: SocketId) {
        let Some(node) = self.sockets.get(id).map(|socket| socket.node) else { return };
        self.note(Happening::Reset, node, id.number(), 0);
        let Some(stream) = self.sockets.stream(id) else { return };
        if stream.phase != StreamPhase::Established {
            stream.is_closed = true;
            self.sockets.remove(id);
            return;
        }
        stream.is_closed = true;
        stream.is_shut = true;
        stream.listener = None;
        // What is under way is discarded.
        stream.output.clear();
        stream.waits_for_window = false;
        stream.unheard = None;
        stream.last_arrival = stream.first_arrival;
        self.send(id, Segment::Reset);
    }

    /// Ends the connection of a socket with an error.
    pub(super) fn fail(&mut self, id: SocketId, error: io::ErrorKind) {
        let Some(node) = self.sockets.get(id).map(|socket| socket.node) else { return };
        let Some(stream) = self.sockets.stream(id) else { return };
        if stream.phase == StreamPhase::Failed || stream.is_over() {
            return;
        }
        // After the end of the input only, a reset is a broken pipe.
        let is_half_closed = stream.input_ended && !stream.is_shut;
        let is_broken = is_half_closed && error == io::ErrorKind::ConnectionReset;
        stream.error = Some(if is_broken { io::ErrorKind::BrokenPipe } else { error });
        stream.phase = StreamPhase::Failed;
        stream.output.clear();
        stream.unacknowledged = 0;
        let is_closed = stream.is_closed;
        self.note(Happening::Reset, node, id.number(), 1);
        if is_closed { self.sockets.remove(id) } else { self.edge(id) }
    }

    /// Removes a closed socket when all its output and the end of the stream have arrived.
    pub(super) fn forget_if_done(&mut self, id: SocketId) {
        let Some(stream) = self.sockets.stream(id) else { return };
        if stream.is_closed
            && stream.output.is_empty()
            && (stream.input_ended || stream.phase == StreamPhase::Failed)
        {
            self.sockets.remove(id);
        }
    }

    /// Resets a random connection, from outside. Returns whether there is one.
    pub(crate) fn reset_any(&mut self, node: usize, choice: u64) -> bool {
        let open: Vec<_> = self.sockets.of_node(node).collect();
        let streams: Vec<_> = open
            .into_iter()
            .filter(|id| {
                self.sockets.stream(*id).is_some_and(|s| s.phase == StreamPhase::Established && !s.is_closed)
            })
            .collect();
        let Some(id) = streams.get(choice as usize % streams.len().max(1)).copied() else { return false };
        let peer = self.sockets.stream(id).and_then(|stream| stream.peer);
        self.fail(id, io::ErrorKind::ConnectionReset);
        if let Some(peer) = peer {
            self.fail(peer, io::ErrorKind::ConnectionReset);
        }
        true
    }

    /// Returns whether the program has left input unread, or a connection unaccepted, since before
    /// `time`.
    pub(crate) fn is_unread_since(&self, id: SocketId, time: u64) -> bool {
        match self.sockets.get(id).map(|socket| &socket.kind) {
            Some(SocketKind::Listener { backlog, .. }) => {
                backlog.front().is_some_and(|(_, since)| *since < time)
            }
            Some(SocketKind::Stream(stream)) => {
                let is_read = stream.is_closed || stream.phase != StreamPhase::Established;
                !is_read && stream.unread_since.is_some_and(|since| since < time)
            }
            _ => false,
        }
    }

    pub(crate) fn take_error(&mut self, id: SocketId) -> Option<io::Error> {
        self.sockets.stream(id).and_then(|stream| stream.error.take()).map(Into::into)
    }

    /// Fails if the socket is not connected.
    pub(crate) fn has_peer(&mut self, id: SocketId) -> io::Result<()> {
        match self.sockets.stream(id) {
            Some(stream) if stream.phase == StreamPhase::Established && !stream.is_over() => Ok(()),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}
