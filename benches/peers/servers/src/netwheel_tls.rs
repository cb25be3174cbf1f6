//! netwheel with TLS and default settings; the handshakes on the loop, or on a worker.

mod options;
mod tls;

use bytes::Bytes;
use clap::Parser;
use netwheel::{codec::RawBytes, net::ListenerOptions, prelude::*, tls::TlsServer, worker_pool::WorkerPool};
use options::Mode;

/// netwheel with TLS, measured by the load generator.
#[derive(Parser)]
struct TlsOptions {
    #[command(flatten)]
    common: options::Options,
    /// Does the expensive steps of handshakes on one worker thread.
    #[arg(long)]
    offload: bool,
}

struct Echo;

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

fn main() -> Result {
    let TlsOptions { common, offload } = TlsOptions::parse();
    let common = common.checked(64, &[Mode::EchoRaw])?;
    let group = EventLoopGroup::builder().threads(common.threads()).build()?;
    // The configuration of the other servers, so that only the I/O differs.
    let mut tls = TlsServer::from_config(tls::config()?)?;
    if offload {
        tls = tls.offload_handshakes(&WorkerPool::builder().threads(1).build()?);
    }
    let server = ServerBootstrap::new(&group)
        .listener_options(ListenerOptions::new().backlog(4096))
        .tls(tls)
        .pipeline(|_| Pipeline::codec(RawBytes).handler(Echo))
        .bind(common.address())?;
    server.closed().wait()
}
