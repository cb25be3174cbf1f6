//! A PROXY header of either version.

use super::{
    field::{AUTHORITY, UNIQUE_ID, find},
    proxy_version::ProxyVersion,
};
use bytes::Bytes;
use std::{
    net::{IpAddr, SocketAddr},
    str,
};

/// On whose behalf a proxy has connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProxyCommand {
    /// On its own, for example for a health check. The real addresses apply.
    Local,
    /// On behalf of a client.
    Proxy,
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
/// use netwheel::proxy::ProxyHeader;
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
/// assert_eq!(parsed.tlv_value(0x02), Some(&b"example.com"[..]));
/// assert_eq!(&bytes[length..], b"GET /");
/// # Ok::<(), netwheel::Error>(())
/// ```
#[doc(alias = "HAProxyMessage")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyHeader {
    pub(super) version: ProxyVersion,
    pub(super) command: ProxyCommand,
    /// Whether the client is connected by UDP or a Unix datagram socket. Other clients use streams.
    pub(super) is_datagram: bool,
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
            is_datagram: false,
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
            is_datagram: false,
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

    /// Returns the value of the first field (TLV) of a type. `None` for version 1.
    pub fn tlv_value(&self, kind: u8) -> Option<&[u8]> {
        find(&self.tlvs, kind)
    }

    /// Returns the host name that the client has asked for, for example by SNI.
    pub fn authority(&self) -> Option<&str> {
        self.tlv_value(AUTHORITY).and_then(|name| str::from_utf8(name).ok())
    }

    /// Returns the identifier of the connection, of at most 128 bytes.
    pub fn unique_id(&self) -> Option<&[u8]> {
        self.tlv_value(UNIQUE_ID)
    }
}
