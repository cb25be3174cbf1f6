//! UDP sockets, non-blocking from the start, and their options.
//!
//! Invariant: one call sends or receives one whole datagram. A read buffer of 64 KiB is larger than
//! any datagram over IPv4 (at most 65,507 bytes) or IPv6 (65,527), so datagrams are never
//! truncated.

use super::options::socket_options::{
    IpVersion, LINUX, check_buffer, check_hops, check_reuse_port, set_buffers, set_hops, set_reuse_port,
};
use crate::error::{Error, Result};
#[cfg(feature = "simulation")]
use crate::machine::simulated::{BindOptions, SimulatedSocket};
use mio::event::Source;
#[cfg(any(target_os = "linux", target_os = "android"))]
use socket2::SockRef;
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

/// Options of a UDP socket. Options that are not set keep the operating system's value.
///
/// | option | default | unit |
/// |---|---|---|
/// | `reuse_address` | off; if on, several sockets may share an address, for example receivers of a multicast group | |
/// | `reuse_port` | off; if on, the kernel distributes datagrams over all sockets of one user with the same address (Unix) | |
/// | `broadcast` | off: sending to a broadcast address fails | |
/// | `send_buffer`, `receive_buffer` | the system's | bytes (Linux doubles the value) |
/// | `time_to_live` | the system's, usually 64 | hops, 1 to 255 |
/// | `multicast_time_to_live` | the system's, 1: the local network | hops, 0 to 255 |
/// | `multicast_loop` | the system's, on: the sending machine also receives | |
/// | `multicast_interface_v4`, `multicast_interface_v6` | chosen by the system | |
/// | `join` | no groups | |
///
/// On Linux, numbers of hops and `multicast_loop` of a socket for IPv6 and IPv4 (`[::]`) apply to
/// both.
///
/// See ip(7), ipv6(7) and udp(7).
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct UdpOptions {
    reuse_address: bool,
    reuse_port: bool,
    broadcast: bool,
    send_buffer: Option<usize>,
    receive_buffer: Option<usize>,
    time_to_live: Option<u32>,
    multicast_time_to_live: Option<u32>,
    multicast_loop: Option<bool>,
    multicast_interface_v4: Option<Ipv4Addr>,
    multicast_interface_v6: Option<u32>,
    groups: Vec<MulticastGroup>,
}

impl UdpOptions {
    /// Returns the default options (see the table above).
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `SO_REUSEADDR`: allows several sockets to share an address.
    pub fn reuse_address(mut self, on: bool) -> Self {
        self.reuse_address = on;
        self
    }

    /// Sets `SO_REUSEPORT`: distributes datagrams over several sockets with the same address.
    /// Refused on systems that do not support it.
    pub fn reuse_port(mut self, on: bool) -> Self {
        self.reuse_port = on;
        self
    }

    /// Sets `SO_BROADCAST`: allows sending to broadcast addresses.
    pub fn broadcast(mut self, on: bool) -> Self {
        self.broadcast = on;
        self
    }

    /// Sets `SO_SNDBUF`, the size of the kernel's send buffer in bytes.
    pub fn send_buffer(mut self, bytes: usize) -> Self {
        self.send_buffer = Some(bytes);
        self
    }

    /// Sets `SO_RCVBUF`, the size of the kernel's receive buffer in bytes. Datagrams that arrive
    /// while it is full are lost.
    pub fn receive_buffer(mut self, bytes: usize) -> Self {
        self.receive_buffer = Some(bytes);
        self
    }

    /// Sets `IP_TTL` or `IPV6_UNICAST_HOPS`: the maximum number of hops of a datagram.
    pub fn time_to_live(mut self, hops: u32) -> Self {
        self.time_to_live = Some(hops);
        self
    }

    /// Sets `IP_MULTICAST_TTL` or `IPV6_MULTICAST_HOPS`: the maximum number of hops of a multicast
    /// datagram.
    pub fn multicast_time_to_live(mut self, hops: u32) -> Self {
        self.multicast_time_to_live = Some(hops);
        self
    }

    /// Sets `IP_MULTICAST_LOOP` or `IPV6_MULTICAST_LOOP`: whether multicast datagrams are also
    /// delivered on the sending machine.
    pub fn multicast_loop(mut self, on: bool) -> Self {
        self.multicast_loop = Some(on);
        self
    }

    /// Sets `IP_MULTICAST_IF`: the interface for outgoing multicast datagrams of an IPv4 socket,
    /// given by one of its addresses.
    pub fn multicast_interface_v4(mut self, interface: Ipv4Addr) -> Self {
        self.multicast_interface_v4 = Some(interface);
        self
    }

