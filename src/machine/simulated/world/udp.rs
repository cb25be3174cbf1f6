//! Datagrams.

use super::{
    World,
    datagrams::{Datagrams, Flight},
    ports::{BindOptions, PortRole, UDP, check_route, destination, seen_from},
    queue::{TimedAction, narrow},
    sockets::{Socket, SocketKind},
};
use crate::machine::simulated::{digest::Digest, fault::Fault, ids::SocketId, seeds::mix, trace::Happening};
use std::{io, net::SocketAddr};

/// The largest payload of a datagram over IPv4.
const MAX_DATAGRAM: usize = 65_507;

/// The bytes that a socket keeps for its program. Further datagrams are dropped.
const RECEIVE_BUFFER: usize = 212_992;

/// The time until a datagram has left, in nanoseconds.
const SENDING: u64 = 10_000;

/// The memory that a datagram takes in addition to its bytes.
const OVERHEAD: usize = 768;

impl World {
    pub(crate) fn bind_datagrams(
        &mut self,
        node: usize,
        address: SocketAddr,
        options: BindOptions,
    ) -> io::Result<SocketId> {
        self.descriptor(node)?;
        let local = self.bind(node, address, UDP, options)?;
        let kind = SocketKind::Datagrams(Box::new(Datagrams::new(local)));
        self.sockets.add(Socket::new(node, local, options, kind))
    }

