//! The backends: round robin, and the next one if a connection fails.

use crate::side;
use bytes::Bytes;
use netwheel::{Completer, Completion, EventLoop, prelude::*, proxy::ProxyHeader, relay::Relay};
use std::{
    net::{SocketAddr, ToSocketAddrs},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

pub(crate) struct Backends {
    addresses: Vec<SocketAddr>,
    /// Counter that selects the backend of the next client.
    clients: AtomicUsize,
    client: ClientBootstrap,
    /// Whether the client's address is sent to the backend in a PROXY header.
    announces: bool,
}

impl Backends {
    /// Resolves the addresses, so that no event loop has to wait for the DNS. Blocks.
    ///
    /// # Errors
    /// Fails if a name cannot be resolved.
    pub(crate) fn resolve(names: &[String], client: ClientBootstrap, announces: bool) -> Result<Self> {
        let mut addresses = Vec::new();
        for name in names {
            let resolved =
                name.to_socket_addrs().map_err(|e| Error::other(format!("backend {name}: {e}")))?;
            addresses.extend(resolved);
        }
        if addresses.is_empty() {
            return Err("no backend has an address".into());
        }
        Ok(Backends { addresses, clients: AtomicUsize::new(0), client, announces })
    }

    /// Connects a client to the next backend. Fails with the error of the last backend if none can
    /// be reached.
    pub(crate) fn dial(self: &Arc<Self>, front: Channel<Bytes>) -> Completion<Channel<Bytes>> {
        let event_loop = front.event_loop().expect("an accepted channel has an event loop");
        let (completer, completion) = event_loop.completer();
        let first = self.clients.fetch_add(1, Ordering::Relaxed) % self.addresses.len();
        Attempt { backends: self.clone(), front, event_loop, first, failed: 0, completer }.start();
        completion
    }
}

/// The search of a backend for one client.
struct Attempt {
    backends: Arc<Backends>,
    front: Channel<Bytes>,
    /// The loop of the client. With both channels on one loop, no other thread has to be woken.
    event_loop: EventLoop,
    /// Index of the first backend tried.
    first: usize,
    /// Number of backends that could not be reached.
    failed: usize,
    completer: Completer<Channel<Bytes>>,
}

impl Attempt {
    /// Tries the next backend.
    fn start(mut self) {
        let addresses = &self.backends.addresses;
        let backend = addresses[(self.first + self.failed) % addresses.len()];
        self.connect(backend).on_complete(move |result| match result {
            Err(error) if self.front.is_open() => {
                log::warn!("backend {backend}: {error:#}");
                self.failed += 1;
                if self.failed < self.backends.addresses.len() {
                    self.start();
                } else {
                    self.completer.complete(Err(error));
                }
            }
            result => {
                if result.is_ok() {
                    log::info!("{:?} -> {backend}", self.front.peer_address());
                }
                self.completer.complete(result);
            }
        });
    }

    fn connect(&self, backend: SocketAddr) -> Completion<Channel<Bytes>> {
        let mut client = self.backends.client.clone();
        if self.backends.announces {
            let header = match (self.front.peer_address(), self.front.local_address()) {
                (Some(source), Some(destination)) => ProxyHeader::v2(source, destination),
                _ => ProxyHeader::v2_local(),
            };
            client = client.proxy_protocol(move |_| header.clone());
        }
        let front = self.front.clone();
        // The idle timeout of the client closes both sides.
        client
            .pipeline(move |_peer| side(Relay::to(front.clone()), IdleTimeouts::new()))
            .connect_on(&self.event_loop, backend)
    }
}
