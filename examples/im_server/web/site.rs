//! One HTTP connection of a browser.

use super::{ChatFrames, Dashboard, Pages};
use crate::{hub::Hub, listeners::Connections};
use netwheel::{
    http::{FullMessage, Part, Request, Response, StatusCode},
    prelude::*,
    prometheus,
    websocket::WebSocketServer,
};
use std::sync::Arc;

/// What all connections share.
pub(crate) struct Web {
    pub(crate) hub: Arc<Hub>,
    pub(crate) pages: Pages,
    pub(crate) dashboard: Dashboard,
    pub(crate) group: EventLoopGroup,
    /// For the sessions of the chat.
    pub(crate) connections: Connections,
    pub(crate) websocket: WebSocketServer,
}

impl Web {
    /// Returns the metrics of the loops, the topics and the timers.
    fn metrics(&self) -> Result<String> {
        let later = self.hub.later().map(|later| later.timers().collector("chat"));
        let topics = self.hub.nodes.topics().collector("chat");
        prometheus::encode(&(&self.group, (topics, later)))
    }
}

pub(crate) struct Site {
    web: Arc<Web>,
}

impl Site {
    pub(crate) fn new(web: Arc<Web>) -> Self {
        Site { web }
    }

    fn respond(&mut self, ctx: &mut Context<'_, Self>, request: &Request) -> Result<Response> {
        Ok(match request.path() {
            "/" => self.web.pages.chat.respond(request),
            "/dashboard" => self.web.pages.dashboard.respond(request),
            _ if !matches!(request.method(), "GET" | "HEAD") => {
                Response::from(StatusCode::METHOD_NOT_ALLOWED).header("Allow", "GET, HEAD")
            }
            "/metrics" => Response::ok(self.web.metrics()?)
                .header("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
            "/dashboard/events" if request.method() == "HEAD" => Response::new(StatusCode::OK),
            "/dashboard/events" if !self.web.dashboard.add(ctx.channel()) => {
                Response::from(StatusCode::SERVICE_UNAVAILABLE).header("Retry-After", "10")
            }
            "/dashboard/events" => Response::event_stream(),
            _ => Response::from(StatusCode::NOT_FOUND),
        })
    }
}

impl Site {
    /// Turns the connection into one of the chat.
    fn chat(&mut self, ctx: &mut Context<'_, Self>, request: &Request) -> Result {
        if !is_same_origin(request) {
            return ctx.write(Response::from(StatusCode::FORBIDDEN).into());
        }
        match self.web.websocket.accept(request) {
            Ok(accepted) => {
                let (response, links) = accepted.into_parts();
                ctx.write(response.into())?;
                ctx.replace_pipeline(self.web.connections.session(links.stage(ChatFrames)))
            }
            Err(refusal) => ctx.write((*refusal).into()),
        }
    }
}

/// Returns whether a request comes from a page of this server, or not from a browser. Other pages
/// must not chat in the name of their visitors.
fn is_same_origin(request: &Request) -> bool {
    let Some(origin) = request.headers().text("origin") else { return true };
    let host = origin.split_once("://").map(|(_, host)| host);
    host.is_some() && host == request.headers().text("host")
}

impl Handler for Site {
    type Read = FullMessage<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, request: FullMessage<Request>) -> Result {
        if request.head.path() == "/ws" {
            return self.chat(ctx, &request.head);
        }
        let response = self.respond(ctx, &request.head)?;
        ctx.write(response.into())
    }
}
