//! HTTP/1.1 clients: the settings, the codec and the stage.

mod body_stream;
mod call;
mod calls;
mod codec;
mod idle_limit;
mod not_sent;
mod outstanding;
mod stage;
#[cfg(feature = "websocket")]
mod upgrade;

pub use body_stream::{BodyStream, StreamedResponse};
pub(crate) use call::CallAnswer;
pub use call::{Call, Upload};
pub use not_sent::NotSent;
#[cfg(feature = "websocket")]
pub(crate) use upgrade::{Upgrade, UpgradeReader, put_upgrade};

use super::{Part, Request, Response, settings::HttpSettings};
use crate::{
    channel::{Exchanges, Pipeline},
    error::Result,
    pipeline::{Links, PipelineBuilder},
};
use codec::ClientCodec;
use outstanding::Outstanding;
use stage::ClientStage;
use std::{rc::Rc, sync::Arc};

/// The settings of an HTTP/1.1 client, from which it makes the pipeline of each connection.
///
/// The handler writes [`Part<Request>`](Part) and reads `Part<Response>`. Responses arrive in the
/// order of the requests. Each begins with a `Part::Head` and ends with a `Part::End`, except for
/// informational ones (1xx), which are only a head and precede the final response.
///
/// Several requests may be written before their responses arrive, up to
/// [`HttpSettings::max_pipelined`]. Servers answer them one after another.
///
/// - A `Part::End` may follow a request without a body, as a server reads it. It is dropped.
/// - `Host` is added from [`host`](HttpClient::host) unless the request has it.
/// - The channel closes after a response that ends the connection, and after one that precedes the
///   end of its request: the server does not read the rest.
/// - An idle channel closes after [`reuse_timeout`](HttpSettings::reuse_timeout), which is shorter
///   than the times of common servers. If the server announces its own time (`Keep-Alive:
///   timeout=60`), the channel closes one second before that, or after
///   [`keep_alive_timeout`](HttpSettings::keep_alive_timeout). So a
///   [`ChannelPool`](crate::pool::ChannelPool) does not hand out a connection that the server is
///   about to close.
/// - A pool does not hand out a channel while a response is outstanding. A channel that was
///   returned earlier becomes free at the end of the response.
/// - A response without a length ends with the connection. If a connection ends in the middle of
///   another response, or without TLS's `close_notify`, the handler's
///   [`error`](crate::Handler::error) receives
///   [`PeerError::Truncated`](crate::error::PeerError::Truncated).
/// - A server that does not send the head of its response within
///   [`response_timeout`](HttpSettings::response_timeout), or then makes no progress with the body
///   for that time, is an [`Error::TimedOut`](crate::Error), and the channel closes. Informational
///   responses, parts of a head and later requests do not extend the time. It does not run while
///   the program has not finished the request and all its bytes were sent, while the program does
///   not read, or while its [traffic limit](crate::traffic::TrafficLimits) holds bytes up. The
///   whole response has no time limit, except for that of a [`Call`].
/// - After a response of 101 to a request with `Upgrade`, or of 2xx to CONNECT, nothing more is
///   decoded. The handler [replaces the pipeline](crate::Context::replace_pipeline).
/// - A 101 without a request for it, and bytes that belong to no request, are an
///   [`HttpError`](crate::http::HttpError), and the channel closes.
///
/// [`calls`](HttpClient::calls) makes a pipeline without a handler, for programs that want whole
/// responses.
#[derive(Debug, Clone, Default)]
#[doc(alias = "HttpClientCodec")]
pub struct HttpClient {
    settings: Arc<HttpSettings>,
    host: Option<Arc<str>>,
}

impl HttpClient {
    /// Returns a client with the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a client with these settings.
    ///
    /// # Errors
    /// [`SettingError`](crate::error::SettingError) if a setting is out of range.
    pub fn with(settings: HttpSettings) -> Result<Self> {
        Ok(HttpClient { settings: Arc::new(settings.checked()?), host: None })
    }

    /// Sets the `Host` of requests that have none: a name or address, with the port unless it is
    /// the default one of the scheme.
    pub fn host(mut self, host: &str) -> Self {
        self.host = Some(host.into());
        self
    }

    /// Returns the beginning of a connection's pipeline.
    pub fn pipeline(
        &self,
    ) -> PipelineBuilder<impl Links<Read = Part<Response>, Write = Part<Request>> + use<>> {
        self.pipeline_with(self.settings.clone(), Arc::new(Exchanges::new()))
    }

    fn pipeline_with(
        &self,
        settings: Arc<HttpSettings>,
        exchanges: Arc<Exchanges>,
    ) -> PipelineBuilder<impl Links<Read = Part<Response>, Write = Part<Request>> + use<>> {
        let outstanding = Rc::new(Outstanding::default());
        Pipeline::codec(ClientCodec::new(settings.clone(), self.host.clone(), outstanding.clone()))
            .stage(ClientStage::new(settings, outstanding, exchanges.clone()))
            .exchanges(exchanges)
    }

    /// Returns a finished pipeline that takes [`Call`]s: requests with a completion for their
    /// response. The body of a whole response has at most `max_body` bytes. That of a streamed one
    /// is limited by [`HttpSettings::max_body`], or by `max_body` if that is larger.
    ///
    /// ```
    /// use netwheel::{http::{Call, HttpClient, HttpServer, Part, Request, Response}, prelude::*};
    ///
    /// # fn main() -> Result {
    /// # let group = EventLoopGroup::builder().threads(1).build()?;
    /// # let http = HttpServer::new();
    /// # let server = ServerBootstrap::new(&group)
    /// #     .pipeline(move |_peer| http.pipeline().on_read(|ctx, part| match part {
    /// #         Part::Head(_) => ctx.write(Response::ok("hello").into()),
    /// #         _ => Ok(()),
    /// #     }))
    /// #     .bind("127.0.0.1:0")?;
    /// # let address = server.local_address();
    /// let http = HttpClient::new().host("example.org");
    /// let pool = ClientBootstrap::new(&group)
    ///     .pipeline(move |_peer| http.calls(64 * 1024))
    ///     .pool()
    ///     .size(4)
    ///     .build(address)?;
    ///
    /// let channel = pool.acquire().wait()?;
    /// let (call, response) = Call::new(Request::get("/"));
    /// channel.write(call)?;
    /// assert_eq!(response.wait()?.body, "hello");
    /// drop(channel); // back to the pool, after the response
    /// # Ok(())
    /// # }
    /// ```
    pub fn calls(&self, max_body: usize) -> Pipeline<Call> {
        calls::pipeline(self, max_body)
    }
}
