//! A request to be made through a pool: its time limit and its retries.

use super::{
    ChannelPool,
    call::PooledCall,
    request_settings::{PoolInUse, RequestSettings, RequestSource},
    service::PoolService,
};
use crate::{
    bootstrap::Backoff,
    error::{EncodeError, Result},
    group::EventLoopGroup,
    http::{Call, CallAnswer, FullMessage, Request, Response, StatusCode, StreamedResponse},
    sync::Completion,
};
use std::{fmt, sync::Arc, time::Duration};

/// A request to be made on a connection of a pool, from [`ChannelPool::request`] or
/// [`HttpAgent::request`](super::HttpAgent::request).
///
/// | setting | default |
/// |---|---|
/// | `timeout` | [60 s](Call::TIME_LIMIT) |
/// | `attempt_timeout` | `timeout` |
/// | `retries` | 0 |
/// | `retry_status` | none: any response is a success |
/// | `backoff` | 100 ms, doubled for each retry up to 5 s, with jitter |
/// | `idempotent` | by the method |
///
/// # Retries
/// A request is retried only if no byte of it was sent, or if it is idempotent: GET, HEAD, OPTIONS,
/// TRACE, PUT and DELETE (RFC 9110, section 9.2.2), or [`idempotent`](PoolRequest::idempotent). The
/// server may have processed any other request. An attempt has failed if the connection could not
/// be opened or has ended, if it took longer than `attempt_timeout`, or if the response has a
/// status of [`retry_status`](PoolRequest::retry_status).
///
/// A retry waits for a random time, by `backoff`. None begins after the time limit.
///
/// Apart from that, a connection that was used before may turn out to be closed by the server.
/// Then the attempt is repeated at once on another connection, at most 3 times: when no byte was
/// sent, or when the method is safe (GET, HEAD, OPTIONS or TRACE).
///
/// # Errors
/// - [`NotSent`] for errors before the request is sent. Its cause is an error of
///   [`acquire`](ChannelPool::acquire) or [`Error::TimedOut`](crate::Error::TimedOut). If an
///   earlier attempt was sent, that cause is the error itself.
/// - The other errors of a [`Call`].
///
/// The completions of [`send`](PoolRequest::send) and [`stream`](PoolRequest::stream) fail with
/// them.
///
/// [`NotSent`]: crate::http::NotSent
#[must_use]
pub struct PoolRequest {
    request: Result<Request>,
    settings: RequestSettings,
}

impl ChannelPool<Call> {
    /// Returns a request to be made on a connection of the pool.
    ///
    /// ```
    /// # use netwheel::{http::{HttpClient, HttpServer, Part, Request, Response}, prelude::*};
    /// # use std::time::Duration;
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
    ///     .build(address)?;
    /// let request = Request::get("/");
    /// let response = pool.request(request).timeout(Duration::from_secs(2)).retries(2).send().wait()?;
    /// assert_eq!(response.body, "hello");
    /// # Ok(())
    /// # }
    /// ```
    pub fn request(&self, request: Request) -> PoolRequest {
        PoolRequest::new(Arc::new(PoolOf(self.service.clone())), Ok(request))
    }
}

impl RequestSource for PoolOf {
    fn pool(&self) -> Result<PoolInUse> {
        Ok(PoolInUse { pool: self.0.clone(), _in_use: None })
    }

    fn is_closed(&self) -> bool {
        self.0.pool_state.lock().is_closed()
    }

    fn group(&self) -> &EventLoopGroup {
        &self.0.group
    }
}

struct PoolOf(Arc<PoolService<Call>>);

impl PoolRequest {
    pub(super) fn new(source: Arc<dyn RequestSource>, request: Result<Request>) -> Self {
        let is_idempotent = request.as_ref().is_ok_and(|request| {
            matches!(request.method(), "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE")
        });
        let settings = RequestSettings {
            source,
            timeout: Call::TIME_LIMIT,
            attempt_timeout: Duration::MAX,
            retries: 0,
            statuses: Vec::new(),
            backoff: Backoff::new().initial(Duration::from_millis(100)).max_delay(Duration::from_secs(5)),
            is_idempotent,
        };
        PoolRequest { request, settings }
    }

    /// Sets the time limit for everything: looking up the name, waiting for a connection, opening
    /// one, sending, the whole response, and all retries. It ends with the head of a streamed
    /// response. `Duration::MAX` turns it off.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.settings.timeout = limit;
        self
    }

    /// Sets the time limit of each attempt, so that a server that hangs leaves time for a retry.
    pub fn attempt_timeout(mut self, limit: Duration) -> Self {
        self.settings.attempt_timeout = limit;
        self
    }

    /// Sets how often the request is retried after attempts that have failed.
    pub fn retries(mut self, retries: u32) -> Self {
        self.settings.retries = retries;
        self
    }

    /// Adds a status for which an attempt has failed, such as 503. The last response is returned
    /// in any case.
    pub fn retry_status(mut self, status: StatusCode) -> Self {
        self.settings.statuses.push(status);
        self
    }

    /// Sets the delays of the retries. `max_attempts` and `reset_after` of the backoff are ignored.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// Overrides whether the request is idempotent. Set it for a POST with an idempotency key, by
    /// which the server detects repetitions.
    pub fn idempotent(mut self, yes: bool) -> Self {
        self.settings.is_idempotent = yes;
        self
    }

    /// Sends the request. Completes with the whole response.
    ///
    /// The connection returns to the pool after the response. Dropping the pending completion, or
    /// the time limit, discards it instead.
    pub fn send(self) -> Completion<FullMessage<Response>> {
        self.start()
    }

    /// Sends the request. Completes with the head of the response, whose body is read as it
    /// arrives. Retries end with the head.
    pub fn stream(self) -> Completion<StreamedResponse> {
        self.start()
    }

    fn start<A: CallAnswer>(self) -> Completion<A> {
        let PoolRequest { request, settings } = self;
        let checked = settings.backoff.check().and(request).and_then(|request| {
            if request.announced_body().is_streamed() {
                let why = "a request to a pool whose body is in parts";
                return Err(EncodeError::Unencodable(why.into()).into());
            }
            Ok(request)
        });
        match checked {
            Ok(request) => PooledCall::start(settings, request),
            Err(error) => Completion::ready(Err(error)),
        }
    }
}

impl fmt::Debug for PoolRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("PoolRequest");
        debug.field("request", &self.request).field("timeout", &self.settings.timeout);
        debug.field("retries", &self.settings.retries).finish_non_exhaustive()
    }
}
