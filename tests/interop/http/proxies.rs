//! nginx and haproxy in front: we see no more requests than they have forwarded.

use super::differential::{ATTACKS, Attack, Case};
use crate::{
    interop::files::Files,
    support::{
        process::{Process, are_installed},
        tcp::ANY_PORT,
        wait::{PATIENCE, wait_until},
    },
};
use netwheel::{
    http::{HttpServer, Part, Request, Response, StatusCode},
    prelude::*,
};
use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr},
    os::unix::net::UnixStream,
    sync::{Arc, Mutex},
};

/// Generated streams for each proxy.
const STREAMS: u64 = 200;

/// The number of requests by the last segment of their paths.
type Counts = BTreeMap<String, usize>;

/// Counts requests, and answers each with 404 when it is complete.
#[derive(Clone, Default)]
struct Counter(Arc<Mutex<Counts>>);

impl Handler for Counter {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        match part {
            Part::Head(request) => count(&mut self.0.lock().unwrap(), request.target()),
            Part::Body(_) => {}
            Part::End(_) => return ctx.write(Response::new(StatusCode::NOT_FOUND).into()),
        }
        Ok(())
    }
}

fn count(counts: &mut Counts, target: &str) {
    let segment = target.rsplit('/').next().unwrap_or_default();
    *counts.entry(segment.to_owned()).or_default() += 1;
}

/// A proxy that listens on the socket `front` in its directory, and writes the file `log`.
struct Proxy {
    _process: Process,
    files: Files,
}

impl Proxy {
    fn start(command: &[&str], configuration: impl FnOnce(&Files) -> String) -> Self {
        let files = Files::new();
        let path = files.path("configuration");
        fs::write(&path, configuration(&files)).unwrap();
        let process = Process::start(&[command, &[&path]].concat());
        let proxy = Proxy { _process: process, files };
        wait_until("the proxy listens", || UnixStream::connect(proxy.files.path("front")).is_ok());
        proxy
    }

    /// Sends a stream, and waits until the proxy has closed the connection.
    fn send(&self, stream: &[u8]) -> Vec<u8> {
        let mut client = UnixStream::connect(self.files.path("front")).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        // The proxy may have closed the connection before the end of the stream.
        let _ = client.write_all(stream).and_then(|()| client.shutdown(Shutdown::Write));
        let mut answers = Vec::new();
        let _ = client.read_to_end(&mut answers);
        answers
    }

    /// Counts the requests in its log: each line has the server, or a mark, and the target.
    fn forwarded(&self) -> Counts {
        let log = fs::read(self.files.path("log")).unwrap();
        let mut counts = Counts::new();
        for line in String::from_utf8_lossy(&log).lines() {
            let (server, target) = line.split_once(' ').unwrap_or_default();
            if server != "-" && server != "<NOSRV>" {
                count(&mut counts, target);
            }
        }
        counts
    }
}

/// Sends valid requests, changed ones and attacks through a proxy.
fn send_streams_through(start: impl FnOnce(SocketAddr) -> Proxy) {
    let seen = Counter::default();
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let http = HttpServer::new();
    let counter = seen.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| http.pipeline().handler(counter.clone()))
        .bind(ANY_PORT.parse::<SocketAddr>().unwrap())
        .unwrap();
    let proxy = start(server.local_address());
    for seed in 0..STREAMS {
        proxy.send(&Case::generate(seed).stream);
    }
    for attack in ATTACKS.iter().map(Attack::stream) {
        proxy.send(&attack);
    }
    let answer = proxy.send(b"GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with(b"HTTP/1.1 404 "), "{}", answer.escape_ascii());
    let seen = seen.0.lock().unwrap().clone();
    assert_eq!(seen["end"], 1);
    assert!(seen.values().sum::<usize>() > 100, "{seen:?}");
    println!("seen {seen:?}\nforwarded {:?}", proxy.forwarded());
    // A proxy logs a request after it has closed the connection.
    wait_until("each request that was seen has been forwarded", || {
        let forwarded = proxy.forwarded();
        seen.iter().all(|(segment, count)| forwarded.get(segment).is_some_and(|n| n >= count))
    });
}

#[test]
fn nginx_forwards_each_request_that_we_see() {
    if !are_installed(&["nginx"]) {
        return;
    }
    let start = |server: SocketAddr| {
        Proxy::start(&["nginx", "-c"], |files| {
            let directory = files.path("");
            format!(
                "daemon off; master_process off; pid {directory}pid; error_log {directory}errors;
                events {{}}
                http {{
                    client_body_temp_path {directory}body; proxy_temp_path {directory}proxy;
                    fastcgi_temp_path {directory}fastcgi; uwsgi_temp_path {directory}uwsgi;
                    scgi_temp_path {directory}scgi;
                    log_format forwarded escape=none '$upstream_addr $request_uri';
                    access_log {directory}log forwarded;
                    upstream back {{ server {server}; keepalive 4; }}
                    server {{
                        listen unix:{directory}front;
                        location / {{
                            proxy_pass http://back;
                            proxy_http_version 1.1;
                            proxy_set_header Connection '';
                            proxy_request_buffering off;
                            proxy_ignore_client_abort on;
                            proxy_next_upstream off;
                        }}
                    }}
                }}"
            )
        })
    };
    send_streams_through(start);
}

#[test]
fn haproxy_forwards_each_request_that_we_see() {
    if !are_installed(&["haproxy"]) {
        return;
    }
    let start = |server: SocketAddr| {
        // haproxy does not log to files.
        Proxy::start(&["sh", "-c", "exec haproxy -db -f \"$0\" > \"${0%/*}/log\""], |files| {
            let front = files.path("front");
            format!(
                "global
                    log stdout format raw local0 info
                defaults
                    mode http
                    timeout connect 30s
                    timeout client 60s
                    timeout server 60s
                    retries 0
                    http-reuse always
                    log global
                    # The server is <NOSRV> if a request was not forwarded.
                    log-format \"%s %HU\"
                listen front
                    bind unix@{front}
                    server back {server}\n"
            )
        })
    };
    send_streams_through(start);
}
