//! Connects and the handshake of TCP.
//!
//! A request (SYN) travels to the other node, and the answer travels back and connects the client.
//! The confirmation travels to the listener, where the connection then waits to be accepted. Each
//! of them is sent again if it is lost.

use super::{
    World,
    link::retransmission,
    ports::{BindOptions, EAFNOSUPPORT, PortRole, TCP, check_route, destination, seen_from},
    queue::TimedAction,
    sockets::{Socket, SocketKind},
    stream::{StreamPhase, StreamSocket},
};
use crate::machine::simulated::{digest::Digest, fault::Fault, ids::SocketId, trace::Happening};
use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, SocketAddr},
};

/// How often part of a handshake is sent again before the connection has failed, as
/// `tcp_syn_retries` of Linux. The connect fails after 127 seconds.
const RETRIES: u32 = 6;

/// The pause before part of a handshake is sent again.
fn pause(attempt: u32) -> u64 {
    // One second at first.
    retransmission(attempt) * 5
}

/// Fails if a socket for connects to `to` cannot have the local address, as on Linux.
fn check_local(local: IpAddr, to: IpAddr) -> io::Result<()> {
    match (local.is_ipv4(), to.is_ipv4()) {
        (false, true) => Err(io::Error::from_raw_os_error(EAFNOSUPPORT)),
        (true, false) => Err(io::ErrorKind::InvalidInput.into()),
        _ => check_route(local, to),
    }
}

impl World {
    pub(crate) fn connect(
        &mut self,
        node: usize,
        local: Option<SocketAddr>,
        to: SocketAddr,
    ) -> io::Result<SocketId> {
        self.descriptor(node)?;
        if self.fails(Fault::ConnectUnreachable) {
            return Err(io::ErrorKind::HostUnreachable.into());
        }
        if let Some(local) = local {
            check_local(local.ip(), to.ip())?;
        }
        let remote = seen_from(to.ip(), destination(to));
        let to = destination(to);
        if let Some(local) = local {
            self.check_reach(node, local.ip(), to.ip())?;
        }
        let remote_node = self.node_at(node, to.ip()).ok_or(io::ErrorKind::HostUnreachable)?;
        let source = self.source_ip(node, to.ip());
        // Sockets whose program chooses the address have SO_REUSEADDR.
        let options = BindOptions { reuse_address: local.is_some(), ..BindOptions::default() };
        let local = local.unwrap_or(SocketAddr::new(source, 0));
        let local = SocketAddr::new(local.ip().to_canonical(), local.port());
        let mut local = self.bind(node, local, TCP, options)?;
        if local.ip().is_unspecified() {
            local.set_ip(source);
        }
        let is_same = |other: &Socket| match &other.kind {
            SocketKind::Stream(stream) => other.local == local && destination(stream.remote) == to,
            _ => false,
        };
        if self.sockets.at_port(PortRole::Stream, node, local.port()).any(|(_, other)| is_same(other)) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let id = self.new_stream(node, local, remote, remote_node, options)?;
        self.note(Happening::ConnectBegan, node, id.number(), u64::from(to.port()));
        let delay = self.links.delay(node, remote_node, 0, self.now());
        self.schedule(self.now() + delay, TimedAction::Connect { socket: id, attempt: 0 });
        Ok(id)
    }

    /// Handles a request for a connection when it reaches the other node.
    pub(crate) fn connect_arrives(&mut self, id: SocketId, attempt: u32) {
        let Some(socket) = self.sockets.get(id) else { return };
        let (node, client) = (socket.node, socket.local);
        let SocketKind::Stream(stream) = &socket.kind else { return };
        if stream.phase != StreamPhase::Connecting {
            return;
        }
        if attempt > RETRIES {
            return self.connect_fails(id, io::ErrorKind::TimedOut);
        }
        let (to, remote) = (stream.remote_node, destination(stream.remote));
        let is_lost = self.links.is_cut(node, to, self.now())
            || self.links.is_cut(to, node, self.now())
            || !self.nodes[to].has_power
            || self.fails(Fault::ConnectLost);
        let listener = self.listener_for(to, remote, client);
        let is_refused = listener.is_none() || self.fails(Fault::ConnectRefused);
        let is_full =
            listener.is_some_and(|listener| self.is_backlog_full(listener)) || self.sockets.are_full();
        let back = self.links.delay(to, node, 0, self.now());
        if is_lost || (is_full && !is_refused) {
            let again = TimedAction::Connect { socket: id, attempt: attempt + 1 };
            return self.schedule(self.now() + pause(attempt), again);
        }
        let Some(listener) = listener.filter(|_| !is_refused) else {
            self.schedule(self.now() + back, TimedAction::Reset(id));
            return;
        };
        let Some(bound) = self.sockets.get(listener) else { return };
        let (ip, options) = (bound.local.ip(), bound.options);
        let (local, peer) = (seen_from(ip, remote), seen_from(ip, client));
        let Ok(server) = self.new_stream(to, local, peer, node, options) else { return };
        let answered = self.now() + back;
        if let Some(stream) = self.sockets.stream(server) {
            stream.phase = StreamPhase::Established;
            stream.peer = Some(id);
            stream.listener = Some(listener);
            stream.open_at(answered + 1);
        }
        if let Some(stream) = self.sockets.stream(id) {
            stream.peer = Some(server);
        }
        self.schedule(answered, TimedAction::Connected { socket: id, server });
    }

