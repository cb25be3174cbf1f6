//! Rules for admitting connections: address filters, and limits on their number.
//!
//! Set them with [`ServerBootstrap::admission`](crate::ServerBootstrap::admission).

// Admission control: which connections a server accepts, and how many at once.
//
// For each accepted socket, the listener asks the server's `Gate`, which checks the IP filter,
// then the limit of the server, then the limit of the address. After that, the listener asks the
// group for a loop with a free permit. A rejected connection is counted and closed at once, before
// a pipeline is created.
//
// An `Admitted` value counts one connection. It travels with the socket inside the loop's
// `Assignment` and is dropped after it. So a permit is released only when the handler is dropped
// and the socket is closed, and neither handlers nor sockets ever exceed the limit. The count of a
// server is one atomic number (`Permits`), so concurrent listeners cannot exceed the limit. The
// counts per address are in a map behind a lock, which is taken only if there is such a limit, or
// if the counts are shared.
//
// Invariant: a connection that is not admitted gets neither a pipeline nor a handler. The module
// does no I/O: the caller owns sockets, logs and counters. Settings are copied when a server
// starts. Each server counts its own connections, unless the counts are shared.

mod gate;
mod ip_filter;
mod overload;

use gate::Counts;
pub(crate) use gate::{AddressChange, Admitted, Gate};
pub use ip_filter::{IpFilter, IpRule};
pub use overload::Work;
pub(crate) use overload::{OverloadController, WorkLimits};

use crate::error::{Error, Overloaded, Result};
use bytes::Bytes;
use std::{fmt, net::SocketAddr, sync::Arc};

/// The maximum length of a farewell, in bytes. It fits into one packet, so it arrives in full or
/// not at all.
pub(crate) const MAX_FAREWELL: usize = 1024;

/// Admission control of a server: which addresses may connect, and how many connections are
/// allowed. The bootstrap reports invalid values when it binds.
///
/// | setting | default | range |
/// |---|---|---|
/// | `ip_filter` | allows all addresses | |
/// | `max_connections` | only the limit of each loop applies | 1 or more |
/// | `max_connections_per_ip` | unlimited | 1 or more |
/// | `ipv6_prefix` | 64 bits | 1 to 128 |
/// | `shared` | each server counts its own connections | |
///
/// The filter is checked first, then the limits of the server, and then the limit of the loop
/// ([`max_connections`](crate::group::EventLoopGroupBuilder::max_connections)).
///
/// A rejected connection is accepted and closed at once, without a pipeline. It is counted
/// ([`LoopMetrics::rejected_filter`](crate::metrics::LoopMetrics::rejected_filter),
/// [`rejected_limit`](crate::metrics::LoopMetrics::rejected_limit)) and logged, at most one line
/// every ten seconds.
///
/// A loop that misses its
/// [`overload_target`](crate::group::EventLoopGroupBuilder::overload_target) refuses connections
/// too. They are reset, unless there is a [farewell](Admission::farewell), and counted as
/// [`LoopMetrics::shed_accepts`](crate::metrics::LoopMetrics::shed_accepts).
///
/// A connection stops counting when its handler is dropped and its socket is closed. A peer that
/// sees the end of its connection and reconnects at the same moment may still be rejected.
///
/// ```no_run
/// # use netwheel::{admission::{Admission, IpFilter, IpRule}, codec::RawBytes, prelude::*};
/// # struct Echo;
/// # impl Handler for Echo {
/// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
/// #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { ctx.write(m) }
/// # }
/// # fn main() -> Result {
/// let admission = Admission::new()
///     .ip_filter(IpFilter::new([IpRule::deny("192.0.2.0/24")?]))
///     .max_connections(100_000)
///     .max_connections_per_ip(20)
///     .on_rejected(|rejection| println!("{rejection}"));
/// let group = EventLoopGroup::new()?;
/// let server = ServerBootstrap::new(&group)
///     .admission(admission)
///     .pipeline(|_peer| Pipeline::codec(RawBytes).handler(Echo))
///     .bind("[::]:7000")?;
/// # server.closed().wait()
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct Admission {
    filter: IpFilter,
    max_connections: Option<usize>,
    max_connections_per_ip: Option<usize>,
    ipv6_prefix: u8,
    /// The counts of all servers with these settings. `None`: each server has its own.
    shared: Option<Arc<Counts>>,
    on_rejected: Option<Arc<OnRejected>>,
    farewell: Option<Arc<Farewell>>,
}

