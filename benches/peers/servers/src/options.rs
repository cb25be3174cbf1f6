//! Command line of all servers: the port and the mode.

use clap::{Parser, ValueEnum};
use socket2::{Domain, Socket, Type};
use std::{
    io,
    net::{Ipv4Addr, SocketAddrV4, TcpListener},
};

/// A server for comparison, measured by the load generator.
#[derive(Parser)]
pub(crate) struct Options {
    /// Port on 127.0.0.1.
    port: u16,
    /// Behaviour of the server.
    #[arg(value_enum)]
    pub(crate) mode: Mode,
    /// Number of serving threads; most servers support only one.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Mode {
    /// Echo every byte.
    EchoRaw,
    /// Echo every frame: 4 bytes of length, big-endian, then the payload.
    EchoFrames,
    /// Like `echo-frames`, and close a connection that has sent nothing for a minute.
    EchoFramesIdle,
    /// Send every frame to every connection.
    Broadcast,
    /// Answer every HTTP/1.1 request with a small body.
    Http,
    /// Echo every WebSocket message.
    Ws,
    /// Send every WebSocket message to every connection.
    WsBroadcast,
}

/// Length of the accept queue.
const BACKLOG: i32 = 4096;

impl Options {
    /// Parses the command line of a server without options of its own.
    ///
    /// # Errors
    /// If there are more threads than `most`, or the mode is not one of `modes`.
    #[allow(dead_code, reason = "servers with an option of their own parse it")]
    pub(crate) fn of(most: u16, modes: &[Mode]) -> io::Result<Self> {
        Options::parse().checked(most, modes)
    }

    /// Returns the options if the server supports them.
    ///
    /// # Errors
    /// See `of`.
    pub(crate) fn checked(self, most: u16, modes: &[Mode]) -> io::Result<Self> {
        if self.threads > most || !modes.contains(&self.mode) {
            return Err(io::Error::other("this server does not support this mode or number of threads"));
        }
        Ok(self)
    }

    #[allow(dead_code, reason = "most servers have one thread")]
    pub(crate) fn threads(&self) -> usize {
        self.threads.into()
    }

    /// Returns the address on which the server listens.
    pub(crate) fn address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port)
    }

    /// Opens a non-blocking listener, with the same backlog in all servers.
    #[allow(dead_code, reason = "rs-netty and netwheel open their listeners themselves")]
    pub(crate) fn listen(&self) -> io::Result<TcpListener> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&self.address().into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    }
}
