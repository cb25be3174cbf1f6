//! Validation and setters shared by all kinds of sockets, for options that depend on the system or
//! on the version of IP.
//!
//! Invariant: this module never opens or keeps a socket. An option that the system does not support
//! is refused by its check; its setter then does nothing.

use crate::error::{Error, Result};
use socket2::Socket;
use std::{fmt, io};

/// Whether the kernel is Linux.
pub(in crate::transport) const LINUX: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// Whether the system supports several sockets with the same address.
const REUSE_PORT: bool =
    cfg!(all(unix, not(any(target_os = "solaris", target_os = "illumos", target_os = "cygwin"))));

/// Returns `true` if several sockets can listen on one address, or an error for `setting`
/// otherwise.
pub(crate) fn check_reuse_port(setting: &'static str) -> Result<bool> {
    REUSE_PORT.then_some(true).ok_or_else(|| Error::setting(setting, true, "off on this system"))
}

/// Sets `SO_REUSEPORT` if the system supports it.
#[allow(unused_variables, reason = "unused on systems without the option")]
pub(in crate::transport) fn set_reuse_port(socket: &Socket) -> io::Result<()> {
    #[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos", target_os = "cygwin"))))]
    socket.set_reuse_port(true)?;
    Ok(())
}

/// Checks the size of a socket buffer, which the kernel takes as an `int`.
pub(in crate::transport) fn check_buffer(setting: &'static str, bytes: Option<usize>) -> Result {
    match bytes {
        Some(bytes) if bytes == 0 || i32::try_from(bytes).is_err() => {
            Err(Error::setting(setting, bytes, "1 to 2147483647 bytes"))
        }
        _ => Ok(()),
    }
}

/// Sets `SO_SNDBUF` and `SO_RCVBUF`.
pub(in crate::transport) fn set_buffers(
    socket: &Socket,
    send: Option<usize>,
    receive: Option<usize>,
) -> io::Result<()> {
    if let Some(bytes) = send {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = receive {
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(())
}

/// A version of IP. Each version has its own socket options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transport) enum IpVersion {
    V4,
    V6,
}

/// Checks a hop limit. Packets with a limit of zero would never leave the machine.
pub(in crate::transport) fn check_hops(setting: &'static str, hops: Option<u32>) -> Result {
    match hops {
        Some(hops) if !(1..=255).contains(&hops) => Err(Error::setting(setting, hops, "1 to 255 hops")),
        _ => Ok(()),
    }
}

/// Sets `IP_TTL` or `IPV6_UNICAST_HOPS`.
pub(in crate::transport) fn set_hops(socket: &Socket, version: IpVersion, hops: u32) -> io::Result<()> {
    match version {
        IpVersion::V4 => socket.set_ttl_v4(hops),
        IpVersion::V6 => socket.set_unicast_hops_v6(hops),
    }
}

/// Checks a name passed to the kernel, which is at most 15 bytes long and terminated by a zero
/// byte. Supported only on Linux.
pub(in crate::transport) fn check_name(setting: &'static str, name: Option<&str>) -> Result {
    match name {
        Some(name) if name.is_empty() || name.len() > 15 || name.contains('\0') => {
            Err(Error::setting(setting, format!("{name:?}"), "a name of 1 to 15 bytes"))
        }
        name => check_system(setting, name, LINUX),
    }
}

/// Refuses an option that this system does not support.
pub(in crate::transport) fn check_system(
    setting: &'static str,
    value: Option<impl fmt::Display>,
    is_known: bool,
) -> Result {
    match value {
        Some(value) if !is_known => Err(Error::setting(setting, value, "unset on this system")),
        _ => Ok(()),
    }
}