    /// Sets `IPV6_MULTICAST_IF`: the interface for outgoing multicast datagrams of an IPv6 socket,
    /// given by its index.
    pub fn multicast_interface_v6(mut self, interface: u32) -> Self {
        self.multicast_interface_v6 = Some(interface);
        self
    }

    /// Joins a multicast group when the socket is opened. May be called several times.
    pub fn join(mut self, group: MulticastGroup) -> Self {
        self.groups.push(group);
        self
    }

    pub(crate) fn check(&self) -> Result {
        check_buffer("send_buffer", self.send_buffer)?;
        check_buffer("receive_buffer", self.receive_buffer)?;
        check_hops("time_to_live", self.time_to_live)?;
        if let Some(hops) = self.multicast_time_to_live
            && hops > 255
        {
            return Err(Error::setting("multicast_time_to_live", hops, "0 to 255 hops"));
        }
        if self.reuse_port {
            check_reuse_port("reuse_port")?;
        }
        self.groups.iter().try_for_each(MulticastGroup::check)
    }

    fn apply_before_bind(&self, socket: &Socket) -> io::Result<()> {
        if self.reuse_address {
            socket.set_reuse_address(true)?;
        }
        if self.reuse_port {
            set_reuse_port(socket)?;
        }
        if self.broadcast {
            socket.set_broadcast(true)?;
        }
        set_buffers(socket, self.send_buffer, self.receive_buffer)
    }

    fn apply(&self, socket: &Socket, v4: bool) -> io::Result<()> {
        for version in versions(socket, v4)? {
            if let Some(hops) = self.time_to_live {
                set_hops(socket, *version, hops)?;
            }
            let is_v4 = *version == IpVersion::V4;
            if let Some(hops) = self.multicast_time_to_live {
                if is_v4 { socket.set_multicast_ttl_v4(hops) } else { socket.set_multicast_hops_v6(hops) }?;
            }
            if let Some(on) = self.multicast_loop {
                if is_v4 { socket.set_multicast_loop_v4(on) } else { socket.set_multicast_loop_v6(on) }?;
            }
        }
        match (self.multicast_interface_v4, self.multicast_interface_v6) {
            (Some(interface), _) if v4 => socket.set_multicast_if_v4(&interface)?,
            (_, Some(interface)) if !v4 => socket.set_multicast_if_v6(interface)?,
            _ => {}
        }
        Ok(())
    }
}

/// Returns the versions of IP that the socket sends. An IPv6 socket may also send to IPv4-mapped
/// addresses, and Linux takes the options of IPv4 for these.
fn versions(socket: &Socket, v4: bool) -> io::Result<&'static [IpVersion]> {
    if v4 {
        return Ok(&[IpVersion::V4]);
    }
    let is_dual = LINUX && !socket.only_v6()?;
    Ok(if is_dual { &[IpVersion::V6, IpVersion::V4] } else { &[IpVersion::V6] })
}

/// A multicast group, and the interface on which it is joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MulticastGroup {
    /// An IPv4 group.
    V4 {
        /// The group's address, 224.0.0.0 to 239.255.255.255.
        group: Ipv4Addr,
        /// An address of the interface. If unspecified (0.0.0.0), the system chooses.
        interface: Ipv4Addr,
    },
    /// An IPv6 group.
    V6 {
        /// The group's address, in ff00::/8.
        group: Ipv6Addr,
        /// The index of the interface. If 0, the system chooses.
        interface: u32,
    },
}

impl From<IpAddr> for MulticastGroup {
    /// Selects the group on an interface chosen by the system.
    fn from(group: IpAddr) -> Self {
        match group {
            IpAddr::V4(group) => MulticastGroup::V4 { group, interface: Ipv4Addr::UNSPECIFIED },
            IpAddr::V6(group) => MulticastGroup::V6 { group, interface: 0 },
        }
    }
}

impl MulticastGroup {
    fn check(&self) -> Result {
        let group: IpAddr = match *self {
            MulticastGroup::V4 { group, .. } => group.into(),
            MulticastGroup::V6 { group, .. } => group.into(),
        };
        if group.is_multicast() {
            return Ok(());
        }
        Err(Error::setting("group", group, "224.0.0.0 to 239.255.255.255, ff00::/8"))
    }
}

/// A socket of the system or of a simulation.
#[derive(Debug)]
enum Datagrams {
    System(mio::net::UdpSocket),
    #[cfg(feature = "simulation")]
    Simulated(SimulatedSocket),
}

/// A non-blocking UDP socket.
#[derive(Debug)]
pub(crate) struct UdpSocket {
    socket: Datagrams,
    /// The local address before the socket was connected.
    bound: SocketAddr,
}

