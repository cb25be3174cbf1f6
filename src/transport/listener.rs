//! Listening sockets of all transports.

#[cfg(unix)]
use super::unix::{self, UnixListener};
use super::{ListenerOptions, address::Address, stream::Stream, tcp};
#[cfg(feature = "simulation")]
use crate::machine::{
    self,
    simulated::{BindOptions, SimulatedSocket},
};
use mio::{event::Source, net::TcpListener};
use std::{io, net::SocketAddr};

/// A non-blocking listener.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixListener),
    #[cfg(feature = "simulation")]
    Simulated(SimulatedSocket),
}

impl Listener {
    /// Returns the socket of a simulation.
    #[cfg(feature = "simulation")]
    pub(crate) fn simulated(&self) -> Option<&SimulatedSocket> {
        match self {
            Listener::Simulated(socket) => Some(socket),
            _ => None,
        }
    }

    /// Opens `listeners` sockets on one address. If its port is 0, all get the same free port. Only
    /// TCP supports more than one.
    pub(crate) fn listen_all(
        address: &Address,
        options: &ListenerOptions,
        listeners: usize,
    ) -> io::Result<Vec<Self>> {
        #[cfg(feature = "simulation")]
        if machine::simulated::current().is_some() {
            return Self::listen_simulated(address, options, listeners);
        }
        match address {
            Address::Tcp(address) => {
                let all = tcp::listen_all(*address, options, listeners)?;
                Ok(all.into_iter().map(Listener::Tcp).collect())
            }
            #[cfg(unix)]
            Address::Unix(address) => Ok(vec![Listener::Unix(unix::listen(address, options)?)]),
        }
    }

    #[cfg(feature = "simulation")]
    fn listen_simulated(
        address: &Address,
        options: &ListenerOptions,
        listeners: usize,
    ) -> io::Result<Vec<Self>> {
        let mut address = address.as_tcp().ok_or_else(super::stream::simulated_only_tcp)?;
        let bind = BindOptions {
            reuse_address: options.reuse_address,
            reuse_port: options.reuse_port || listeners > 1,
            only_v6: options.only_v6.unwrap_or(false),
        };
        let mut all = Vec::new();
        for _ in 0..listeners {
            let socket = SimulatedSocket::listen(address, options.backlog as usize, bind)?;
            address = socket.local_address()?;
            all.push(Listener::Simulated(socket));
        }
        Ok(all)
    }

    /// Accepts one connection. Returns its peer's address if the transport has addresses.
    pub(crate) fn accept(&self) -> io::Result<(Stream, Option<SocketAddr>)> {
        match self {
            Listener::Tcp(tcp) => tcp.accept().map(|(stream, peer)| (Stream::Tcp(stream), Some(peer))),
            #[cfg(unix)]
            Listener::Unix(unix) => unix.accept().map(|stream| (Stream::Unix(stream), None)),
            #[cfg(feature = "simulation")]
            Listener::Simulated(socket) => {
                socket.accept().map(|(stream, peer)| (Stream::Simulated(stream), Some(peer)))
            }
        }
    }

    pub(crate) fn local_address(&self) -> io::Result<Address> {
        match self {
            Listener::Tcp(tcp) => tcp.local_addr().map(Address::Tcp),
            #[cfg(unix)]
            Listener::Unix(unix) => unix.local_address().map(Address::Unix),
            #[cfg(feature = "simulation")]
            Listener::Simulated(socket) => socket.local_address().map(Address::Tcp),
        }
    }

    /// Returns the event source to register with the poll.
    pub(crate) fn source(&mut self) -> &mut dyn Source {
        match self {
            Listener::Tcp(tcp) => tcp,
            #[cfg(unix)]
            Listener::Unix(unix) => unix.source(),
            #[cfg(feature = "simulation")]
            Listener::Simulated(socket) => socket,
        }
    }
}
