//! Addresses that servers listen on and clients connect to, for all transports.
//!
//! Invariant: an [`Address`] is resolved; names are resolved when it is created. Only name
//! resolution does I/O.

#[cfg(unix)]
use super::unix::UnixAddress;
use crate::error::{Error, Result};
use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs},
    sync::Arc,
};

/// An address to listen on or connect to, for programs that choose the transport at run time.
///
/// ```
/// # use netwheel::{net::Address, codec::RawBytes, prelude::*};
/// # struct Echo;
/// # impl Handler for Echo {
/// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
/// #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { ctx.write(m) }
/// # }
/// # fn main() -> Result {
/// # let group = EventLoopGroup::builder().threads(1).build()?;
/// # let address: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
/// let address = Address::Tcp(address);
/// let server: Server<Address> = ServerBootstrap::new(&group)
///     .pipeline(|_peer| Pipeline::codec(RawBytes).handler(Echo))
///     .bind(address)?;
/// println!("listening on {}", server.local_address());
/// # server.close().wait()
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// An IP address and TCP port.
    Tcp(SocketAddr),
    /// The name of a Unix socket.
    #[cfg(unix)]
    Unix(UnixAddress),
}

impl Address {
    /// Returns the address of the Unix socket at this path.
    ///
    /// # Errors
    /// [`Error::Setting`] if the path is invalid.
    #[cfg(all(unix, feature = "redis"))]
    pub(crate) fn unix(path: &str) -> Result<Self> {
        UnixAddress::path(path).map(Address::Unix)
    }

    /// Returns the IP address and port, if this is a TCP address.
    pub fn as_tcp(&self) -> Option<SocketAddr> {
        match self {
            Address::Tcp(address) => Some(*address),
            #[cfg(unix)]
            Address::Unix(_) => None,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Address::Tcp(address)
    }
}

#[cfg(unix)]
impl From<UnixAddress> for Address {
    fn from(address: UnixAddress) -> Self {
        Address::Unix(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            #[cfg(unix)]
            Address::Unix(address) => address.fmt(f),
        }
    }
}

/// An address that bootstraps can listen on or connect to.
///
/// The types of std that implement [`ToSocketAddrs`] (such as `"host:port"` or a [`SocketAddr`])
/// are TCP endpoints, and so are references to them. A [`UnixAddress`] is a Unix socket (on Unix).
/// An [`Address`] is either. This trait is sealed.
#[expect(private_bounds, reason = "this seals the trait")]
pub trait ToAddress: Resolve<Self::Address> {
    /// The type of a server's own address
    /// ([`Server::local_address`](crate::Server::local_address)).
    type Address: fmt::Debug + Clone + Send + Sync + 'static;
}

pub(crate) trait Resolve<A> {
    /// Returns at least one address. May block on a name server.
    fn addresses(self) -> Result<Vec<Address>>;

    /// Returns the host name that this was given as, without the port. `None` for an IP address.
    fn host(&self) -> Option<Arc<str>> {
        None
    }

    /// Converts the address of a socket opened for this endpoint. Returns `None` for another
    /// transport.
    fn named(address: Address) -> Option<A>;
}

/// Implements the traits for types of std. A blanket implementation for [`ToSocketAddrs`] could not
/// return the host name.
macro_rules! tcp_endpoints {
    ($($type:ty $(, host of $this:ident: $host:expr, port $port:expr)?;)+) => {$(
        impl ToAddress for $type {
            type Address = SocketAddr;
        }

        impl Resolve<SocketAddr> for $type {
            fn addresses(self) -> Result<Vec<Address>> {
                $(
                    #[cfg(feature = "simulation")]
                    {
                        let $this = &self;
                        if let Some(addresses) = simulated(host_name($host), $port) {
                            return addresses;
                        }
                    }
                )?
                resolve(self)
            }

            $(fn host(&self) -> Option<Arc<str>> {
                let $this = self;
                host_name($host)
            })?

            fn named(address: Address) -> Option<SocketAddr> {
                address.as_tcp()
            }
        }
    )+};
}

tcp_endpoints! {
    SocketAddr;
    SocketAddrV4;
    SocketAddrV6;
    (IpAddr, u16);
    (Ipv4Addr, u16);
    (Ipv6Addr, u16);
    &[SocketAddr];
    &str, host of text: without_port(text), port port_of(text);
    String, host of text: without_port(text), port port_of(text);
    (&str, u16), host of pair: &pair.0, port Some(pair.1);
    (String, u16), host of pair: &pair.0, port Some(pair.1);
}

impl<T: ToAddress<Address = SocketAddr> + Clone> ToAddress for &T {
    type Address = SocketAddr;
}

impl<T: ToAddress<Address = SocketAddr> + Clone> Resolve<SocketAddr> for &T {
    fn addresses(self) -> Result<Vec<Address>> {
        self.clone().addresses()
    }

