//! Opens the connections of a crowd.

use super::client::{Client, Crowd, Ticket};
use crate::{
    MAX_LINE, Options,
    protocol::{Reply, Request},
    server_address,
};
#[cfg(feature = "websocket")]
use netwheel::websocket::{Message, WebSocketClient};
use netwheel::{codec::Line, net::Address, prelude::*, stage::Json};
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

/// Longer than any time limit of a client, which gives up by itself.
const NEVER: Duration = Duration::from_secs(24 * 3600);

pub(crate) struct Dialer {
    crowd: Arc<Crowd>,
    bootstrap: ClientBootstrap,
    server: Address,
    #[cfg(feature = "websocket")]
    websocket: Option<WebSocketClient>,
    /// Number of source addresses; 0 lets the system choose. On loopback, Linux takes the port of a
    /// closed connection again after a second.
    sources: u8,
    dialed: usize,
}

impl Dialer {
    /// Returns a dialer whose connections are served by the loops of `group`.
    ///
    /// # Errors
    /// If the server's name cannot be resolved, or the options of TLS are not valid.
    pub(crate) fn new(group: &EventLoopGroup, options: &Options, crowd: Arc<Crowd>) -> Result<Self> {
        let bootstrap = ClientBootstrap::new(group).connect_timeout(Duration::ZERO).handshake_timeout(NEVER);
        // A server that was replaced does not know the sessions of its predecessor.
        #[cfg(feature = "tls")]
        let bootstrap = match options.tls(false)? {
            Some(tls) => bootstrap.tls(tls),
            None => bootstrap,
        };
        Ok(Dialer {
            crowd,
            bootstrap,
            server: server_address(&options.connect)?,
            #[cfg(feature = "websocket")]
            websocket: options.websocket()?,
            sources: options.source_addresses,
            dialed: 0,
        })
    }

    /// Starts an attempt. Dropping the completion gives it up.
    pub(crate) fn dial(&mut self, ticket: Ticket) -> Completion<Channel<Request>> {
        let mut bootstrap = self.bootstrap.clone();
        if self.sources > 0 {
            let source = Ipv4Addr::new(127, 0, 0, 1 + (self.dialed % usize::from(self.sources)) as u8);
            bootstrap = bootstrap.local_address(SocketAddr::from((source, 0)));
        }
        self.dialed += 1;
        let crowd = self.crowd.clone();
        let client = move || Client::new(crowd.clone(), ticket);
        #[cfg(feature = "websocket")]
        if let Some(websocket) = self.websocket.clone() {
            let json = Json::<Reply, Request, Message>::new();
            let pipeline = move |accepted: netwheel::websocket::Accepted| {
                accepted.into_parts().1.stage(json).handler(client())
            };
            return bootstrap.websocket(websocket, "/ws", pipeline).connect(self.server.clone());
        }
        let pipeline = move |_: &Peer| {
            let lines = Pipeline::codec(Line::new().max_len(MAX_LINE));
            lines.stage(Json::<Reply, Request>::new()).handler(client())
        };
        bootstrap.pipeline(pipeline).connect(self.server.clone())
    }
}

/// Returns the time that a server asks for which refuses the WebSocket handshake.
pub(crate) fn hint(error: &Error) -> Option<Duration> {
    #[cfg(feature = "websocket")]
    {
        netwheel::websocket::HandshakeError::of(error)?.retry_after()
    }
    #[cfg(not(feature = "websocket"))]
    {
        let _ = error;
        None
    }
}
