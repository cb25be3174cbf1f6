//! HTTP/1.1 servers: the settings, the codec and the stage.

mod codec;
mod date;
mod exchange;
mod framed_response;
mod http_server_settings;
mod stage;

use crate::{
    channel::Pipeline,
    error::Result,
    http::{Part, Request, Response, StatusCode, settings::HttpSettings},
    pipeline::{Links, PipelineBuilder},
};
use codec::ServerCodec;
use http_server_settings::HttpServerSettings;
use stage::ServerStage;
use std::sync::Arc;

/// The settings of an HTTP/1.1 server, from which it makes the pipeline of each connection.
///
/// The handler reads [`Part<Request>`](Part) and writes `Part<Response>`. A request is delivered
/// when its head is complete; its body follows as it arrives. The handler may answer at any time
/// from then on, also from a task or a worker. When the response is complete, the rest of the
/// request is not delivered any more.
///
/// The pipeline takes care of the rest:
///
/// - **Pipelining**: one request is delivered at a time. The bytes behind it stay undecoded until
///   its response is complete, and the socket is not read, so the memory of a flood is one read.
///   The next request is not begun while the channel is not
///   [writable](crate::Context::is_writable), so a client that does not read costs one response
///   beyond the water mark.
/// - **Late answers** carry the id of their request ([`Response::for_request`]). They are refused
///   if that request has its response, so they cannot answer the next one.
/// - **Departure**: a client that goes away while its request is with the handler is noticed, and
///   the channel closes, which drops the handler's tasks. With
///   [`half_close`](crate::channel::ChannelOptions::half_close), only a failed connection counts.
/// - **Keep-alive** by version and `Connection`. After the last response the channel closes.
/// - **Backpressure**: a handler that does not read a body stops its sender
///   ([`Context::set_auto_read`](crate::Context::set_auto_read),
///   [`Context::hold_input`](crate::Context::hold_input)).
/// - **`Expect: 100-continue`** is answered when the handler has seen the head, has not responded,
///   and reads, or ahead of a response whose body is streamed. Other expectations are refused with
///   417.
/// - **Framing**: the response's [`Body`](super::Body) determines `Content-Length` or chunked
///   encoding. Responses to HEAD and with 204, 205 or 304 are sent without a body, even if the
///   handler writes one. The response to HEAD for a stream of events is complete at its head, and
///   ends the connection. `Date` and `Connection` are added.
/// - **Errors** of the client are answered with 400, 408, 413, 414, 417, 431, 501 or 505, and close
///   the channel. The handler's [`error`](crate::Handler::error) is called only if it has seen the
///   head of that request. It is not called for a connection that ends without `close_notify` of
///   TLS between two requests, or within a head. [`error_pages`](HttpServer::error_pages) sets the
///   pages.
/// - **Failures** of the handler, an `Err` or a panic, are answered with 500 and close the channel,
///   unless it has begun to respond. It may answer in its `error` instead. In the middle of a body
///   the connection is reset, so that the client can detect the incomplete response. The
///   [`HttpError`](super::HttpError) of a backend is a failure of the handler, too.
/// - **Overload**: a loop that misses its
///   [`overload_target`](crate::group::EventLoopGroupBuilder::overload_target) answers requests
///   that open a WebSocket with 503 and `Retry-After`. [`deferrable`](HttpServer::deferrable)
///   selects other requests.
/// - **Other protocols**: after a response of 101, or of 2xx to CONNECT, nothing more is decoded.
///   The handler [replaces the pipeline](crate::Context::replace_pipeline), and the bytes behind
///   the request go to the next one.
///
/// When the loop shuts down, idle connections close, and others after the response in progress. A
/// handler whose responses take time overrides [`shutdown`](crate::Handler::shutdown), because the
/// default closes the channel at once, unless the body in progress is a streamed one for an
/// HTTP/1.0 client. Such a body ends with the connection, so the client could not tell that the
/// rest is missing. A connection that has reached its
/// [maximum age](crate::channel::MaxConnectionAge) closes behind the next response whose head is
/// written, which has `Connection: close`. So a connection that is idle, or whose response has
/// begun, stays open for one more request, until the grace time or the keep-alive time ends.
///
/// Turn on [`half_close`](crate::channel::ChannelOptions::half_close) to answer clients that end
/// their stream behind a request. Without it, a response that is not written by then is lost.
///
/// ```
/// use netwheel::{http::{HttpServer, Part, Request, Response, StatusCode}, prelude::*};
/// use netwheel::testing::EmbeddedChannel;
///
/// struct Hello;
///
/// impl Handler for Hello {
///     type Read = Part<Request>;
///     type Write = Part<Response>;
///
///     fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
///         let Part::Head(request) = part else { return Ok(()) };
///         match request.path() {
///             "/" => ctx.write(Response::ok("hello\n").into()),
///             _ => ctx.write(Response::from(StatusCode::NOT_FOUND).into()),
///         }
///     }
/// }
///
/// let http = HttpServer::new();
/// let mut channel = EmbeddedChannel::new(http.pipeline().handler(Hello));
/// channel.write_inbound(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n")?;
/// let response = channel.read_outbound();
/// assert!(response.starts_with(b"HTTP/1.1 200 OK\r\n"));
/// assert!(response.ends_with(b"\r\n\r\nhello\n"));
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[doc(alias = "HttpServerCodec")]
#[doc(alias = "HttpServerKeepAliveHandler")]
pub struct HttpServer {
    /// The codec has settings of its own, so that each access is one step.
    http: Arc<HttpSettings>,
    settings: Arc<HttpServerSettings>,
}

