//! A server that looks users up through an HTTP API, with an async client on tokio.
//!
//! ```text
//! cargo run --release --manifest-path examples/lookups/Cargo.toml --bin http_lookup
//! nc 127.0.0.1 7011            # type 1, 2 or 3: a user's number
//! ```
//!
//! The handlers run on netwheel's event loops, the HTTP client on a tokio runtime. `ctx.spawn` runs
//! a future there, and the answer comes back to the handler. When a client of this server
//! disconnects, its pending HTTP request is dropped. Without `--api` the program starts a small
//! HTTP API itself, so it works offline. Ctrl-C stops the server.

use bytes::Bytes;
use clap::Parser;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use netwheel::{
    channel::ChannelOptions, codec::Line, error::BoxError, prelude::*, shutdown::ShutdownOptions,
};
use std::{net::SocketAddr, sync::mpsc, time::Duration};
use tokio::runtime::Runtime;

/// Looks users up through an HTTP API.
#[derive(Parser)]
struct Options {
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:7011")]
    listen: SocketAddr,
    /// Base URL of the API: users are at URL/users/NUMBER. The default is an API in this program.
    #[arg(long)]
    api: Option<String>,
}

/// The longest answer that is read, in bytes.
const MAX_ANSWER: usize = 4096;

/// Time limit of a request to the API.
const PATIENCE: Duration = Duration::from_secs(30);

/// Requests that one connection may have pending.
const MAX_REQUESTS: usize = 8;

/// The HTTP API. Clones share its connections.
#[derive(Clone)]
struct Api {
    client: Client<HttpConnector, Empty<Bytes>>,
    base: String,
}

impl Api {
    /// Returns the name of a user. Runs on tokio.
    async fn name_of(&self, id: u32) -> Result<Option<Bytes>, BoxError> {
        let response = self.client.get(format!("{}/users/{id}", self.base).parse()?).await?;
        let status = response.status();
        if status.as_u16() == 404 {
            return Ok(None);
        }
        if !status.is_success() {
            return Err(format!("the API answered {status}").into());
        }
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await?.to_bytes();
        Ok(Some(body.trim_ascii_end().to_vec().into()))
    }
}

/// Answers each line, a user's number, with the number and the user's name, in the order in which
/// the API answers.
struct Lookup {
    api: Api,
}

impl Handler for Lookup {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        let Some(id) = std::str::from_utf8(&line).ok().and_then(|id| id.trim().parse().ok()) else {
            return ctx.write("not a number".into());
        };
        let api = self.api.clone();
        let request = async move { tokio::time::timeout(PATIENCE, api.name_of(id)).await };
        let spawned = ctx.spawn(request, move |_, ctx, name| {
            // The outer error is a panic of the future, or the end of the runtime.
            let answer = match name? {
                Ok(Ok(Some(name))) => String::from_utf8_lossy(&name).into_owned(),
                Ok(Ok(None)) => "unknown".to_owned(),
                Ok(Err(error)) => {
                    log::warn!("user {id}: {error}");
                    "API error".to_owned()
                }
                Err(_elapsed) => "the API is too slow".to_owned(),
            };
            ctx.write(format!("{id} {answer}").into())
        });
        match spawned {
            Ok(_) => Ok(()),
            // The limit of pending requests. The future comes back, and is dropped here.
            Err(_) => ctx.write(format!("{id} busy").into()),
        }
    }
}

/// Returns the status and the body for a path.
fn answer(path: &str) -> (&'static str, &'static str) {
    match path {
        "/users/1" => ("200 OK", "Ada"),
        "/users/2" => ("200 OK", "Grace"),
        "/users/3" => ("200 OK", "Edsger"),
        "/users/13" => ("503 Service Unavailable", "try again"),
        _ => ("404 Not Found", "no such user"),
    }
}

/// The API of this program: just enough of HTTP for requests without a body.
#[derive(Default)]
struct LocalApi {
    path: Option<String>,
}