    pub(crate) fn send_datagram(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        to: Option<SocketAddr>,
    ) -> io::Result<usize> {
        if self.fails(Fault::Interrupted) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if bytes.len() > MAX_DATAGRAM {
            // EMSGSIZE
            return Err(io::Error::from_raw_os_error(90));
        }
        let socket = self.sockets.get(id).ok_or(io::ErrorKind::NotConnected)?;
        let (node, local) = (socket.node, socket.local);
        let datagrams = self.sockets.datagrams(id).ok_or(io::ErrorKind::InvalidInput)?;
        if let Some(error) = datagrams.error.take() {
            return Err(error.into());
        }
        // Without a peer: EDESTADDRREQ.
        let to = to.or(datagrams.peer).ok_or_else(|| io::Error::from_raw_os_error(89))?;
        check_route(datagrams.bound.ip(), to.ip())?;
        if to.port() == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let to = destination(to);
        self.check_reach(node, local.ip(), to.ip())?;
        if self.fails(Fault::DatagramWouldBlock) {
            let after = self.faults.size(Fault::DatagramWouldBlock, 1_000..10_000_000);
            self.edge_later(id, after);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let to_node = self.node_at(node, to.ip()).ok_or(io::ErrorKind::NetworkUnreachable)?;
        let ip = if local.ip().is_unspecified() { self.source_ip(node, to.ip()) } else { local.ip() };
        let sender = SocketAddr::new(ip, local.port());
        let contents = Digest::of(bytes);
        self.note_contents(Happening::DatagramSent, node, id.number(), bytes.len() as u64, contents);
        // The send buffer is free again when the datagram has left, which is an edge each time.
        self.edge_later(id, SENDING);
        if self.links.is_cut(node, to_node, self.now()) || self.fails(Fault::DatagramLost) {
            self.note(Happening::DatagramLost, node, id.number(), 0);
            return Ok(bytes.len());
        }
        let copies = if self.fails(Fault::DatagramTwice) { 2 } else { 1 };
        for _ in 0..copies {
            let late = self.fails(Fault::DatagramLate);
            let extra = if late { self.faults.size(Fault::DatagramLate, 100_000..200_000_000) } else { 0 };
            let delay = self.links.delay(node, to_node, bytes.len(), self.now()) + extra;
            let flight = Flight { sender, to_node, to, bytes: bytes.to_vec(), source: id };
            let index = self.flights.insert(flight);
            self.schedule(self.now() + delay, TimedAction::Datagram(narrow(index)));
        }
        Ok(bytes.len())
    }

    pub(crate) fn datagram_arrives(&mut self, index: usize) {
        let Some(Flight { sender, to_node, to, source, .. }) = self.flights.get(index) else { return };
        let (sender, to_node, to) = (*sender, *to_node, *to);
        let node = self.sockets.get(*source).map(|socket| socket.node);
        let receiver = self.receiver(to_node, to, sender);
        if receiver.is_none()
            && self.nodes[to_node].has_power
            && let Some(node) = node
            && !self.links.is_cut(to_node, node, self.now())
        {
            let delay = self.links.delay(to_node, node, 0, self.now());
            self.schedule(self.now() + delay, TimedAction::Refused(narrow(index)));
            return;
        }
        let Flight { bytes, .. } = self.flights.remove(index);
        let Some(id) = receiver else { return };
        self.note(Happening::DatagramArrived, to_node, id.number(), bytes.len() as u64);
        let Some(datagrams) = self.sockets.datagrams(id) else { return };
        let memory = bytes.len() + OVERHEAD;
        if datagrams.bytes + memory > RECEIVE_BUFFER {
            self.note(Happening::DatagramLost, to_node, id.number(), 1);
            return;
        }
        datagrams.bytes += memory;
        datagrams.input.push_back((seen_from(datagrams.bound.ip(), sender), bytes));
        self.edge(id);
    }

    pub(crate) fn receive_datagram(
        &mut self,
        id: SocketId,
        room: &mut [u8],
    ) -> io::Result<(usize, SocketAddr)> {
        if self.fails(Fault::Interrupted) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let node = self.sockets.get(id).ok_or(io::ErrorKind::NotConnected)?.node;
        let datagrams = self.sockets.datagrams(id).ok_or(io::ErrorKind::InvalidInput)?;
        if let Some(error) = datagrams.error.take() {
            return Err(error.into());
        }
        let (sender, bytes) = datagrams.input.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
        datagrams.bytes -= bytes.len() + OVERHEAD;
        let n = bytes.len().min(room.len());
        room[..n].copy_from_slice(&bytes[..n]);
        let contents = Digest::of(&bytes);
        self.note_contents(Happening::DatagramRead, node, id.number(), bytes.len() as u64, contents);
        Ok((n, sender))
    }

    /// Connects a socket to a peer, or removes the peer. A socket without an address of its own has
    /// the one at which it sends to the peer.
    pub(crate) fn connect_datagrams(&mut self, id: SocketId, peer: Option<SocketAddr>) -> io::Result<()> {
        let node = self.sockets.get(id).ok_or(io::ErrorKind::NotConnected)?.node;
        let source = peer.map(|peer| self.source_ip(node, destination(peer).ip()));
        let bound = self.sockets.datagrams(id).ok_or(io::ErrorKind::InvalidInput)?.bound.ip();
        if let Some(peer) = peer {
            check_route(bound, peer.ip())?;
            self.check_reach(node, bound, destination(peer).ip())?;
        }
        let socket = self.sockets.get_mut(id).ok_or(io::ErrorKind::NotConnected)?;
        let SocketKind::Datagrams(datagrams) = &mut socket.kind else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        datagrams.peer = peer.map(destination);
        socket.local = datagrams.bound;
        if let Some(ip) = source.filter(|_| datagrams.bound.ip().is_unspecified()) {
            socket.local.set_ip(ip);
        }
        Ok(())
    }

    /// Returns the socket that receives a datagram. A connected socket precedes one that is bound
    /// to the address, and the wildcard comes last. If several sockets with `SO_REUSEPORT` are
    /// left, the sender's port chooses one. Otherwise the socket that was bound last receives.
    fn receiver(&self, node: usize, to: SocketAddr, sender: SocketAddr) -> Option<SocketId> {
        let rank = |socket: &Socket| {
            let SocketKind::Datagrams(datagrams) = &socket.kind else { return None };
            let fits = datagrams.peer.is_none_or(|peer| peer == sender) && socket.covers(to.ip());
            fits.then_some((datagrams.peer.is_some(), !socket.local.ip().is_unspecified()))
        };
        let at_port = || self.sockets.at_port(PortRole::Datagrams, node, to.port());
        let most = at_port().filter_map(|(_, socket)| rank(socket)).max()?;
        let best: Vec<_> = at_port().filter(|(_, socket)| rank(socket) == Some(most)).collect();
        let (last, socket) = best.last()?;
        if !socket.options.reuse_port {
            return Some(*last);
        }
        let chosen = mix(u64::from(sender.port())) % best.len() as u64;
        best.get(chosen as usize).map(|(id, _)| *id)
    }

    /// Handles the answer that a port is unreachable. It reaches connected sockets only.
    pub(crate) fn datagram_refused(&mut self, index: usize) {
        let Some(Flight { source: id, to: peer, .. }) = self.flights.try_remove(index) else { return };
        if let Some(datagrams) = self.sockets.datagrams(id)
            && datagrams.peer == Some(peer)
        {
            datagrams.error = Some(io::ErrorKind::ConnectionRefused);
            self.edge(id);
        }
    }
}