type OnRejected = dyn Fn(&Rejection) + Send + Sync;

type Farewell = dyn Fn(&Rejection) -> Option<Bytes> + Send + Sync;

impl Default for Admission {
    fn default() -> Self {
        Admission {
            filter: IpFilter::default(),
            max_connections: None,
            max_connections_per_ip: None,
            ipv6_prefix: 64,
            shared: None,
            on_rejected: None,
            farewell: None,
        }
    }
}

impl Admission {
    /// Returns the default settings, which admit all connections.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the IP filter. The default allows all addresses.
    pub fn ip_filter(mut self, filter: IpFilter) -> Self {
        self.filter = filter;
        self
    }

    /// Sets the maximum number of connections of the server, over all loops. Servers on other
    /// addresses are counted separately, unless the counts are [`shared`](Admission::shared).
    ///
    /// A connection counts until its handler is dropped and its socket is closed, so the numbers of
    /// handlers and descriptors never exceed the limit. A socket that
    /// [lingers](crate::group::EventLoopGroupBuilder::max_lingering) still counts.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = Some(connections);
        self
    }

    /// Sets the maximum number of connections from one IP address.
    ///
    /// Many users may share an IPv4 address, for example in a company or a mobile network. Behind a
    /// proxy, every connection has the address of the proxy.
    pub fn max_connections_per_ip(mut self, connections: usize) -> Self {
        self.max_connections_per_ip = Some(connections);
        self
    }

    /// Sets the IPv6 prefix length by which addresses are grouped for the per-address limit. The
    /// default is 64, because a subscriber usually controls a whole /64 or more.
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits;
        self
    }

    /// Counts the connections of all servers that have a clone of this value together, for a
    /// process that listens on several addresses. Settings of a clone can still be changed: each
    /// server applies its own limits to the common counts. The connections of an IPv6 prefix are
    /// counted together by servers with the same [`ipv6_prefix`](Admission::ipv6_prefix).
    ///
    /// ```no_run
    /// # use netwheel::{admission::Admission, codec::Line, prelude::*};
    /// # fn main() -> Result {
    /// # let group = EventLoopGroup::builder().threads(1).build()?;
    /// let admission = Admission::new().max_connections(50_000).shared();
    /// let server = ServerBootstrap::new(&group)
    ///     .admission(admission)
    ///     .pipeline(|_peer| Pipeline::codec(Line::new()).on_read(|ctx, line| ctx.write(line)));
    /// let servers = [server.clone().bind("127.0.0.1:0")?, server.bind("[::1]:0")?];
    /// # drop(servers);
    /// # Ok(())
    /// # }
    /// ```
    pub fn shared(mut self) -> Self {
        self.shared = Some(Arc::default());
        self
    }

    /// Sets a callback for rejected connections. It runs on the accepting loop and must not block.
    /// For an address that a filter has announced, it runs on the loop of the connection. A panic
    /// in it is logged.
    pub fn on_rejected(mut self, told: impl Fn(&Rejection) + Send + Sync + 'static) -> Self {
        self.on_rejected = Some(Arc::new(told));
        self
    }

    /// Sets a function that returns a message for rejected connections, for example that the server
    /// is busy.
    ///
    /// The message is sent before the connection is closed. The function runs on the accepting
    /// loop, before [`on_rejected`](Admission::on_rejected), and must not block. If it panics, the
    /// panic is logged and nothing is sent.
    ///
    /// A message of more than 1024 bytes is not sent, and the failure is logged. The message is
    /// written with one system call, without a pipeline. Bytes that the kernel does not accept at
    /// once are lost. If bytes of the peer arrive after the server has read for the last time, the
    /// close becomes a reset. The peer may then lose the whole message.
    ///
    /// ```
    /// # use netwheel::admission::{Admission, RejectReason};
    /// let admission = Admission::new().max_connections(10_000).farewell(|rejection| {
    ///     match rejection.reason {
    ///         // Denied peers get no explanation.
    ///         RejectReason::Denied(_) => None,
    ///         _ => Some(bytes::Bytes::from_static(b"busy, come back later\n")),
    ///     }
    /// });
    /// ```
    pub fn farewell(mut self, words: impl Fn(&Rejection) -> Option<Bytes> + Send + Sync + 'static) -> Self {
        self.farewell = Some(Arc::new(words));
        self
    }

    pub(crate) fn check(&self) -> Result {
        if self.max_connections == Some(0) {
            return Err(Error::setting("max_connections", 0, "1 connection or more"));
        }
        if self.max_connections_per_ip == Some(0) {
            return Err(Error::setting("max_connections_per_ip", 0, "1 connection or more"));
        }
        if !(1..=128).contains(&self.ipv6_prefix) {
            return Err(Error::setting("ipv6_prefix", self.ipv6_prefix, "1 to 128 bits"));
        }
        Ok(())
    }

    /// Returns whether rejected connections may get last words.
    pub(crate) fn has_farewell(&self) -> bool {
        self.farewell.is_some()
    }

    pub(crate) fn farewell_to(&self, rejection: &Rejection) -> Option<Bytes> {
        self.farewell.as_ref().and_then(|words| words(rejection))
    }

    pub(crate) fn notify(&self, rejection: &Rejection) {
        if let Some(told) = &self.on_rejected {
            told(rejection);
        }
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission")
            .field("filter", &self.filter)
            .field("max_connections", &self.max_connections)
            .field("max_connections_per_ip", &self.max_connections_per_ip)
            .field("ipv6_prefix", &self.ipv6_prefix)
            .field("shared", &self.shared.is_some())
            .finish_non_exhaustive()
    }
}

