//! Connected stream sockets of all transports.

#[cfg(unix)]
use super::unix;
use super::{TcpOptions, address::Address, tcp};
#[cfg(any(unix, feature = "simulation"))]
use crate::error::Error;
#[cfg(feature = "simulation")]
use crate::machine::{self, simulated::SimulatedSocket};
use crate::{channel::driver::Transport, error::Result};
#[cfg(unix)]
use mio::net::UnixStream;
use mio::{event::Source, net::TcpStream};
use socket2::SockRef;
use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    net::{Shutdown, SocketAddr},
    time::Duration,
};

/// Returns the error for a transport that a simulation does not have.
#[cfg(feature = "simulation")]
pub(super) fn simulated_only_tcp() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "a simulation has no Unix sockets")
}

/// A non-blocking stream socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    #[cfg(feature = "simulation")]
    Simulated(SimulatedSocket),
}

/// Evaluates the same expression for each kind of socket of the system, and another one for a
/// simulated socket.
macro_rules! each {
    ($stream:expr, $socket:ident => $what:expr, simulated $simulated:ident => $instead:expr) => {
        match $stream {
            Stream::Tcp($socket) => $what,
            #[cfg(unix)]
            Stream::Unix($socket) => $what,
            #[cfg(feature = "simulation")]
            Stream::Simulated($simulated) => $instead,
        }
    };
}

/// The system calls of the hot path.
///
/// The C library's functions are cancellation points. In a multithreaded process they take two
/// locked instructions each, and some work around them, which Rust programs do not need. So the
/// kernel is called directly where possible.
///
/// These calls never raise `SIGPIPE`, even in a program that does not ignore the signal, for
/// example because its `main` is not a Rust function. The standard library's `writev` would.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod calls {
    use rustix::{
        io::ioctl_fionread,
        net::{
            RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendFlags, recv, recvmsg, send,
            sendmsg,
        },
    };
    use std::{
        io::{self, IoSlice, IoSliceMut},
        os::fd::AsFd,
    };

    #[inline]
    pub(super) fn read(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
        match recv(socket, buffer, RecvFlags::empty()) {
            Ok((n, _)) => Ok(n),
            Err(e) => Err(e.into()),
        }
    }

    /// Reads from a Unix socket. A read ends behind a message with file descriptors (`SCM_RIGHTS`),
    /// even if more bytes follow. The descriptors are closed, because there is no room for them,
    /// and the kernel reports that with a flag. So the read continues after such a message.
    // Not inlined, so that the read of a TCP socket is small enough to be.
    #[inline(never)]
    pub(super) fn read_unix(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        loop {
            let mut slices = [IoSliceMut::new(&mut buffer[read..])];
            let control = &mut RecvAncillaryBuffer::default();
            let message = recvmsg(socket, &mut slices, control, RecvFlags::empty())?;
            read += message.bytes;
            // Unlike a read, the count does not consume a pending error.
            let may_continue = message.flags.contains(ReturnFlags::CTRUNC) && read < buffer.len();
            if !may_continue || ioctl_fionread(socket).unwrap_or(0) == 0 {
                return Ok(read);
            }
        }
    }

    #[inline]
    pub(super) fn write(socket: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(socket, bytes, SendFlags::NOSIGNAL)?)
    }

    pub(super) fn write_vectored(socket: &impl AsFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod calls {
    use std::io::{self, IoSlice, Read, Write};

    pub(super) fn read(socket: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
        socket.read(buffer)
    }

    /// Reads from a Unix socket. A read may end behind a message with file descriptors, even if
    /// more bytes follow. So it continues while a read would return bytes.
    #[cfg(unix)]
    pub(super) fn read_unix(socket: &mut super::UnixStream, buffer: &mut [u8]) -> io::Result<usize> {
        let mut read = socket.read(buffer)?;
        let peek = |socket: &super::UnixStream| {
            super::SockRef::from(socket).peek(&mut [std::mem::MaybeUninit::uninit()])
        };
        while read > 0 && read < buffer.len() && peek(socket).is_ok_and(|n| n > 0) {
            match socket.read(&mut buffer[read..]) {
                Ok(n) if n > 0 => read += n,
                _ => break,
            }
        }
        Ok(read)
    }

    pub(super) fn write(socket: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
        socket.write(bytes)
    }

    pub(super) fn write_vectored(socket: &mut impl Write, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        socket.write_vectored(slices)
    }
}

impl Transport for Stream {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(tcp) => calls::read(tcp, buffer),
            #[cfg(all(unix, not(feature = "simulation")))]
            Stream::Unix(unix) => calls::read_unix(unix, buffer),
            #[cfg(feature = "simulation")]
            other => other.read_other(buffer),
        }
    }

    fn peek(&self) -> io::Result<usize> {
        each!(self, socket => SockRef::from(socket).peek(&mut [MaybeUninit::uninit()]), simulated s => s.peek())
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(feature = "simulation")]
        return match self {
            Stream::Tcp(tcp) => calls::write(tcp, bytes),
            other => other.write_other(bytes),
        };
        #[cfg(not(feature = "simulation"))]
        each!(self, socket => calls::write(socket, bytes), simulated s => s.write(bytes))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        each!(self, socket => calls::write_vectored(socket, slices), simulated s => s.write_vectored(slices))
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        each!(self, socket => socket.shutdown(Shutdown::Write), simulated s => s.shutdown_write())
    }
}

