//! The chat on tokio-tungstenite, with its usual limits: a semaphore for connections, which is
//! acquired before `accept`, a concurrency limit for logins, timeouts, and the hash on a blocking
//! thread.
//!
//! It does for a login and for a message what `examples/im_server` does, and parses with the same
//! code. It knows the requests of `im_bots --storm` only.

#[path = "../../../../examples/support/cpu_work.rs"]
mod cpu_work;
#[path = "../../../../examples/im/message_id.rs"]
mod message_id;
#[path = "../../../../examples/im/protocol.rs"]
mod protocol;
#[path = "../../../../examples/im/request.rs"]
mod request;
mod rooms;
mod session;

use clap::Parser;
use cpu_work::CpuWork;
use rooms::Rooms;
use rustls::{
    ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use session::Server;
use socket2::{Domain, Socket, Type};
use std::{
    io,
    net::{Ipv4Addr, SocketAddrV4, TcpListener as StdListener},
    path::PathBuf,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::TcpListener,
    runtime::Builder,
    sync::Semaphore,
    task::{LocalSet, spawn_local},
};
use tokio_rustls::TlsAcceptor;

/// A chat server for comparison.
#[derive(Parser)]
struct Options {
    /// Port on 127.0.0.1.
    port: u16,
    #[arg(long)]
    certificate: PathBuf,
    #[arg(long)]
    key: PathBuf,
    /// Processor time of a login, in microseconds.
    #[arg(long, default_value_t = 0)]
    login_micros: u64,
    /// Connections at most; the others wait in the backlog.
    #[arg(long, default_value_t = 19_000)]
    max_connections: usize,
    /// Handshakes and logins at the same time; the others wait.
    #[arg(long, default_value_t = 64)]
    max_logins: usize,
    /// Seconds for a handshake and a login, with the wait for them.
    #[arg(long, default_value_t = 10)]
    login_timeout: u64,
}

fn main() -> io::Result<()> {
    let options = Options::parse();
    // One thread for hashes, because the server has one core.
    let runtime = Builder::new_current_thread().max_blocking_threads(1).enable_all().build()?;
    runtime.block_on(LocalSet::new().run_until(serve(options)))
}

async fn serve(options: Options) -> io::Result<()> {
    let listener = TcpListener::from_std(listen(options.port)?)?;
    let connections = Arc::new(Semaphore::new(options.max_connections));
    let server = Rc::new(Server {
        tls: TlsAcceptor::from(Arc::new(tls(&options)?)),
        logins: Semaphore::new(options.max_logins),
        login_timeout: Duration::from_secs(options.login_timeout),
        login_work: CpuWork::taking(Duration::from_micros(options.login_micros)),
        rooms: Rooms::default(),
    });
    loop {
        let Ok(permit) = connections.clone().acquire_owned().await else { return Ok(()) };
        let Ok((stream, _)) = listener.accept().await else { continue };
        let server = server.clone();
        spawn_local(async move {
            session::serve(&server, stream).await;
            drop(permit);
        });
    }
}

fn listen(port: u16) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddrV4::new(Ipv4Addr::LOCALHOST, port).into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

fn tls(options: &Options) -> io::Result<ServerConfig> {
    let certificate = CertificateDer::from_pem_file(&options.certificate).map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_file(&options.key).map_err(io::Error::other)?;
    ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![certificate], key))
        .map_err(io::Error::other)
}