    /// Handles the answer to a request. It connects the client.
    pub(crate) fn answer_arrives(&mut self, id: SocketId, server: SocketId) {
        let node = self.sockets.get(id).map(|socket| socket.node);
        let remote_node = self
            .sockets
            .stream(id)
            .and_then(|stream| (stream.phase == StreamPhase::Connecting).then_some(stream.remote_node));
        let (Some(node), Some(remote_node)) = (node, remote_node) else {
            // The client is gone, so no listener gets the connection.
            return self.sockets.remove(server);
        };
        let is_cut = self.links.is_cut(remote_node, node, self.now());
        let attempt = self.sockets.stream(server).map_or(0, |stream| {
            let attempt = stream.attempts;
            stream.attempts = if is_cut { attempt + 1 } else { 0 };
            attempt
        });
        if is_cut {
            if attempt >= RETRIES {
                self.sockets.remove(server);
                self.connect_fails(id, io::ErrorKind::TimedOut);
            } else {
                self.schedule(self.now() + pause(attempt), TimedAction::Connected { socket: id, server });
            }
            return;
        }
        let confirmed = self.now() + self.links.delay(node, remote_node, 0, self.now());
        if let Some(stream) = self.sockets.stream(id) {
            stream.phase = StreamPhase::Established;
            stream.open_at(confirmed + 1);
        }
        self.note(Happening::Connected, node, id.number(), server.number());
        self.edge(id);
        self.schedule(confirmed, TimedAction::Established { socket: server, attempt: 0 });
    }

    /// Handles the confirmation of a client. The connection waits to be accepted.
    pub(crate) fn confirmation_arrives(&mut self, id: SocketId, attempt: u32) {
        let Some(node) = self.sockets.get(id).map(|socket| socket.node) else { return };
        let Some(stream) = self.sockets.stream(id) else { return };
        let (client_node, Some(listener)) = (stream.remote_node, stream.listener) else { return };
        if self.sockets.get(listener).is_none() {
            // The listener was closed in between.
            return self.reset(id);
        }
        if self.is_backlog_full(listener) || self.links.is_cut(client_node, node, self.now()) {
            // The client believes that it is connected. Its confirmation is sent again.
            if attempt >= RETRIES {
                self.sockets.remove(id);
            } else {
                let again = TimedAction::Established { socket: id, attempt: attempt + 1 };
                self.schedule(self.now() + pause(attempt), again);
            }
            return;
        }
        if let Some(stream) = self.sockets.stream(id) {
            stream.listener = None;
        }
        let now = self.now();
        if let Some(SocketKind::Listener { backlog, .. }) =
            self.sockets.get_mut(listener).map(|s| &mut s.kind)
        {
            backlog.push_back((id, now));
        }
        self.edge(listener);
    }

    pub(crate) fn connect_fails(&mut self, id: SocketId, error: io::ErrorKind) {
        let Some(node) = self.sockets.get(id).map(|socket| socket.node) else { return };
        let Some(stream) = self.sockets.stream(id) else { return };
        stream.phase = StreamPhase::Failed;
        stream.error = Some(error);
        stream.output.clear();
        self.note(Happening::ConnectFailed, node, id.number(), 0);
        self.edge(id);
    }

    fn new_stream(
        &mut self,
        node: usize,
        local: SocketAddr,
        remote: SocketAddr,
        remote_node: usize,
        options: BindOptions,
    ) -> io::Result<SocketId> {
        let settings = self.links.settings;
        let kind = SocketKind::Stream(Box::new(StreamSocket {
            phase: StreamPhase::Connecting,
            remote,
            remote_node,
            peer: None,
            listener: None,
            input: VecDeque::new(),
            input_ended: false,
            unread_since: None,
            error: None,
            output: VecDeque::new(),
            unacknowledged: 0,
            unheard: None,
            is_timed: false,
            is_shut: false,
            is_end_acknowledged: false,
            resets_on_close: false,
            is_closed: false,
            wants_room: false,
            waits_for_window: false,
            send_buffer: settings.send_buffer.max(1),
            receive_buffer: settings.receive_buffer.max(1),
            last_arrival: 0,
            first_arrival: 0,
            attempts: 0,
            written: Digest::default(),
            read: Digest::default(),
            refused: Vec::new(),
            drops: 0,
        }));
        self.sockets.add(Socket::new(node, local, options, kind))
    }
}
