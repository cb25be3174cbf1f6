//! An HTTP/1.1 server without a router.
//!
//! ```text
//! cargo run --release --features http --example http_server
//! curl http://127.0.0.1:8000/                   # a small body
//! curl --data-binary @file http://127.0.0.1:8000/   # the body is streamed back
//! curl -N http://127.0.0.1:8000/clock           # server-sent events
//! ```
//!
//! `/empty` answers 204. Ctrl-C stops the server after the responses in progress.

#[path = "support/output.rs"]
mod output;

use clap::Parser;
use netwheel::{
    channel::ChannelOptions,
    http::{Headers, HttpServer, HttpSettings, Part, Request, Response, ServerSentEvent, StatusCode},
    prelude::*,
    shutdown::ShutdownOptions,
};
use output::{Output, complain, say};
use std::{net::SocketAddr, process::ExitCode, sync::mpsc, time::Duration};

/// Serves a small body, an echo of bodies, and a clock.
#[derive(Parser)]
struct Options {
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// Longest body of a request in bytes.
    #[arg(long, default_value_t = 1 << 30)]
    max_body: u64,
    /// Time from the first byte of a request to the end of its head.
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    head_time: Duration,
    /// Time in which each next 1 KiB of a body must arrive.
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    body_time: Duration,
    /// Time that a connection may be idle between two requests.
    #[arg(long, default_value = "75s", value_parser = humantime::parse_duration)]
    keep_alive: Duration,
    /// Number of event loops, each on its own thread; 0 selects two per processor.
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

struct Site {
    /// The headers of the small body, which all responses share.
    headers: Headers,
    /// Whether the body of the current request is echoed.
    echoes: bool,
    ticks: u64,
}

impl Site {
    fn new() -> Self {
        let headers = Headers::new().with("Content-Type", "text/plain; charset=utf-8").shared();
        Site { headers, echoes: false, ticks: 0 }
    }

    fn respond(&mut self, ctx: &mut Context<'_, Self>, request: &Request) -> Result {
        let response = match (request.method(), request.path()) {
            ("GET" | "HEAD", "/") => Response::ok("Hello, World!\n").with_headers(self.headers.clone()),
            ("POST", "/") => {
                let body = request.announced_body().clone();
                self.echoes = body.is_streamed();
                Response::ok(body).header("Content-Type", "application/octet-stream")
            }
            (_, "/empty") => Response::new(StatusCode::NO_CONTENT),
            ("GET", "/clock") => {
                ctx.write(Response::event_stream().into())?;
                return self.tick(ctx);
            }
            (_, "/") => Response::from(StatusCode::METHOD_NOT_ALLOWED).header("Allow", "GET, HEAD, POST"),
            (_, "/clock") => Response::from(StatusCode::METHOD_NOT_ALLOWED).header("Allow", "GET"),
            _ => Response::from(StatusCode::NOT_FOUND),
        };
        ctx.write(response.into())
    }

    /// Sends the seconds since the first event, once per second.
    fn tick(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let event =
            ServerSentEvent::data(format!("{} s", self.ticks)).name("tick").id(self.ticks.to_string());
        self.ticks += 1;
        ctx.write(event.into_part()?)?;
        ctx.schedule(Duration::from_secs(1), Site::tick);
        Ok(())
    }
}

impl Handler for Site {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        match part {
            Part::Head(request) => self.respond(ctx, &request),
            Part::Body(bytes) if self.echoes => ctx.write(Part::Body(bytes)),
            Part::End(trailers) if self.echoes => {
                self.echoes = false;
                ctx.write(Part::End(trailers))
            }
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
    let result = run(&options);
    if let Err(error) = &result {
        complain!("http_server: {error:#}");
    }
    output.finish();
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(options: &Options) -> Result {
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || stop.send(()).unwrap_or_default()).map_err(Error::other)?;
    let settings = HttpSettings::new()
        .max_body(options.max_body)
        .head_timeout(options.head_time)
        .body_timeout(options.body_time)
        .keep_alive_timeout(options.keep_alive);
    let http = HttpServer::with(settings)?;
    let group = EventLoopGroup::builder().threads(options.threads).name("http").build()?;
    let server = ServerBootstrap::new(&group)
        .channel_options(ChannelOptions::new().half_close(true))
        .pipeline(move |_peer| http.pipeline().handler(Site::new()))
        .bind(options.listen)?;
    let address = server.local_address();
    say!("try: curl http://{address}/");
    say!("listening on {address}");
    stopped.recv().map_err(Error::other)?;
    group
        .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)))
        .wait()?;
    Ok(())
}
