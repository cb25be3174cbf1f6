//! Which connections a server accepts, and how many at once.
//!
//! For each accepted socket the listener asks the server's `Gate`: the IP filter first, then the
//! limit of the server, then the limit of the address. After that it asks the group for a loop that
//! has room. A refused connection is counted and closed at once, before a pipeline is made.
//!
//! An [`Admitted`] value counts one connection. It travels with the socket inside the loop's
//! `Assignment` and is dropped after it, so a permit is free only when the handler is dropped and
//! the socket is closed. Neither handlers nor sockets ever exceed the limit. The count of a server
//! is one atomic number (`Permits`), so listeners that race cannot pass the limit. The counts of
//! addresses are in a map behind a lock, which only servers with such a limit take.
//!
//! Invariant: a connection that is not admitted gets no pipeline and no handler. The module is
//! pure: sockets, logs and counters belong to the caller. Settings are copied when a server starts;
//! each server counts its own connections.

mod gate;
mod ip_filter;

pub(crate) use gate::{Admitted, Gate};
pub use ip_filter::{IpFilter, IpRule};

use crate::{Error, Result};
use bytes::Bytes;
use std::{fmt, net::SocketAddr, sync::Arc};

/// Bytes of a farewell; what fits into one packet arrives in one piece, or not at all.
pub(crate) const MAX_FAREWELL: usize = 1024;

/// Who may connect to a server, and how many at once; refused values are reported when the bootstrap binds.
///
/// | setting | default | range |
/// |---|---|---|
/// | `ip_filter` | everybody | |
/// | `max_connections` | no limit but that of each loop | 1 or more |
/// | `max_connections_per_ip` | no limit | 1 or more |
/// | `ipv6_prefix` | 64 bits | 1 to 128 |
///
/// What is not let in is accepted and closed at once: no pipeline is made for it. It is counted
/// ([`LoopMetrics::rejected_filter`](crate::LoopMetrics::rejected_filter),
/// [`rejected_limit`](crate::LoopMetrics::rejected_limit)) and logged, one line in ten seconds. First the filter is
/// asked, then the limits of the server, at last that of the loop
/// ([`EventLoopGroupBuilder::max_connections`](crate::EventLoopGroupBuilder::max_connections)).
///
/// A place is free again when the handler is dropped and the socket is closed. A peer that sees the
/// end of its connection and comes back in the same
/// instant may still find its place taken.
///
/// ```no_run
/// # use netwheel::{Admission, IpFilter, IpRule, codec::RawBytes, prelude::*};
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
            on_rejected: None,
            farewell: None,
        }
    }
}

impl Admission {
    /// Everybody may connect.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which addresses may connect.
    pub fn ip_filter(mut self, filter: IpFilter) -> Self {
        self.filter = filter;
        self
    }

    /// Connections that the server may have at once, on all loops together.
    ///
    /// A connection counts until its handler is dropped and its socket is closed, so there are
    /// never more handlers or descriptors than that. A socket that
    /// [lingers](crate::EventLoopGroupBuilder::max_lingering) still counts.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = Some(connections);
        self
    }

    /// Connections that one IP address may have to the server at once.
    ///
    /// Many people may share an IPv4 address (a company, a mobile network), so a limit for all is not a limit for each.
    /// Behind a proxy every connection has the address of the proxy.
    pub fn max_connections_per_ip(mut self, connections: usize) -> Self {
        self.max_connections_per_ip = Some(connections);
        self
    }

    /// As how many leading bits an IPv6 address counts for the limit per address: a subscriber commonly has a whole /64,
    /// or more, to himself.
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits;
        self
    }

    /// Is told of each connection that is not let in, on the loop that accepts: it must not block. If it panics, that is
    /// logged.
    pub fn on_rejected(mut self, told: impl Fn(&Rejection) + Send + Sync + 'static) -> Self {
        self.on_rejected = Some(Arc::new(told));
        self
    }

    /// What is sent to a connection that is not let in before it is closed: a line that says why, so that its user does not
    /// see a broken network. Called on the loop that accepts, before [`on_rejected`](Admission::on_rejected): it must not block.
    /// If it panics, that is logged and nothing is sent.
    ///
    /// At most 1024 bytes; a longer one is not sent, and logged. It is written once, without a pipeline: what the kernel does
    /// not take at once is lost, and so is all of it should the peer's own bytes come too late to be read away first and its
    /// system drop what came before a reset. So a peer that is refused costs one system call more, and nobody waits for it.
    ///
    /// ```
    /// # use netwheel::{Admission, RejectReason};
    /// let admission = Admission::new().max_connections(10_000).farewell(|rejection| match rejection.reason {
    ///     // Somebody who is not wanted learns nothing.
    ///     RejectReason::Denied(_) => None,
    ///     _ => Some(bytes::Bytes::from_static(b"busy, come back later\n")),
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

    pub(crate) fn farewell_to(&self, rejection: &Rejection) -> Option<Bytes> {
        self.farewell.as_ref().and_then(|words| words(rejection))
    }

    pub(crate) fn tell(&self, rejection: &Rejection) {
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
            .finish_non_exhaustive()
    }
}

/// A connection that was not let in; told to [`Admission::on_rejected`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejection {
    /// Who wanted to connect, if the transport has addresses.
    pub address: Option<SocketAddr>,
    /// Why not.
    pub reason: RejectReason,
}

/// Why a connection was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectReason {
    /// A rule of the filter denies its address.
    Denied(IpRule),
    /// The server has as many connections as it may have.
    ServerFull {
        /// So many.
        limit: usize,
    },
    /// Its address has as many connections as one address may have.
    IpFull {
        /// So many.
        limit: usize,
    },
    /// Each loop that could serve it has as many connections as a loop may have.
    LoopFull {
        /// So many, each.
        limit: usize,
    },
}

impl Rejection {
    pub(crate) fn new(address: Option<SocketAddr>, reason: RejectReason) -> Self {
        Rejection { address, reason }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "a connection from {address} is rejected: {}", self.reason),
            None => write!(f, "a connection is rejected: {}", self.reason),
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RejectReason::Denied(rule) => write!(f, "the filter says {rule}"),
            RejectReason::ServerFull { limit } => write!(f, "the server has {limit} connections"),
            RejectReason::IpFull { limit } => write!(f, "its address has {limit} connections"),
            RejectReason::LoopFull { limit } => write!(f, "each event loop has {limit} connections"),
        }
    }
}
