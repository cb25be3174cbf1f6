//! A reverse proxy: it passes requests on to a backend, and streams both bodies.
//!
//! ```text
//! cargo run --release --features http --example http_server
//! cargo run --release --features http --example http_proxy -- --backend 127.0.0.1:8000
//! curl http://127.0.0.1:8080/
//! ```
//!
//! A slow client slows down the backend, and the other way round. A backend that cannot be reached
//! is answered with 502, and one that is too slow with 504. WebSocket connections are passed on.
//! Ctrl-C stops the proxy after the responses in progress.

#[path = "support/output.rs"]
mod output;

use clap::Parser;
use netwheel::{
    bytes::Bytes,
    channel::{ChannelOptions, InputGuard, TimeLimits},
    codec::RawBytes,
    http::{
        BodyStream, Call, Forwarding, HttpClient, HttpServer, HttpSettings, Part, Request, RequestId,
        Response, StatusCode, StreamedResponse, Upload,
    },
    pool::{ChannelPool, PooledChannel},
    prelude::*,
    relay::Relay,
    shutdown::ShutdownOptions,
};
use output::{Output, complain, say};
use std::{
    net::SocketAddr,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::Duration,
};

/// Passes requests on to a backend.
#[derive(Parser)]
struct Options {
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Address of the backend.
    #[arg(long, default_value = "127.0.0.1:8000")]
    backend: SocketAddr,
    /// Most connections to the backend, besides WebSocket connections.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Longest body of a request or response in bytes.
    #[arg(long, default_value_t = 1 << 40)]
    max_body: u64,
    /// Time in which the backend has to connect, and then to make progress with its response. A
    /// quiet stream of events needs more.
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// Time limit for a client, or the backend of a WebSocket connection, to accept sent bytes.
    /// Beyond it, its connection is closed, which frees the connection to the backend.
    #[arg(long, default_value = "60s", value_parser = humantime::parse_duration)]
    write_timeout: Duration,
    /// Number of event loops, each on its own thread; 0 selects two per processor.
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

/// What all connections share.
struct Proxy {
    forwarding: Forwarding,
    pool: ChannelPool<Call>,
    group: EventLoopGroup,
    backend: SocketAddr,
    /// For WebSocket connections, which are not in the pool.
    upgrades: HttpClient,
    timeout: Duration,
    limits: TimeLimits,
}

/// A connection of a client.
struct Front {
    proxy: Arc<Proxy>,
    /// The connection to the backend, and its request's body.
    upload: Option<(PooledChannel<Call>, Upload)>,
    /// The body of the response in progress.
    body: Option<BodyStream>,
    /// Whether the next bytes of the body are awaited.
    is_pulling: bool,
}

type Ctx<'a> = Context<'a, Front>;

impl Front {
    fn begin(&mut self, ctx: &mut Ctx<'_>, request: Request) -> Result {
        let Some(id) = request.id() else { return Ok(()) };
        (self.upload, self.body) = (None, None);
        if !self.proxy.forwarding.may_forward(&request) {
            // An echo of the request, for TRACE, could show secrets of the client to a script.
            let is_trace = request.method() == "TRACE";
            let status = if is_trace { StatusCode::NOT_IMPLEMENTED } else { StatusCode::NO_CONTENT };
            return ctx.write(Response::from(status).for_request(id).into());
        }
        if request.is_upgrade("websocket") {
            return self.upgrade(ctx, id, request);
        }
        let has_body = request.announced_body().is_streamed();
        let (call, response) = Call::streamed(self.proxy.forwarding.request(request, &ctx.peer()));
        // A slow upload of the client does not count: `response_timeout` is for the backend.
        let mut call = call.timeout(Duration::MAX);
        let upload = has_body.then(|| call.upload());
        // The body waits until there is a connection.
        let paused = ctx.pause_reading();
        ctx.on_complete(self.proxy.pool.acquire(), move |front, ctx, channel| {
            let sent = channel.and_then(|channel| {
                channel.write(call)?;
                Ok(channel)
            });
            match sent {
                Ok(channel) => {
                    front.upload = upload.map(|upload| (channel, upload));
                    ctx.on_complete(response, move |front, ctx, response| front.respond(ctx, id, response));
                }
                Err(error) => Front::fail(ctx, id, &error)?,
            }
            drop(paused);
            Ok(())
        });
        Ok(())
    }

