//! The server's side of the handshake.

use super::accept_key::{accept_key, is_key};
#[cfg(feature = "deflate")]
use crate::websocket::deflate::Deflate;
use crate::{
    error::{Error, Result},
    http::{Request, Response, StatusCode},
    websocket::{
        accepted::Accepted,
        compression::{Compression, Negotiated},
        connection::{WebSocketPipeline, pipeline},
        header_list::{elements, is_token, only},
        role::Role,
        settings::WebSocketSettings,
    },
};
use std::sync::Arc;

/// The settings of a WebSocket server: limits, subprotocols, origins.
///
/// Cheap to clone: the clones share the settings. A handler behind an
/// [`HttpServer`](crate::http::HttpServer) passes requests to [`accept`](WebSocketServer::accept),
/// writes the response, and replaces the pipeline:
///
/// ```
/// use netwheel::{
///     http::{HttpServer, Part, Request, Response, StatusCode},
///     prelude::*,
///     testing::EmbeddedChannel,
///     websocket::{Message, WebSocketServer},
/// };
///
/// struct Site {
///     websocket: WebSocketServer,
/// }
///
/// impl Handler for Site {
///     type Read = Part<Request>;
///     type Write = Part<Response>;
///
///     fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
///         let Part::Head(request) = part else { return Ok(()) };
///         if request.path() != "/ws" {
///             return ctx.write(Response::from(StatusCode::NOT_FOUND).into());
///         }
///         match self.websocket.accept(&request) {
///             Ok(accepted) => {
///                 let (response, pipeline) = accepted.into_parts();
///                 ctx.write(response.into())?;
///                 ctx.replace_pipeline(pipeline.handler(Echo))
///             }
///             Err(refusal) => ctx.write((*refusal).into()),
///         }
///     }
/// }
///
/// struct Echo;
///
/// impl Handler for Echo {
///     type Read = Message;
///     type Write = Message;
///
///     fn read(&mut self, ctx: &mut Context<'_, Self>, message: Message) -> Result {
///         match message {
///             Message::Text(_) | Message::Binary(_) => ctx.write(message),
///             _ => Ok(()),
///         }
///     }
/// }
///
/// # fn main() -> Result {
/// let websocket = WebSocketServer::new();
/// let site = HttpServer::new().pipeline().handler(Site { websocket });
/// let mut channel = EmbeddedChannel::new(site);
/// channel.write_inbound(
///     b"GET /ws HTTP/1.1\r\nHost: example.org\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
///       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
/// )?;
/// assert!(channel.read_outbound().starts_with(b"HTTP/1.1 101 Switching Protocols\r\n"));
/// // A text message "hi", masked with zeros.
/// channel.write_inbound(b"\x81\x82\0\0\0\0hi")?;
/// assert_eq!(channel.read_outbound(), &b"\x81\x02hi"[..]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
#[doc(alias = "WebSocketServerHandshaker")]
#[doc(alias = "WebSocketUpgrade")]
pub struct WebSocketServer {
    settings: Arc<WebSocketSettings>,
    protocols: Vec<Arc<str>>,
    /// Any origin if `None`.
    origins: Option<Arc<[Box<str>]>>,
    #[cfg(feature = "deflate")]
    deflate: Option<Deflate>,
}

impl WebSocketServer {
    /// Returns a server with the default settings, without subprotocols, for all origins.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a server with these settings.
    ///
    /// # Errors
    /// [`SettingError`](crate::error::SettingError) if a setting is out of range.
    pub fn with(settings: WebSocketSettings) -> Result<Self> {
        Ok(WebSocketServer { settings: Arc::new(settings.checked()?), ..Self::default() })
    }

