//! Opens Unix stream sockets, non-blocking from the start.
//!
//! A connect to a listener whose backlog is full fails at once. Linux returns `EAGAIN`, and does
//! not report later when there is space. A reconnecting client retries after its backoff.
//!
//! Peer credentials are not supported. The crate that reads them safely rejects process number 0,
//! which is the number of a peer in another namespace.
//!
//! File descriptors sent by a peer are closed by the kernel. A read ends after the bytes that came
//! with them, without an event for the bytes that follow. Those bytes are returned together with
//! the next ones.

mod socket_file;
mod unix_address;

pub(crate) use socket_file::SocketFile;
pub use unix_address::UnixAddress;

use super::{ListenerOptions, TcpOptions};
use crate::error::{Error, Result};
use socket2::{Domain, SockRef, Socket, Type};
use std::io;

/// A listening Unix socket.
#[derive(Debug)]
pub(crate) struct UnixListener {
    /// Declared before the socket, so that the file is removed while the socket still holds its
    /// inode. `None` if the listener did not create the file.
    _file: Option<SocketFile>,
    socket: mio::net::UnixListener,
}

impl UnixListener {
    pub(crate) fn accept(&self) -> io::Result<mio::net::UnixStream> {
        self.socket.accept().map(|(stream, _)| stream)
    }

    pub(crate) fn local_address(&self) -> io::Result<UnixAddress> {
        let unnamed = || io::Error::new(io::ErrorKind::InvalidInput, "the listener has no name");
        UnixAddress::of(&self.socket.local_addr()?).ok_or_else(unnamed)
    }

    pub(crate) fn source(&mut self) -> &mut mio::net::UnixListener {
        &mut self.socket
    }
}

/// Opens a socket that listens on `address`.
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
    // From here on, any failure removes the file.
    let file = address.as_path().map(SocketFile::new).transpose()?;
    socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    Ok(UnixListener { _file: file, socket: mio::net::UnixListener::from_std(socket.into()) })
}

/// Converts a socket that is listening already. Its file belongs to its creator and is not removed.
pub(crate) fn adopt(listener: std::os::unix::net::UnixListener) -> io::Result<UnixListener> {
    listener.set_nonblocking(true)?;
    Ok(UnixListener { _file: None, socket: mio::net::UnixListener::from_std(listener) })
}

/// Opens a socket and connects it to `address`. The poll reports it as writable like a TCP socket.
///
/// # Errors
///
/// [`Error::Io`] with the system's error and the failed step, including a full backlog of the
/// listener. A Unix socket whose connect would block is not connecting in the background like a TCP
/// socket. The system does not report when to retry (connect(2), EAGAIN).
pub(crate) fn connect(address: &UnixAddress, options: &TcpOptions) -> Result<mio::net::UnixStream> {
    let failed = |operation| move |e| Error::io(operation, e);
    let socket = open().map_err(failed("opening a socket"))?;
    options.apply_buffers(&SockRef::from(&socket)).map_err(failed("setting a socket's options"))?;
    let connected = address.to_system().and_then(|name| socket.connect(&name));
    connected.map_err(|e| match e.kind() {
        kind @ io::ErrorKind::WouldBlock => {
            Error::io("connecting", io::Error::new(kind, "the listener's backlog is full"))
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
