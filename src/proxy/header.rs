//! A PROXY header of either version.

use super::{
    proxy_version::ProxyVersion,
    ssl_info::SslInfo,
    tlv::{Tlv, Tlvs},
};
use bytes::Bytes;
use std::net::{IpAddr, SocketAddr};

/// On whose behalf a proxy has connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProxyCommand {
    /// On its own, for example for a health check. The real addresses apply.
    Local,
    /// On behalf of a client.
    Proxy,
}

/// The transport between a client and the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProxyTransport {
    /// Unknown.
    Unspecified,
    /// TCP, or a Unix stream socket.
    Stream,
    /// UDP, or a Unix datagram socket.
    Datagram,
}

/// The length of a Unix address, with its padding.
const UNIX_PATH: usize = 108;

/// The addresses in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Endpoints {
    Unknown,
    /// Both are of one family.
    Ip {
        source: SocketAddr,
        destination: SocketAddr,
    },
    /// Both, each padded to 108 bytes.
    Unix(Bytes),
}

/// A PROXY header, of version 1 or 2.
///
/// ```
/// use netwheel::proxy::{ProxyHeader, Tlv};
///
/// let (client, server) = ("192.0.2.7:4321".parse().unwrap(), "198.51.100.1:443".parse().unwrap());
/// let header = ProxyHeader::v2(client, server).tlv(0x02, b"example.com")?.crc32c()?;
/// let mut bytes = Vec::new();
/// header.encode(&mut bytes);
/// bytes.extend(b"GET /");
///
/// let (parsed, length) = ProxyHeader::parse(&bytes, 4096).unwrap().unwrap();
/// assert_eq!(parsed, header);
/// assert_eq!(parsed.source(), Some(client));
/// assert_eq!(parsed.tlvs().next(), Some(Tlv::Authority("example.com")));
/// assert_eq!(&bytes[length..], b"GET /");
/// # Ok::<(), netwheel::Error>(())
/// ```
#[doc(alias = "HAProxyMessage")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyHeader {
    pub(super) version: ProxyVersion,
    pub(super) command: ProxyCommand,
    pub(super) transport: ProxyTransport,
    pub(super) endpoints: Endpoints,
    /// Valid fields.
    pub(super) tlvs: Bytes,
}

impl ProxyHeader {
    /// The default limit of a header, in bytes.
    pub const DEFAULT_MAX_LEN: usize = 4096;

    /// The largest length of a header of version 2, in bytes.
    pub const MAX_LEN: usize = 16 + u16::MAX as usize;

    /// Creates a header of version 1 for a client at `source` that has connected to `destination`.
    ///
    /// If only one address is of IPv4, it is converted to a mapped address of IPv6.
    pub fn v1(source: SocketAddr, destination: SocketAddr) -> Self {
        Self::new(ProxyVersion::V1, source, destination)
    }

    /// Creates a header of version 1 without addresses: `PROXY UNKNOWN`.
    pub fn v1_unknown() -> Self {
        ProxyHeader {
            version: ProxyVersion::V1,
            command: ProxyCommand::Proxy,
            transport: ProxyTransport::Unspecified,
            endpoints: Endpoints::Unknown,
            tlvs: Bytes::new(),
        }
    }

    /// Creates a header of version 2 for a client at `source` that has connected to `destination`
    /// by TCP.
    ///
    /// If only one address is of IPv4, it is converted to a mapped address of IPv6.
    pub fn v2(source: SocketAddr, destination: SocketAddr) -> Self {
        Self::new(ProxyVersion::V2, source, destination)
    }

    /// Creates a header of version 2 for a connection of the proxy's own: `LOCAL`.
    pub fn v2_local() -> Self {
        ProxyHeader { version: ProxyVersion::V2, command: ProxyCommand::Local, ..Self::v1_unknown() }
    }

    fn new(version: ProxyVersion, source: SocketAddr, destination: SocketAddr) -> Self {
        let mapped = source.is_ipv4() != destination.is_ipv4();
        // Scopes and flow labels are not transmitted.
        let plain = |address: SocketAddr| match address.ip() {
            IpAddr::V4(ip) if mapped => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
            ip => SocketAddr::new(ip, address.port()),
        };
        ProxyHeader {
            version,
            command: ProxyCommand::Proxy,
            transport: ProxyTransport::Stream,
            endpoints: Endpoints::Ip { source: plain(source), destination: plain(destination) },
            tlvs: Bytes::new(),
        }
    }

    /// Returns the version.
    pub fn version(&self) -> ProxyVersion {
        self.version
    }

    /// Returns the command. Version 1 has only [`ProxyCommand::Proxy`].
    pub fn command(&self) -> ProxyCommand {
        self.command
    }

    /// Returns the transport between the client and the proxy.
    pub fn transport(&self) -> ProxyTransport {
        self.transport
    }

    /// Returns the address of the client. `None` if it is unknown or no IP address, and for
    /// [`ProxyCommand::Local`].
    pub fn source(&self) -> Option<SocketAddr> {
        self.addresses().map(|(source, _)| source)
    }

    /// Returns the address that the client has connected to. `None` as for
    /// [`source`](Self::source).
    pub fn destination(&self) -> Option<SocketAddr> {
        self.addresses().map(|(_, destination)| destination)
    }

    pub(super) fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        match self.endpoints {
            Endpoints::Ip { source, destination } => Some((source, destination)),
            _ => None,
        }
    }

    /// Returns the Unix address of the client, if it is one: a path, or an abstract name behind a
    /// zero byte.
    pub fn unix_source(&self) -> Option<&[u8]> {
        self.unix(0)
    }

    /// Returns the Unix address that the client has connected to. See
    /// [`unix_source`](Self::unix_source).
    pub fn unix_destination(&self) -> Option<&[u8]> {
        self.unix(UNIX_PATH)
    }

    fn unix(&self, at: usize) -> Option<&[u8]> {
        let Endpoints::Unix(paths) = &self.endpoints else { return None };
        let path = &paths[at..][..UNIX_PATH];
        // An abstract name begins with a zero byte.
        let end = path.iter().skip(1).position(|&byte| byte == 0).map_or(path.len(), |at| at + 1);
        Some(if path[..end] == [0] { &[] } else { &path[..end] })
    }

    /// Returns an iterator over the fields, in order. Version 1 has none.
    pub fn tlvs(&self) -> Tlvs<'_> {
        Tlvs { rest: &self.tlvs }
    }

    /// Returns the host name that the client has asked for.
    pub fn authority(&self) -> Option<&str> {
        self.tlvs().find_map(|tlv| match tlv {
            Tlv::Authority(name) => Some(name),
            _ => None,
        })
    }

    /// Returns the identifier of the connection.
    pub fn unique_id(&self) -> Option<&[u8]> {
        self.tlvs().find_map(|tlv| match tlv {
            Tlv::UniqueId(id) => Some(id),
            _ => None,
        })
    }

    /// Returns the proxy's description of the client's TLS connection.
    pub fn ssl(&self) -> Option<SslInfo<'_>> {
        self.tlvs().find_map(|tlv| match tlv {
            Tlv::Ssl(ssl) => Some(ssl),
            _ => None,
        })
    }
}
