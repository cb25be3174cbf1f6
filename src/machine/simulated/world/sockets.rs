//! The sockets of all nodes.

use super::{
    World,
    datagrams::Datagrams,
    poll::PollWatch,
    ports::{BindOptions, PortRole, covers, seen_from},
    stream::StreamSocket,
};
use crate::machine::simulated::{ids::SocketId, run::ReadyEvent};
use std::{
    collections::{BTreeMap, VecDeque},
    io,
    net::{IpAddr, SocketAddr},
};

pub(super) struct Socket {
    pub(super) node: usize,
    pub(super) local: SocketAddr,
    /// Sockets are numbered in the order in which they were opened.
    pub(super) opened: u64,
    pub(super) options: BindOptions,
    pub(super) watch: Option<PollWatch>,
    /// Edges that are scheduled for later.
    pub(super) late_edges: u32,
    pub(super) kind: SocketKind,
}

pub(super) enum SocketKind {
    /// Connections that wait to be accepted, and since when.
    Listener {
        backlog: VecDeque<(SocketId, u64)>,
        limit: usize,
    },
    Stream(Box<StreamSocket>),
    Datagrams(Box<Datagrams>),
}

/// The sockets of a port, in the order in which they were opened.
type AtPort = BTreeMap<u64, SocketId>;

/// All sockets by their number.
#[derive(Default)]
pub(super) struct Sockets {
    places: Vec<Place>,
    /// Places of sockets that are gone, the oldest first.
    free: VecDeque<usize>,
    ports: BTreeMap<(PortRole, usize, u16), AtPort>,
    /// Counts all sockets.
    opened: u64,
}

impl Socket {
    pub(super) fn new(node: usize, local: SocketAddr, options: BindOptions, kind: SocketKind) -> Self {
        Socket { node, local, opened: 0, options, watch: None, late_edges: 0, kind }
    }

    pub(super) fn role(&self) -> PortRole {
        match self.kind {
            SocketKind::Listener { .. } => PortRole::Listener,
            SocketKind::Stream(_) => PortRole::Stream,
            SocketKind::Datagrams(_) => PortRole::Datagrams,
        }
    }

    /// Returns whether another socket with these options cannot bind the same port at `ip`.
    pub(super) fn excludes(&self, ip: IpAddr, options: BindOptions) -> bool {
        let overlaps = self.covers(ip) || covers(ip, options.only_v6, self.local.ip());
        let listens = self.role() == PortRole::Listener;
        let shares_address = self.options.reuse_address && options.reuse_address && !listens;
        overlaps && !shares_address && !(self.options.reuse_port && options.reuse_port)
    }

    /// Returns whether the socket receives packets to `ip`.
    pub(super) fn covers(&self, ip: IpAddr) -> bool {
        covers(self.local.ip(), self.options.only_v6, ip)
    }
}

#[derive(Default)]
struct Place {
    life: u32,
    socket: Option<Box<Socket>>,
}

/// How many places are free before one is used again, so that a number is not used again soon.
const RESTING: usize = 4096;

impl Sockets {
    /// Adds a socket.
    ///
    /// # Errors
    /// `ENFILE` if all places are used.
    pub(super) fn add(&mut self, mut socket: Socket) -> io::Result<SocketId> {
        if self.are_full() {
            return Err(io::Error::from_raw_os_error(23));
        }
        let port = (socket.role(), socket.node, socket.local.port());
        self.opened += 1;
        socket.opened = self.opened;
        let may_rest = self.places.len() < SocketId::PLACES && self.free.len() <= RESTING;
        let free = if may_rest { None } else { self.free.pop_front() };
        let place = free.unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        });
        self.places[place].socket = Some(Box::new(socket));
        let id = SocketId::new(place, self.places[place].life);
        self.ports.entry(port).or_default().insert(self.opened, id);
        Ok(id)
    }

    /// Returns whether all places are used.
    pub(super) fn are_full(&self) -> bool {
        self.places.len() >= SocketId::PLACES && self.free.is_empty()
    }

    /// Returns the sockets of a node with this port, in the order in which they were opened.
    pub(super) fn at_port(
        &self,
        role: PortRole,
        node: usize,
        port: u16,
    ) -> impl Iterator<Item = (SocketId, &Socket)> {
        let ids = self.ports.get(&(role, node, port));
        ids.into_iter().flatten().filter_map(|(_, id)| Some((*id, self.get(*id)?)))
    }

    pub(super) fn get(&self, id: SocketId) -> Option<&Socket> {
        let place = self.places.get(id.place())?;
        place.socket.as_deref().filter(|_| place.life == id.life())
    }

    pub(super) fn get_mut(&mut self, id: SocketId) -> Option<&mut Socket> {
        let place = self.places.get_mut(id.place())?;
        place.socket.as_deref_mut().filter(|_| place.life == id.life())
    }

    fn take(&mut self, id: SocketId) -> Option<Box<Socket>> {
        self.get(id)?;
        let place = &mut self.places[id.place()];
        place.life = (place.life + 1) % SocketId::LIVES;
        self.free.push_back(id.place());
        place.socket.take()
    }

    /// Returns the numbers of all sockets, and the sockets.
    fn all(&self) -> impl Iterator<Item = (SocketId, &Socket)> + '_ {
        let numbered = self.places.iter().enumerate();
        numbered.filter_map(|(n, place)| Some((SocketId::new(n, place.life), place.socket.as_deref()?)))
    }

    pub(super) fn stream(&mut self, id: SocketId) -> Option<&mut StreamSocket> {
        match &mut self.get_mut(id)?.kind {
            SocketKind::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    pub(super) fn datagrams(&mut self, id: SocketId) -> Option<&mut Datagrams> {
        match &mut self.get_mut(id)?.kind {
            SocketKind::Datagrams(datagrams) => Some(datagrams),
            _ => None,
        }
    }

    pub(super) fn remove(&mut self, id: SocketId) {
        let Some(socket) = self.take(id) else { return };
        let port = (socket.role(), socket.node, socket.local.port());
        if let Some(ids) = self.ports.get_mut(&port) {
            ids.remove(&socket.opened);
            if ids.is_empty() {
                self.ports.remove(&port);
            }
        }
    }

    /// Returns the sockets of a node that are open.
    pub(super) fn of_node(&self, node: usize) -> impl Iterator<Item = SocketId> + '_ {
        self.all().filter(move |(_, socket)| socket.node == node).map(|(id, _)| id)
    }
}

