//! What the options of all kinds of sockets have in common: which values are refused, and how they are set where that
//! depends on the system or on the version of IP.
//!
//! Always holds: nothing here opens or keeps a socket; what the system does not have is refused by a check, and the setter
//! beside it does nothing there.

use crate::{Error, Result};
use socket2::Socket;
use std::{fmt, io};

/// Whether the system is Linux as far as the kernel goes.
pub(in crate::transport) const LINUX: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// Whether several sockets may have one address.
const REUSE_PORT: bool =
    cfg!(all(unix, not(any(target_os = "solaris", target_os = "illumos", target_os = "cygwin"))));

/// Whether several sockets can listen on one address here: true, or the refusal of the setting that wants it.
pub(crate) fn check_reuse_port(setting: &'static str) -> Result<bool> {
    REUSE_PORT.then_some(true).ok_or_else(|| Error::setting(setting, true, "off on this system"))
}

/// `SO_REUSEPORT`, where there is such a thing.
#[allow(unused_variables, reason = "not every system has it")]
pub(in crate::transport) fn set_reuse_port(socket: &Socket) -> io::Result<()> {
    #[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos", target_os = "cygwin"))))]
    socket.set_reuse_port(true)?;
    Ok(())
}

/// Socket buffers are given to the kernel as an `int`.
pub(in crate::transport) fn check_buffer(setting: &'static str, bytes: Option<usize>) -> Result {
    match bytes {
        Some(bytes) if bytes == 0 || i32::try_from(bytes).is_err() => {
            Err(Error::setting(setting, bytes, "1 to 2147483647 bytes"))
        }
        _ => Ok(()),
    }
}

/// `SO_SNDBUF`, `SO_RCVBUF`.
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

/// A version of IP, each of which has options of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transport) enum IpVersion {
    V4,
    V6,
}

/// A packet that may pass no router at all goes nowhere.
pub(in crate::transport) fn check_hops(setting: &'static str, hops: Option<u32>) -> Result {
    match hops {
        Some(hops) if !(1..=255).contains(&hops) => Err(Error::setting(setting, hops, "1 to 255 hops")),
        _ => Ok(()),
    }
}

/// `IP_TTL`, `IPV6_UNICAST_HOPS`.
pub(in crate::transport) fn set_hops(socket: &Socket, version: IpVersion, hops: u32) -> io::Result<()> {
    match version {
        IpVersion::V4 => socket.set_ttl_v4(hops),
        IpVersion::V6 => socket.set_unicast_hops_v6(hops),
    }
}

/// Names that the kernel takes are short, and end with a zero byte. Only Linux takes any.
pub(in crate::transport) fn check_name(setting: &'static str, name: Option<&str>) -> Result {
    match name {
        Some(name) if name.is_empty() || name.len() > 15 || name.contains('\0') => {
            Err(Error::setting(setting, format!("{name:?}"), "a name of 1 to 15 bytes"))
        }
        name => check_system(setting, name, LINUX),
    }
}

/// Refuses an option that this system does not have.
pub(in crate::transport) fn check_system(
    setting: &'static str,
    value: Option<impl fmt::Display>,
    is_known: bool,
) -> Result {
    match value {
        Some(value) if !is_known => Err(Error::setting(setting, value, "nothing on this system")),
        _ => Ok(()),
    }
}