impl Handler for LocalApi {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        if !line.is_empty() {
            let line = String::from_utf8_lossy(&line);
            // The request line is the first line; the headers that follow do not matter here.
            self.path.get_or_insert_with(|| line.split(' ').nth(1).unwrap_or("/").to_owned());
            return Ok(());
        }
        let Some(path) = self.path.take() else { return Ok(()) };
        let (status, body) = answer(&path);
        ctx.write(format!("HTTP/1.1 {status}").into())?;
        // The codec ends each line, that of the body too, with two bytes.
        ctx.write(format!("content-length: {}", body.len() + 2).into())?;
        ctx.write(Bytes::new())?;
        ctx.write(body.into())
    }
}

struct Service {
    group: EventLoopGroup,
    server: Server,
    // Stops with the program, after the group.
    _runtime: Runtime,
}

/// Starts the server, and the API in this program if no other is given.
fn start(listen: SocketAddr, api: Option<String>) -> Result<Service> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(Error::other)?;
    let executor = runtime.handle().clone();
    let group = EventLoopGroup::builder().threads(2).name("lookup").executor(executor).build()?;
    let base = match api {
        Some(base) => base,
        None => {
            let api = ServerBootstrap::new(&group)
                .pipeline(|_peer| Pipeline::codec(Line::new().crlf()).handler(LocalApi::default()))
                .bind("127.0.0.1:0")?;
            format!("http://{}", api.local_address())
        }
    };
    let client = Client::builder(TokioExecutor::new()).build_http();
    let api = Api { client, base };
    let server = ServerBootstrap::new(&group)
        .channel_options(ChannelOptions::new().max_scheduled_tasks(MAX_REQUESTS))
        .pipeline(move |_peer| Pipeline::codec(Line::new().max_len(64)).handler(Lookup { api: api.clone() }))
        .bind(listen)?;
    Ok(Service { group, server, _runtime: runtime })
}

fn main() -> Result {
    let options = Options::parse();
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || stop.send(()).unwrap_or_default()).map_err(Error::other)?;
    let service = start(options.listen, options.api)?;
    println!("listening on {}", service.server.local_address());
    stopped.recv().map_err(Error::other)?;
    service
        .group
        .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)))
        .wait()
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{BufRead, BufReader, Read, Write},
        net::{TcpListener, TcpStream},
    };

    fn listen() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    fn ask(service: &Service, questions: &str) -> BufReader<TcpStream> {
        let address: SocketAddr = service.server.local_address().to_string().parse().unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(questions.as_bytes()).unwrap();
        BufReader::new(stream)
    }

    #[test]
    fn every_question_is_answered() {
        let service = start(listen(), None).unwrap();
        let clients: Vec<_> = (0..4).map(|_| ask(&service, "1\n2\nx\n3\n4\n13\n")).collect();
        for client in clients {
            let mut answers: Vec<_> = client.lines().take(6).map(|line| line.unwrap()).collect();
            answers.sort();
            let all = ["1 Ada", "13 API error", "2 Grace", "3 Edsger", "4 unknown", "not a number"];
            assert_eq!(answers, all);
        }
        service
            .group
            .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)))
            .wait()
            .unwrap();
    }

    #[test]
    fn the_requests_of_a_connection_are_limited() {
        // An API that never answers.
        let api = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = start(listen(), Some(format!("http://{}", api.local_addr().unwrap()))).unwrap();
        let client = ask(&service, &"1\n".repeat(MAX_REQUESTS + 1));
        assert_eq!(client.lines().next().unwrap().unwrap(), "1 busy");
    }

    #[test]
    fn a_client_that_leaves_takes_its_request_along() {
        // An API that never answers.
        let api = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = start(listen(), Some(format!("http://{}", api.local_addr().unwrap()))).unwrap();
        let client = ask(&service, "1\n");
        let (mut request, _) = api.accept().unwrap();
        let mut first = [0; 4];
        request.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"GET ");
        drop(client);
        // The HTTP client closes its connection, so the stream ends.
        request.read_to_end(&mut Vec::new()).unwrap();
    }
}
