//! Options of connections.
//!
//! Invariant: options that are not set keep the system's value. When a bootstrap starts, it refuses
//! options that the system does not support, and values that the system would change. Options are
//! never silently ignored.

use super::socket_options::{
    IpVersion, LINUX, check_buffer, check_hops, check_name, check_system, set_buffers, set_hops,
};
use crate::error::{Error, Result};
use socket2::{SockRef, TcpKeepalive};
use std::{io, net::IpAddr, time::Duration};

/// Whether the system supports setting the interval and the number of keepalive probes.
const PROBES: bool = cfg!(any(
    target_os = "linux",
    target_os = "android",
    target_os = "macos",
    target_os = "ios",
    target_os = "freebsd",
    target_os = "netbsd",
    target_os = "windows"
));

/// Options of a connection. Options that are not set keep the operating system's value.
///
/// For Unix sockets, only the buffer sizes are applied.
///
/// | option | default | unit, range | supported on |
/// |---|---|---|---|
/// | `nodelay` | on | | |
/// | `keepalive` | off | time before the first probe: whole seconds, 1 to 32,767 | |
/// | `keepalive_interval` | the system's (Linux: 75 s) | time between probes: whole seconds, 1 to 32,767 | not OpenBSD, Solaris |
/// | `keepalive_retries` | the system's (Linux: 9) | unanswered probes: 1 to 127 | not OpenBSD, Solaris |
/// | `user_timeout` | off | time that sent bytes may stay unacknowledged: milliseconds, 1 or more | Linux |
/// | `linger` | off | whole seconds, 0 to 65,535; zero resets the connection on close | |
/// | `send_buffer`, `receive_buffer` | the system's | bytes (Linux doubles the value) | |
/// | `time_to_live` | the system's (Linux: 64) | hops, 1 to 255; the hop limit of IPv6 | |
/// | `not_sent_low_water` | off | bytes, 1 or more | Linux |
/// | `congestion` | the system's (Linux: cubic) | name of an algorithm, 1 to 15 bytes | Linux |
/// | `mark` | 0 | a number for firewall and routing rules; requires `CAP_NET_ADMIN` | Linux |
/// | `device` | any | name of an interface, 1 to 15 bytes; may require `CAP_NET_RAW` | Linux |
///
/// If the system does not support an option, the bootstrap refuses it when it binds or connects. If
/// the system supports an option but denies it, the connection fails.
///
/// TCP Fast Open and deferred accept (`TCP_DEFER_ACCEPT`) are not supported, because they have no
/// safe API. Instead of the latter, use
/// [`TimeLimits::first_byte`](crate::channel::TimeLimits::first_byte).
#[derive(Debug, Clone)]
pub struct TcpOptions {
    nodelay: bool,
    keepalive: Option<Duration>,
    keepalive_interval: Option<Duration>,
    keepalive_retries: Option<u32>,
    user_timeout: Option<Duration>,
    linger: Option<Duration>,
    send_buffer: Option<usize>,
    receive_buffer: Option<usize>,
    time_to_live: Option<u32>,
    not_sent_low_water: Option<u32>,
    congestion: Option<String>,
    mark: Option<u32>,
    device: Option<String>,
}

impl Default for TcpOptions {
    fn default() -> Self {
        TcpOptions {
            nodelay: true,
            keepalive: None,
            keepalive_interval: None,
            keepalive_retries: None,
            user_timeout: None,
            linger: None,
            send_buffer: None,
            receive_buffer: None,
            time_to_live: None,
            not_sent_low_water: None,
            congestion: None,
            mark: None,
            device: None,
        }
    }
}

impl TcpOptions {
    /// Returns the default options (see the table above).
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `TCP_NODELAY`: sends small segments immediately. On by default, because the loop
    /// already coalesces writes.
    pub fn nodelay(mut self, on: bool) -> Self {
        self.nodelay = on;
        self
    }

    /// Sets `SO_KEEPALIVE` and `TCP_KEEPIDLE`: the kernel probes a peer that has been silent for
    /// `time`.
    ///
    /// Keepalive detects a dead host within minutes. To detect a peer that is alive but sends
    /// nothing, use [`IdleTimeouts`](crate::IdleTimeouts).
    pub fn keepalive(mut self, time: Duration) -> Self {
        self.keepalive = Some(time);
        self
    }

    /// Sets `TCP_KEEPINTVL`, the time between two probes. Requires
    /// [`keepalive`](TcpOptions::keepalive).
    pub fn keepalive_interval(mut self, time: Duration) -> Self {
        self.keepalive_interval = Some(time);
        self
    }

