//! Listening sockets of all transports.

#[cfg(unix)]
use super::unix::{self, UnixListener};
use super::{Address, ListenerOptions, Stream, tcp};
use mio::{event::Source, net::TcpListener};
use std::{io, net::SocketAddr};

/// A non-blocking listener.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixListener),
}

impl Listener {
    /// Opens `listeners` sockets on one address. If its port is 0, all get the same free port. Only
    /// TCP supports more than one.
    pub(crate) fn listen_all(
        address: &Address,
        options: &ListenerOptions,
        listeners: usize,
    ) -> io::Result<Vec<Self>> {
        match address {
            Address::Tcp(address) => {
                let all = tcp::listen_all(*address, options, listeners)?;
                Ok(all.into_iter().map(Listener::Tcp).collect())
            }
            #[cfg(unix)]
            Address::Unix(address) => Ok(vec![Listener::Unix(unix::listen(address, options)?)]),
        }
    }

    /// Accepts one connection. Returns its peer's address if the transport has addresses.
    pub(crate) fn accept(&self) -> io::Result<(Stream, Option<SocketAddr>)> {
        match self {
            Listener::Tcp(tcp) => tcp.accept().map(|(stream, peer)| (Stream::Tcp(stream), Some(peer))),
            #[cfg(unix)]
            Listener::Unix(unix) => unix.accept().map(|stream| (Stream::Unix(stream), None)),
        }
    }

    pub(crate) fn local_address(&self) -> io::Result<Address> {
        match self {
            Listener::Tcp(tcp) => tcp.local_addr().map(Address::Tcp),
            #[cfg(unix)]
            Listener::Unix(unix) => unix.local_address().map(Address::Unix),
        }
    }

    /// Returns the event source to register with the poll.
    pub(crate) fn source(&mut self) -> &mut dyn Source {
        match self {
            Listener::Tcp(tcp) => tcp,
            #[cfg(unix)]
            Listener::Unix(unix) => unix.source(),
        }
    }
}