impl World {
    /// Fails if the node has no descriptor for another socket.
    pub(crate) fn descriptor(&self, node: usize) -> io::Result<()> {
        if self.now() < self.nodes[node].out_of_descriptors_until {
            // EMFILE
            return Err(io::Error::from_raw_os_error(24));
        }
        Ok(())
    }

    /// Returns the local address, as the program of the socket sees it.
    pub(crate) fn local_address(&self, id: SocketId) -> io::Result<SocketAddr> {
        let socket = self.sockets.get(id).ok_or(io::ErrorKind::NotConnected)?;
        Ok(match &socket.kind {
            SocketKind::Datagrams(datagrams) => seen_from(datagrams.bound.ip(), socket.local),
            SocketKind::Stream(stream) => seen_from(stream.remote.ip(), socket.local),
            SocketKind::Listener { .. } => socket.local,
        })
    }

    /// Returns the present readiness of a watched socket.
    pub(super) fn readiness(&self, id: SocketId, watch: PollWatch) -> ReadyEvent {
        let mut event = ReadyEvent {
            token: watch.token,
            readable: false,
            writable: false,
            read_closed: false,
            hang_up: false,
            error: false,
        };
        let Some(socket) = self.sockets.get(id) else { return event };
        match &socket.kind {
            SocketKind::Listener { backlog, .. } => event.readable = !backlog.is_empty(),
            SocketKind::Stream(stream) => stream.readiness(&mut event),
            SocketKind::Datagrams(datagrams) => datagrams.readiness(&mut event),
        }
        event.readable &= watch.readable;
        event.read_closed &= watch.readable;
        event.writable &= watch.writable;
        event
    }

    /// Returns a watched socket whose program has not read for longer than `limit`.
    pub(crate) fn unread_for(&self, limit: u64) -> Option<(usize, SocketId)> {
        let before = self.now().checked_sub(limit)?;
        let is_well = |node: usize| self.nodes[node].is_up && self.nodes[node].stalled_until < before;
        let unread = self.sockets.all().find(|(id, socket)| {
            socket.watch.is_some() && self.is_unread_since(*id, before) && is_well(socket.node)
        });
        unread.map(|(id, socket)| (socket.node, id))
    }

    /// Returns the number of open sockets of a node.
    pub(crate) fn open_sockets(&self, node: usize) -> usize {
        self.sockets.of_node(node).filter(|id| self.is_held(*id)).count()
    }

    fn is_held(&self, id: SocketId) -> bool {
        match self.sockets.get(id).map(|socket| &socket.kind) {
            Some(SocketKind::Stream(stream)) => stream.is_held(),
            Some(_) => true,
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_under_other_numbers() {
        let mut sockets = Sockets::default();
        let socket = || {
            let local = SocketAddr::from(([10, 0, 0, 1], 1));
            let kind = SocketKind::Datagrams(Box::new(Datagrams::new(local)));
            Socket::new(0, local, BindOptions::default(), kind)
        };
        let first = sockets.add(socket()).unwrap();
        sockets.remove(first);
        let mut last = first;
        for _ in 0..3 * RESTING {
            let next = sockets.add(socket()).unwrap();
            assert!(next != last && next != first, "{next}");
            assert!(sockets.get(first).is_none() && sockets.get(next).is_some());
            sockets.remove(next);
            last = next;
        }
        assert!(sockets.places.len() <= RESTING + 2, "{}", sockets.places.len());
        assert_eq!(sockets.all().count(), 0);
    }
}
