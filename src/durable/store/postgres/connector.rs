//! `Connector`: connects to the server, with a deadline for every wait.
//!
//! The crate `postgres` has a time limit for the connection of a socket only. Its connector for TLS
//! is the place where the stream of a connection can be wrapped. So this one is used for plain
//! connections, too: with direct negotiation, the crate calls it first, and it chooses the stream.

use super::deadline::{Deadline, Timed};
use postgres::{
    Client, Config, Socket,
    config::{Host, SslMode, SslNegotiation},
    tls::{ChannelBinding, MakeTlsConnect, NoTls, TlsConnect, TlsStream},
};
use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    time::timeout_at,
};

/// The request for TLS: its length, and the code 80877103.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Connects a client.
pub(super) trait Connect: Send {
    fn connect(&mut self, config: &Config, deadline: &Deadline) -> Result<Client, postgres::Error>;
}

/// A connector without TLS.
pub(super) fn plain() -> Box<dyn Connect> {
    Box::new(Connector { tls: NoTls, has_tls: false })
}

/// A connector that uses TLS as the configuration says.
#[cfg(feature = "postgres-019")]
pub(super) fn with_tls<T>(tls: T) -> Box<dyn Connect>
where
    T: MakeTlsConnect<Socket> + Clone + Send + 'static,
    T::TlsConnect: Send,
    T::Stream: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    Box::new(Connector { tls, has_tls: true })
}

struct Connector<T> {
    tls: T,
    has_tls: bool,
}

impl<T> Connect for Connector<T>
where
    T: MakeTlsConnect<Socket> + Clone + Send + 'static,
    T::TlsConnect: Send,
    T::Stream: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    fn connect(&mut self, config: &Config, deadline: &Deadline) -> Result<Client, postgres::Error> {
        let is_unix = config.get_hosts().iter().any(|host| !matches!(host, Host::Tcp(_)));
        if is_unix {
            // Such a connection cannot be wrapped. The server is on this machine, and ends its
            // statements in time.
            return config.connect(NoTls);
        }
        let mode = match config.get_ssl_mode() {
            SslMode::Prefer if !self.has_tls => SslMode::Disable,
            mode => mode,
        };
        let mut config = config.clone();
        config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
        if config.get_hosts().is_empty() {
            // The crate asks for the name of a host. Addresses have none.
            for address in config.get_hostaddrs().to_vec() {
                config.host(&address.to_string());
            }
        }
        config.connect(Handshake { tls: self.tls.clone(), mode, deadline: deadline.clone() })
    }
}

/// Begins a connection: with TLS or without.
#[derive(Clone)]
struct Handshake<T> {
    tls: T,
    mode: SslMode,
    deadline: Deadline,
}

impl<T> MakeTlsConnect<Socket> for Handshake<T>
where
    T: MakeTlsConnect<Socket>,
    T::TlsConnect: Send + 'static,
    T::Stream: 'static,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    type Stream = Timed<PostgresStream<T::Stream>>;
    type TlsConnect = Handshake<T::TlsConnect>;
    type Error = T::Error;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Self::TlsConnect, T::Error> {
        let tls = self.tls.make_tls_connect(domain)?;
        Ok(Handshake { tls, mode: self.mode, deadline: self.deadline.clone() })
    }
}

impl<T> TlsConnect<Socket> for Handshake<T>
where
    T: TlsConnect<Socket> + Send + 'static,
    T::Stream: 'static,
    T::Future: Send,
{
    type Stream = Timed<PostgresStream<T::Stream>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Stream, BoxError>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let until = self.deadline.get();
            let late = |_| io::Error::from(io::ErrorKind::TimedOut);
            let stream = timeout_at(until, begin(self.tls, self.mode, socket)).await.map_err(late)??;
            Ok(Timed::new(stream, self.deadline))
        })
    }
}

async fn begin<T: TlsConnect<Socket>>(
    tls: T,
    mode: SslMode,
    mut socket: Socket,
) -> Result<PostgresStream<T::Stream>, BoxError> {
    if mode == SslMode::Disable {
        return Ok(PostgresStream::Plain(socket));
    }
    socket.write_all(&SSL_REQUEST).await?;
    let mut answer = [0];
    socket.read_exact(&mut answer).await?;
    match (answer, mode) {
        ([b'S'], _) => Ok(PostgresStream::Tls(tls.connect(socket).await.map_err(Into::into)?)),
        (_, SslMode::Prefer) => Ok(PostgresStream::Plain(socket)),
        _ => Err("the server does not support TLS".into()),
    }
}

/// A connection to a server.
pub(super) enum PostgresStream<T> {
    Plain(Socket),
    Tls(T),
}

impl<T: AsyncRead + Unpin> AsyncRead for PostgresStream<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            PostgresStream::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            PostgresStream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for PostgresStream<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            PostgresStream::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            PostgresStream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            PostgresStream::Plain(socket) => Pin::new(socket).poll_flush(cx),
            PostgresStream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            PostgresStream::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            PostgresStream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

impl<T: TlsStream + Unpin> TlsStream for Timed<PostgresStream<T>> {
    fn channel_binding(&self) -> ChannelBinding {
        match self.stream() {
            PostgresStream::Plain(_) => ChannelBinding::none(),
            PostgresStream::Tls(stream) => stream.channel_binding(),
        }
    }
}
