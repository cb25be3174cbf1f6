//! Options of connections.
//!
//! Always holds: an option that is not set stays as the system has it; one that this system does not know, or a value that it
//! would bend into another one, is refused when a bootstrap begins, and never left out in silence.

use super::socket_options::{
    IpVersion, LINUX, check_buffer, check_hops, check_name, check_system, set_buffers, set_hops,
};
use crate::{Error, Result};
use socket2::{SockRef, TcpKeepalive};
use std::{io, net::IpAddr, time::Duration};

/// Whether the system lets keepalive probes be set apart from the time before the first.
const PROBES: bool = cfg!(any(
    target_os = "linux",
    target_os = "android",
    target_os = "macos",
    target_os = "ios",
    target_os = "freebsd",
    target_os = "netbsd",
    target_os = "windows"
));

/// Whether the system lets the class of packets be set, of both versions of IP.
const CLASSES: bool = cfg!(any(
    target_os = "linux",
    target_os = "android",
    target_os = "macos",
    target_os = "freebsd",
    target_os = "netbsd",
    target_os = "openbsd",
    target_os = "dragonfly"
));

/// Options of a connection; what is not set stays as the operating system has it.
///
/// Of a Unix socket the buffers count; what is TCP's own (the others) is not applied.
///
/// | option | default | unit, range | where |
/// |---|---|---|---|
/// | `nodelay` | on | | |
/// | `keepalive` | off | time before the first probe: whole seconds, 1 to 32,767 | |
/// | `keepalive_interval` | the system's (Linux: 75 s) | between probes: whole seconds, 1 to 32,767 | not OpenBSD, Solaris |
/// | `keepalive_retries` | the system's (Linux: 9) | probes without an answer: 1 to 127 | not OpenBSD, Solaris |
/// | `user_timeout` | off | bytes sent and not acknowledged: milliseconds, 1 or more | Linux |
/// | `linger` | off | whole seconds, 0 to 65,535; zero resets the connection at close | |
/// | `send_buffer`, `receive_buffer` | the system's | bytes (Linux doubles what it is given) | |
/// | `type_of_service` | 0 | the byte with DSCP and ECN; the traffic class of IPv6 | Linux, macOS, the BSDs |
/// | `time_to_live` | the system's (Linux: 64) | hops, 1 to 255; the hop limit of IPv6 | |
/// | `not_sent_low_water` | off | bytes, 1 or more | Linux |
/// | `congestion` | the system's (Linux: cubic) | name of an algorithm, 1 to 15 bytes | Linux |
/// | `mark` | 0 | a number for firewall and routing; takes `CAP_NET_ADMIN` | Linux |
/// | `device` | any | name of an interface, 1 to 15 bytes; may take `CAP_NET_RAW` | Linux |
///
/// An option that the system does not know is refused where the bootstrap binds or connects; one that it knows and does not
/// allow fails the connection. Not here, since there is no safe way to them: TCP Fast Open and deferred accept
/// (`TCP_DEFER_ACCEPT`; [`TimeLimits::first_byte`](crate::TimeLimits::first_byte) does what that is used for).
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
    type_of_service: Option<u8>,
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
            type_of_service: None,
            time_to_live: None,
            not_sent_low_water: None,
            congestion: None,
            mark: None,
            device: None,
        }
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

    /// `SO_KEEPALIVE`, `TCP_KEEPIDLE`: the kernel probes a peer that was silent for `time`. It tells a dead host from a live
    /// one within minutes; to detect a peer that merely says nothing use [`IdleTimeouts`](crate::IdleTimeouts).
    pub fn keepalive(mut self, time: Duration) -> Self {
        self.keepalive = Some(time);
        self
    }

    /// `TCP_KEEPINTVL`: the time between two probes; only with [`keepalive`](TcpOptions::keepalive).
    pub fn keepalive_interval(mut self, time: Duration) -> Self {
        self.keepalive_interval = Some(time);
        self
    }

    /// `TCP_KEEPCNT`: the connection is broken after so many probes without an answer; only with
    /// [`keepalive`](TcpOptions::keepalive).
    pub fn keepalive_retries(mut self, probes: u32) -> Self {
        self.keepalive_retries = Some(probes);
        self
    }

    /// `TCP_USER_TIMEOUT` (RFC 5482): the connection is broken when bytes that were sent are not acknowledged for so long.
    /// Without it Linux tries for a quarter of an hour. It also overrules `keepalive_retries` (tcp(7)).
    pub fn user_timeout(mut self, time: Duration) -> Self {
        self.user_timeout = Some(time);
        self
    }

    /// `SO_LINGER`: what closing does with bytes that the kernel has taken and the peer has not acknowledged.
    ///
    /// Off, the kernel goes on sending them behind the program's back. Zero makes every close a reset, which drops them and
    /// tells the peer of an error. More makes the close wait for the peer, and resets the connection when the time is up.
    /// Such a close blocks, also that of a non-blocking socket; so the socket is closed on a thread of the group's
    /// [`WorkerPool`](crate::WorkerPool). The channel has ended by then ([`Channel::closed`](crate::Channel::closed),
    /// `inactive`), but counts as a connection until its socket is closed. Should the pool be full, or the loop have ended,
    /// the socket is closed without a wait, as if this were off.
    pub fn linger(mut self, time: Duration) -> Self {
        self.linger = Some(time);
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

    /// `IP_TOS`, `IPV6_TCLASS`: how routers may treat the packets (RFC 2474): the class in the upper six bits. Linux keeps
    /// the lower two, which are for congestion (RFC 3168), to itself.
    pub fn type_of_service(mut self, byte: u8) -> Self {
        self.type_of_service = Some(byte);
        self
    }

    /// `IP_TTL`, `IPV6_UNICAST_HOPS`: routers that a packet may pass.
    pub fn time_to_live(mut self, hops: u32) -> Self {
        self.time_to_live = Some(hops);
        self
    }

    /// `TCP_NOTSENT_LOWAT`: the kernel takes no more while so many bytes that it has are not yet sent. Keeps what waits in
    /// the channel, where it counts against its [water marks](crate::buffer::WaterMark) and can be dropped.
    pub fn not_sent_low_water(mut self, bytes: u32) -> Self {
        self.not_sent_low_water = Some(bytes);
        self
    }

    /// `TCP_CONGESTION`: the algorithm by which the kernel decides how fast to send, "bbr" for example.
    pub fn congestion(mut self, algorithm: impl Into<String>) -> Self {
        self.congestion = Some(algorithm.into());
        self
    }

    /// `SO_MARK`: a number that firewall rules and routing tables look at.
    pub fn mark(mut self, mark: u32) -> Self {
        self.mark = Some(mark);
        self
    }

    /// `SO_BINDTODEVICE`: packets come and go by this interface only.
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.device = Some(name.into());
        self
    }

    /// How long closing waits for the peer, if it does.
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
                return Err(Error::setting(setting, value, "nothing without keepalive"));
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
        check_system("type_of_service", self.type_of_service, CLASSES)?;
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

    /// Sets what every kind of socket has.
    pub(crate) fn apply_buffers(&self, socket: &SockRef<'_>) -> io::Result<()> {
        set_buffers(socket, self.send_buffer, self.receive_buffer)
    }

    /// Sets what has to be set before the connection exists.
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

    /// Sets the rest.
    pub(crate) fn apply(&self, socket: &SockRef<'_>) -> io::Result<()> {
        self.apply_before_connect(socket)?;
        if self.nodelay {
            socket.set_tcp_nodelay(true)?;
        }
        if let Some(time) = self.keepalive {
            socket.set_tcp_keepalive(&self.probes(TcpKeepalive::new().with_time(time)))?;
        }
        if self.linger == Some(Duration::ZERO) {
            // More than that is set when the channel closes: nothing else that drops a socket may wait.
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
        if self.type_of_service.is_some() || self.time_to_live.is_some() {
            let address = socket.local_addr()?.as_socket().map(|address| address.ip());
            families(address).iter().try_for_each(|version| self.apply_ip(socket, *version))?;
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

    /// Sets what each version of IP has of its own.
    fn apply_ip(&self, socket: &SockRef<'_>, version: IpVersion) -> io::Result<()> {
        if let Some(hops) = self.time_to_live {
            set_hops(socket, version, hops)?;
        }
        #[cfg(any(
            target_os = "linux",
            target_os = "android",
            target_os = "macos",
            target_os = "freebsd",
            target_os = "netbsd",
            target_os = "openbsd",
            target_os = "dragonfly"
        ))]
        if let Some(byte) = self.type_of_service {
            match version {
                IpVersion::V4 => socket.set_tos_v4(u32::from(byte))?,
                IpVersion::V6 => socket.set_tclass_v6(u32::from(byte))?,
            }
        }
        Ok(())
    }
}

/// Which versions of IP a connection with this local address speaks, as far as its socket's options go: one of an IPv6
/// listener that serves IPv4 as well sends packets of the one and has the options of both.
fn families(address: Option<IpAddr>) -> &'static [IpVersion] {
    match address {
        Some(IpAddr::V4(_)) => &[IpVersion::V4],
        Some(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => &[IpVersion::V4, IpVersion::V6],
        Some(IpAddr::V6(_)) => &[IpVersion::V6],
        None => &[],
    }
}

/// The kernel takes whole seconds: a fraction would be cut off, half a second's linger be a reset.
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
