//! An axum application on netwheel.
//!
//! ```text
//! cargo run --release --manifest-path examples/axum/Cargo.toml --bin axum_server
//! curl http://127.0.0.1:7013/hello/Ada
//! curl --json '[1, 2, 3]' http://127.0.0.1:7013/sum
//! curl --no-buffer http://127.0.0.1:7013/count/100000
//! ```
//!
//! The path `/ws` is a WebSocket that echoes. Ctrl-C stops the server: responses in progress are
//! completed first.

use clap::Parser;
use netwheel::{prelude::*, shutdown::ShutdownOptions};
use netwheel_axum::{app, site};
use std::{error::Error, net::SocketAddr, sync::mpsc};

/// Serves an axum application.
#[derive(Parser)]
struct Options {
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:7013")]
    listen: SocketAddr,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || stop.send(()).unwrap_or_default())?;
    let runtime = tokio::runtime::Runtime::new()?;
    let group = EventLoopGroup::builder().executor(runtime.handle().clone()).build()?;
    let server = site::serve(&group, app::router(), options.listen)?;
    println!("listening on http://{}", server.local_address());
    stopped.recv()?;
    server.close().detach();
    group.shutdown(ShutdownOptions::default()).wait()?;
    Ok(())
}
