//! Listening and accepting.

use super::{
    World,
    ports::{BindOptions, PortRole, TCP},
    sockets::{Socket, SocketKind},
};
use crate::machine::simulated::{fault::Fault, ids::SocketId, trace::Happening};
use std::{collections::VecDeque, io, net::SocketAddr};

impl World {
    pub(crate) fn listen(
        &mut self,
        node: usize,
        address: SocketAddr,
        limit: usize,
        options: BindOptions,
    ) -> io::Result<SocketId> {
        self.descriptor(node)?;
        let local = self.bind(node, address, TCP, options)?;
        let kind = SocketKind::Listener { backlog: VecDeque::new(), limit: limit.max(1) };
        let id = self.sockets.add(Socket::new(node, local, options, kind))?;
        self.note(Happening::Listened, node, id.number(), u64::from(local.port()));
        Ok(id)
    }

    pub(crate) fn accept(&mut self, id: SocketId) -> io::Result<(SocketId, SocketAddr)> {
        let node = self.sockets.get(id).ok_or(io::ErrorKind::NotConnected)?.node;
        self.descriptor(node)?;
        if self.fails(Fault::AcceptFails) {
            // ECONNABORTED concerns one connection, ENOBUFS all.
            let errors = [103, 105, 24];
            let which = self.faults.size(Fault::AcceptFails, 0..3) as usize;
            return Err(io::Error::from_raw_os_error(errors[which]));
        }
        let Some(SocketKind::Listener { backlog, .. }) =
            self.sockets.get_mut(id).map(|socket| &mut socket.kind)
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let (accepted, _) = backlog.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
        let remote = self.sockets.stream(accepted).map(|stream| stream.remote);
        let remote = remote.ok_or(io::ErrorKind::ConnectionAborted)?;
        self.note(Happening::Accepted, node, id.number(), accepted.number());
        Ok((accepted, remote))
    }

    /// Returns the listener for a request. One at the address itself precedes one at the wildcard.
    /// The client's port chooses among several that share the port.
    pub(super) fn listener_for(&self, node: usize, to: SocketAddr, client: SocketAddr) -> Option<SocketId> {
        let at_port = self.sockets.at_port(PortRole::Listener, node, to.port());
        let (specific, wildcard): (Vec<_>, Vec<_>) = at_port
            .filter(|(_, socket)| socket.covers(to.ip()))
            .partition(|(_, socket)| !socket.local.ip().is_unspecified());
        let listeners = if specific.is_empty() { wildcard } else { specific };
        let ids: Vec<_> = listeners.into_iter().map(|(id, _)| id).collect();
        ids.get(client.port() as usize % ids.len().max(1)).copied()
    }

    /// Returns whether the backlog of a listener is full.
    pub(super) fn is_backlog_full(&self, listener: SocketId) -> bool {
        match self.sockets.get(listener).map(|socket| &socket.kind) {
            Some(SocketKind::Listener { backlog, limit }) => backlog.len() > *limit,
            _ => false,
        }
    }
}
