//! `TowerServer`: the settings and the service, from which handlers are made.

use super::{
    http_service::HttpService, routed::Routed, service_handler::ServiceHandler,
    service_settings::ServiceSettings,
};
use crate::{
    error::Result,
    http::{Part, Request, Response},
    machine::Mutex,
    pipeline::ChannelContext,
};
use std::{fmt, sync::Arc};

/// The settings of a server that runs a service of tower, from which it makes the handler of each
/// connection.
///
/// The service can be the `Router` of axum, or any other [`HttpService`]. Each connection has a
/// clone of it. Its futures run on the
/// [executor](crate::group::EventLoopGroupBuilder::executor) of the group; without one, requests
/// are answered with 500.
///
/// ```
/// use netwheel::{http::HttpServer, prelude::*, tower::{RequestBody, TowerServer}};
/// # use http_types as http;
/// # use std::{convert::Infallible, future::{Ready, ready}, task::Poll};
///
/// # #[derive(Clone)] struct Router;
/// # impl Router { fn new() -> Self { Router } }
/// # impl tower_service::Service<http::Request<RequestBody>> for Router {
/// #     type Response = http::Response<RequestBody>;
/// #     type Error = Infallible;
/// #     type Future = Ready<Result<Self::Response, Infallible>>;
/// #     fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Infallible>> {
/// #         Poll::Ready(Ok(()))
/// #     }
/// #     fn call(&mut self, request: http::Request<RequestBody>) -> Self::Future {
/// #         ready(Ok(http::Response::new(request.into_body())))
/// #     }
/// # }
/// # fn runtime() -> impl netwheel::executor::Spawn {
/// #     struct None;
/// #     impl netwheel::executor::Spawn for None {
/// #         fn spawn(&self, _: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>) -> Result { Err(Error::ShutDown) }
/// #     }
/// #     None
/// # }
/// # fn main() -> Result {
/// let group = EventLoopGroup::builder().executor(runtime()).build()?; // a tokio Handle, for example
/// let (http, app) = (HttpServer::new(), TowerServer::new(Router::new()));
/// let server = ServerBootstrap::new(&group)
///     .pipeline(move |_peer| http.pipeline().handler(app.handler()))
///     .bind("127.0.0.1:0")?;
/// # Ok(())
/// # }
/// ```
///
/// # Requests
///
/// - The service is called for one request of a connection at a time, in their order, after its
///   `poll_ready`. Further requests wait undecoded.
/// - The body is a [`RequestBody`](super::RequestBody). A client is not read from while the service
///   does not take the body: see there for the bound.
/// - A client that waits for `100 Continue` gets it when the body is polled for the first time.
///   Once the response has begun, it is too late for that: the client may not send the body, and
///   [`body_timeout`](crate::http::HttpSettings::body_timeout) limits the wait of the service.
/// - The extensions contain the [`Peer`](crate::Peer) of the connection: its addresses, and what
///   TLS has negotiated.
/// - A target or header that the crate `http` does not accept is answered with 400.
///
/// # Responses
///
/// - A body with an exact size hint, or with a `Content-Length`, is sent with its length. Other
///   bodies are chunked.
/// - A body is polled only while the channel is [writable](crate::Context::is_writable), so a
///   client that does not read costs one frame beyond the high
///   [water mark](crate::channel::ChannelOptions::water_mark).
/// - Trailers of a chunked body are sent if the request has `TE: trailers`, except for fields that
///   are not allowed there.
/// - Bodies of responses to HEAD and with 204, 205 and 304 are not polled.
/// - An error or panic of the service, or of a body before the head was written, is answered with
///   500 and closes the connection. Later the connection is reset, so the client sees that the
///   response is incomplete. The error is logged once, and counted in
///   [`channel_errors`](crate::metrics::LoopMetrics::channel_errors).
/// - Informational responses, and 2xx to CONNECT, are errors of the service. A service cannot take
///   the connection over: see [`route`](TowerServer::route).
///
/// # Ends
///
/// If the client goes away or the channel closes, the future and the bodies are dropped. A client
/// that goes away is noticed when its request is complete; before that, when the body is read.
/// With [`half_close`](crate::channel::ChannelOptions::half_close), a client that ends its stream
/// still gets its response. A shutdown of the loop waits for the response in progress.
#[doc(alias = "axum")]
#[doc(alias = "serve")]
pub struct TowerServer<S> {
    /// A factory of pipelines is `Sync`, which a service need not be.
    service: Mutex<S>,
    settings: Arc<ServiceSettings>,
}

