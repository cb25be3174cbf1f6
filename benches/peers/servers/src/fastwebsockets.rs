//! fastwebsockets' echo: hyper accepts the handshake, then one task for each connection, on the
//! current thread.

mod options;

use fastwebsockets::{
    FragmentCollector, OpCode, WebSocketError,
    upgrade::{UpgradeFut, upgrade},
};
use http_body_util::Empty;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use options::{Mode, Options};
use std::io;
use tokio::{
    net::TcpListener,
    runtime::Builder,
    task::{LocalSet, spawn_local},
};

async fn echo(upgraded: UpgradeFut) -> Result<(), WebSocketError> {
    let mut socket = FragmentCollector::new(upgraded.await?);
    loop {
        let frame = socket.read_frame().await?;
        match frame.opcode {
            OpCode::Text | OpCode::Binary => socket.write_frame(frame).await?,
            OpCode::Close => return Ok(()),
            _ => {}
        }
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, WebSocketError> {
    let (response, upgraded) = upgrade(request)?;
    spawn_local(echo(upgraded));
    Ok(response)
}

async fn serve(options: Options) -> io::Result<()> {
    let listener = TcpListener::from_std(options.listen()?)?;
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        stream.set_nodelay(true)?;
        let connection =
            http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)).with_upgrades();
        spawn_local(connection);
    }
}

fn main() -> io::Result<()> {
    let options = Options::of(1, &[Mode::Ws])?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(LocalSet::new().run_until(serve(options)))
}
