//! Opens TCP sockets, non-blocking from the start.

use super::{ListenerOptions, TcpOptions};
use crate::error::{Error, Result};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::{io, net::SocketAddr};

/// The operation of an error that the local address has caused, and not the peer's.
pub(crate) const BINDING: &str = "binding the local address";

/// Opens `listeners` sockets on one address. If its port is 0, all get the same free port.
pub(crate) fn listen_all(
    address: SocketAddr,
    options: &ListenerOptions,
    listeners: usize,
) -> io::Result<Vec<mio::net::TcpListener>> {
    let first = listen(address, options)?;
    let address = first.local_addr()?;
    let others = (1..listeners).map(|_| listen(address, options));
    std::iter::once(Ok(first)).chain(others).collect()
}

/// Opens a socket that listens on `address`.
fn listen(address: SocketAddr, options: &ListenerOptions) -> io::Result<mio::net::TcpListener> {
    let socket = open(address)?;
    options.apply(&SockRef::from(&socket), address.is_ipv6())?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    Ok(mio::net::TcpListener::from_std(socket.into()))
}

/// Converts a socket that is listening already.
pub(crate) fn adopt(listener: std::net::TcpListener) -> io::Result<mio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    Ok(mio::net::TcpListener::from_std(listener))
}

/// Opens a socket and starts to connect it. The socket becomes writable when the connect has
/// succeeded or failed.
///
/// # Errors
///
/// [`Error::Io`] with the system's error and the failed step. A failure to bind the local address
/// is a step of its own.
pub(crate) fn connect(
    address: SocketAddr,
    local: Option<SocketAddr>,
    options: &TcpOptions,
) -> Result<mio::net::TcpStream> {
    let failed = |operation| move |e| Error::io(operation, e);
    let socket = open(address).map_err(failed("opening a socket"))?;
    options.apply_before_connect(&SockRef::from(&socket)).map_err(failed("setting a socket's options"))?;
    if let Some(local) = local {
        #[cfg(unix)]
        socket.set_reuse_address(true).map_err(failed("setting a socket's options"))?;
        socket.bind(&local.into()).map_err(failed(BINDING))?;
    }
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(e) if in_progress(&e) => {}
        Err(e) => return Err(failed("connecting")(e)),
    }
    Ok(mio::net::TcpStream::from_std(socket.into()))
}

fn open(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn in_progress(e: &io::Error) -> bool {
    #[cfg(unix)]
    let pending = e.raw_os_error() == Some(EINPROGRESS);
    #[cfg(not(unix))]
    let pending = false;
    pending || e.kind() == io::ErrorKind::WouldBlock
}

/// The errno(3) value, which neither socket2 nor std defines.
#[cfg(any(target_os = "linux", target_os = "android"))]
const EINPROGRESS: i32 = 115;
#[cfg(all(
    unix,
    not(any(target_os = "linux", target_os = "android", target_os = "solaris", target_os = "illumos"))
))]
const EINPROGRESS: i32 = 36;
#[cfg(any(target_os = "solaris", target_os = "illumos"))]
const EINPROGRESS: i32 = 150;
