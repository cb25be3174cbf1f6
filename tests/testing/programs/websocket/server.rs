//! A server that accepts each conversation at `/` and its number, and is deployed now and then.

use super::{
    super::support::{Calm, Draw, SECOND, deploy},
    conversation::{Conversations, Side},
    player::Player,
};
use netwheel::{
    http::{HttpServer, Part, Request, Response, StatusCode},
    prelude::*,
    testing::simulation::sometimes,
    websocket::{WebSocketServer, WebSocketSettings},
};
use std::sync::{Arc, Mutex};

struct Site {
    websocket: WebSocketServer,
    conversations: Arc<Mutex<Conversations>>,
    calm: Calm,
}

impl Handler for Site {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        let Part::Head(request) = part else { return Ok(()) };
        let id = request.path().strip_prefix("/").and_then(|id| id.parse().ok());
        let found = id.and_then(|id| self.conversations.lock().unwrap().get(id));
        let Some(conversation) = found else {
            return ctx.write(Response::from(StatusCode::NOT_FOUND).into());
        };
        match self.websocket.accept(&request) {
            Ok(accepted) => {
                sometimes(if accepted.is_compressed() { "compressed" } else { "uncompressed" });
                let (response, pipeline) = accepted.into_parts();
                ctx.write(response.into())?;
                ctx.replace_pipeline(pipeline.handler(Player::new(Side::Server, conversation, &self.calm)))
            }
            Err(refusal) => ctx.write((*refusal).into()),
        }
    }
}

/// Returns the settings of both sides.
pub(super) fn settings() -> WebSocketSettings {
    WebSocketSettings::new().ping_interval(3 * SECOND).close_timeout(5 * SECOND).max_message(1 << 20)
}

pub(super) fn serve(conversations: &Arc<Mutex<Conversations>>, calm: &Calm) -> Result {
    let mut draw = Draw::new();
    let websocket = WebSocketServer::with(settings())?;
    #[cfg(feature = "deflate")]
    let websocket = match draw.below(3) {
        0 => websocket,
        n => websocket.deflate(netwheel::websocket::Deflate::new().context_takeover(n == 1))?,
    };
    let time = || 10 * SECOND + draw.time(40 * SECOND);
    deploy(calm, time, |group| {
        let (conversations, calm) = (conversations.clone(), calm.clone());
        let (http, websocket) = (HttpServer::new(), websocket.clone());
        let server = ServerBootstrap::new(group)
            .pipeline(move |_peer| {
                let (conversations, calm) = (conversations.clone(), calm.clone());
                http.pipeline().handler(Site { websocket: websocket.clone(), conversations, calm })
            })
            .bind("10.0.0.1:80")?;
        Ok(server.closed())
    });
    Ok(())
}
