//! tokio-websockets' echo: one task for each connection, on the current thread.

mod options;

use futures_util::{SinkExt, StreamExt};
use options::{Mode, Options};
use std::io;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Builder,
    task::{LocalSet, spawn_local},
};
use tokio_websockets::{Error, ServerBuilder};

async fn echo(stream: TcpStream) -> Result<(), Error> {
    let (_request, mut socket) = ServerBuilder::new().accept(stream).await?;
    while let Some(message) = socket.next().await {
        let message = message?;
        if message.is_binary() || message.is_text() {
            socket.send(message).await?;
        }
    }
    Ok(())
}

async fn serve(options: Options) -> io::Result<()> {
    let listener = TcpListener::from_std(options.listen()?)?;
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        stream.set_nodelay(true)?;
        spawn_local(echo(stream));
    }
}

fn main() -> io::Result<()> {
    let options = Options::of(1, &[Mode::Ws])?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(LocalSet::new().run_until(serve(options)))
}
