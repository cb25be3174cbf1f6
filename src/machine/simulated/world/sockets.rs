//! The sockets of all nodes.

use super::{World, datagrams::Datagrams, poll::Watch, stream::Stream};
use crate::machine::simulated::ReadyEvent;
use std::{
    collections::{BTreeMap, VecDeque},
    io,
    net::{IpAddr, SocketAddr},
};

pub(super) struct Socket {
    pub(super) node: usize,
    pub(super) local: SocketAddr,
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

/// All sockets by their number: their place, and how often the place was used before.
#[derive(Default)]
pub(super) struct Sockets {
    places: Vec<Place>,
    /// Places of sockets that are gone, the oldest first.
    free: VecDeque<usize>,
    /// Listeners by node and port. Several share a port with `SO_REUSEPORT`.
    pub(super) listeners: BTreeMap<(usize, u16), Vec<usize>>,
    /// Bound datagram sockets by node and port.
    pub(super) bound: BTreeMap<(usize, u16), Vec<usize>>,
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
    pub(crate) fn add(&mut self, socket: Socket) -> usize {
        let free = (self.free.len() > RESTING).then(|| self.free.pop_front()).flatten();
        let place = free.unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        });
        assert!(place < 1 << PLACE, "a simulation has at most {} sockets", 1 << PLACE);
        self.places[place].socket = Some(Box::new(socket));
        self.places[place].life << PLACE | place
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
        let names = match socket.kind {
            Kind::Listener { .. } => &mut self.listeners,
            Kind::Datagrams(_) => &mut self.bound,
            Kind::Stream(_) => return,
        };
        let key = (socket.node, socket.local.port());
        if let Some(ids) = names.get_mut(&key) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                names.remove(&key);
            }
        }
    }

    /// Returns the sockets of a node that are open.
    pub(crate) fn of_node(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.all().filter(move |(_, socket)| socket.node == node).map(|(id, _)| id)
    }
}

impl World {
    /// Returns the address to bind: an address of the node, with a free port in place of 0.
    pub(crate) fn bind(
        &mut self,
        node: usize,
        address: SocketAddr,
        is_stream: bool,
    ) -> io::Result<SocketAddr> {
        let ip = address.ip();
        if !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast() && ip != self.nodes[node].address {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        if address.port() != 0 {
            return Ok(address);
        }
        for _ in 0..28_000 {
            let port = self.nodes[node].next_port;
            self.nodes[node].next_port = if port >= 60_999 { 32_768 } else { port + 1 };
            let names = if is_stream { &self.sockets.listeners } else { &self.sockets.bound };
            if !names.contains_key(&(node, port)) {
                return Ok(SocketAddr::new(ip, port));
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// Returns the node with an address, as seen from `from`.
    pub(crate) fn node_at(&self, from: usize, ip: IpAddr) -> Option<usize> {
        if ip.is_loopback() || ip.is_unspecified() {
            return Some(from);
        }
        self.nodes.iter().position(|node| node.address == ip)
    }

    pub(crate) fn local_address(&self, id: usize) -> io::Result<SocketAddr> {
        Ok(self.sockets.get(id).ok_or(io::ErrorKind::NotConnected)?.local)
    }

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
            let (local, kind) = (SocketAddr::from(([10, 0, 0, 1], 1)), Kind::Datagrams(Box::default()));
            Socket { node: 0, local, watch: None, late_edges: 0, kind }
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