    /// Answers for a backend that does not.
    fn fail(ctx: &mut Ctx<'_>, id: RequestId, error: &Error) -> Result {
        log::warn!("channel {}: the backend failed: {error:#}", ctx.id());
        let cause = netwheel::http::NotSent::of(error).map_or(error, |not_sent| not_sent.cause());
        let status = match cause {
            Error::TimedOut { .. } => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::BAD_GATEWAY,
        };
        ctx.write(Response::from(status).for_request(id).into())
    }

    fn send(&mut self, ctx: &mut Ctx<'_>, bytes: Bytes) -> Result {
        let Some((channel, upload)) = &self.upload else { return Ok(()) };
        // A connection that has ended fails the call.
        if channel.write(upload.part(bytes)).is_ok() && !channel.is_writable() {
            let paused: InputGuard = ctx.pause_reading();
            channel.writable().on_complete(move |_| drop(paused));
        }
        Ok(())
    }

    fn respond(&mut self, ctx: &mut Ctx<'_>, id: RequestId, response: Result<StreamedResponse>) -> Result {
        match response {
            Ok(StreamedResponse { head, body }) => {
                ctx.write(self.proxy.forwarding.response(head).for_request(id).into())?;
                self.body = Some(body);
                self.pull(ctx);
                Ok(())
            }
            Err(error) => Front::fail(ctx, id, &error),
        }
    }

    /// Asks for the next bytes of the response, if the client takes them.
    fn pull(&mut self, ctx: &mut Ctx<'_>) {
        let Some(body) = self.body.as_mut().filter(|_| !self.is_pulling && ctx.is_writable()) else { return };
        self.is_pulling = true;
        ctx.on_complete(body.next(), |front, ctx, next| {
            front.is_pulling = false;
            if let Some(bytes) = next? {
                ctx.write(Part::Body(bytes))?;
                front.pull(ctx);
                return Ok(());
            }
            let trailers = front.body.take().and_then(|body| body.trailers()).unwrap_or_default();
            ctx.write(Part::End(trailers))
        });
    }

    /// Asks the backend for a WebSocket connection, and then passes on its bytes.
    fn upgrade(&mut self, ctx: &mut Ctx<'_>, id: RequestId, request: Request) -> Result {
        let request = self.proxy.forwarding.upgrade(request, "websocket", &ctx.peer());
        let (completer, switched) = ctx.completer();
        let switching = Switching { request: Some(request), completer: Some(completer) };
        let switching = Arc::new(Mutex::new(Some(switching)));
        let unused = switching.clone();
        let http = self.proxy.upgrades.clone();
        let bootstrap = ClientBootstrap::new(&self.proxy.group)
            .connect_timeout(self.proxy.timeout)
            .channel_options(ChannelOptions::new().half_close(true))
            .pipeline(move |_peer| {
                let switching = switching.lock().unwrap_or_else(PoisonError::into_inner).take();
                switching.map(|switching| http.pipeline().handler(switching)).ok_or(Error::Closed)
            });
        ctx.on_complete(bootstrap.connect(self.proxy.backend), move |_, ctx, connected| match connected {
            Ok(_) => Ok(()),
            Err(error) => {
                let answered = Front::fail(ctx, id, &error);
                // It completes `switched` with another error.
                drop(unused);
                answered
            }
        });
        ctx.on_complete(switched, move |front, ctx, switched| {
            let mut switched = match switched {
                Ok(switched) => switched,
                // A failed connect was answered above.
                Err(error) => return Front::fail(ctx, id, &error).or(Ok(())),
            };
            let head = std::mem::replace(&mut switched.response, StatusCode::BAD_GATEWAY.into());
            let (status, is_websocket) = (head.status(), head.headers().has_token("upgrade", "websocket"));
            let response = front.proxy.forwarding.response(head).for_request(id);
            if status != StatusCode::SWITCHING_PROTOCOLS {
                return ctx.write(response.body("").into());
            }
            if !is_websocket {
                return ctx.write(Response::from(StatusCode::BAD_GATEWAY).for_request(id).into());
            }
            ctx.write(response.into())?;
            let Some((handler, channel)) = switched.backend.take() else { return Err(Error::Closed) };
            let (completer, backend) = ctx.completer();
            completer.complete(Ok(channel));
            let limits = front.proxy.limits;
            let side = move |relay| Pipeline::codec(RawBytes).time_limits(limits).handler(relay);
            ctx.replace_pipeline(side(Relay::dial(move |front: Channel<Bytes>| {
                let relay = move |_: &mut Switching, ctx: &mut Context<'_, Switching>| {
                    ctx.replace_pipeline(side(Relay::to(front)))
                };
                // A backend that has gone ends the relay.
                let _ = handler.execute(relay);
                backend
            })))
        });
        Ok(())
    }
}

