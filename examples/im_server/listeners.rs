//! The listeners: TCP and Unix sockets for the protocol as lines, HTTP and HTTPS for browsers.
//! Clients on all of them share the same rooms.

use crate::{
    cpu_work::CpuWork,
    hub::Hub,
    options::Options,
    output::say,
    pace::Rates,
    protocol::{Reason, Reply, Request},
    session::{Session, Settings},
    web::{Dashboard, PERIOD, Pages, Site, Web},
    wire::Lines,
};
#[cfg(unix)]
use netwheel::net::UnixAddress;
#[cfg(feature = "tls")]
use netwheel::tls::{TlsCertificate, TlsServer};
use netwheel::{
    Completion,
    admission::{Admission, RejectReason, Rejection},
    bytes::Bytes,
    channel::{ChannelOptions, MaxConnectionAge, TimeLimits},
    http::{Aggregate, HttpServer, HttpSettings},
    net::ListenerOptions,
    pipeline::{Links, PipelineBuilder},
    prelude::*,
    stage::Json,
    time::Periodic,
    traffic::TrafficLimits,
    websocket::{WebSocketServer, WebSocketSettings},
};
use std::{sync::Arc, time::Duration};

/// Bytes per read. Requests are short, and one client should use only a small share of a turn.
const READ_SIZE: usize = 16 * 1024;
/// Bytes of an incomplete line that must arrive within `--line-timeout`, unless the line ends.
const LINE_PROGRESS: usize = 64;
/// The port for browsers unless `--http` sets another one.
const HTTP_ADDRESS: &str = "127.0.0.1:8080";
/// The longest body of a request of a browser. The pages send none.
const MAX_BODY: usize = 1024;

/// What the connections of all listeners share.
#[derive(Clone)]
pub(crate) struct Connections {
    hub: Arc<Hub>,
    settings: Settings,
    idle: IdleTimeouts,
    limits: TimeLimits,
    traffic: TrafficLimits,
}

impl Connections {
    fn new(hub: &Arc<Hub>, options: &Options) -> Self {
        let settings = Settings {
            heartbeat: options.heartbeat,
            idle_timeout: options.idle_timeout,
            ack_timeout: options.ack_timeout,
            max_unacked: options.max_unacked,
            max_unacked_bytes: options.max_unacked_bytes,
            login_timeout: options.login_timeout,
            login_work: CpuWork::taking(options.login_cost),
            rates: Rates {
                requests: options.rate,
                deliveries: options.delivery_rate,
                congestion: options.congestion_pause,
            },
            lookup_time: options.lookup_time,
            max_lookups: options.max_lookups,
        };
        let mut traffic = TrafficLimits::new();
        if options.input_rate > 0 {
            let burst = options.input_rate as usize / 2 + 1;
            traffic = traffic.read(options.input_rate.into()).read_burst(burst);
        }
        Connections {
            hub: hub.clone(),
            settings,
            idle: IdleTimeouts::new().reader(settings.idle_timeout).writer(settings.heartbeat),
            limits: time_limits(options),
            traffic,
        }
    }

    /// Completes a pipeline with the limits and the session of a client.
    pub(crate) fn session(
        &self,
        links: PipelineBuilder<impl Links<Read = Request, Write = Reply>>,
    ) -> Pipeline<Reply> {
        links
            .idle(self.idle)
            .time_limits(self.limits)
            .traffic(self.traffic)
            .handler(Session::new(self.hub.clone(), self.settings))
    }
}

