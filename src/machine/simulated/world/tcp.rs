//! TCP connections at the level of bytes, as the sockets of Linux show them.
//!
//! A write puts bytes into the output of a socket, which holds at most the send buffer. The head of
//! the output arrives at the peer after the delay of the link, if the peer's receive buffer has
//! room. The end of the stream (FIN) follows the last byte. A close with unread input, or input for
//! a closed socket, resets the connection (RST), which discards what is under way.

use super::{
    Action, Happening, World,
    link::retransmission,
    sockets::{Kind, Socket},
    stream::{Phase, Segment, Stream},
};
use crate::machine::simulated::Fault;
use std::{collections::VecDeque, io, net::SocketAddr};

/// How often a segment or a request is sent before the connection has failed. About two minutes.
const ATTEMPTS: u32 = 9;

impl World {
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
                totals: (0, 0),
                is_shut: false,
                is_closed: false,
                wants_room: false,
                waits_for_window: false,
                send_buffer: settings.send_buffer.max(1),
                receive_buffer: settings.receive_buffer.max(1),
                last_arrival: 0,
                attempts: 0,
            })),
        })
    }

    // ---- listening and connecting ---------------------------------------------------------------

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
        let id = self.sockets.add(Socket { node, local, watch: None, kind });
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

    // ---- bytes ----------------------------------------------------------------------------------

    pub(crate) fn read(&mut self, id: usize, buffer: &mut [u8]) -> io::Result<usize> {
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
        let is_short = has_input && self.fails(Fault::ShortRead);
        let draw = self.faults.size(Fault::ShortRead, 1..65_536) as usize;
        let stream = self.sockets.stream(id).ok_or(io::ErrorKind::NotConnected)?;
        if stream.input.is_empty() {
            if let Some(error) = stream.error.take() {
                return Err(error.into());
            }
            return match stream.phase {
                Phase::Connecting => Err(io::ErrorKind::NotConnected.into()),
                Phase::Failed => Ok(0),
                Phase::Established if stream.input_ended => Ok(0),
                Phase::Established => Err(io::ErrorKind::WouldBlock.into()),
            };
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
        stream.totals.0 += n as u64;
        if !stream.input.is_empty() || stream.input_ended {
            stream.unread_since = Some(now);
        }
        let (is_left, peer) = (!stream.input.is_empty(), stream.peer);
        self.note(Happening::Read, node, id as u64, n as u64);
        if is_short && is_left {
            // A short read says that the socket is empty, so the rest must be an edge of its own.
            let after = self.faults.size(Fault::ShortRead, 1_000..5_000_000);
            self.edge_later(id, after);
        }
        if let Some(peer) = peer
            && self.sockets.stream(peer).is_some_and(|stream| std::mem::take(&mut stream.waits_for_window))
        {
            let from = self.sockets.get(peer).map_or(node, |socket| socket.node);
            let delay = self.links.delay(node, from, 0, self.now());
            self.schedule(self.now() + delay, Action::Arrive(peer));
        }
        Ok(n)
    }

    pub(crate) fn peek(&mut self, id: usize) -> io::Result<usize> {
        let stream = self.sockets.stream(id).ok_or(io::ErrorKind::NotConnected)?;
        if !stream.input.is_empty() {
            return Ok(1);
        }
        if let Some(error) = stream.error.take() {
            return Err(error.into());
        }
        let is_over = stream.phase == Phase::Failed || stream.input_ended;
        if is_over { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    pub(crate) fn write(&mut self, id: usize, slices: &[&[u8]]) -> io::Result<usize> {
        let node = self.sockets.get(id).ok_or(io::ErrorKind::NotConnected)?.node;
        if self.fails(Fault::Interrupted) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let is_short = self.fails(Fault::ShortWrite);
        let draw = self.faults.size(Fault::ShortWrite, 0..65_536) as usize;
        let stream = self.sockets.stream(id).ok_or(io::ErrorKind::NotConnected)?;
        if let Some(error) = stream.error.take() {
            return Err(error.into());
        }
        if stream.is_shut || stream.phase == Phase::Failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if stream.phase == Phase::Connecting {
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
        let mut bytes = Vec::with_capacity(n);
        for slice in slices {
            let left = n - bytes.len();
            bytes.extend_from_slice(&slice[..slice.len().min(left)]);
        }
        stream.unacknowledged += n;
        stream.totals.1 += n as u64;
        if is_partial && is_short {
            let after = self.faults.size(Fault::ShortWrite, 1_000..5_000_000);
            self.edge_later(id, after);
        }
        if n == 0 && wanted > 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.note(Happening::Wrote, node, id as u64, n as u64);
        if n > 0 {
            self.send(id, Segment::Bytes(bytes));
        }
        Ok(n)
    }

    pub(crate) fn shut_down_write(&mut self, id: usize) -> io::Result<()> {
        let node = self.sockets.get(id).ok_or(io::ErrorKind::NotConnected)?.node;
        let stream = self.sockets.stream(id).ok_or(io::ErrorKind::NotConnected)?;
        if stream.phase != Phase::Established {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if !std::mem::replace(&mut stream.is_shut, true) {
            self.note(Happening::ShutDown, node, id as u64, 0);
            self.send(id, Segment::End);
            self.edge(id);
        }
        Ok(())
    }

    /// Queues a segment behind the others, and schedules its arrival.
    fn send(&mut self, id: usize, segment: Segment) {
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
        self.schedule(at, Action::Arrive(id));
    }

    /// Handles the arrival of a socket's output at its peer, as far as it is due.
    pub(crate) fn arrive(&mut self, id: usize) {
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
    fn arrive_one(&mut self, id: usize) -> bool {
        let Some(socket) = self.sockets.get(id) else { return false };
        let from = socket.node;
        let Some(stream) = self.sockets.stream(id) else { return false };
        let (to, peer) = (stream.remote_node, stream.peer);
        if self.links.is_cut(from, to, self.now()) || !self.nodes[to].is_up {
            let Some(stream) = self.sockets.stream(id) else { return false };
            stream.attempts += 1;
            let attempts = stream.attempts;
            if attempts > ATTEMPTS + 6 {
                self.fail(id, io::ErrorKind::TimedOut);
            } else {
                self.schedule(self.now() + retransmission(attempts - 1), Action::Arrive(id));
            }
            return false;
        }
        let Some(stream) = self.sockets.stream(id) else { return false };
        stream.attempts = 0;
        let Some((_, segment)) = stream.output.pop_front() else { return false };
        let peer =
            peer.filter(|peer| self.sockets.stream(*peer).is_some_and(|peer| peer.phase != Phase::Failed));
        let Some(peer) = peer else {
            // Nobody knows the connection: a reset comes back.
            if !matches!(segment, Segment::Reset) {
                self.fail(id, io::ErrorKind::ConnectionReset);
            }
            self.forget_if_done(id);
            return true;
        };
        let bytes = if let Segment::Bytes(bytes) = &segment { bytes.len() } else { 0 };
        self.note(Happening::Arrived, to, peer as u64, bytes as u64);
        match segment {
            Segment::Bytes(bytes) => self.deliver(id, peer, bytes, from, to),
            Segment::End => {
                if let Some(peer) = self.sockets.stream(peer) {
                    peer.input_ended = true;
                }
                self.edge_of_input(peer);
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

    fn deliver(&mut self, id: usize, peer: usize, bytes: Vec<u8>, from: usize, to: usize) {
        let Some(receiver) = self.sockets.stream(peer) else { return };
        if receiver.is_closed {
            // Input for a closed socket resets the connection.
            self.fail(peer, io::ErrorKind::ConnectionReset);
            self.fail(id, io::ErrorKind::ConnectionReset);
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
                self.schedule(self.now() + delay, Action::Acknowledged { socket: id, bytes: taken });
            } else {
                self.acknowledged(id, taken);
            }
        }
    }

    /// Reports input to the poll, possibly late.
    fn edge_of_input(&mut self, id: usize) {
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

    pub(crate) fn acknowledged(&mut self, id: usize, bytes: usize) {
        let Some(stream) = self.sockets.stream(id) else { return };
        stream.unacknowledged = stream.unacknowledged.saturating_sub(bytes);
        if stream.wants_room && stream.has_room() {
            stream.wants_room = false;
            self.edge(id);
        }
        self.forget_if_done(id);
    }

    // ---- ends -----------------------------------------------------------------------------------

    /// Closes a socket, as close(2) does.
    pub(crate) fn close(&mut self, id: usize) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let node = socket.node;
        socket.watch = None;
        match &mut socket.kind {
            Kind::Listener { backlog, .. } => {
                let waiting: Vec<usize> = backlog.drain(..).map(|(id, _)| id).collect();
                self.sockets.remove(id);
                for connection in waiting {
                    self.reset(connection);
                }
            }
            Kind::Datagrams(_) => self.sockets.remove(id),
            Kind::Stream(stream) => {
                if std::mem::replace(&mut stream.is_closed, true) {
                    return;
                }
                self.note(Happening::Closed, node, id as u64, 0);
                let Some(stream) = self.sockets.stream(id) else { return };
                match stream.phase {
                    Phase::Connecting | Phase::Failed => self.sockets.remove(id),
                    Phase::Established if !stream.input.is_empty() => self.reset(id),
                    Phase::Established => {
                        if !std::mem::replace(&mut stream.is_shut, true) {
                            self.send(id, Segment::End);
                        }
                        self.forget_if_done(id);
                    }
                }
            }
        }
    }

    /// Closes a socket and resets its connection.
    pub(crate) fn reset(&mut self, id: usize) {
        let Some(node) = self.sockets.get(id).map(|socket| socket.node) else { return };
        self.note(Happening::Reset, node, id as u64, 0);
        let Some(stream) = self.sockets.stream(id) else { return };
        if stream.phase != Phase::Established {
            stream.is_closed = true;
            self.sockets.remove(id);
            return;
        }
        stream.is_closed = true;
        stream.is_shut = true;
        // What is under way is discarded.
        stream.output.clear();
        stream.waits_for_window = false;
        stream.last_arrival = 0;
        self.send(id, Segment::Reset);
    }

    /// Ends the connection of a socket with an error.
    fn fail(&mut self, id: usize, error: io::ErrorKind) {
        let Some(node) = self.sockets.get(id).map(|socket| socket.node) else { return };
        let Some(stream) = self.sockets.stream(id) else { return };
        if stream.phase == Phase::Failed {
            return;
        }
        // After the end of the input, a reset is a broken pipe.
        let is_broken = stream.input_ended && error == io::ErrorKind::ConnectionReset;
        stream.error = Some(if is_broken { io::ErrorKind::BrokenPipe } else { error });
        stream.phase = Phase::Failed;
        stream.output.clear();
        stream.unacknowledged = 0;
        let is_closed = stream.is_closed;
        self.note(Happening::Reset, node, id as u64, 1);
        if is_closed { self.sockets.remove(id) } else { self.edge(id) }
    }

    /// Removes a closed socket when all its output and the end of the stream have arrived.
    fn forget_if_done(&mut self, id: usize) {
        let Some(stream) = self.sockets.stream(id) else { return };
        if stream.is_closed
            && stream.output.is_empty()
            && (stream.input_ended || stream.phase == Phase::Failed)
        {
            self.sockets.remove(id);
        }
    }

    /// Resets a random connection, from outside. Returns whether there is one.
    pub(crate) fn reset_any(&mut self, node: usize, choice: u64) -> bool {
        let open: Vec<usize> = self.sockets.of_node(node).collect();
        let streams: Vec<usize> = open
            .into_iter()
            .filter(|id| {
                self.sockets.stream(*id).is_some_and(|s| s.phase == Phase::Established && !s.is_closed)
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
    pub(crate) fn is_unread_since(&self, id: usize, time: u64) -> bool {
        match self.sockets.get(id).map(|socket| &socket.kind) {
            Some(Kind::Listener { backlog, .. }) => backlog.front().is_some_and(|(_, since)| *since < time),
            Some(Kind::Stream(stream)) => {
                let is_read = stream.is_closed || stream.phase != Phase::Established;
                !is_read && stream.unread_since.is_some_and(|since| since < time)
            }
            _ => false,
        }
    }

    pub(crate) fn take_error(&mut self, id: usize) -> Option<io::Error> {
        self.sockets.stream(id).and_then(|stream| stream.error.take()).map(Into::into)
    }

    /// Fails if the socket is not connected.
    pub(crate) fn has_peer(&mut self, id: usize) -> io::Result<()> {
        match self.sockets.stream(id) {
            Some(stream) if stream.phase == Phase::Established => Ok(()),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}