impl UdpSocket {
    /// Returns the socket of a simulation.
    #[cfg(feature = "simulation")]
    pub(crate) fn simulated(&self) -> Option<&SimulatedSocket> {
        match &self.socket {
            Datagrams::Simulated(socket) => Some(socket),
            _ => None,
        }
    }

    /// Opens and binds a socket, and joins the groups of `options`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] with the system's error and the failed step.
    pub(crate) fn bind(address: SocketAddr, options: &UdpOptions) -> Result<Self> {
        let failed = |operation| move |e| Error::io(operation, e);
        #[cfg(feature = "simulation")]
        if crate::machine::simulated::current().is_some() {
            let bind = BindOptions {
                reuse_address: options.reuse_address,
                reuse_port: options.reuse_port,
                only_v6: false,
            };
            let socket = SimulatedSocket::bind_datagrams(address, bind).map_err(failed("binding"))?;
            let bound = socket.local_address().map_err(failed("binding"))?;
            let socket = UdpSocket { socket: Datagrams::Simulated(socket), bound };
            options.groups.iter().try_for_each(|group| socket.join(group))?;
            return Ok(socket);
        }
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
            .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
            .map_err(failed("opening a socket"))?;
        options.apply_before_bind(&socket).map_err(failed("setting a socket's options"))?;
        socket.bind(&address.into()).map_err(failed("binding"))?;
        options.apply(&socket, address.is_ipv4()).map_err(failed("setting a socket's options"))?;
        let socket = mio::net::UdpSocket::from_std(socket.into());
        let bound = socket.local_addr().map_err(failed("binding"))?;
        let socket = UdpSocket { socket: Datagrams::System(socket), bound };
        options.groups.iter().try_for_each(|group| socket.join(group))?;
        Ok(socket)
    }

    /// Sends a datagram to `to`, or to the peer of a connected socket.
    #[inline]
    pub(crate) fn send(&self, datagram: &[u8], to: Option<SocketAddr>) -> io::Result<usize> {
        match (&self.socket, to) {
            (Datagrams::System(socket), Some(to)) => socket.send_to(datagram, to),
            (Datagrams::System(socket), None) => socket.send(datagram),
            #[cfg(feature = "simulation")]
            (Datagrams::Simulated(socket), to) => socket.send_datagram(datagram, to),
        }
    }

    #[inline]
    pub(crate) fn receive(&self, room: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        match &self.socket {
            Datagrams::System(socket) => socket.recv_from(room),
            #[cfg(feature = "simulation")]
            Datagrams::Simulated(socket) => socket.receive_datagram(room),
        }
    }

    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        match &self.socket {
            Datagrams::System(socket) => socket.local_addr(),
            #[cfg(feature = "simulation")]
            Datagrams::Simulated(socket) => socket.local_address(),
        }
    }

    /// Sets or replaces the peer. If that fails, an earlier peer stays.
    pub(crate) fn connect(&self, peer: SocketAddr) -> Result {
        let failed = |e| Error::io("connecting", e);
        #[allow(clippy::infallible_destructuring_match, reason = "a simulation has another kind of socket")]
        let socket = match &self.socket {
            Datagrams::System(socket) => socket,
            #[cfg(feature = "simulation")]
            Datagrams::Simulated(socket) => return socket.connect_datagrams(Some(peer)).map_err(failed),
        };
        // Linux chooses the local address with the first peer and keeps it for the next one, which
        // may be behind another interface.
        let before = if LINUX && self.bound.ip().is_unspecified() { socket.peer_addr().ok() } else { None };
        let ready = if before.is_some() { self.disconnect() } else { Ok(()) };
        let connected = ready.and_then(|()| socket.connect(peer).map_err(failed));
        if let (Err(_), Some(before)) = (&connected, before) {
            connect_again(socket, before);
        }
        connected
    }

    /// Removes the peer. The local address stays the same. If that fails, the peer stays, but the
    /// local port may be another one.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn disconnect(&self) -> Result {
        let failed = |e| Error::io("disconnecting", e);
        #[allow(clippy::infallible_destructuring_match, reason = "a simulation has another kind of socket")]
        let socket = match &self.socket {
            Datagrams::System(socket) => socket,
            #[cfg(feature = "simulation")]
            Datagrams::Simulated(socket) => return socket.connect_datagrams(None).map_err(failed),
        };
        let before = socket.peer_addr().ok();
        rustix::net::connect_unspec(socket).map_err(|e| failed(e.into()))?;
        // Linux releases a port that it chose itself together with the peer, so bind it again.
        let bound = self.local_address().and_then(|local| {
            let keeps_port = local.port() == self.bound.port();
            if keeps_port { Ok(()) } else { SockRef::from(socket).bind(&self.bound.into()) }
        });
        if let (Err(_), Some(before)) = (&bound, before) {
            connect_again(socket, before);
        }
        bound.map_err(failed)
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn disconnect(&self) -> Result {
        Err(Error::io("disconnecting", io::ErrorKind::Unsupported.into()))
    }

    pub(crate) fn join(&self, group: &MulticastGroup) -> Result {
        group.check()?;
        let joined = self.of_system().and_then(|socket| match group {
            MulticastGroup::V4 { group, interface } => socket.join_multicast_v4(group, interface),
            MulticastGroup::V6 { group, interface } => socket.join_multicast_v6(group, *interface),
        });
        joined.map_err(|e| Error::io("joining a multicast group", e))
    }

    pub(crate) fn leave(&self, group: &MulticastGroup) -> Result {
        group.check()?;
        let left = self.of_system().and_then(|socket| match group {
            MulticastGroup::V4 { group, interface } => socket.leave_multicast_v4(group, interface),
            MulticastGroup::V6 { group, interface } => socket.leave_multicast_v6(group, *interface),
        });
        left.map_err(|e| Error::io("leaving a multicast group", e))
    }

    /// Returns the socket of the system. A simulation has no multicast groups.
    fn of_system(&self) -> io::Result<&mio::net::UdpSocket> {
        match &self.socket {
            Datagrams::System(socket) => Ok(socket),
            #[cfg(feature = "simulation")]
            Datagrams::Simulated(_) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "a simulation has no multicast groups"))
            }
        }
    }

    /// Returns the event source to register with the poll.
    pub(crate) fn source(&mut self) -> &mut dyn Source {
        match &mut self.socket {
            Datagrams::System(socket) => socket,
            #[cfg(feature = "simulation")]
            Datagrams::Simulated(socket) => socket,
        }
    }
}

