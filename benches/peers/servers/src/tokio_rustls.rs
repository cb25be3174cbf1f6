//! tokio-rustls: one task for each connection; on the current thread, or on several.
//!
//! A server for measurements, not for use: a handshake may take forever.

mod options;
mod tls;

use options::{Mode, Options};
use std::io;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Builder,
    task::spawn,
};
use tokio_rustls::TlsAcceptor;

/// Buffer size of a read, the same as in the server without TLS.
const READ: usize = 16 * 1024;

async fn echo(stream: TcpStream, acceptor: TlsAcceptor) -> io::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let mut buffer = vec![0; READ];
    loop {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            return stream.shutdown().await;
        }
        stream.write_all(&buffer[..n]).await?;
        stream.flush().await?;
    }
}

async fn serve(options: Options) -> io::Result<()> {
    let listener = TcpListener::from_std(options.listen()?)?;
    let acceptor = TlsAcceptor::from(tls::config()?);
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        stream.set_nodelay(true)?;
        drop(spawn(echo(stream, acceptor.clone())));
    }
}

fn main() -> io::Result<()> {
    let options = Options::of(64, &[Mode::EchoRaw])?;
    let mut builder = match options.threads() {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(options.threads()).enable_all().build()?;
    runtime.block_on(async {
        if options.threads() == 1 { serve(options).await } else { spawn(serve(options)).await? }
    })
}
