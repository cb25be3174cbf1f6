//! The server: netwheel's loops run the application, and have a WebSocket path of their own.

use axum::Router;
use netwheel::{
    http::HttpServer,
    prelude::*,
    tower::{Route, TowerServer},
    websocket::{Message, WebSocketServer},
};
use std::net::SocketAddr;

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

/// Returns a server of the application: the path `/ws` is a WebSocket of netwheel.
pub fn app(router: Router) -> TowerServer<Router> {
    let websocket = WebSocketServer::new();
    TowerServer::new(router).route(move |ctx, request| {
        if request.path() != "/ws" {
            return Ok(Route::Service);
        }
        match websocket.accept(request) {
            Ok(accepted) => {
                let (response, pipeline) = accepted.into_parts();
                ctx.write(response.into())?;
                ctx.replace_pipeline(pipeline.handler(Echo))?;
            }
            Err(refusal) => ctx.write((*refusal).into())?,
        }
        Ok(Route::Answered)
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