    /// Sets `TCP_KEEPCNT`, the number of unanswered probes after which the connection is considered
    /// broken. Requires [`keepalive`](TcpOptions::keepalive).
    pub fn keepalive_retries(mut self, probes: u32) -> Self {
        self.keepalive_retries = Some(probes);
        self
    }

    /// Sets `TCP_USER_TIMEOUT` (RFC 5482): the connection breaks if sent bytes stay unacknowledged
    /// for this time.
    ///
    /// Without it Linux retries for about 15 minutes. This option overrides `keepalive_retries`
    /// (tcp(7)).
    pub fn user_timeout(mut self, time: Duration) -> Self {
        self.user_timeout = Some(time);
        self
    }

    /// Sets `SO_LINGER`: how a close treats bytes that are in the kernel's send buffer or
    /// unacknowledged.
    ///
    /// - Off, which is the default: the kernel continues to send them in the background.
    /// - Zero: every close resets the connection. The bytes are dropped, and the peer gets an
    ///   error.
    /// - More than zero: the close waits until the peer has acknowledged all bytes, and resets the
    ///   connection after this time.
    ///
    /// A close that waits blocks its thread, even for a non-blocking socket. It therefore runs on a
    /// thread of the group's [`WorkerPool`](crate::worker_pool::WorkerPool). By then the channel
    /// has ended ([`Channel::closed`](crate::Channel::closed), `inactive`), but it counts as a
    /// connection until its socket is closed. If the pool is full or the loop has ended, the socket
    /// is closed without waiting, as if this option were off.
    pub fn linger(mut self, time: Duration) -> Self {
        self.linger = Some(time);
        self
    }

    /// Sets `SO_SNDBUF`, the size of the kernel's send buffer in bytes.
    pub fn send_buffer(mut self, bytes: usize) -> Self {
        self.send_buffer = Some(bytes);
        self
    }

    /// Sets `SO_RCVBUF`, the size of the kernel's receive buffer in bytes.
    pub fn receive_buffer(mut self, bytes: usize) -> Self {
        self.receive_buffer = Some(bytes);
        self
    }

    /// Sets `IP_TTL` or `IPV6_UNICAST_HOPS`: the maximum number of hops of a packet.
    pub fn time_to_live(mut self, hops: u32) -> Self {
        self.time_to_live = Some(hops);
        self
    }

    /// Sets `TCP_NOTSENT_LOWAT`: the kernel accepts no further bytes while it holds this many
    /// unsent bytes.
    ///
    /// The remaining bytes stay in the channel, where they count towards its
    /// [`WaterMark`](crate::buffer::WaterMark) and can be dropped.
    pub fn not_sent_low_water(mut self, bytes: u32) -> Self {
        self.not_sent_low_water = Some(bytes);
        self
    }

    /// Sets `TCP_CONGESTION`, the name of the kernel's congestion control algorithm, such as "bbr".
    pub fn congestion(mut self, algorithm: impl Into<String>) -> Self {
        self.congestion = Some(algorithm.into());
        self
    }

    /// Sets `SO_MARK`, a number that firewall rules and routing tables can match.
    pub fn mark(mut self, mark: u32) -> Self {
        self.mark = Some(mark);
        self
    }

