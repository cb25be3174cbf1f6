//! The client's side of the handshake.

use super::{
    accept_key::{accept_key, random_request_key},
    handshake_error::HandshakeError,
    server::checked_protocol,
};
#[cfg(feature = "deflate")]
use crate::websocket::deflate::Deflate;
use crate::{
    error::Result,
    http::{Headers, Request, Response, StatusCode, Version},
    websocket::{
        accepted::Accepted,
        compression::{Compression, Negotiated},
        connection::{WebSocketPipeline, pipeline},
        header_list::{elements, only},
        role::Role,
        settings::WebSocketSettings,
    },
};
use std::sync::Arc;

/// The settings of a WebSocket client: limits, subprotocols, headers.
///
/// [`ClientBootstrap::websocket`](crate::ClientBootstrap::websocket) makes connections with it:
///
/// ```no_run
/// use netwheel::{prelude::*, websocket::{HandshakeError, Message, WebSocketClient}};
///
/// struct Print;
///
/// impl Handler for Print {
///     type Read = Message;
///     type Write = Message;
///
///     fn read(&mut self, _: &mut Context<'_, Self>, message: Message) -> Result {
///         println!("{message:?}");
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result {
/// let group = EventLoopGroup::new()?;
/// let connecting = ClientBootstrap::new(&group)
///     .websocket(WebSocketClient::new("example.org"), "/ws", |accepted| {
///         accepted.into_parts().1.handler(Print)
///     })
///     .connect("example.org:80");
/// match connecting.wait() {
///     Ok(channel) => channel.write(Message::text("hello"))?,
///     Err(error) => match HandshakeError::of(&error).and_then(HandshakeError::status) {
///         Some(status) => println!("the server has refused the handshake with {status}"),
///         None => println!("{error:#}"),
///     },
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[doc(alias = "WebSocketClientHandshaker")]
pub struct WebSocketClient {
    settings: Arc<WebSocketSettings>,
    host: Arc<str>,
    protocols: Vec<Arc<str>>,
    headers: Headers,
    #[cfg(feature = "deflate")]
    deflate: Option<Deflate>,
}

/// A handshake of a client, from [`WebSocketClient::handshake`].
#[derive(Debug)]
pub struct ClientHandshake {
    client: WebSocketClient,
    key: String,
}

impl WebSocketClient {
    /// Returns a client with the default settings. `host` is the `Host` of its requests: a name or
    /// address, with the port unless it is the default one of the scheme.
    pub fn new(host: &str) -> Self {
        WebSocketClient {
            settings: Arc::default(),
            host: host.into(),
            protocols: Vec::new(),
            headers: Headers::new(),
            #[cfg(feature = "deflate")]
            deflate: None,
        }
    }

    /// Sets the limits and times.
    ///
    /// # Errors
    /// [`SettingError`](crate::error::SettingError) if a setting is out of range.
    pub fn with(mut self, settings: WebSocketSettings) -> Result<Self> {
        self.settings = Arc::new(settings.checked()?);
        Ok(self)
    }

    /// Sets the subprotocols to offer, the preferred one first.
    ///
    /// # Errors
    /// [`SettingError`](crate::error::SettingError) if a name is not a token.
    pub fn protocols<'a>(mut self, protocols: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        self.protocols = protocols.into_iter().map(checked_protocol).collect::<Result<_>>()?;
        Ok(self)
    }

    /// Adds a header to the request, such as `Authorization` or `Origin`.
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) -> Self {
        self.headers.add(name, value);
        self
    }

    /// Offers the compression of messages.
    #[cfg(feature = "deflate")]
    ///
    /// # Errors
    /// [`SettingError`](crate::error::SettingError) if a setting is out of range.
    pub fn deflate(mut self, deflate: Deflate) -> Result<Self> {
        self.deflate = Some(deflate.checked()?);
        Ok(self)
    }

    /// Starts a handshake for programs that write the request and read the response themselves.
    pub fn handshake(&self) -> ClientHandshake {
        ClientHandshake { client: self.clone(), key: random_request_key() }
    }

    /// Starts the pipeline of a connection whose handshake was made elsewhere, without compression.
    pub fn connected(&self) -> WebSocketPipeline {
        pipeline(&self.settings, Role::Client, Compression::OFF)
    }
}

impl ClientHandshake {
    /// Returns the host that the request is for.
    pub(super) fn host(&self) -> &str {
        &self.client.host
    }

    /// Returns the request for `target`. The client adds `Host`.
    pub fn request(&self, target: &str) -> Request {
        let mut request = Request::get(target);
        let headers = request.headers_mut();
        // A refused field is remembered, so that writing the request fails.
        headers.clone_from(&self.client.headers);
        headers.add("Connection", "Upgrade");
        headers.add("Upgrade", "websocket");
        headers.add("Sec-WebSocket-Version", "13");
        headers.add("Sec-WebSocket-Key", &self.key);
        if !self.client.protocols.is_empty() {
            headers.add("Sec-WebSocket-Protocol", self.client.protocols.join(", "));
        }
        #[cfg(feature = "deflate")]
        if let Some(deflate) = &self.client.deflate {
            headers.add("Sec-WebSocket-Extensions", Negotiated::offer(deflate));
        }
        request
    }

    /// Checks the response of the server.
    ///
    /// # Errors
    /// [`HandshakeError`] if the response does not fit the request. It names the difference.
    pub fn check(&self, response: Response) -> Result<Accepted, HandshakeError> {
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(HandshakeError::refused(response));
        }
        let headers = response.headers();
        // HTTP/1.0 has no upgrades (RFC 9110, section 7.8).
        if response.version() == Version::Http10 {
            return Err(HandshakeError::NotUpgraded);
        }
        if !headers.has_token("connection", "upgrade") || !headers.has_token("upgrade", "websocket") {
            return Err(HandshakeError::NotUpgraded);
        }
        let expected = accept_key(self.key.as_bytes());
        if only(headers, "sec-websocket-accept") != Some(expected.as_bytes()) {
            return Err(HandshakeError::AcceptKey);
        }
        let protocol = self.protocol(headers)?;
        let negotiated = self.negotiated(headers)?;
        Ok(Accepted {
            settings: self.client.settings.clone(),
            role: Role::Client,
            protocol,
            negotiated,
            response,
        })
    }

    /// Returns the subprotocol that the server has chosen.
    fn protocol(&self, headers: &Headers) -> Result<Option<Arc<str>>, HandshakeError> {
        if !headers.contains("sec-websocket-protocol") {
            return Ok(None);
        }
        let chosen = only(headers, "sec-websocket-protocol").ok_or(HandshakeError::Protocol)?;
        let offered = self.client.protocols.iter().find(|offered| offered.as_bytes() == chosen);
        offered.cloned().map(Some).ok_or(HandshakeError::Protocol)
    }

    /// Returns the compression that the server has accepted.
    fn negotiated(&self, headers: &Headers) -> Result<Option<Negotiated>, HandshakeError> {
        if elements(headers, "sec-websocket-extensions").next().is_none() {
            return Ok(None);
        }
        #[cfg(feature = "deflate")]
        if let Some(deflate) = &self.client.deflate {
            return Negotiated::check(deflate, headers).map(Some).ok_or(HandshakeError::Extension);
        }
        Err(HandshakeError::Extension)
    }
}
