//! The server: netwheel's loops run the application, and have a WebSocket path of their own.

use axum::{
    Router,
    extract::{ConnectInfo, Request},
};
use netwheel::{
    Peer,
    http::HttpServer,
    prelude::*,
    tower::{Routed, TowerServer},
    websocket::{Message, WebSocketServer},
};
use std::net::SocketAddr;
use tower::util::MapRequestLayer;

/// Echoes messages.
struct Echo;

impl Handler for Echo {
    type Read = Message;
    type Write = Message;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Message) -> Result {
        match message {
            Message::Text(_) | Message::Binary(_) => ctx.write(message),
            _ => Ok(()),
        }
    }
}

/// Provides the extractor `ConnectInfo`.
fn with_connect_info(mut request: Request) -> Request {
    if let Some(address) = request.extensions().get().and_then(Peer::address) {
        request.extensions_mut().insert(ConnectInfo(address));
    }
    request
}

/// Returns a server of the application: the path `/ws` is a WebSocket of netwheel.
pub fn app(router: Router) -> TowerServer<Router> {
    let websocket = WebSocketServer::new();
    TowerServer::new(router.layer(MapRequestLayer::new(with_connect_info))).route(move |ctx, request| {
        if request.path() != "/ws" {
            return Ok(Routed::Service);
        }
        match websocket.accept(request) {
            Ok(accepted) => {
                let (response, pipeline) = accepted.into_parts();
                ctx.write(response.into())?;
                ctx.replace_pipeline(pipeline.handler(Echo))?;
            }
            Err(refusal) => ctx.write((*refusal).into())?,
        }
        Ok(Routed::Answered)
    })
}

/// Serves the application on `address`.
///
/// # Errors
/// The address cannot be bound.
pub fn serve(group: &EventLoopGroup, router: Router, address: SocketAddr) -> Result<Server> {
    let (http, app) = (HttpServer::new(), app(router));
    ServerBootstrap::new(group).pipeline(move |_peer| http.pipeline().handler(app.handler())).bind(address)
}
