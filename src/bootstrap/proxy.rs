//! The PROXY protocol on servers and clients.

use super::{client::ClientBootstrap, server::ServerBootstrap};
use crate::{
    channel::{Peer, filter::Filter},
    proxy::{ProxyHeader, ProxyProtocol},
};
use std::sync::Arc;

impl<F> ServerBootstrap<F> {
    /// Reads a PROXY header at the begin of each connection from a trusted network, for servers
    /// behind a load balancer. Refused by `bind` if no network is trusted.
    ///
    /// The announced addresses become those of the channel, and [`Peer::proxy`](crate::Peer::proxy)
    /// returns the header. `IpFilter` and the limit of connections per address apply to the
    /// announced address; those of the balancer are not counted. The header precedes all other
    /// filters, regardless of the order of the calls. A header that does not come within
    /// [`handshake_timeout`](ServerBootstrap::handshake_timeout) closes the connection.
    ///
    /// ```no_run
    /// use netwheel::{bytes::Bytes, codec::Line, prelude::*, proxy::ProxyProtocol};
    ///
    /// let group = EventLoopGroup::builder().threads(1).build()?;
    /// let server = ServerBootstrap::new(&group)
    ///     .proxy_protocol(ProxyProtocol::required().trust("10.0.0.0/8")?)
    ///     .pipeline(|peer| {
    ///         println!("{:?} has connected", peer.address());
    ///         Pipeline::codec(Line::new()).on_read(|ctx, line: Bytes| ctx.write(line))
    ///     })
    ///     .bind("0.0.0.0:7000")?;
    /// # server.close().wait()?;
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    #[doc(alias = "HAProxyMessageDecoder")]
    pub fn proxy_protocol(self, protocol: ProxyProtocol) -> Self {
        let (trusts, check) = (protocol.clone(), protocol.check());
        self.filter_first(Arc::new(move |_: &Peer| Ok(Box::new(protocol.filter()) as Box<dyn Filter>)), check)
            .announces_for(Arc::new(move |ip| trusts.expects_header(Some((ip, 0).into())) == Ok(true)))
    }
}

impl<F> ClientBootstrap<F> {
    /// Sends a PROXY header first on each connection, before all other filters.
    ///
    /// ```
    /// use netwheel::{codec::RawBytes, prelude::*, proxy::ProxyHeader};
    ///
    /// let group = EventLoopGroup::builder().threads(1).build()?;
    /// // Announces the connection's own addresses.
    /// let client = ClientBootstrap::new(&group)
    ///     .proxy_protocol(|peer| match (peer.local_address(), peer.address()) {
    ///         (Some(local), Some(remote)) => ProxyHeader::v2(local, remote),
    ///         _ => ProxyHeader::v2_local(),
    ///     })
    ///     .pipeline(|_| Pipeline::codec(RawBytes).on_read(|_, _: netwheel::bytes::Bytes| Ok(())));
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    #[doc(alias = "HAProxyMessageEncoder")]
    pub fn proxy_protocol(self, header: impl Fn(&Peer) -> ProxyHeader + Send + Sync + 'static) -> Self {
        self.filter_first(Arc::new(move |peer: &Peer| Ok(Box::new(header(peer).filter()) as Box<dyn Filter>)))
    }
}
