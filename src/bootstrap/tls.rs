//! TLS on servers and clients.

use super::{client::ClientBootstrap, server::ServerBootstrap};
use crate::tls::{MakeFilter, TlsClient, TlsServer};
use std::sync::Arc;

impl<F> ServerBootstrap<F> {
    /// Encrypts the connections with TLS. The pipeline factory is called after the handshake and
    /// reads its result from [`Peer::tls`](crate::Peer::tls).
    ///
    /// Filters that were added before are below TLS. The PROXY protocol always is.
    #[doc(alias = "SslHandler")]
    #[doc(alias = "SslContext")]
    pub fn tls(self, tls: TlsServer) -> Self {
        self.filter_with(Arc::new(move |peer| tls.make_filter(peer)))
    }
}

impl<F> ClientBootstrap<F> {
    /// Encrypts the connections with TLS. A `connect` completes after the handshake, or fails with
    /// its error.
    #[doc(alias = "SslHandler")]
    pub fn tls(self, tls: TlsClient) -> Self {
        self.filter_with(Arc::new(move |peer| tls.make_filter(peer)))
    }
}
