//! Listening sockets of the standard library that a server can adopt.
//!
//! Invariant: an adopted socket is non-blocking.

use super::{address::Address, listener::Listener};
#[cfg(unix)]
use super::{address::Resolve, unix::UnixAddress};
use crate::machine::refuse_in_simulation;
use std::{fmt, io, net::SocketAddr};

/// A listening socket of the standard library that a server can adopt: a
/// [`TcpListener`](std::net::TcpListener) or, on Unix, a `UnixListener`.
///
/// This trait is sealed.
#[expect(private_bounds, reason = "this seals the trait")]
pub trait IntoListener: Adopt<Self::Address> {
    /// The type of the server's address.
    type Address: fmt::Debug + Clone + Send + Sync + 'static;
}

pub(crate) trait Adopt<A> {
    /// Converts the address of such a socket. Returns `None` for another transport.
    fn named(address: Address) -> Option<A>;

    /// Converts the socket to a listener and makes it non-blocking.
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
        refuse_in_simulation("a listener of the system")?;
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
        refuse_in_simulation("a listener of the system")?;
        super::unix::adopt(self).map(Listener::Unix)
    }
}
