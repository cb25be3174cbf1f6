//! Listening, connecting and accepting.

use super::{
    Action, Happening, World,
    link::{ATTEMPTS, retransmission},
    sockets::{Kind, Socket},
    stream::{Phase, Stream},
};
use crate::machine::simulated::{Fault, digest::Digest};
use std::{collections::VecDeque, io, net::SocketAddr};

impl World {
    pub(crate) fn listen(
        &mut self,
        node: usize,
        address: SocketAddr,
        limit: usize,
        shares: bool,
    ) -> io::Result<usize> {
        self.descriptor(node)?;
        let local = self.bind(node, address, true)?;
        if !shares && self.sockets.listeners.contains_key(&(node, local.port())) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let kind = Kind::Listener { backlog: VecDeque::new(), limit: limit.max(1) };
        let id = self.sockets.add(Socket { node, local, watch: None, late_edges: 0, kind });
        self.sockets.listeners.entry((node, local.port())).or_default().push(id);
        self.note(Happening::Listened, node, id as u64, u64::from(local.port()));
        Ok(id)
    }

    pub(crate) fn connect(
        &mut self,
        node: usize,
        local: Option<SocketAddr>,
        to: SocketAddr,
    ) -> io::Result<usize> {
        self.descriptor(node)?;
        if self.fails(Fault::ConnectUnreachable) {
            return Err(io::ErrorKind::HostUnreachable.into());
        }
        let remote_node = self.node_at(node, to.ip()).ok_or(io::ErrorKind::HostUnreachable)?;
        let any = SocketAddr::new(if to.ip().is_loopback() { to.ip() } else { self.nodes[node].address }, 0);
        let local = self.bind(node, local.unwrap_or(any), true)?;
        let id = self.new_stream(node, local, to, remote_node);
        self.note(Happening::ConnectBegan, node, id as u64, u64::from(to.port()));
        let delay = self.links.delay(node, remote_node, 0, self.now());
        self.schedule(self.now() + delay, Action::Connect { socket: id, attempt: 0 });
        Ok(id)
    }

    /// Handles a request for a connection when it reaches the other node.
    pub(crate) fn connect_arrives(&mut self, id: usize, attempt: u32) {
        let Some(socket) = self.sockets.get(id) else { return };
        let (node, client) = (socket.node, socket.local);
        let Kind::Stream(stream) = &socket.kind else { return };
        if stream.phase != Phase::Connecting {
            return;
        }
        let (to, remote) = (stream.remote_node, stream.remote);
        let is_lost = self.links.is_cut(node, to, self.now())
            || self.links.is_cut(to, node, self.now())
            || !self.nodes[to].is_up
            || self.fails(Fault::ConnectLost);
        let listeners = self.sockets.listeners.get(&(to, remote.port()));
        let listener = listeners.and_then(|ids| ids.get(client.port() as usize % ids.len().max(1))).copied();
        let listener = listener.filter(|listener| {
            self.sockets.get(*listener).is_some_and(|socket| {
                let ip = socket.local.ip();
                ip.is_unspecified() || ip == remote.ip()
            })
        });
        let is_refused = listener.is_none() || self.fails(Fault::ConnectRefused);
        let is_full = listener.and_then(|id| self.sockets.get(id)).is_some_and(
            |socket| matches!(&socket.kind, Kind::Listener { backlog, limit } if backlog.len() > *limit),
        );
        let back = self.links.delay(to, node, 0, self.now());
        if is_lost || (is_full && !is_refused) {
            if attempt + 1 >= ATTEMPTS {
                self.connect_fails(id, io::ErrorKind::TimedOut);
            } else {
                // A request is sent again after one second at first.
                let pause = retransmission(attempt) * 5;
                self.schedule(self.now() + pause, Action::Connect { socket: id, attempt: attempt + 1 });
            }
            return;
        }
        let Some(listener) = listener.filter(|_| !is_refused) else {
            self.connect_fails(id, io::ErrorKind::ConnectionRefused);
            return;
        };
        let now = self.now();
        let server = self.new_stream(to, remote, client, node);
        if let Some(stream) = self.sockets.stream(server) {
            stream.phase = Phase::Established;
            stream.peer = Some(id);
        }
        if let Some(Kind::Listener { backlog, .. }) = self.sockets.get_mut(listener).map(|s| &mut s.kind) {
            backlog.push_back((server, now));
        }
        self.edge(listener);
        // The client is connected when the answer arrives.
        if let Some(stream) = self.sockets.stream(id) {
            stream.phase = Phase::Established;
            stream.peer = Some(server);
        }
        self.note(Happening::Connected, node, id as u64, server as u64);
        self.edge_later(id, back);
    }

    pub(crate) fn connect_fails(&mut self, id: usize, error: io::ErrorKind) {
        let Some(node) = self.sockets.get(id).map(|socket| socket.node) else { return };
        let Some(stream) = self.sockets.stream(id) else { return };
        stream.phase = Phase::Failed;
        stream.error = Some(error);
        stream.output.clear();
        self.note(Happening::ConnectFailed, node, id as u64, 0);
        self.edge(id);
    }

    pub(crate) fn accept(&mut self, id: usize) -> io::Result<(usize, SocketAddr)> {
        let node = self.sockets.get(id).ok_or(io::ErrorKind::NotConnected)?.node;
        self.descriptor(node)?;
        if self.fails(Fault::AcceptFails) {
            // ECONNABORTED concerns one connection, ENOBUFS all.
            let errors = [103, 105, 24];
            let which = self.faults.size(Fault::AcceptFails, 0..3) as usize;
            return Err(io::Error::from_raw_os_error(errors[which]));
        }
        let Some(Kind::Listener { backlog, .. }) = self.sockets.get_mut(id).map(|socket| &mut socket.kind)
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let (accepted, _) = backlog.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
        let remote = self.sockets.stream(accepted).map(|stream| stream.remote);
        let remote = remote.ok_or(io::ErrorKind::ConnectionAborted)?;
        self.note(Happening::Accepted, node, id as u64, accepted as u64);
        Ok((accepted, remote))
    }

    fn new_stream(
        &mut self,
        node: usize,
        local: SocketAddr,
        remote: SocketAddr,
        remote_node: usize,
    ) -> usize {
        let settings = self.links.settings;
        self.sockets.add(Socket {
            node,
            local,
            watch: None,
            late_edges: 0,
            kind: Kind::Stream(Box::new(Stream {
                phase: Phase::Connecting,
                remote,
                remote_node,
                peer: None,
                input: VecDeque::new(),
                input_ended: false,
                unread_since: None,
                error: None,
                output: VecDeque::new(),
                unacknowledged: 0,
                is_shut: false,
                is_closed: false,
                wants_room: false,
                waits_for_window: false,
                send_buffer: settings.send_buffer.max(1),
                receive_buffer: settings.receive_buffer.max(1),
                last_arrival: 0,
                attempts: 0,
                written: Digest::default(),
                read: Digest::default(),
                refused: Vec::new(),
                drops: 0,
            })),
        })
    }
}