impl<S: HttpService> TowerServer<S> {
    /// Returns a server that runs clones of `service`.
    pub fn new(service: S) -> Self {
        let settings = ServiceSettings { polls_on_loop: true, route: None };
        TowerServer { service: Mutex::new(service), settings: Arc::new(settings) }
    }

    /// Sets whether a request is begun on the event loop. The default is `true`.
    ///
    /// The loop then polls the future and the body until one of them is pending, in the context of
    /// the executor, and moves the remaining exchange there. A response that is ready immediately
    /// is sent without a second thread. If the service computes for long, other connections of the
    /// loop wait. With `false`, the executor polls everything on its own threads.
    ///
    /// Has no effect with executors that do not implement
    /// [`Spawn::poll_here`](crate::executor::Spawn::poll_here).
    pub fn polls_on_loop(mut self, on: bool) -> Self {
        Arc::make_mut(&mut self.settings).polls_on_loop = on;
        self
    }

    /// Sets a closure that sees the head of each request before the service, on the loop. It
    /// returns whether the service gets the request.
    ///
    /// Use it for paths that belong to pipelines of this crate, such as WebSocket: the closure
    /// writes the response and [replaces the pipeline](crate::Context::replace_pipeline). The
    /// WebSocket extractors of axum need a type of hyper, so they refuse each request on this
    /// server.
    ///
    #[cfg_attr(feature = "websocket", doc = "```")]
    #[cfg_attr(not(feature = "websocket"), doc = "```ignore")]
    /// use netwheel::{http::Request, prelude::*, tower::{Routed, TowerServer}};
    /// use netwheel::websocket::{Message, WebSocketServer};
    /// # use netwheel::tower::HttpService;
    ///
    /// struct Echo;
    ///
    /// impl Handler for Echo {
    ///     type Read = Message;
    ///     type Write = Message;
    ///
    ///     fn read(&mut self, ctx: &mut Context<'_, Self>, message: Message) -> Result {
    ///         match message {
    ///             Message::Text(_) => ctx.write(message),
    ///             _ => Ok(()),
    ///         }
    ///     }
    /// }
    ///
    /// fn server(router: impl HttpService) -> TowerServer<impl HttpService> {
    ///     let websocket = WebSocketServer::new();
    ///     TowerServer::new(router).route(move |ctx, request| {
    ///         if request.path() != "/echo" {
    ///             return Ok(Routed::Service);
    ///         }
    ///         match websocket.accept(request) {
    ///             Ok(accepted) => {
    ///                 let (response, pipeline) = accepted.into_parts();
    ///                 ctx.write(response.into())?;
    ///                 ctx.replace_pipeline(pipeline.handler(Echo))?;
    ///             }
    ///             Err(refusal) => ctx.write((*refusal).into())?,
    ///         }
    ///         Ok(Routed::Answered)
    ///     })
    /// }
    /// ```
    ///
    /// An error that the closure returns is answered with 500.
    pub fn route<F>(mut self, route: F) -> Self
    where
        F: Fn(&mut ChannelContext<'_, Part<Response>>, &Request) -> Result<Routed> + Send + Sync + 'static,
    {
        Arc::make_mut(&mut self.settings).route = Some(Arc::new(route));
        self
    }

    /// Returns the handler of a connection, with a clone of the service.
    pub fn handler(&self) -> ServiceHandler<S> {
        let service = self.service.lock().clone();
        ServiceHandler::new(service, self.settings.clone())
    }
}

impl<S> fmt::Debug for TowerServer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TowerServer")
            .field("service", &std::any::type_name::<S>())
            .field("polls_on_loop", &self.settings.polls_on_loop)
            .finish_non_exhaustive()
    }
}
