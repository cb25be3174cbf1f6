//! slowhttptest: connections that send or read slowly are closed by the limits, and others are
//! served in the meantime.

use super::example::HttpExample;
use crate::support::{
    process::are_installed,
    tcp::{ANY_PORT, connect, read_n},
    wait::SECOND,
};
use netwheel::{
    channel::TimeLimits,
    http::{HttpServer, Part, Request, Response, StaticBody},
    net::TcpOptions,
    prelude::*,
};
use std::{
    io::Write,
    net::SocketAddr,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

const CONNECTIONS: usize = 300;

/// Returns the command that opens the slow connections.
fn slow_clients(address: &str, mode: &[&str]) -> Command {
    let count = CONNECTIONS.to_string();
    let mut command = Command::new("slowhttptest");
    command.args(mode).args(["-c", &count, "-r", &count, "-l", "120", "-p", "30"]);
    command.args(["-u", &format!("http://{address}/")]).stdout(Stdio::piped());
    command
}

/// Makes requests as long as the attack lasts.
#[track_caller]
fn serve_during(address: &str, body: usize, mut attack_lasts: impl FnMut() -> bool) {
    let answer = answer_length(address, body);
    let mut client = connect(address.parse().unwrap());
    let mut served = 0;
    while attack_lasts() {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let head = read_n(&mut client, answer);
        assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", head.escape_ascii());
        served += 1;
    }
    assert!(served > 1, "{served} requests were answered");
}

/// Opens slow connections until the server has closed all.
#[track_caller]
fn attack(server: &HttpExample, mode: &[&str]) {
    let slow = slow_clients(&server.address, mode).spawn().unwrap();
    let report = thread::spawn(move || slow.wait_with_output().unwrap().stdout);
    serve_during(&server.address, "Hello, World!\n".len(), || !report.is_finished());
    let report = String::from_utf8_lossy(&report.join().unwrap()).into_owned();
    assert!(report.contains("No open connections left") && !report.contains("NO\u{1b}"), "{report}");
}

/// Returns the length of the answer to `GET /`.
fn answer_length(address: &str, body: usize) -> usize {
    let mut client = connect(address.parse().unwrap());
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(read_n(&mut client, 1));
    }
    head.len() + body
}

#[test]
fn slow_heads_are_closed_while_others_are_served() {
    if !are_installed(&["slowhttptest"]) {
        return;
    }
    let server = HttpExample::start(&["--head-time", "1s"]);
    attack(&server, &["-H", "-i", "1", "-x", "8"]);
    server.stop();
}

#[test]
fn slow_bodies_are_closed_while_others_are_served() {
    if !are_installed(&["slowhttptest"]) {
        return;
    }
    let server = HttpExample::start(&["--body-time", "1s"]);
    attack(&server, &["-B", "-i", "1", "-s", "100000"]);
    server.stop();
}

/// Answers each request with a large page, and counts clients that do not read it.
#[derive(Clone)]
struct Page {
    body: StaticBody,
    timeouts: Arc<AtomicUsize>,
}

impl Handler for Page {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        if let Part::Head(request) = part { ctx.write(self.body.respond(&request).into()) } else { Ok(()) }
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
        if let Error::TimedOut { .. } = error {
            self.timeouts.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[test]
fn slow_readers_are_closed_while_others_are_served() {
    if !are_installed(&["slowhttptest"]) {
        return;
    }
    const LENGTH: usize = 128 * 1024;
    let body = StaticBody::new("text/plain", vec![b'a'; LENGTH]);
    let page = Page { body, timeouts: Arc::default() };
    let timeouts = page.timeouts.clone();
    let http = HttpServer::new();
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let server = ServerBootstrap::new(&group)
        .tcp_options(TcpOptions::new().send_buffer(16 * 1024))
        .pipeline(move |_| http.pipeline().time_limits(TimeLimits::new().write(SECOND)).handler(page.clone()))
        .bind(ANY_PORT.parse::<SocketAddr>().unwrap())
        .unwrap();
    let address = server.local_address().to_string();
    // These clients notice the end of a connection after they have read all bytes before it.
    let mut slow =
        slow_clients(&address, &["-X", "-w", "100", "-y", "200", "-n", "1", "-z", "32"]).spawn().unwrap();
    serve_during(&address, LENGTH, || timeouts.load(Ordering::Relaxed) < CONNECTIONS);
    slow.kill().unwrap();
    slow.wait().unwrap();
}