    /// Sets `SO_BINDTODEVICE`: sends and receives packets only through this interface.
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.device = Some(name.into());
        self
    }

    /// Returns how long a close waits for the peer, if it does.
    pub(crate) fn lingers(&self) -> Option<Duration> {
        self.linger
    }

    pub(crate) fn check(&self) -> Result {
        check_seconds("keepalive", self.keepalive, 1..=32_767, "whole seconds, 1 to 32,767")?;
        check_seconds(
            "keepalive_interval",
            self.keepalive_interval,
            1..=32_767,
            "whole seconds, 1 to 32,767",
        )?;
        if let Some(probes) = self.keepalive_retries.filter(|probes| !(1..=127).contains(probes)) {
            return Err(Error::setting("keepalive_retries", probes, "1 to 127 probes"));
        }
        let probes = [
            ("keepalive_interval", self.keepalive_interval.map(|time| format!("{time:?}"))),
            ("keepalive_retries", self.keepalive_retries.map(|probes| probes.to_string())),
        ];
        for (setting, value) in probes {
            if self.keepalive.is_none()
                && let Some(value) = &value
            {
                return Err(Error::setting(setting, value, "unset unless keepalive is set"));
            }
            check_system(setting, value, PROBES)?;
        }
        check_seconds("linger", self.linger, 0..=65_535, "whole seconds, 0 to 65,535")?;
        check_buffer("send_buffer", self.send_buffer)?;
        check_buffer("receive_buffer", self.receive_buffer)?;
        if let Some(time) = self.user_timeout
            && (time.subsec_nanos() % 1_000_000 != 0 || time.is_zero() || time.as_millis() > i32::MAX as u128)
        {
            let allowed = "whole milliseconds, 1 to 2147483647";
            return Err(Error::setting("user_timeout", format!("{time:?}"), allowed));
        }
        check_system("user_timeout", self.user_timeout.map(|time| format!("{time:?}")), LINUX)?;
        check_hops("time_to_live", self.time_to_live)?;
        if let Some(0) = self.not_sent_low_water {
            return Err(Error::setting("not_sent_low_water", 0, "1 byte or more"));
        }
        check_system("not_sent_low_water", self.not_sent_low_water, LINUX)?;
        check_name("congestion", self.congestion.as_deref())?;
        check_system("congestion", self.congestion.as_deref(), cfg!(target_os = "linux"))?;
        check_system("mark", self.mark, LINUX)?;
        check_name("device", self.device.as_deref())
    }

    /// Sets the options that all kinds of sockets support.
    pub(crate) fn apply_buffers(&self, socket: &SockRef<'_>) -> io::Result<()> {
        set_buffers(socket, self.send_buffer, self.receive_buffer)
    }

    /// Sets the options that must be set before the socket is connected.
    pub(crate) fn apply_before_connect(&self, socket: &SockRef<'_>) -> io::Result<()> {
        self.apply_buffers(socket)?;
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            if let Some(mark) = self.mark {
                socket.set_mark(mark)?;
            }
            if let Some(name) = &self.device {
                socket.bind_device(Some(name.as_bytes()))?;
            }
        }
        Ok(())
    }

    /// Sets all options, except a non-zero linger.
    pub(crate) fn apply(&self, socket: &SockRef<'_>) -> io::Result<()> {
        self.apply_before_connect(socket)?;
        // An accepted socket inherits the option of its listener, which may be adopted.
        socket.set_tcp_nodelay(self.nodelay)?;
        if let Some(time) = self.keepalive {
            socket.set_tcp_keepalive(&self.probes(TcpKeepalive::new().with_time(time)))?;
        }
        if self.linger == Some(Duration::ZERO) {
            // A longer linger is set when the channel closes, because other drops of the socket
            // must not block.
            socket.set_linger(self.linger)?;
        }
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            if self.user_timeout.is_some() {
                socket.set_tcp_user_timeout(self.user_timeout)?;
            }
            if let Some(bytes) = self.not_sent_low_water {
                socket.set_tcp_notsent_lowat(bytes)?;
            }
        }
        #[cfg(target_os = "linux")]
        if let Some(algorithm) = &self.congestion {
            socket.set_tcp_congestion(algorithm.as_bytes())?;
        }
        if let Some(hops) = self.time_to_live {
            let address = socket.local_addr()?.as_socket().map(|address| address.ip());
            families(address).iter().try_for_each(|version| set_hops(socket, *version, hops))?;
        }
        Ok(())
    }

    #[cfg(any(
        target_os = "linux",
        target_os = "android",
        target_os = "macos",
        target_os = "ios",
        target_os = "freebsd",
        target_os = "netbsd",
        target_os = "windows"
    ))]
    fn probes(&self, mut keepalive: TcpKeepalive) -> TcpKeepalive {
        if let Some(time) = self.keepalive_interval {
            keepalive = keepalive.with_interval(time);
        }
        if let Some(probes) = self.keepalive_retries {
            keepalive = keepalive.with_retries(probes);
        }
        keepalive
    }

    #[cfg(not(any(
        target_os = "linux",
        target_os = "android",
        target_os = "macos",
        target_os = "ios",
        target_os = "freebsd",
        target_os = "netbsd",
        target_os = "windows"
    )))]
    fn probes(&self, keepalive: TcpKeepalive) -> TcpKeepalive {
        keepalive
    }
}

/// Returns the versions of IP whose socket options apply to a connection with this local address.
/// An IPv4 connection accepted by a dual-stack listener sends IPv4 packets but has the options of
/// both.
fn families(address: Option<IpAddr>) -> &'static [IpVersion] {
    match address {
        Some(IpAddr::V4(_)) => &[IpVersion::V4],
        Some(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => &[IpVersion::V4, IpVersion::V6],
        Some(IpAddr::V6(_)) => &[IpVersion::V6],
        None => &[],
    }
}

/// Checks a time that the kernel takes in whole seconds. A fraction would be truncated, and half a
/// second of linger would become a reset.
fn check_seconds(
    setting: &'static str,
    time: Option<Duration>,
    range: std::ops::RangeInclusive<u64>,
    allowed: &'static str,
) -> Result {
    match time {
        Some(time) if time.subsec_nanos() != 0 || !range.contains(&time.as_secs()) => {
            Err(Error::setting(setting, format!("{time:?}"), allowed))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "tcp_options_tests.rs"]
mod tests;
