//! Options of listening sockets.
//!
//! Always holds: what [`TcpOptions`](super::TcpOptions) say of values that are refused.

use super::socket_options::{check_buffer, check_name, set_buffers, set_reuse_port};
use crate::{Error, Result};
use socket2::SockRef;
use std::io;

/// Options of a listener.
///
/// | option | default | where |
/// |---|---|---|
/// | `backlog` | 1024 connections (the kernel caps it at `net.core.somaxconn`) | |
/// | `reuse_address` | on, so that a restarted server can bind again at once | Unix; elsewhere it is left alone |
/// | `reuse_port` | off; on, another process of the same user may bind the port too and take connections | Unix; elsewhere it is left alone |
/// | `only_v6` | the system's (Linux: off) | IPv6 addresses |
/// | `receive_buffer` | the system's; accepted connections inherit it | |
/// | `remove_stale_socket` | off: a socket file that is there keeps a server from listening | Unix sockets |
/// | `device` | any interface | Linux |
///
/// Of a Unix socket only `backlog` and `remove_stale_socket` count.
#[derive(Debug, Clone)]
pub struct ListenerOptions {
    pub(crate) backlog: u32,
    pub(crate) reuse_address: bool,
    pub(crate) reuse_port: bool,
    pub(crate) only_v6: Option<bool>,
    #[cfg_attr(not(unix), allow(dead_code, reason = "there are no Unix sockets here"))]
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
    /// The defaults of the table above.
    pub fn new() -> Self {
        Self::default()
    }

    /// Connections that may wait to be accepted.
    pub fn backlog(mut self, connections: u32) -> Self {
        self.backlog = connections;
        self
    }

    /// `SO_REUSEADDR`.
    pub fn reuse_address(mut self, on: bool) -> Self {
        self.reuse_address = on;
        self
    }

    /// `SO_REUSEPORT`; ignored where there is none.
    pub fn reuse_port(mut self, on: bool) -> Self {
        self.reuse_port = on;
        self
    }

    /// `IPV6_V6ONLY`: whether a listener on an IPv6 address (`[::]` is the one that matters) serves IPv6 only, or IPv4 as
    /// well. Has no meaning for an IPv4 address.
    pub fn only_v6(mut self, on: bool) -> Self {
        self.only_v6 = Some(on);
        self
    }

    /// Whether a socket file on which nobody listens is removed by a server that is to listen there: what a predecessor
    /// has left that was killed. Nothing is removed that is not a socket, or that somebody listens on: then, and whenever
    /// this is off, binding fails with `AddrInUse`.
    ///
    /// Somebody is there if a connect is not refused; a server that is alive sees one connection come and go. Of two
    /// servers that start over the same stale file at the very same instant, the one may remove the file of the other.
    pub fn remove_stale_socket(mut self, on: bool) -> Self {
        self.remove_stale_socket = on;
        self
    }

    /// `SO_RCVBUF` in bytes.
    pub fn receive_buffer(mut self, bytes: usize) -> Self {
        self.receive_buffer = Some(bytes);
        self
    }

    /// `SO_BINDTODEVICE`: connections come by this interface only; its name has 1 to 15 bytes.
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

    /// Sets all that comes before the address is bound.
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