fn connect_again(socket: &mio::net::UdpSocket, peer: SocketAddr) {
    if let Err(e) = socket.connect(peer) {
        log::warn!("cannot connect a UDP socket to its earlier peer again: {e:#}");
    }
}

#[cfg(all(test, target_os = "linux", not(netwheel_loom)))]
mod tests {
    use super::*;

    fn bind(address: &str, options: &UdpOptions) -> UdpSocket {
        UdpSocket::bind(address.parse().unwrap(), options).unwrap()
    }

    /// The local address has to suit the new peer: there is no route from ::1 to 127.0.0.1.
    #[test]
    fn another_peer_gets_a_local_address_of_its_own() {
        let socket = bind("[::]:0", &UdpOptions::new());
        let port = socket.local_address().unwrap().port();
        for (peer, local) in [
            ("[::1]:9", "::1"),
            ("[::ffff:127.0.0.1]:9", "::ffff:127.0.0.1"),
            ("[::1]:9", "::1"),
            ("[::1]:10", "::1"),
        ] {
            socket.connect(peer.parse().unwrap()).unwrap();
            let expected = SocketAddr::new(local.parse().unwrap(), port);
            assert_eq!(socket.local_address().unwrap(), expected, "{peer}");
        }
    }

    #[test]
    fn a_failed_connect_keeps_the_earlier_peer() {
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        let socket = bind("0.0.0.0:0", &UdpOptions::new());
        socket.connect(receiver.local_addr().unwrap()).unwrap();
        let local = socket.local_address().unwrap();
        socket.connect("[::1]:9".parse().unwrap()).unwrap_err();
        assert_eq!(socket.local_address().unwrap(), local);
        socket.send(b"hello", None).unwrap();
        assert_eq!(receiver.recv_from(&mut [0; 8]).unwrap(), (5, local));
    }

    #[test]
    fn a_failed_disconnect_keeps_the_peer() {
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        let peer = receiver.local_addr().unwrap();
        let mut socket = bind("0.0.0.0:0", &UdpOptions::new());
        socket.connect(peer).unwrap();
        // The address that the socket binds again is in use.
        socket.bound = peer;
        socket.disconnect().unwrap_err();
        socket.send(b"hello", None).unwrap();
        assert_eq!(receiver.recv_from(&mut [0; 8]).unwrap().0, 5);
    }

    #[test]
    fn an_ipv6_socket_has_the_options_for_ipv4_too() {
        let options = UdpOptions::new().time_to_live(7).multicast_time_to_live(3).multicast_loop(false);
        let socket = bind("[::]:0", &options);
        let socket = SockRef::from(socket.of_system().unwrap());
        assert_eq!((socket.unicast_hops_v6().unwrap(), socket.ttl_v4().unwrap()), (7, 7));
        assert_eq!((socket.multicast_hops_v6().unwrap(), socket.multicast_ttl_v4().unwrap()), (3, 3));
        assert!(!socket.multicast_loop_v6().unwrap() && !socket.multicast_loop_v4().unwrap());
    }
}
