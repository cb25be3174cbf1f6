//! A connected stream of bytes, whatever its kind.

use mio::{event::Source, net::TcpStream};
use socket2::SockRef;
use std::{
    io::{self, IoSlice, Read, Write},
    net::{Shutdown, SocketAddr},
};

/// A non-blocking stream socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
}

impl Stream {
    #[inline]
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(tcp) => tcp.read(buffer),
        }
    }

    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(tcp) => tcp.write(bytes),
        }
    }

    pub(crate) fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(tcp) => tcp.write_vectored(slices),
        }
    }

    /// Tells the peer that nothing more comes.
    pub(crate) fn shutdown_write(&mut self) -> io::Result<()> {
        match self {
            Stream::Tcp(tcp) => tcp.shutdown(Shutdown::Write),
        }
    }

    /// What a connect or the connection failed with, if anything; the kernel tells it once.
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            Stream::Tcp(tcp) => tcp.take_error(),
        }
    }

    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(tcp) => tcp.local_addr().ok(),
        }
    }

    /// The peer's address; fails while the connection is not there.
    pub(crate) fn peer_address(&self) -> io::Result<SocketAddr> {
        match self {
            Stream::Tcp(tcp) => tcp.peer_addr(),
        }
    }

    pub(crate) fn socket(&self) -> SockRef<'_> {
        match self {
            Stream::Tcp(tcp) => SockRef::from(tcp),
        }
    }

    /// What the poll watches.
    pub(crate) fn source(&mut self) -> &mut dyn Source {
        match self {
            Stream::Tcp(tcp) => tcp,
        }
    }
}
