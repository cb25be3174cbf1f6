//! A TLS gateway: decrypts the connections of clients and relays them to plain backends.
//!
//! ```text
//! cargo run --release --example echo_server
//! cargo run --release --features tls --example gateway -- --backend 127.0.0.1:7000
//! openssl s_client -connect 127.0.0.1:8443      # in a third terminal
//! ```
//!
//! A client is connected to a backend after its TLS handshake. With several backends, clients get
//! them in turn, and the next one if a backend cannot be reached. Each direction has backpressure:
//! the gateway reads from one side only as fast as the other side takes the bytes. Each side can
//! end its stream (`close_notify` of a client, FIN of a backend) and still receive.
//!
//! Behind a load balancer that sends the PROXY protocol, name its network with `--proxy-from`. The
//! limit per address and the log then use the address of the client. `--announce` passes it on to
//! the backends, also as a PROXY header.
//!
//! SIGTERM or Ctrl-C starts the drain: new connections are refused, and open ones have the time
//! `--drain` to end by themselves. Then the rest is reset, and a report is printed. A second
//! signal ends the wait. With `--reload` the gateway reads its certificate files periodically, and
//! replaces the certificate without a restart.
//!
//! Reading order: this file (options, both pipelines, the drain), `backends.rs` (round robin),
//! `connections.rs` (the number of open connections).

mod backends;
#[path = "../support/certificate.rs"]
mod certificate;
mod connections;
#[path = "../im/descriptors.rs"]
#[allow(dead_code, reason = "only the number is used")]
mod descriptors;
#[path = "../support/output.rs"]
mod output;

