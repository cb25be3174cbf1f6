//! Opens Unix stream sockets, non-blocking from the start.
//!
//! A connect to a listener whose backlog is full fails at once: Linux returns `EAGAIN`, and no
//! later event reports room. A reconnecting client tries again after its backoff. Credentials of
//! the peer are not offered: the crate that reads them safely rejects the process number 0, which a
//! peer in another namespace has. File descriptors that a peer passes are closed by the kernel. A
//! read ends behind the bytes that they came with, without an event for what follows; those bytes
//! are read with the next ones.

mod socket_file;
mod unix_address;

pub(crate) use socket_file::SocketFile;
pub use unix_address::UnixAddress;

use super::{ListenerOptions, TcpOptions};
use crate::{Error, Result};
use socket2::{Domain, SockRef, Socket, Type};
use std::io;

/// A Unix socket that listens.
#[derive(Debug)]
pub(crate) struct UnixListener {
    /// Before the socket: the file is removed while the socket still holds its inode. None if it is not ours.
    _file: Option<SocketFile>,
    socket: mio::net::UnixListener,
}

impl UnixListener {
    pub(crate) fn accept(&self) -> io::Result<mio::net::UnixStream> {
        self.socket.accept().map(|(stream, _)| stream)
    }

    pub(crate) fn local_address(&self) -> io::Result<UnixAddress> {
        let unnamed = || io::Error::new(io::ErrorKind::InvalidInput, "a listener without a name");
        UnixAddress::of(&self.socket.local_addr()?).ok_or_else(unnamed)
    }

    pub(crate) fn source(&mut self) -> &mut mio::net::UnixListener {
        &mut self.socket
    }
}

/// A socket that listens on `address`.
pub(crate) fn listen(address: &UnixAddress, options: &ListenerOptions) -> io::Result<UnixListener> {
    let socket = open()?;
    let name = address.to_system()?;
    match (socket.bind(&name), address.as_path()) {
        (Err(e), Some(path)) if e.kind() == io::ErrorKind::AddrInUse && options.remove_stale_socket => {
            SocketFile::remove_stale(path)?;
            socket.bind(&name)?;
        }
        (bound, _) => bound?,
    }
    // From here on the file goes whatever else fails.
    let file = address.as_path().map(SocketFile::new).transpose()?;
    socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    Ok(UnixListener { _file: file, socket: mio::net::UnixListener::from_std(socket.into()) })
}

/// A socket that listens already; its file belongs to whoever has made it.
pub(crate) fn adopt(listener: std::os::unix::net::UnixListener) -> io::Result<UnixListener> {
    listener.set_nonblocking(true)?;
    Ok(UnixListener { _file: None, socket: mio::net::UnixListener::from_std(listener) })
}

/// A socket that is connected to `address`; the poll says so as it does of others.
///
/// # Errors
/// What the system refuses, with what was tried. That the listener's backlog is full is among it: unlike a TCP connect, one
/// of a Unix socket that would block is not under way, and nobody would tell when to try again (connect(2), EAGAIN).
pub(crate) fn connect(address: &UnixAddress, options: &TcpOptions) -> Result<mio::net::UnixStream> {
    let failed = |operation| move |e| Error::io(operation, e);
    let socket = open().map_err(failed("opening a socket"))?;
    options.apply_buffers(&SockRef::from(&socket)).map_err(failed("setting a socket's options"))?;
    let connected = address.to_system().and_then(|name| socket.connect(&name));
    connected.map_err(|e| match e.kind() {
        kind @ io::ErrorKind::WouldBlock => {
            Error::io("connecting", io::Error::new(kind, "the backlog of the listener is full"))
        }
        _ => Error::io("connecting", e),
    })?;
    Ok(mio::net::UnixStream::from_std(socket.into()))
}

fn open() -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
