//! The peer of a connection, as pipeline factories and filters see it.
//!
//! Plain data.

use std::{any::Any, fmt, net::SocketAddr, sync::Arc};

/// The peer of a new connection, passed to pipeline factories. Unix sockets have neither address.
#[derive(Clone, Default)]
pub struct Peer {
    address: Option<SocketAddr>,
    local_address: Option<SocketAddr>,
    host: Option<Arc<str>>,
    infos: Vec<Arc<dyn Any + Send + Sync>>,
}

impl Peer {
    pub(crate) fn new(address: Option<SocketAddr>, local_address: Option<SocketAddr>) -> Self {
        Peer { address, local_address, host: None, infos: Vec::new() }
    }

    /// Adds the name that a client connects to.
    pub(crate) fn with_host(self, host: Option<Arc<str>>) -> Self {
        Peer { host, ..self }
    }

    /// Returns the address of the other end, if the transport has one. Behind a load balancer that
    /// speaks the PROXY protocol it is the address of the client.
    #[doc(alias = "remoteAddress")]
    #[doc(alias = "peer_addr")]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns the address of this end, if the transport has one.
    #[doc(alias = "local_addr")]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.local_address
    }

    /// Returns the host name that a client has passed to `connect`, without the port. `None` on a
    /// server, and if the client has passed an address.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Returns the value that a filter has stored with
    /// [`FilterContext::set_info`](crate::filter::FilterContext::set_info).
    pub fn info<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.infos.iter().find_map(|info| info.downcast_ref())
    }

    pub(in crate::channel) fn set_info<T: Send + Sync + 'static>(&mut self, info: T) {
        self.infos.retain(|info| !info.is::<T>());
        self.infos.push(Arc::new(info));
    }

    pub(in crate::channel) fn set_addresses(
        &mut self,
        address: Option<SocketAddr>,
        local: Option<SocketAddr>,
    ) {
        (self.address, self.local_address) = (address, local);
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("address", &self.address)
            .field("local_address", &self.local_address)
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}