    /// Sets the subprotocols, the preferred one first. The first one that the client has offered is
    /// chosen. If there is none, the connection has no subprotocol.
    ///
    /// # Errors
    /// [`SettingError`](crate::error::SettingError) if a name is not a token.
    pub fn protocols<'a>(mut self, protocols: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        self.protocols = protocols.into_iter().map(checked_protocol).collect::<Result<_>>()?;
        Ok(self)
    }

    /// Sets the origins whose pages may connect, such as `https://example.org`.
    ///
    /// Browsers let any page connect to any server, and send cookies. A server that authenticates
    /// by cookies needs this list. Requests from other origins are refused with 403. A request
    /// without `Origin` does not come from a browser, and is accepted.
    pub fn origins<'a>(mut self, origins: impl IntoIterator<Item = &'a str>) -> Self {
        self.origins = Some(origins.into_iter().map(Into::into).collect());
        self
    }

    /// Compresses messages if the client supports it.
    #[cfg(feature = "deflate")]
    ///
    /// # Errors
    /// [`SettingError`](crate::error::SettingError) if a setting is out of range.
    pub fn deflate(mut self, deflate: Deflate) -> Result<Self> {
        self.deflate = Some(deflate.checked()?);
        Ok(self)
    }

    /// Checks the handshake of a client.
    ///
    /// # Errors
    /// The response that refuses the handshake: 400, 403 for another origin, or 426 for another
    /// version of the protocol.
    pub fn accept(&self, request: &Request) -> Result<Accepted, Box<Response>> {
        let headers = request.headers();
        if request.method() != "GET" || !request.is_upgrade("websocket") {
            return Err(refusal(StatusCode::BAD_REQUEST));
        }
        if only(headers, "sec-websocket-version") != Some(b"13") {
            let response = *refusal(StatusCode::UPGRADE_REQUIRED);
            return Err(Box::new(
                response
                    .header("Connection", "Upgrade")
                    .header("Upgrade", "websocket")
                    .header("Sec-WebSocket-Version", "13"),
            ));
        }
        let Some(key) = only(headers, "sec-websocket-key").filter(|key| is_key(key)) else {
            return Err(refusal(StatusCode::BAD_REQUEST));
        };
        if !self.allows_origin(request) {
            return Err(refusal(StatusCode::FORBIDDEN));
        }
        let mut response = Response::new(StatusCode::SWITCHING_PROTOCOLS)
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Accept", accept_key(key));
        let protocol = self.choose_protocol(request);
        if let Some(protocol) = &protocol {
            response = response.header("Sec-WebSocket-Protocol", &**protocol);
        }
        let negotiated = self.negotiate(request, &mut response);
        let settings = self.settings.clone();
        Ok(Accepted { settings, role: Role::Server, protocol, negotiated, response })
    }

    fn allows_origin(&self, request: &Request) -> bool {
        let Some(allowed) = &self.origins else { return true };
        if !request.headers().contains("origin") {
            return true;
        }
        let origin = only(request.headers(), "origin").unwrap_or_default();
        allowed.iter().any(|allowed| allowed.as_bytes().eq_ignore_ascii_case(origin))
    }

    fn choose_protocol(&self, request: &Request) -> Option<Arc<str>> {
        let is_offered = |protocol: &&Arc<str>| {
            elements(request.headers(), "sec-websocket-protocol")
                .any(|offered| offered == protocol.as_bytes())
        };
        self.protocols.iter().find(is_offered).cloned()
    }

    #[cfg(feature = "deflate")]
    fn negotiate(&self, request: &Request, response: &mut Response) -> Option<Negotiated> {
        let (negotiated, answer) = Negotiated::accept(self.deflate.as_ref()?, request.headers())?;
        response.headers_mut().add("Sec-WebSocket-Extensions", answer);
        Some(negotiated)
    }

    #[cfg(not(feature = "deflate"))]
    #[expect(clippy::unused_self, reason = "only used with the feature `deflate`")]
    fn negotiate(&self, _: &Request, _: &mut Response) -> Option<Negotiated> {
        None
    }

    /// Starts the pipeline of a connection whose handshake was made elsewhere, without compression.
    pub fn pipeline(&self) -> WebSocketPipeline {
        pipeline(&self.settings, Role::Server, Compression::OFF)
    }
}

/// Returns a response without details: its reader is a program.
fn refusal(status: StatusCode) -> Box<Response> {
    Box::new(Response::from(status))
}

/// Returns a subprotocol if its name is valid.
pub(super) fn checked_protocol(protocol: &str) -> Result<Arc<str>> {
    if is_token(protocol) {
        Ok(protocol.into())
    } else {
        Err(Error::setting("protocols", format!("{protocol:?}"), "a token, such as \"chat.v1\""))
    }
}
