//! Options of listening sockets.
//!
//! Invariant: invalid values are refused, as for [`TcpOptions`](super::TcpOptions).

use super::socket_options::{check_buffer, check_name, set_buffers, set_reuse_port};
use crate::error::{Error, Result};
use socket2::SockRef;
use std::io;

/// Options of a listener.
///
/// | option | default | supported on |
/// |---|---|---|
/// | `backlog` | 1024 connections (the kernel caps it at `net.core.somaxconn`) | |
/// | `reuse_address` | on, so that a restarted server can bind again at once | Unix; ignored elsewhere |
/// | `reuse_port` | off; if on, other processes of the same user may bind the port and accept connections | Unix; ignored elsewhere |
/// | `only_v6` | the system's (Linux: off) | IPv6 addresses |
/// | `receive_buffer` | the system's; accepted connections inherit it | |
/// | `remove_stale_socket` | off: binding fails if the socket file exists | Unix sockets |
/// | `device` | any interface | Linux |
///
/// For Unix sockets only `backlog` and `remove_stale_socket` have an effect.
#[derive(Debug, Clone)]
pub struct ListenerOptions {
    pub(crate) backlog: u32,
    pub(crate) reuse_address: bool,
    pub(crate) reuse_port: bool,
    pub(crate) only_v6: Option<bool>,
    #[cfg_attr(not(unix), allow(dead_code, reason = "this system has no Unix sockets"))]
    pub(crate) remove_stale_socket: bool,
    pub(crate) receive_buffer: Option<usize>,
    pub(crate) device: Option<String>,
}

impl Default for ListenerOptions {
    fn default() -> Self {
        ListenerOptions {
            backlog: 1024,
            reuse_address: true,
            reuse_port: false,
            only_v6: None,
            remove_stale_socket: false,
            receive_buffer: None,
            device: None,
        }
    }
}

impl ListenerOptions {
    /// Returns the default options (see the table above).
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of connections that wait to be accepted. The default is 1024.
    pub fn backlog(mut self, connections: u32) -> Self {
        self.backlog = connections;
        self
    }

    /// Sets `SO_REUSEADDR`: allows binding a port while old connections of it are in `TIME_WAIT`.
    /// On by default.
    pub fn reuse_address(mut self, on: bool) -> Self {
        self.reuse_address = on;
        self
    }

    /// Sets `SO_REUSEPORT`: allows several sockets to listen on the same port. Ignored on systems
    /// that do not support it.
    pub fn reuse_port(mut self, on: bool) -> Self {
        self.reuse_port = on;
        self
    }

    /// Sets `IPV6_V6ONLY`: whether a listener on an IPv6 address, in practice `[::]`, serves only
    /// IPv6, or IPv4 as well. Has no effect for an IPv4 address.
    pub fn only_v6(mut self, on: bool) -> Self {
        self.only_v6 = Some(on);
        self
    }

    /// Sets whether binding a Unix socket removes a stale socket file, left behind by a process
    /// that was killed. Off by default.
    ///
    /// A file is stale if a connect to it is refused. A running server sees this attempt as a
    /// short-lived connection. Files that are not sockets, and sockets in use, are never removed.
    /// In these cases, and always if this is off, binding fails with `AddrInUse`.
    ///
    /// If two servers start over the same stale file at the same instant, one of them may remove
    /// the new file of the other.
    pub fn remove_stale_socket(mut self, on: bool) -> Self {
        self.remove_stale_socket = on;
        self
    }

    /// Sets `SO_RCVBUF`, the size of the kernel's receive buffer in bytes.
    pub fn receive_buffer(mut self, bytes: usize) -> Self {
        self.receive_buffer = Some(bytes);
        self
    }

    /// Sets `SO_BINDTODEVICE`: accepts connections only from this interface. Its name has 1 to 15
    /// bytes.
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.device = Some(name.into());
        self
    }

    pub(crate) fn check(&self) -> Result {
        if self.backlog == 0 || self.backlog > i32::MAX as u32 {
            return Err(Error::setting("backlog", self.backlog, "1 to 2147483647 connections"));
        }
        check_name("device", self.device.as_deref())?;
        check_buffer("receive_buffer", self.receive_buffer)
    }

    /// Sets the options. Called before the address is bound.
    pub(crate) fn apply(&self, socket: &SockRef<'_>, is_v6: bool) -> io::Result<()> {
        #[cfg(unix)]
        socket.set_reuse_address(self.reuse_address)?;
        if self.reuse_port {
            set_reuse_port(socket)?;
        }
        if let Some(on) = self.only_v6.filter(|_| is_v6) {
            socket.set_only_v6(on)?;
        }
        set_buffers(socket, None, self.receive_buffer)?;
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Some(name) = &self.device {
            socket.bind_device(Some(name.as_bytes()))?;
        }
        Ok(())
    }
}