    fn host(&self) -> Option<Arc<str>> {
        (**self).host()
    }

    fn named(address: Address) -> Option<SocketAddr> {
        address.as_tcp()
    }
}

pub(crate) fn resolve(address: impl ToSocketAddrs) -> Result<Vec<Address>> {
    let failed = |e| Error::io("resolving an address", e);
    let addresses: Vec<_> = address.to_socket_addrs().map_err(failed)?.map(Address::Tcp).collect();
    if addresses.is_empty() {
        return Err(failed(io::Error::new(io::ErrorKind::NotFound, "the name has no address")));
    }
    Ok(addresses)
}

/// Resolves a name in the simulation of the calling thread. `None` without one, and for an address.
#[cfg(feature = "simulation")]
fn simulated(host: Option<Arc<str>>, port: Option<u16>) -> Option<Result<Vec<Address>>> {
    let (machine, host) = (crate::machine::simulated::current()?, host?);
    let unknown = || io::Error::new(io::ErrorKind::NotFound, "no node of the simulation has the name");
    let found = machine.resolve(&host).ok_or_else(unknown).and_then(|ip| {
        let port = port.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "invalid port value"))?;
        Ok(vec![Address::Tcp(SocketAddr::new(ip, port))])
    });
    Some(found.map_err(|e| Error::io("resolving an address", e)))
}

#[cfg(feature = "simulation")]
fn port_of(text: &str) -> Option<u16> {
    text.rsplit_once(':').and_then(|(_, port)| port.parse().ok())
}

fn without_port(text: &str) -> &str {
    text.rsplit_once(':').map_or(text, |(host, _)| host)
}

/// Returns `host` if it is a name.
fn host_name(host: &str) -> Option<Arc<str>> {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    // A scope, as in "fe80::1%eth0", belongs to an address too.
    let address = address.split('%').next().unwrap_or(address);
    (!host.is_empty() && address.parse::<IpAddr>().is_err()).then(|| Arc::from(host))
}

#[cfg(unix)]
impl ToAddress for UnixAddress {
    type Address = UnixAddress;
}

#[cfg(unix)]
impl Resolve<UnixAddress> for UnixAddress {
    fn addresses(self) -> Result<Vec<Address>> {
        Ok(vec![Address::Unix(self)])
    }

    fn named(address: Address) -> Option<UnixAddress> {
        match address {
            Address::Unix(address) => Some(address),
            Address::Tcp(_) => None,
        }
    }
}

impl ToAddress for Address {
    type Address = Address;
}

impl Resolve<Address> for Address {
    fn addresses(self) -> Result<Vec<Address>> {
        Ok(vec![self])
    }

    fn named(address: Address) -> Option<Address> {
        Some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_kept_if_it_is_a_name() {
        for (text, host) in [
            ("example.com:443", Some("example.com")),
            ("localhost:1", Some("localhost")),
            ("127.0.0.1:443", None),
            ("[::1]:443", None),
            ("[fe80::1%1]:443", None),
        ] {
            assert_eq!(text.host().as_deref(), host, "{text}");
            assert_eq!(text.to_string().host().as_deref(), host, "{text}");
            let owned = text.to_string();
            assert_eq!(owned.host().as_deref(), host, "{text}");
        }
        assert_eq!(("example.com", 1).host().as_deref(), Some("example.com"));
        assert_eq!(("example.com".to_string(), 1).host().as_deref(), Some("example.com"));
        assert_eq!(("192.0.2.1", 1).host(), None);
        assert_eq!((Ipv4Addr::LOCALHOST, 1).host(), None);
    }
}
