//! A TLS echo server: sends back every byte it receives, encrypted.
//!
//! ```text
//! cargo run --release --features tls --example tls_echo
//! openssl s_client -connect 127.0.0.1:7443      # each line typed is echoed
//! ```
//!
//! Without `--cert` and `--key` it makes a self-signed certificate for `localhost` at start, which
//! `--write-cert PATH` stores for clients. A client that ends its stream (`close_notify`) still
//! gets its remaining echo. Ctrl-C stops the server after the echo of all received bytes.

#[path = "support/certificate.rs"]
mod certificate;
#[path = "support/output.rs"]
mod output;

use bytes::Bytes;
use certificate::CertificateOptions;
use clap::{Parser, ValueEnum};
use netwheel::{
    channel::ChannelOptions,
    codec::RawBytes,
    prelude::*,
    shutdown::ShutdownOptions,
    tls::{ClientCertificates, TlsRoots, TlsServer, TlsVersion},
    worker_pool::WorkerPool,
};
use output::{Output, complain, say};
use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::mpsc, time::Duration};

/// Sends back every byte it receives, over TLS.
#[derive(Parser)]
struct Options {
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:7443")]
    listen: SocketAddr,
    #[command(flatten)]
    certificate: CertificateOptions,
    /// Ask clients for certificates of the authorities in this file.
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Accept clients without a certificate too.
    #[arg(long, requires = "client_ca")]
    client_cert_optional: bool,
    /// Application protocols to accept (ALPN), by preference.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    alpn: Vec<String>,
    /// Oldest version of TLS to accept.
    #[arg(long, value_enum, default_value = "1.2")]
    min_version: Version,
    /// Accept connections without TLS on the same port.
    #[arg(long)]
    or_plaintext: bool,
    /// Run handshakes on this number of worker threads instead of the event loops.
    #[arg(long, value_name = "THREADS", default_value_t = 0)]
    offload: usize,
    /// Close a connection after this time without traffic.
    #[arg(long, default_value = "60s", value_parser = humantime::parse_duration)]
    idle_timeout: Duration,
    /// Number of event loops, each on its own thread; 0 selects two per processor.
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Version {
    #[value(name = "1.2")]
    Tls12,
    #[value(name = "1.3")]
    Tls13,
}

impl Options {
    fn tls(&self) -> Result<TlsServer> {
        let mut tls = TlsServer::builder(self.certificate.certificate()?).alpn(&self.alpn).min_version(
            match self.min_version {
                Version::Tls12 => TlsVersion::Tls12,
                Version::Tls13 => TlsVersion::Tls13,
            },
        );
        if let Some(path) = &self.client_ca {
            let roots = TlsRoots::from_pem_file(path)?;
            tls = tls.client_certificates(if self.client_cert_optional {
                ClientCertificates::Optional(roots)
            } else {
                ClientCertificates::Required(roots)
            });
        }
        let mut tls = tls.build()?;
        if self.offload > 0 {
            tls = tls.offload_handshakes(&WorkerPool::builder().threads(self.offload).build()?);
        }
        Ok(if self.or_plaintext { tls.or_plaintext() } else { tls })
    }
}

struct Echo;

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        match ctx.tls() {
            Some(tls) => log::info!(
                "{:?}: {:?}, {}, ALPN {:?}, name {:?}, {}, {} certificates of the client",
                ctx.peer_address(),
                tls.version(),
                tls.cipher_suite(),
                tls.alpn_protocol(),
                tls.server_name(),
                if tls.is_resumed() { "resumed" } else { "full handshake" },
                tls.peer_certificates().len(),
            ),
            None => log::info!("{:?}: plaintext", ctx.peer_address()),
        }
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        // Backpressure: stop reading while the outbound buffer is full.
        ctx.set_auto_read(writable);
        Ok(())
    }

    fn read_closed(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        // Flushes the echo, then sends close_notify.
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
        complain!("tls_echo: {error:#}");
    }
    output.finish();
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(options: &Options) -> Result {
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || stop.send(()).unwrap_or_default()).map_err(Error::other)?;
    let group = EventLoopGroup::builder().threads(options.threads).name("echo").build()?;
    let idle = IdleTimeouts::new().all(options.idle_timeout);
    let server = ServerBootstrap::new(&group)
        .channel_options(ChannelOptions::new().half_close(true))
        .tls(options.tls()?)
        .pipeline(move |_peer| Pipeline::codec(RawBytes).idle(idle).handler(Echo))
        .bind(options.listen)?;
    let address = server.local_address();
    say!("try: openssl s_client -connect {address}");
    say!("listening on {address}");
    stopped.recv().map_err(Error::other)?;
    group
        .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)))
        .wait()?;
    Ok(())
}
