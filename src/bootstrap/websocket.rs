//! WebSocket clients.

use crate::{
    bootstrap::client::ClientBootstrap,
    channel::{IntoPipeline, Peer, Pipeline},
    error::{Error, Result},
    websocket::{Accepted, WebSocketClient},
};
use std::sync::Arc;

impl ClientBootstrap {
    /// Makes the connections WebSocket connections. Each begins with a handshake for `target`, such
    /// as `/chat`. The factory creates the pipeline after the handshake, on the connection's loop.
    ///
    /// A `connect` completes after the handshake. The same applies to pools and to
    /// [reconnecting clients](ClientBootstrap::reconnect). TLS and other filters are below the
    /// handshake. It counts towards the
    /// [`handshake_timeout`](ClientBootstrap::handshake_timeout), which neither interim responses
    /// nor slow bytes extend.
    ///
    /// # Errors
    /// [`HandshakeError`](crate::websocket::HandshakeError) from `connect` if the server refuses.
    /// It contains the response, for example a 401.
    ///
    /// ```
    /// # use netwheel::{http::{HttpServer, Part, Response, StatusCode}, prelude::*};
    /// use netwheel::websocket::{HandshakeError, WebSocketClient};
    ///
    /// # fn main() -> Result {
    /// # let group = EventLoopGroup::builder().threads(1).build()?;
    /// # let http = HttpServer::new();
    /// # let server = ServerBootstrap::new(&group)
    /// #     .pipeline(move |_peer| http.pipeline().on_read(|ctx, part| match part {
    /// #         Part::Head(_) => ctx.write(Response::from(StatusCode::UNAUTHORIZED).into()),
    /// #         _ => Ok(()),
    /// #     }))
    /// #     .bind("127.0.0.1:0")?;
    /// # let address = server.local_address();
    /// let client = WebSocketClient::new("example.org").header("Authorization", "Bearer expired");
    /// let bootstrap = ClientBootstrap::new(&group).websocket(client, "/chat", |accepted| {
    ///     accepted.into_parts().1.on_read(|_, message| {
    ///         println!("{message:?}");
    ///         Ok(())
    ///     })
    /// });
    /// let error = bootstrap.connect(address).wait().unwrap_err();
    /// assert_eq!(HandshakeError::of(&error).and_then(HandshakeError::status), Some(StatusCode::UNAUTHORIZED));
    /// # Ok(())
    /// # }
    /// ```
    #[expect(clippy::type_complexity, reason = "as that of `pipeline`")]
    pub fn websocket<G, P>(
        self,
        client: WebSocketClient,
        target: &str,
        pipeline: G,
    ) -> ClientBootstrap<Arc<impl Fn(&Peer) -> Result<Pipeline<P::Message>> + Send + Sync + use<G, P>>>
    where
        G: Fn(Accepted) -> P + Send + Sync + 'static,
        P: IntoPipeline + 'static,
    {
        let target: Arc<str> = target.into();
        self.filter_last(Arc::new(move |_| Ok(Box::new(client.filter(&target))))).pipeline(
            move |peer: &Peer| {
                // Stored by the filter before it finishes.
                let accepted = peer.info::<Accepted>().ok_or(Error::Closed)?;
                pipeline(accepted.clone()).into_pipeline()
            },
        )
    }
}
