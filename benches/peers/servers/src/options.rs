//! What every server is told: where to listen, and what to do.

use clap::{Parser, ValueEnum};
use socket2::{Domain, Socket, Type};
use std::{
    io,
    net::{Ipv4Addr, SocketAddrV4, TcpListener},
};

/// A peer that the load generator measures.
#[derive(Parser)]
pub(crate) struct Options {
    /// Port on 127.0.0.1.
    port: u16,
    /// What the server does.
    #[arg(value_enum)]
    pub(crate) mode: Mode,
    /// Threads that serve; most servers know one only.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Mode {
    /// Send back every byte.
    EchoRaw,
    /// Send back every frame: 4 bytes of length, big-endian, then the payload.
    EchoFrames,
    /// That, and close a connection that sent nothing for a minute.
    EchoFramesIdle,
    /// Send every frame to every connection.
    Broadcast,
}

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

impl Options {
    /// # Errors
    /// If `most` threads are not enough, or the mode is none of `modes`.
    pub(crate) fn of(most: u16, modes: &[Mode]) -> io::Result<Self> {
        let options = Options::parse();
        if options.threads > most || !modes.contains(&options.mode) {
            return Err(io::Error::other("this server does not do that"));
        }
        Ok(options)
    }

    #[allow(dead_code, reason = "most servers have one thread")]
    pub(crate) fn threads(&self) -> usize {
        self.threads.into()
    }

    /// A listener that does not block, with the same backlog in all servers.
    pub(crate) fn listen(&self) -> io::Result<TcpListener> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port).into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    }
}