impl Handler for Front {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        match part {
            Part::Head(request) => self.begin(ctx, request),
            Part::Body(bytes) => self.send(ctx, bytes),
            Part::End(trailers) => {
                if let Some((channel, upload)) = self.upload.take() {
                    let _ = channel.write(upload.end_with(trailers));
                }
                Ok(())
            }
        }
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        if writable {
            self.pull(ctx);
        }
        Ok(())
    }

    /// The response in progress first.
    fn shutdown(&mut self, _: &mut Context<'_, Self>) -> Result {
        Ok(())
    }
}

/// A connection to the backend that is to change to another protocol.
struct Switching {
    request: Option<Request>,
    completer: Option<Completer<Switched>>,
}

/// The backend has responded.
struct Switched {
    response: Response,
    /// The connection, until a relay takes it.
    backend: Option<(HandlerRef<Switching>, Channel<Bytes>)>,
}

impl Drop for Switched {
    /// Closes a connection that no relay has taken, for example because the client has gone.
    fn drop(&mut self) {
        if let Some((_, channel)) = self.backend.take() {
            channel.close_now();
        }
    }
}

impl Handler for Switching {
    type Read = Part<Response>;
    type Write = Part<Request>;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if let Some(completer) = &mut self.completer {
            // The client may go away before the backend has responded.
            let channel = ctx.channel();
            completer.on_cancel(move || channel.close_now());
        }
        match self.request.take() {
            Some(request) => ctx.write(request.into()),
            None => Ok(()),
        }
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Response>) -> Result {
        let Part::Head(response) = part else { return Ok(()) };
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if response.status().is_informational() && !switches {
            return Ok(());
        }
        let (handler, channel) = (ctx.handler_ref(), ctx.channel().for_replacement());
        if let Some(completer) = self.completer.take() {
            completer.complete(Ok(Switched { response, backend: Some((handler, channel)) }));
        }
        if !switches {
            ctx.close();
        }
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        if let Some(completer) = self.completer.take() {
            completer.complete(Err(error));
        }
        ctx.close();
        Ok(())
    }
}

fn main() -> ExitCode {
    env_logger::init();
    let options = Options::parse();
    let output = Output::start();
    let result = run(&options);
    if let Err(error) = &result {
        complain!("http_proxy: {error:#}");
    }
    output.finish();
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(options: &Options) -> Result {
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || stop.send(()).unwrap_or_default()).map_err(Error::other)?;
    let group = EventLoopGroup::builder().threads(options.threads).name("proxy").build()?;
    let settings = HttpSettings::new().max_body(options.max_body);
    let client = HttpClient::with(settings.clone().response_timeout(options.timeout))?;
    let upgrades = client.clone();
    let pool = ClientBootstrap::new(&group)
        .connect_timeout(options.timeout)
        .pipeline(move |_peer| client.calls(0))
        .pool()
        .size(options.connections)
        .build(options.backend)?;
    let proxy = Arc::new(Proxy {
        forwarding: Forwarding::new("netwheel")?,
        pool,
        group: group.clone(),
        backend: options.backend,
        upgrades,
        timeout: options.timeout,
        limits: TimeLimits::new().write(options.write_timeout),
    });
    let http = HttpServer::with(settings)?;
    let server = ServerBootstrap::new(&group)
        .channel_options(ChannelOptions::new().half_close(true))
        .pipeline(move |_peer| {
            let front = Front { proxy: proxy.clone(), upload: None, body: None, is_pulling: false };
            http.pipeline().time_limits(proxy.limits).handler(front)
        })
        .bind(options.listen)?;
    say!("listening on {}", server.local_address());
    stopped.recv().map_err(Error::other)?;
    group
        .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)))
        .wait()?;
    Ok(())
}