use backends::Backends;
use bytes::Bytes;
use certificate::CertificateOptions;
use clap::Parser;
use connections::Connections;
use netwheel::{
    admission::Admission,
    channel::{ChannelOptions, TimeLimits},
    codec::RawBytes,
    net::ListenerOptions,
    prelude::*,
    proxy::ProxyProtocol,
    relay::Relay,
    shutdown::ShutdownOptions,
    tls::{TlsCertificates, TlsServer},
    worker_pool::WorkerPool,
};
use output::{Output, complain, say};
use std::{
    net::SocketAddr,
    process::ExitCode,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

/// Time limit for a write to either side to make progress.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// A TLS gateway: decrypts connections and relays them to plain backends.
#[derive(Parser)]
struct Options {
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:8443")]
    listen: SocketAddr,
    /// Address of a backend, HOST:PORT. Several are used in turn.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7000")]
    backend: Vec<String>,
    #[command(flatten)]
    certificate: CertificateOptions,
    /// Read the certificate files again at this interval.
    #[arg(long, value_name = "INTERVAL", value_parser = humantime::parse_duration)]
    reload: Option<Duration>,
    /// Application protocols to accept (ALPN), by preference.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    alpn: Vec<String>,
    /// Run handshakes on this number of worker threads instead of the event loops.
    #[arg(long, value_name = "THREADS", default_value_t = 0)]
    offload: usize,
    /// Network of load balancers, such as 10.0.0.0/8, whose connections begin with a PROXY header.
    /// Connections from elsewhere are closed.
    #[arg(long, value_name = "NETWORK")]
    proxy_from: Vec<String>,
    /// Accept connections from other networks too, without a PROXY header.
    #[arg(long, requires = "proxy_from")]
    proxy_optional: bool,
    /// Send a PROXY header with the address of the client to the backends.
    #[arg(long)]
    announce: bool,
    /// Maximum number of clients. The default is derived from the limit of open files.
    #[arg(long)]
    max_connections: Option<usize>,
    /// Maximum number of clients from one IP address; IPv6 addresses are grouped by their /64
    /// prefix.
    #[arg(long, default_value_t = 100)]
    max_per_ip: usize,
    /// Time limit for the PROXY header and the TLS handshake together.
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    handshake_timeout: Duration,
    /// Time limit for a connection to a backend.
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
    connect_timeout: Duration,
    /// Reset a client after this time without traffic in either direction; 0s disables the
    /// timeout.
    #[arg(long, default_value = "5m", value_parser = humantime::parse_duration)]
    idle_timeout: Duration,
    /// Time that open connections have to end by themselves after SIGTERM.
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    drain: Duration,
    /// Number of event loops, each on its own thread; 0 selects two per processor.
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

/// An event for the main thread.
pub(crate) enum Event {
    /// SIGTERM or Ctrl-C.
    Signal,
    /// The last connection has closed during the drain.
    Drained,
}

impl Options {
    fn tls(&self) -> Result<TlsServer> {
        let tls = TlsServer::builder(self.certificate.certificate()?).alpn(&self.alpn).build()?;
        if self.offload == 0 {
            return Ok(tls);
        }
        Ok(tls.offload_handshakes(&WorkerPool::builder().threads(self.offload).name("tls").build()?))
    }

    fn proxy_protocol(&self) -> Result<Option<ProxyProtocol>> {
        if self.proxy_from.is_empty() {
            return Ok(None);
        }
        let protocol =
            if self.proxy_optional { ProxyProtocol::optional() } else { ProxyProtocol::required() };
        self.proxy_from.iter().try_fold(protocol, |protocol, network| protocol.trust(network)).map(Some)
    }

    fn admission(&self) -> Admission {
        let admission = Admission::new().max_connections_per_ip(self.max_per_ip).on_rejected(|rejection| {
            log::info!("{:?} is rejected: {:?}", rejection.address, rejection.reason);
        });
        // Each client needs two descriptors.
        let allowed =
            || descriptors::raise_limit().connections().map(|n| usize::try_from(n / 2).unwrap_or(1));
        match self.max_connections.or_else(allowed) {
            Some(connections) => admission.max_connections(connections),
            None => admission,
        }
    }
}

/// The pipeline of either side: bytes as they come, forwarded to the other side.
pub(crate) fn side(relay: Relay<Bytes>, idle: IdleTimeouts) -> Pipeline<Bytes> {
    Pipeline::codec(RawBytes).idle(idle).time_limits(TimeLimits::new().write(WRITE_TIMEOUT)).handler(relay)
}

fn main() -> ExitCode {
    let options = Options::parse();
    let output = Output::start();
    let result = run(&options);
    if let Err(error) = &result {
        complain!("gateway: {error:#}");
    }
    output.finish();
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(options: &Options) -> Result {
    let (events, next_event) = mpsc::channel();
    let connections = Arc::new(Connections::new(events.clone()));
    // Install the handler before the address is printed, because a script may then send the signal
    // immediately.
    ctrlc::set_handler(move || drop(events.send(Event::Signal))).map_err(Error::other)?;
    let group = EventLoopGroup::builder().threads(options.threads).name("gateway").build()?;
    let tls = options.tls()?;
    let certificates = tls.certificates();
    let server = listen(&group, options, tls, &connections)?;
    say!("listening on {}", server.local_address());

    wait_for_signal(&next_event, options.reload, certificates.as_ref());
    let start = Instant::now();
    server.close().wait()?;
    let open = connections.drain();
    say!("draining {open} connections");
    if open > 0 {
        // The last connection, a second signal, or the end of the time.
        let _ = next_event.recv_timeout(options.drain);
    }
    let left = connections.open();
    say!(
        "{} of {open} connections ended within {:.1?}; {} clients in total",
        open.saturating_sub(left),
        start.elapsed(),
        connections.accepted()
    );
    // The relays that are left are reset, so that no peer takes the cut for a regular end.
    let shutdown = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO);
    say!("{}", group.shutdown(shutdown).wait()?);
    Ok(())
}

fn listen(
    group: &EventLoopGroup,
    options: &Options,
    tls: TlsServer,
    connections: &Arc<Connections>,
) -> Result<Server<SocketAddr>> {
    let channel_options = ChannelOptions::new().half_close(true);
    let client = ClientBootstrap::new(group)
        .channel_options(channel_options.clone())
        .connect_timeout(options.connect_timeout);
    let backends = Arc::new(Backends::resolve(&options.backend, client, options.announce)?);
    let connections = connections.clone();
    let idle = IdleTimeouts::new().all(options.idle_timeout);
    let mut server = ServerBootstrap::new(group)
        .listener_options(ListenerOptions::new().backlog(4096))
        .admission(options.admission())
        .channel_options(channel_options)
        .handshake_timeout(options.handshake_timeout)
        .tls(tls);
    if let Some(protocol) = options.proxy_protocol()? {
        server = server.proxy_protocol(protocol);
    }
    server
        .pipeline(move |_peer| {
            let (backends, connections) = (backends.clone(), connections.clone());
            let relay = Relay::dial(move |front| {
                connections.add(&front);
                backends.dial(front)
            });
            side(relay, idle)
        })
        .bind(options.listen)
}

/// Waits for the first signal. Meanwhile reads the certificates again at the given interval.
fn wait_for_signal(
    events: &Receiver<Event>,
    reload: Option<Duration>,
    certificates: Option<&TlsCertificates>,
) {
    let (Some(interval), Some(certificates)) = (reload, certificates) else {
        let _ = events.recv();
        return;
    };
    while let Err(RecvTimeoutError::Timeout) = events.recv_timeout(interval) {
        // The old certificates stay in use. The next attempt may find complete files.
        if let Err(error) = certificates.reload() {
            log::error!("the certificates were not replaced: {error:#}");
        }
    }
}
