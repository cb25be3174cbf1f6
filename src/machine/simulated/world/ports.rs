//! Addresses and ports: which a socket may bind, and which node an address leads to.

use super::World;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

/// The first and the last port that the system chooses, as on Linux.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// The error of a socket that is given an address of another version.
pub(super) const EAFNOSUPPORT: i32 = 97;

/// A kind of socket that has a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PortRole {
    Listener,
    Stream,
    Datagrams,
}

/// The sockets of each protocol. The protocols have ports of their own.
pub(super) const TCP: &[PortRole] = &[PortRole::Listener, PortRole::Stream];
pub(super) const UDP: &[PortRole] = &[PortRole::Datagrams];

/// Options of a socket that decide with which others it can share a port.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BindOptions {
    /// `SO_REUSEADDR`: shares the port with sockets that have it too, and do not listen.
    pub(crate) reuse_address: bool,
    /// `SO_REUSEPORT`: shares the port with sockets that have it too.
    pub(crate) reuse_port: bool,
    /// `IPV6_V6ONLY`: the wildcard does not contain addresses of version 4.
    pub(crate) only_v6: bool,
}

impl World {
    /// Returns the address to bind: an address of the node, with a free port in place of 0.
    pub(super) fn bind(
        &mut self,
        node: usize,
        address: SocketAddr,
        roles: &[PortRole],
        options: BindOptions,
    ) -> io::Result<SocketAddr> {
        let ip = address.ip();
        if !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast() && ip != self.nodes[node].address {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        if address.port() != 0 {
            let others = |role| self.sockets.at_port(role, node, address.port());
            let excludes = |role: &PortRole| others(*role).any(|(_, other)| other.excludes(ip, options));
            let is_taken = roles.iter().any(excludes);
            return if is_taken { Err(io::ErrorKind::AddrInUse.into()) } else { Ok(address) };
        }
        for _ in EPHEMERAL {
            let port = self.nodes[node].next_port;
            self.nodes[node].next_port = if port >= *EPHEMERAL.end() { *EPHEMERAL.start() } else { port + 1 };
            if roles.iter().all(|role| self.sockets.at_port(*role, node, port).next().is_none()) {
                return Ok(SocketAddr::new(ip, port));
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// Returns the node with an address, as seen from `from`.
    pub(super) fn node_at(&self, from: usize, ip: IpAddr) -> Option<usize> {
        if ip.is_loopback() || ip.is_unspecified() {
            return Some(from);
        }
        self.nodes.iter().position(|node| node.address == ip)
    }

    /// Fails if a socket of a node that is bound to `local` cannot send to `to`, as on Linux. A
    /// loopback address reaches the node itself only.
    pub(super) fn check_reach(&self, node: usize, local: IpAddr, to: IpAddr) -> io::Result<()> {
        let is_martian = local.to_canonical().is_loopback() && self.node_at(node, to) != Some(node);
        if is_martian { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(()) }
    }

    /// Returns the address at which a node sends to `to`, if the program leaves that open.
    pub(super) fn source_ip(&self, node: usize, to: IpAddr) -> IpAddr {
        if to.is_loopback() { loopback(to) } else { self.nodes[node].address }
    }
}

/// Returns the error of Linux if a socket bound to `local` cannot reach `to`, because the versions
/// of IP differ. The wildcard of version 6 also reaches addresses of version 4.
pub(super) fn check_route(local: IpAddr, to: IpAddr) -> io::Result<()> {
    let error = match (local.to_canonical().is_ipv4(), to.to_canonical().is_ipv4()) {
        _ if local == Ipv6Addr::UNSPECIFIED => return Ok(()),
        _ if local.is_ipv4() && to.is_ipv6() => EAFNOSUPPORT,
        (true, false) => EAFNOSUPPORT,
        (false, true) => return Err(io::ErrorKind::NetworkUnreachable.into()),
        _ => return Ok(()),
    };
    Err(io::Error::from_raw_os_error(error))
}

/// Returns whether a socket that is bound at `local` receives packets to `ip`.
pub(super) fn covers(local: IpAddr, only_v6: bool, ip: IpAddr) -> bool {
    local == ip || (local.is_unspecified() && local.is_ipv4() == ip.is_ipv4()) || {
        local == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && !only_v6
    }
}

fn loopback(like: IpAddr) -> IpAddr {
    if like.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() }
}

/// Returns the destination of packets to `to`: the wildcard stands for the machine itself.
pub(super) fn destination(to: SocketAddr) -> SocketAddr {
    let ip = if to.ip().is_unspecified() { loopback(to.ip()) } else { to.ip().to_canonical() };
    SocketAddr::new(ip, to.port())
}

/// Returns an address as a socket that was bound at `bound` sees it. A socket of version 6 sees
/// addresses of version 4 as mapped ones.
pub(super) fn seen_from(bound: IpAddr, address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if bound.is_ipv6() => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        _ => address,
    }
}