impl HttpServer {
    /// Returns a server with the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a server with these settings.
    ///
    /// # Errors
    /// [`SettingError`](crate::error::SettingError) if a setting is out of range.
    pub fn with(settings: HttpSettings) -> Result<Self> {
        let http = settings.checked()?;
        let settings = Arc::new(HttpServerSettings { http: http.clone(), ..Default::default() });
        Ok(HttpServer { http: Arc::new(http), settings })
    }

    /// Sets the pages of errors that the server answers by itself: those of the client (400, 408,
    /// 413, 414, 417, 431, 501 and 505), and 500 for a handler that has failed. By default a page
    /// is the status as plain text.
    ///
    /// `page` is called on the loop of the connection, and must not block. The server sets the
    /// status, and closes the connection. The default page is sent instead of one that panics,
    /// has a streamed body or cannot be encoded.
    ///
    /// ```
    /// use netwheel::{http::{HttpServer, Part, Request, Response}, testing::EmbeddedChannel};
    ///
    /// let http = HttpServer::new().error_pages(|status| {
    ///     let body = format!(r#"{{"status":{status},"title":"{}"}}"#, status.reason());
    ///     Response::new(status).header("Content-Type", "application/problem+json").body(body)
    /// });
    /// let pipeline = http.pipeline().on_read(|_, _: Part<Request>| Err("a fault".into()));
    /// let mut channel = EmbeddedChannel::new(pipeline);
    /// channel.write_inbound(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n")?;
    /// let page = r#"{"status":500,"title":"Internal Server Error"}"#;
    /// assert!(channel.read_outbound().ends_with(page.as_bytes()));
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    pub fn error_pages(mut self, page: impl Fn(StatusCode) -> Response + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.settings).error_pages = Some(Arc::new(page));
        self
    }

    /// Sets which requests an overloaded loop answers with 503 and `Retry-After`
    /// ([`Work::Login`](crate::admission::Work::Login)). The handler does not receive them, and the
    /// connection stays open. By default, those are requests that open a WebSocket.
    ///
    /// `is_deferrable` is called on the loop of the connection with the head of each request, if
    /// the group has an
    /// [`overload_target`](crate::group::EventLoopGroupBuilder::overload_target). It must not
    /// block. [`error_pages`](HttpServer::error_pages) sets the page.
    ///
    /// ```
    /// use netwheel::http::HttpServer;
    ///
    /// let http = HttpServer::new().deferrable(|request| request.path() != "/health");
    /// ```
    pub fn deferrable(mut self, is_deferrable: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.settings).is_deferrable = Some(Arc::new(is_deferrable));
        self
    }

    /// Returns the beginning of a connection's pipeline.
    pub fn pipeline(
        &self,
    ) -> PipelineBuilder<impl Links<Read = Part<Request>, Write = Part<Response>> + use<>> {
        Pipeline::codec(ServerCodec::new(self.http.clone())).stage(ServerStage::new(self.settings.clone()))
    }
}
