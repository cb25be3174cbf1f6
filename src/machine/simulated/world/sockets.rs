//! The sockets of all nodes.

use super::{
    World,
    datagrams::Datagrams,
    poll::Watch,
    ports::{BindOptions, Role, covers},
    stream::Stream,
};
use crate::machine::simulated::ReadyEvent;
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
    pub(super) watch: Option<Watch>,
    /// Edges that are scheduled for later.
    pub(super) late_edges: u32,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    /// Connections that wait to be accepted, and since when.
    Listener {
        backlog: VecDeque<(usize, u64)>,
        limit: usize,
    },
    Stream(Box<Stream>),
    Datagrams(Box<Datagrams>),
}

/// The sockets of a port, in the order in which they were opened.
type AtPort = BTreeMap<u64, usize>;

/// All sockets by their number: their place, and how often the place was used before.
#[derive(Default)]
pub(super) struct Sockets {
    places: Vec<Place>,
    /// Places of sockets that are gone, the oldest first.
    free: VecDeque<usize>,
    ports: BTreeMap<(Role, usize, u16), AtPort>,
    /// Counts all sockets.
    opened: u64,
}

impl Socket {
    pub(super) fn new(node: usize, local: SocketAddr, options: BindOptions, kind: Kind) -> Self {
        Socket { node, local, opened: 0, options, watch: None, late_edges: 0, kind }
    }

    pub(super) fn role(&self) -> Role {
        match self.kind {
            Kind::Listener { .. } => Role::Listener,
            Kind::Stream(_) => Role::Stream,
            Kind::Datagrams(_) => Role::Datagrams,
        }
    }

    /// Returns whether another socket with these options cannot bind the same port at `ip`.
    pub(super) fn excludes(&self, ip: IpAddr, options: BindOptions) -> bool {
        let overlaps = self.covers(ip) || covers(ip, options.only_v6, self.local.ip());
        let listens = self.role() == Role::Listener;
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
    life: usize,
    socket: Option<Box<Socket>>,
}

/// The bits of a number that are the place.
const PLACE: u32 = 20;

/// The bits of a number that are the life of the place.
const LIFE: u32 = 12;

/// How many places are free before one is used again, so that a number is not used again soon.
const RESTING: usize = 4096;

impl Sockets {
    pub(crate) fn add(&mut self, mut socket: Socket) -> usize {
        let port = (socket.role(), socket.node, socket.local.port());
        self.opened += 1;
        socket.opened = self.opened;
        let free = (self.free.len() > RESTING).then(|| self.free.pop_front()).flatten();
        let place = free.unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        });
        assert!(place < 1 << PLACE, "a simulation has at most {} sockets", 1 << PLACE);
        self.places[place].socket = Some(Box::new(socket));
        let id = self.places[place].life << PLACE | place;
        self.ports.entry(port).or_default().insert(self.opened, id);
        id
    }

    /// Returns the sockets of a node with this port, in the order in which they were opened.
    pub(super) fn at_port(
        &self,
        role: Role,
        node: usize,
        port: u16,
    ) -> impl Iterator<Item = (usize, &Socket)> {
        let ids = self.ports.get(&(role, node, port));
        ids.into_iter().flatten().filter_map(|(_, id)| Some((*id, self.get(*id)?)))
    }

    pub(crate) fn get(&self, id: usize) -> Option<&Socket> {
        let place = self.places.get(id & ((1 << PLACE) - 1))?;
        place.socket.as_deref().filter(|_| place.life == id >> PLACE)
    }

    pub(crate) fn get_mut(&mut self, id: usize) -> Option<&mut Socket> {
        let place = self.places.get_mut(id & ((1 << PLACE) - 1))?;
        place.socket.as_deref_mut().filter(|_| place.life == id >> PLACE)
    }

    fn take(&mut self, id: usize) -> Option<Box<Socket>> {
        self.get(id)?;
        let place = &mut self.places[id & ((1 << PLACE) - 1)];
        place.life = (place.life + 1) & ((1 << LIFE) - 1);
        self.free.push_back(id & ((1 << PLACE) - 1));
        place.socket.take()
    }

    /// Returns the numbers of all sockets, and the sockets.
    fn all(&self) -> impl Iterator<Item = (usize, &Socket)> + '_ {
        let numbered = self.places.iter().enumerate();
        numbered.filter_map(|(n, place)| Some((place.life << PLACE | n, place.socket.as_deref()?)))
    }

    pub(crate) fn stream(&mut self, id: usize) -> Option<&mut Stream> {
        match &mut self.get_mut(id)?.kind {
            Kind::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    pub(crate) fn datagrams(&mut self, id: usize) -> Option<&mut Datagrams> {
        match &mut self.get_mut(id)?.kind {
            Kind::Datagrams(datagrams) => Some(datagrams),
            _ => None,
        }
    }

    pub(crate) fn remove(&mut self, id: usize) {
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
    pub(crate) fn of_node(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
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

    /// Returns the present readiness of a watched socket.
    pub(crate) fn readiness(&self, id: usize, watch: Watch) -> ReadyEvent {
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
            Kind::Listener { backlog, .. } => event.readable = !backlog.is_empty(),
            Kind::Stream(stream) => stream.readiness(&mut event),
            Kind::Datagrams(datagrams) => datagrams.readiness(&mut event),
        }
        event.readable &= watch.readable;
        event.read_closed &= watch.readable;
        event.writable &= watch.writable;
        event
    }

    /// Returns a watched socket whose program has not read for longer than `limit`.
    pub(crate) fn unread_for(&self, limit: u64) -> Option<(usize, usize)> {
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

    fn is_held(&self, id: usize) -> bool {
        match self.sockets.get(id).map(|socket| &socket.kind) {
            Some(Kind::Stream(stream)) => stream.is_held(),
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
            let kind = Kind::Datagrams(Box::new(Datagrams::new(local)));
            Socket::new(0, local, BindOptions::default(), kind)
        };
        let first = sockets.add(socket());
        sockets.remove(first);
        let mut last = first;
        for _ in 0..3 * RESTING {
            let next = sockets.add(socket());
            assert!(next != last && next != first && u32::try_from(next).is_ok(), "{next}");
            assert!(sockets.get(first).is_none() && sockets.get(next).is_some());
            sockets.remove(next);
            last = next;
        }
        assert!(sockets.places.len() <= RESTING + 2, "{}", sockets.places.len());
        assert_eq!(sockets.all().count(), 0);
    }
}
