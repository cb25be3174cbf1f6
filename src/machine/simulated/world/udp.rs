//! Datagrams.

use super::{
    Action, Happening, World,
    datagrams::Flight,
    sockets::{Kind, Socket},
};
use crate::machine::simulated::Fault;
use std::{io, net::SocketAddr};

/// The largest payload of a datagram over IPv4.
const MAX_DATAGRAM: usize = 65_507;

/// The bytes that a socket keeps for its program. Further datagrams are dropped.
const RECEIVE_BUFFER: usize = 212_992;

impl World {
    pub(crate) fn bind_datagrams(
        &mut self,
        node: usize,
        address: SocketAddr,
        shares: bool,
    ) -> io::Result<usize> {
        self.descriptor(node)?;
        let local = self.bind(node, address, false)?;
        if !shares && self.sockets.bound.contains_key(&(node, local.port())) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let id = self.sockets.add(Socket { node, local, watch: None, kind: Kind::Datagrams(Box::default()) });
        self.sockets.bound.entry((node, local.port())).or_default().push(id);
        Ok(id)
    }

    pub(crate) fn send_datagram(
        &mut self,
        id: usize,
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
        let to = to.or(datagrams.peer).ok_or(io::ErrorKind::NotConnected)?;
        if self.fails(Fault::DatagramWouldBlock) {
            let after = self.faults.size(Fault::DatagramWouldBlock, 1_000..10_000_000);
            self.edge_later(id, after);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let to_node = self.node_at(node, to.ip()).ok_or(io::ErrorKind::NetworkUnreachable)?;
        let ip = if local.ip().is_unspecified() && to_node != node {
            self.nodes[node].address
        } else {
            local.ip()
        };
        let ip = if ip.is_unspecified() { to.ip() } else { ip };
        let sender = SocketAddr::new(ip, local.port());
        self.note(Happening::DatagramSent, node, id as u64, bytes.len() as u64);
        if self.links.is_cut(node, to_node, self.now()) || self.fails(Fault::DatagramLost) {
            self.note(Happening::DatagramLost, node, id as u64, 0);
            return Ok(bytes.len());
        }
        let copies = if self.fails(Fault::DatagramTwice) { 2 } else { 1 };
        for _ in 0..copies {
            let late = self.fails(Fault::DatagramLate);
            let extra = if late { self.faults.size(Fault::DatagramLate, 100_000..200_000_000) } else { 0 };
            let delay = self.links.delay(node, to_node, bytes.len(), self.now()) + extra;
            let flight = Flight { sender, to_node, to, bytes: bytes.to_vec(), source: id };
            let index = self.flights.insert(flight);
            self.schedule(self.now() + delay, Action::Datagram(index));
        }
        Ok(bytes.len())
    }

    pub(crate) fn datagram_arrives(&mut self, index: usize) {
        let Some(flight) = self.flights.try_remove(index) else { return };
        let Flight { sender, to_node, to, bytes, source } = flight;
        let ids = self.sockets.bound.get(&(to_node, to.port())).cloned().unwrap_or_default();
        let fits = |id: &usize| {
            self.sockets.get(*id).is_some_and(|socket| {
                let ip = socket.local.ip();
                let of_peer = match &socket.kind {
                    Kind::Datagrams(datagrams) => datagrams.peer.is_none_or(|peer| peer == sender),
                    _ => false,
                };
                of_peer && (ip.is_unspecified() || ip == to.ip())
            })
        };
        let Some(id) = ids.into_iter().find(fits) else {
            // The answer of ICMP reaches connected sockets only.
            if self.nodes[to_node].is_up
                && let Some(datagrams) = self.sockets.datagrams(source)
                && datagrams.peer == Some(to)
            {
                datagrams.error = Some(io::ErrorKind::ConnectionRefused);
                self.edge(source);
            }
            return;
        };
        self.note(Happening::DatagramArrived, to_node, id as u64, bytes.len() as u64);
        let Some(datagrams) = self.sockets.datagrams(id) else { return };
        if datagrams.bytes + bytes.len() > RECEIVE_BUFFER {
            self.note(Happening::DatagramLost, to_node, id as u64, 1);
            return;
        }
        datagrams.bytes += bytes.len();
        datagrams.input.push_back((sender, bytes));
        self.edge(id);
    }

    pub(crate) fn receive_datagram(&mut self, id: usize, room: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        if self.fails(Fault::Interrupted) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let datagrams = self.sockets.datagrams(id).ok_or(io::ErrorKind::InvalidInput)?;
        if let Some(error) = datagrams.error.take() {
            return Err(error.into());
        }
        let (sender, bytes) = datagrams.input.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
        datagrams.bytes -= bytes.len();
        let n = bytes.len().min(room.len());
        room[..n].copy_from_slice(&bytes[..n]);
        Ok((n, sender))
    }

    pub(crate) fn connect_datagrams(&mut self, id: usize, peer: Option<SocketAddr>) {
        if let Some(datagrams) = self.sockets.datagrams(id) {
            datagrams.peer = peer;
        }
    }
}
