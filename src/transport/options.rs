//! Options of sockets.

use crate::{Error, Result};
use socket2::{SockRef, TcpKeepalive};
use std::time::Duration;

/// Options of a connection; what is not set stays as the operating system has it.
///
/// Of a Unix socket the buffers count; what is TCP's own (the others) is not applied.
///
/// | option | default | unit |
/// |---|---|---|
/// | `nodelay` | on | |
/// | `keepalive` | off | time before the first probe |
/// | `send_buffer`, `receive_buffer` | the system's | bytes (Linux doubles what it is given) |
/// | `linger` | the system's | seconds; zero resets the connection at close |
#[derive(Debug, Clone)]
pub struct TcpOptions {
    nodelay: bool,
    keepalive: Option<Duration>,
    send_buffer: Option<usize>,
    receive_buffer: Option<usize>,
    linger: Option<Duration>,
}

impl Default for TcpOptions {
    fn default() -> Self {
        TcpOptions { nodelay: true, keepalive: None, send_buffer: None, receive_buffer: None, linger: None }
    }
}

impl TcpOptions {
    /// The defaults of the table above.
    pub fn new() -> Self {
        Self::default()
    }

    /// `TCP_NODELAY`: small writes leave at once. The loop gathers writes itself, so this is on by default.
    pub fn nodelay(mut self, on: bool) -> Self {
        self.nodelay = on;
        self
    }

    /// `SO_KEEPALIVE`: the kernel probes a peer that was silent for `time`. It tells a dead host from a live one
    /// within minutes; to detect a peer that merely says nothing use [`IdleTimeouts`](crate::IdleTimeouts).
    pub fn keepalive(mut self, time: Duration) -> Self {
        self.keepalive = Some(time);
        self
    }

    /// `SO_SNDBUF` in bytes.
    pub fn send_buffer(mut self, bytes: usize) -> Self {
        self.send_buffer = Some(bytes);
        self
    }

    /// `SO_RCVBUF` in bytes.
    pub fn receive_buffer(mut self, bytes: usize) -> Self {
        self.receive_buffer = Some(bytes);
        self
    }

    /// `SO_LINGER`: zero makes a close a reset, which drops unsent bytes. Other values make the closing thread
    /// wait, so only zero is of use on an event loop.
    pub fn linger(mut self, time: Duration) -> Self {
        self.linger = Some(time);
        self
    }

    pub(crate) fn check(&self) -> Result {
        if let Some(time) = self.linger
            && !time.is_zero()
        {
            return Err(Error::setting(
                "linger",
                format!("{time:?}"),
                "zero: others would block the event loop",
            ));
        }
        check_buffer("send_buffer", self.send_buffer)?;
        check_buffer("receive_buffer", self.receive_buffer)?;
        if let Some(time) = self.keepalive
            && time < Duration::from_secs(1)
        {
            return Err(Error::setting("keepalive", format!("{time:?}"), "1 s or more"));
        }
        Ok(())
    }

    /// Sets what has to be set before the connection exists.
    pub(crate) fn apply_buffers(&self, socket: &SockRef<'_>) -> std::io::Result<()> {
        if let Some(bytes) = self.send_buffer {
            socket.set_send_buffer_size(bytes)?;
        }
        if let Some(bytes) = self.receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        Ok(())
    }

    /// Sets the rest.
    pub(crate) fn apply(&self, socket: &SockRef<'_>) -> std::io::Result<()> {
        self.apply_buffers(socket)?;
        if self.nodelay {
            socket.set_tcp_nodelay(true)?;
        }
        if let Some(time) = self.keepalive {
            socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(time))?;
        }
        if self.linger.is_some() {
            socket.set_linger(self.linger)?;
        }
        Ok(())
    }
}

/// Options of a listener.
///
/// | option | default |
/// |---|---|
/// | `backlog` | 1024 connections (the kernel caps it at `net.core.somaxconn`) |
/// | `reuse_address` | on, so that a restarted server can bind again at once (Unix) |
/// | `reuse_port` | off; on, another process of the same user may bind the port too and take connections (Unix) |
/// | `receive_buffer` | the system's; accepted connections inherit it |
/// | `remove_stale_socket` | off: a socket file that is there keeps a server from listening (Unix sockets) |
///
/// Of a Unix socket only `backlog` and `remove_stale_socket` count.
#[derive(Debug, Clone)]
pub struct ListenerOptions {
    pub(crate) backlog: u32,
    pub(crate) reuse_address: bool,
    pub(crate) reuse_port: bool,
    #[cfg_attr(not(unix), expect(dead_code, reason = "there are no Unix sockets here"))]
    pub(crate) remove_stale_socket: bool,
    pub(crate) receive_buffer: Option<usize>,
}

impl Default for ListenerOptions {
    fn default() -> Self {
        ListenerOptions {
            backlog: 1024,
            reuse_address: true,
            reuse_port: false,
            remove_stale_socket: false,
            receive_buffer: None,
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

    pub(crate) fn check(&self) -> Result {
        if self.backlog == 0 || self.backlog > i32::MAX as u32 {
            return Err(Error::setting("backlog", self.backlog, "1 to 2147483647 connections"));
        }
        check_buffer("receive_buffer", self.receive_buffer)
    }
}

/// Socket buffers are given to the kernel as an `int`.
pub(super) fn check_buffer(setting: &'static str, bytes: Option<usize>) -> Result {
    match bytes {
        Some(bytes) if bytes == 0 || i32::try_from(bytes).is_err() => {
            Err(Error::setting(setting, bytes, "1 to 2147483647 bytes"))
        }
        _ => Ok(()),
    }
}
