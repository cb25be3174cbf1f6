//! A WebSocket server that echoes each message, and a client that does the same.
//!
//! ```text
//! cargo run --release --features deflate,websocket --example ws_echo
//! cargo run --release --features deflate,websocket --example ws_echo -- --connect 127.0.0.1:9001
//! ```
//!
//! The server echoes at `/`, with permessage-deflate if it is built with the feature `deflate`.
//! Ctrl-C closes the connections with code 1001. The client ends when the server closes the
//! connection.

#[path = "support/output.rs"]
mod output;

use clap::Parser;
#[cfg(feature = "deflate")]
use netwheel::websocket::Deflate;
use netwheel::{
    http::{HttpServer, Part, Request, Response, StatusCode},
    prelude::*,
    shutdown::ShutdownOptions,
    websocket::{Message, WebSocketClient, WebSocketServer, WebSocketSettings},
};
use output::{Output, complain, say};
use std::{net::SocketAddr, process::ExitCode, sync::mpsc, time::Duration};

/// Echoes WebSocket messages.
#[derive(Parser)]
struct Options {
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:9001")]
    listen: SocketAddr,
    /// Address of a server to connect to, instead of listening.
    #[arg(long)]
    connect: Option<SocketAddr>,
    /// Target of the client's request.
    #[arg(long, default_value = "/")]
    target: String,
    /// Longest message in bytes.
    #[arg(long, default_value_t = 16 * 1024 * 1024)]
    max_message: usize,
    /// Largest number of fragments of a message.
    #[arg(long, default_value_t = 1024)]
    max_fragments: u32,
    /// Lets compressed messages refer to earlier ones, which takes memory for each connection.
    #[cfg(feature = "deflate")]
    #[arg(long)]
    context_takeover: bool,
    /// Number of event loops, each on its own thread; 0 selects two per processor.
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

impl Options {
    fn settings(&self) -> WebSocketSettings {
        WebSocketSettings::new().max_message(self.max_message).max_fragments(self.max_fragments)
    }

    #[cfg(feature = "deflate")]
    fn deflate(&self) -> Deflate {
        Deflate::new().context_takeover(self.context_takeover)
    }
}

/// Accepts the handshake at `/`.
struct Site {
    websocket: WebSocketServer,
}

impl Handler for Site {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        let Part::Head(request) = part else { return Ok(()) };
        if request.path() != "/" {
            return ctx.write(Response::from(StatusCode::NOT_FOUND).into());
        }
        match self.websocket.accept(&request) {
            Ok(accepted) => {
                let (response, pipeline) = accepted.into_parts();
                ctx.write(response.into())?;
                ctx.replace_pipeline(pipeline.handler(Echo))
            }
            Err(refusal) => ctx.write((*refusal).into()),
        }
    }
}

struct Echo;

impl Handler for Echo {
    type Read = Message;
    type Write = Message;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Message) -> Result {
        match message {
            Message::Text(_) | Message::Binary(_) => ctx.write(message),
            _ => Ok(()),
        }
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        // Backpressure: stop reading while the outbound buffer is full.
        ctx.set_auto_read(writable);
        Ok(())
    }
}

fn main() -> ExitCode {
    env_logger::init();
    let options = Options::parse();
    let output = Output::start();
    let result = match options.connect {
        Some(address) => connect(&options, address),
        None => serve(&options),
    };
    if let Err(error) = &result {
        complain!("ws_echo: {error:#}");
    }
    output.finish();
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn serve(options: &Options) -> Result {
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || stop.send(()).unwrap_or_default()).map_err(Error::other)?;
    let websocket = WebSocketServer::with(options.settings())?;
    #[cfg(feature = "deflate")]
    let websocket = websocket.deflate(options.deflate())?;
    let http = HttpServer::new();
    let group = EventLoopGroup::builder().threads(options.threads).name("ws").build()?;
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| http.pipeline().handler(Site { websocket: websocket.clone() }))
        .bind(options.listen)?;
    let address = server.local_address();
    say!("listening on {address}");
    stopped.recv().map_err(Error::other)?;
    shut_down(&group)
}

fn connect(options: &Options, address: SocketAddr) -> Result {
    let websocket = WebSocketClient::new(&address.to_string()).with(options.settings())?;
    #[cfg(feature = "deflate")]
    let websocket = websocket.deflate(options.deflate())?;
    let group = EventLoopGroup::builder().threads(1).name("ws").build()?;
    let channel = ClientBootstrap::new(&group)
        .websocket(websocket, &options.target, |accepted| accepted.into_parts().1.handler(Echo))
        .connect(address)
        .wait()?;
    channel.closed().wait()?;
    shut_down(&group)
}

fn shut_down(group: &EventLoopGroup) -> Result {
    group
        .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)))
        .wait()?;
    Ok(())
}