/// Reads and writes of sockets that are not TCP sockets of the system. They are not inlined, so
/// that TCP does not pay for a third kind of socket.
#[cfg(feature = "simulation")]
impl Stream {
    #[inline(never)]
    fn read_other(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(tcp) => calls::read(tcp, buffer),
            #[cfg(unix)]
            Stream::Unix(unix) => calls::read_unix(unix, buffer),
            Stream::Simulated(socket) => socket.read(buffer),
        }
    }

    #[inline(never)]
    fn write_other(&mut self, bytes: &[u8]) -> io::Result<usize> {
        each!(self, socket => calls::write(socket, bytes), simulated s => s.write(bytes))
    }
}

impl Stream {
    /// Returns the socket of a simulation.
    #[cfg(feature = "simulation")]
    pub(crate) fn simulated(&self) -> Option<&SimulatedSocket> {
        match self {
            Stream::Simulated(socket) => Some(socket),
            _ => None,
        }
    }

    /// Opens a socket and starts to connect it. The socket becomes writable when the connect has
    /// succeeded or failed.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] with the system's error and the failed step, or an error if `local` is given
    /// for a transport without IP addresses.
    pub(crate) fn connect(to: &Address, local: Option<SocketAddr>, options: &TcpOptions) -> Result<Self> {
        #[cfg(feature = "simulation")]
        if machine::simulated::current().is_some() {
            return Self::connect_simulated(to, local);
        }
        match to {
            Address::Tcp(to) => tcp::connect(*to, local, options).map(Stream::Tcp),
            #[cfg(unix)]
            Address::Unix(to) => match local {
                None => unix::connect(to, options).map(Stream::Unix),
                Some(local) => Err(Error::setting("local_address", local, "none for a Unix socket")),
            },
        }
    }

    #[cfg(feature = "simulation")]
    fn connect_simulated(to: &Address, local: Option<SocketAddr>) -> Result<Self> {
        let failed = |e| Error::io("connecting", e);
        let to = to.as_tcp().ok_or_else(|| failed(simulated_only_tcp()))?;
        SimulatedSocket::connect(to, local).map(Stream::Simulated).map_err(failed)
    }

    /// Returns the pending error of the connect or the connection, if any. The kernel reports it
    /// once.
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        each!(self, socket => socket.take_error(), simulated s => s.take_error())
    }

    /// Returns the local address, if the transport has addresses.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(tcp) => tcp.local_addr().ok(),
            #[cfg(unix)]
            Stream::Unix(_) => None,
            #[cfg(feature = "simulation")]
            Stream::Simulated(socket) => socket.local_address().ok(),
        }
    }

    /// Fails if the socket is not connected.
    pub(crate) fn has_peer(&self) -> io::Result<()> {
        each!(self, socket => socket.peer_addr().map(drop), simulated s => s.has_peer())
    }

    /// Sets the options that apply to the transport. Called before the connection is used.
    pub(crate) fn apply(&self, options: &TcpOptions) -> io::Result<()> {
        match self {
            Stream::Tcp(tcp) => options.apply(&SockRef::from(tcp)),
            #[cfg(unix)]
            Stream::Unix(unix) => options.apply_buffers(&SockRef::from(unix)),
            #[cfg(feature = "simulation")]
            Stream::Simulated(_) => Ok(()),
        }
    }

    /// Returns whether the close can wait for the peer, or reset the connection.
    pub(crate) fn can_linger(&self) -> bool {
        each!(self, _socket => matches!(self, Stream::Tcp(_)), simulated _s => true)
    }

    /// Makes the following close wait for the peer. The close then blocks.
    pub(crate) fn linger(&self, time: Duration) -> io::Result<()> {
        each!(self, socket => {
            let socket = SockRef::from(socket);
            // On some systems (Windows), closing a non-blocking socket fails instead of waiting.
            socket.set_nonblocking(false)?;
            socket.set_linger(Some(time))
        }, simulated s => if time.is_zero() { s.reset_on_close() } else { Ok(()) })
    }

    /// Returns the event source to register with the poll.
    pub(crate) fn source(&mut self) -> &mut dyn Source {
        each!(self, socket => socket, simulated s => s)
    }
}