/// A rejected connection, passed to [`Admission::on_rejected`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejection {
    /// The address of the peer, if the transport has addresses.
    pub address: Option<SocketAddr>,
    /// The reason for the rejection.
    pub reason: RejectReason,
}

/// The reason why a connection was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectReason {
    /// The address is denied by a rule of the filter.
    Denied(IpRule),
    /// The server has reached [`Admission::max_connections`].
    ServerFull {
        /// The limit.
        limit: usize,
    },
    /// The address has reached [`Admission::max_connections_per_ip`].
    IpFull {
        /// The limit.
        limit: usize,
    },
    /// Each loop that could serve the connection has reached its limit.
    LoopFull {
        /// The limit of each loop.
        limit: usize,
    },
    /// The loop that would serve the connection is overloaded
    /// ([`overload_target`](crate::group::EventLoopGroupBuilder::overload_target)).
    Overloaded(Overloaded),
}

impl Rejection {
    pub(crate) fn new(address: Option<SocketAddr>, reason: RejectReason) -> Self {
        Rejection { address, reason }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "a connection from {address} was rejected: {}", self.reason),
            None => write!(f, "a connection was rejected: {}", self.reason),
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RejectReason::Denied(rule) => write!(f, "filter rule: {rule}"),
            RejectReason::ServerFull { limit } => {
                write!(f, "the server has reached its limit of {limit} connections")
            }
            RejectReason::IpFull { limit } => {
                write!(f, "its address has reached its limit of {limit} connections")
            }
            RejectReason::LoopFull { limit } => {
                write!(f, "each event loop has reached its limit of {limit} connections")
            }
            RejectReason::Overloaded(overloaded) => write!(f, "{overloaded}"),
        }
    }
}
