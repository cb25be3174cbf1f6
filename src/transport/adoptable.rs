//! Listening sockets of the standard library that a server takes over.
//!
//! Invariant: an adopted socket is non-blocking.

use super::{Address, Listener};
#[cfg(unix)]
use super::{UnixAddress, address::Resolve};
use std::{fmt, io, net::SocketAddr};

/// A listening socket of std that a server can take over: a [`TcpListener`](std::net::TcpListener), or a `UnixListener`
/// on Unix.
///
/// Not to be implemented elsewhere.
#[expect(private_bounds, reason = "that is what keeps it from being implemented elsewhere")]
pub trait IntoListener: Adopt<Self::Address> {
    /// How the server names where it listens.
    type Address: fmt::Debug + Clone + Send + Sync + 'static;
}

pub(crate) trait Adopt<A> {
    /// The address of such a socket; none if it is of another transport.
    fn named(address: Address) -> Option<A>;

    /// Makes it non-blocking.
    fn adopt(self) -> io::Result<Listener>;
}

impl IntoListener for std::net::TcpListener {
    type Address = SocketAddr;
}

impl Adopt<SocketAddr> for std::net::TcpListener {
    fn named(address: Address) -> Option<SocketAddr> {
        address.as_tcp()
    }

    fn adopt(self) -> io::Result<Listener> {
        super::tcp::adopt(self).map(Listener::Tcp)
    }
}

#[cfg(unix)]
impl IntoListener for std::os::unix::net::UnixListener {
    type Address = UnixAddress;
}

#[cfg(unix)]
impl Adopt<UnixAddress> for std::os::unix::net::UnixListener {
    fn named(address: Address) -> Option<UnixAddress> {
        <UnixAddress as Resolve<UnixAddress>>::named(address)
    }

    fn adopt(self) -> io::Result<Listener> {
        super::unix::adopt(self).map(Listener::Unix)
    }
}
