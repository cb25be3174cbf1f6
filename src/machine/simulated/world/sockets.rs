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

/// All sockets by their number. Numbers are not used again.
#[derive(Default)]
pub(super) struct Sockets {
    all: Vec<Option<Box<Socket>>>,
    ports: BTreeMap<(Role, usize, u16), AtPort>,
    /// Counts all sockets.
    opened: u64,
}

impl Socket {
    pub(super) fn new(node: usize, local: SocketAddr, options: BindOptions, kind: Kind) -> Self {
        Socket { node, local, opened: 0, options, watch: None, kind }
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

impl Sockets {
    pub(crate) fn add(&mut self, mut socket: Socket) -> usize {
        let id = self.all.len();
        let port = (socket.role(), socket.node, socket.local.port());
        self.opened += 1;
        socket.opened = self.opened;
        self.ports.entry(port).or_default().insert(self.opened, id);
        self.all.push(Some(Box::new(socket)));
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
        self.all.get(id)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, id: usize) -> Option<&mut Socket> {
        self.all.get_mut(id)?.as_deref_mut()
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
        let Some(socket) = self.all.get_mut(id).and_then(Option::take) else { return };
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
        let open = self.all.iter().enumerate();
        open.filter(move |(_, socket)| socket.as_ref().is_some_and(|socket| socket.node == node))
            .map(|(id, _)| id)
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
        for node in 0..self.nodes.len() {
            let is_well = self.nodes[node].is_up && self.nodes[node].stalled_until < before;
            let unread = |id: &usize| {
                self.sockets.get(*id).is_some_and(|socket| socket.watch.is_some())
                    && self.is_unread_since(*id, before)
            };
            if is_well && let Some(id) = self.sockets.of_node(node).find(unread) {
                return Some((node, id));
            }
        }
        None
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
