//! Addresses that servers listen on and clients connect to, for all transports.
//!
//! Invariant: an [`Address`] is resolved; names are resolved when it is created. Only name
//! resolution does I/O.

#[cfg(unix)]
use super::UnixAddress;
use crate::{Error, Result};
use std::{
    fmt, io,
    net::{SocketAddr, ToSocketAddrs},
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
/// Every type that implements [`ToSocketAddrs`] (such as `"host:port"` or a [`SocketAddr`]) is a
/// TCP endpoint. A [`UnixAddress`] is a Unix socket (on Unix). An [`Address`] is either. This trait
/// is sealed.
#[expect(private_bounds, reason = "this seals the trait")]
pub trait ToAddress: Resolve<Self::Address> {
    /// The type of a server's own address
    /// ([`Server::local_address`](crate::Server::local_address)).
    type Address: fmt::Debug + Clone + Send + Sync + 'static;
}

pub(crate) trait Resolve<A> {
    /// Returns at least one address. May block on a name server.
    fn addresses(self) -> Result<Vec<Address>>;

    /// Converts the address of a socket opened for this endpoint. Returns `None` for another
    /// transport.
    fn named(address: Address) -> Option<A>;
}

impl<T: ToSocketAddrs> ToAddress for T {
    type Address = SocketAddr;
}

impl<T: ToSocketAddrs> Resolve<SocketAddr> for T {
    fn addresses(self) -> Result<Vec<Address>> {
        let failed = |e| Error::io("resolving an address", e);
        let addresses: Vec<_> = self.to_socket_addrs().map_err(failed)?.map(Address::Tcp).collect();
        if addresses.is_empty() {
            return Err(failed(io::Error::new(io::ErrorKind::NotFound, "the name has no address")));
        }
        Ok(addresses)
    }

    fn named(address: Address) -> Option<SocketAddr> {
        address.as_tcp()
    }
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