/// Binds all listeners to the same hub. Returns a `Completion` per listener that completes when the
/// listener has ended.
pub(crate) fn listen(group: &EventLoopGroup, hub: &Arc<Hub>, options: &Options) -> Result<Vec<Completion>> {
    let connections = Connections::new(hub, options);
    let admission = admission(options);
    let bootstrap = ServerBootstrap::new(group)
        .listener_options(ListenerOptions::new().backlog(4096).remove_stale_socket(true))
        .admission(admission.clone())
        .channel_options(channel_options(options)?);
    let bootstrap = match options.max_connection_age {
        Duration::ZERO => bootstrap,
        age => bootstrap.max_connection_age(MaxConnectionAge::new(age).grace_timeout(options.close_timeout)),
    };
    let (lines, max_line) = (connections.clone(), options.max_line);
    let chat = bootstrap.clone().pipeline(move |_peer| {
        lines.session(Pipeline::codec(Lines::new(max_line)).stage(Json::<Request, Reply>::new()))
    });
    let plain_chat = chat.clone().admission(admission.clone().farewell(overloaded_line));
    // Bind all listeners before an address is printed.
    #[cfg(unix)]
    let unix = match &options.unix {
        Some(path) => Some(plain_chat.clone().bind(UnixAddress::path(path)?)?),
        None => None,
    };
    // The Unix socket stays without TLS: its bytes do not leave the machine.
    #[cfg(feature = "tls")]
    let (chat, tls) = match (&options.tls_cert, &options.tls_key) {
        (Some(chain), Some(key)) => {
            let certificate = TlsCertificate::from_pem_files(chain, key)?;
            let lines = TlsServer::builder(certificate.clone()).build()?;
            let https = TlsServer::builder(certificate).alpn(["http/1.1"]).build()?;
            (chat.tls(lines), Some(https))
        }
        _ => (plain_chat, None),
    };
    #[cfg(not(feature = "tls"))]
    let chat = plain_chat;
    let tcp = chat.bind(&*options.listen)?;
    let web = Arc::new(Web {
        hub: hub.clone(),
        pages: Pages::new(),
        dashboard: Dashboard::new(hub.clone(), group),
        group: group.clone(),
        connections,
        websocket: websocket(options)?,
    });
    let settings = HttpSettings::new().max_body(MAX_BODY as u64);
    // The session submits its login. An upgrade costs little, and a second permit would be needed.
    let (http, shared) = (HttpServer::with(settings)?.deferrable(|_| false), web.clone());
    let limits = write_limit(options);
    let pages = bootstrap.pipeline(move |_peer| {
        let links = http.pipeline().stage(Aggregate::max(MAX_BODY)).time_limits(limits);
        links.handler(Site::new(shared.clone()))
    });
    let plain_pages = pages.clone().admission(admission.farewell(overloaded_response));
    let plain = match options.http.as_deref() {
        Some("none") => None,
        Some(address) => Some(plain_pages.bind(address)?),
        // The default must not prevent the start of a second server.
        None => Some(plain_pages.clone().bind(HTTP_ADDRESS).or_else(|_| plain_pages.bind("127.0.0.1:0"))?),
    };
    #[cfg(feature = "tls")]
    let secure = match (options.https, tls) {
        (Some(address), Some(tls)) => Some(pages.tls(tls).bind(address)?),
        _ => None,
    };
    if plain.is_some() || options.has_https() {
        // Dropping the handle does not cancel the task.
        let publish = move || web.dashboard.publish();
        drop(group.next().schedule_periodic(Periodic::fixed_delay(PERIOD), publish)?);
    }

    let mut ends = vec![tcp.closed()];
    say!("listening on {}", tcp.local_address());
    #[cfg(unix)]
    if let Some(unix) = unix {
        say!("listening on {}", unix.local_address());
        ends.push(unix.closed());
    }
    #[cfg(feature = "tls")]
    if let Some(server) = secure {
        say!("chat in a browser: https://{}/", server.local_address());
        ends.push(server.closed());
    }
    if let Some(server) = plain {
        say!("chat in a browser: http://{}/", server.local_address());
        ends.push(server.closed());
    }
    Ok(ends)
}

fn websocket(options: &Options) -> Result<WebSocketServer> {
    let settings = WebSocketSettings::new()
        .max_message(options.max_line)
        // The protocol has its own heartbeat, and its own farewell.
        .ping_interval(Duration::ZERO)
        .close_at_shutdown(false);
    let server = WebSocketServer::with(settings)?;
    #[cfg(feature = "deflate")]
    let server = server.deflate(netwheel::websocket::Deflate::new())?;
    Ok(server)
}

/// Returns the limits of all listeners together, because they share the limit of descriptors.
fn admission(options: &Options) -> Admission {
    let mut admission = Admission::new().shared();
    if let Some(connections) = options.max_connections {
        admission = admission.max_connections(connections);
    }
    if let Some(connections) = options.max_per_ip {
        admission = admission.max_connections_per_ip(connections);
    }
    admission
}

/// Returns the hint for a client of which an overloaded loop has refused the connection.
fn overload_hint(rejection: &Rejection) -> Option<Duration> {
    match &rejection.reason {
        RejectReason::Overloaded(refused) => Some(refused.retry_after()),
        _ => None,
    }
}

/// Returns the last line of a connection that is refused because of overload.
fn overloaded_line(rejection: &Rejection) -> Option<Bytes> {
    let millis = u64::try_from(overload_hint(rejection)?.as_millis()).unwrap_or(u64::MAX);
    let bye = Reply::Bye { reason: Reason::Overloaded, retry_after_ms: Some(millis) };
    let mut line = serde_json::to_vec(&bye).ok()?;
    line.push(b'\n');
    Some(line.into())
}

/// Returns the response for a connection that is refused because of overload.
fn overloaded_response(rejection: &Rejection) -> Option<Bytes> {
    let seconds = overload_hint(rejection)?.as_millis().div_ceil(1000);
    let head = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n";
    Some(format!("{head}Retry-After: {seconds}\r\n\r\n").into())
}

fn channel_options(options: &Options) -> Result<ChannelOptions> {
    // Each unacknowledged direct message has a timeout, and each lookup is a task too.
    let tasks = options.max_unacked.saturating_add(options.max_lookups).saturating_add(8);
    Ok(options
        .slow_consumer
        .channel_options(options.max_outbound)?
        .close_timeout(options.close_timeout)
        .read_size(READ_SIZE)
        .reads_per_turn(2)
        .max_scheduled_tasks(tasks))
}

/// Returns the deadlines of a client of the chat.
fn time_limits(options: &Options) -> TimeLimits {
    let mut limits = write_limit(options);
    if !options.login_timeout.is_zero() {
        limits = limits.first_message(options.login_timeout);
    }
    if !options.line_timeout.is_zero() {
        limits = limits.progress(LINE_PROGRESS, options.line_timeout);
    }
    limits
}

/// Returns the deadline of a connection that does not read.
fn write_limit(options: &Options) -> TimeLimits {
    match options.write_timeout {
        Duration::ZERO => TimeLimits::new(),
        timeout => TimeLimits::new().write(timeout),
    }
}
