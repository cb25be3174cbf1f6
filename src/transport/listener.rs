//! A listening socket, whatever its kind.

use super::Stream;
use mio::{event::Source, net::TcpListener};
use std::{io, net::SocketAddr};

/// A non-blocking listener.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
}

impl Listener {
    /// Takes one waiting connection.
    pub(crate) fn accept(&self) -> io::Result<(Stream, Option<SocketAddr>)> {
        match self {
            Listener::Tcp(tcp) => tcp.accept().map(|(stream, peer)| (Stream::Tcp(stream), Some(peer))),
        }
    }

    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        match self {
            Listener::Tcp(tcp) => tcp.local_addr(),
        }
    }

    /// What the poll watches.
    pub(crate) fn source(&mut self) -> &mut dyn Source {
        match self {
            Listener::Tcp(tcp) => tcp,
        }
    }
}
