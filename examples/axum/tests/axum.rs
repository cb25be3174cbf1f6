//! The application under netwheel answers as under hyper, and netwheel's own path beside it.

use netwheel::{EventLoopGroup, Server, prelude::*, shutdown::ShutdownOptions};
use netwheel_axum::{app, site};
use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
    time::Duration,
};
use tokio::runtime::{Builder, Runtime};

/// The time after which a test that waits fails.
const PATIENCE: Duration = Duration::from_secs(60);

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// The application on netwheel.
struct Netwheel {
    group: EventLoopGroup,
    _server: Server,
    address: SocketAddr,
    _runtime: Runtime,
}

fn netwheel() -> Netwheel {
    let runtime = runtime();
    let group = EventLoopGroup::builder().threads(1).executor(runtime.handle().clone()).build().unwrap();
    let server = site::serve(&group, app::router(), SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = server.local_address();
    Netwheel { group, _server: server, address, _runtime: runtime }
}

/// The application on hyper.
fn hyper() -> (SocketAddr, Runtime) {
    let runtime = runtime();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let app = app::router().into_make_service_with_connect_info::<SocketAddr>();
    runtime.spawn(async move { axum::serve(listener, app).await });
    (address, runtime)
}

/// Sends a request that is the last one of its connection, in pieces of this length. Returns the
/// head and the body.
fn ask(address: SocketAddr, request: &[u8], piece: usize) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let request = request.to_vec();
    let writing = std::thread::spawn(move || {
        // A server that refuses a request may close before it has read all of it.
        let _ = request.chunks(piece).try_for_each(|piece| writer.write_all(piece));
    });
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    writing.join().unwrap();
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
    let body = answer.split_off(end);
    (String::from_utf8(answer).unwrap(), body)
}

/// Returns the head without the date, in lower case and sorted: its order does not matter.
fn lines(head: &str) -> Vec<String> {
    let mut lines: Vec<String> = head
        .lines()
        .map(str::to_ascii_lowercase)
        .filter(|line| !line.is_empty() && !line.starts_with("date:"))
        .collect();
    lines.sort();
    lines
}

/// Decodes the chunked encoding.
fn dechunked(mut body: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let line = body.windows(2).position(|bytes| bytes == b"\r\n").expect("a line");
        let length = usize::from_str_radix(std::str::from_utf8(&body[..line]).unwrap(), 16).unwrap();
        body = &body[line + 2..];
        if length == 0 {
            assert_eq!(body, b"\r\n");
            return all;
        }
        all.extend_from_slice(&body[..length]);
        body = &body[length + 2..];
    }
}

fn request(method: &str, target: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}");
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    [head.as_bytes(), length.as_bytes(), b"\r\n", body].concat()
}

#[test]
fn each_route_answers_as_under_hyper() {
    const JSON: &str = "Content-Type: application/json\r\n";
    let ours = netwheel();
    let (theirs, _runtime) = hyper();
    let large: Vec<u8> = (0..1 << 20).map(|n| b"abcdefghijklmnopqrstuvwxyz0123456789"[n % 36]).collect();
    let requests = [
        request("GET", "/", "", b""),
        request("HEAD", "/", "", b""),
        request("OPTIONS", "/", "", b""),
        request("DELETE", "/", "", b""),
        request("GET", "/nowhere", "", b""),
        request("GET", "/hello/Ada%20L", "", b""),
        request("GET", "http://localhost/hello/absolute", "", b""),
        request("GET", "/search?q=axum&page=2", "", b""),
        request("GET", "/search", "", b""),
        request("POST", "/sum", JSON, b"[1, 2, 3]"),
        request("POST", "/sum", JSON, b"[1, 2"),
        request("POST", "/sum", "", b"[1, 2]"),
        request("GET", "/count/5", "", b""),
        request("GET", "/count/20000", "", b""),
        request("POST", "/upper", "", b"text"),
        request("POST", "/upper", "", &large),
        request("PUT", "/length", "", &large),
        request("PUT", "/length", "Transfer-Encoding: chunked\r\n", b"")
            .into_iter()
            .chain(*b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n")
            .collect(),
        request("GET", "/slow", "", b""),
        request("GET", "/handoff", "", b""),
        request("GET", "/me", "", b""),
    ];
    for request in &requests {
        let first = String::from_utf8_lossy(&request[..request.len().min(60)]).into_owned();
        for piece in [request.len(), 7.max(request.len() / 50)] {
            let (our_head, our_body) = ask(ours.address, request, piece);
            let (their_head, their_body) = ask(theirs, request, piece);
            assert_eq!(lines(&our_head), lines(&their_head), "{first}");
            if our_head.contains("Transfer-Encoding") {
                assert!(dechunked(&our_body) == dechunked(&their_body), "{first}");
            } else {
                assert!(our_body == their_body, "{first}");
            }
        }
    }
}

#[test]
fn a_panic_is_answered_with_500() {
    let ours = netwheel();
    let (head, _) = ask(ours.address, &request("GET", "/panic", "", b""), 1000);
    assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
    let (head, _) = ask(ours.address, &request("GET", "/", "", b""), 1000);
    assert!(head.starts_with("HTTP/1.1 200 "), "the other connections go on: {head}");
}

#[test]
fn a_websocket_of_netwheel_is_on_the_same_port() {
    let ours = netwheel();
    let stream = TcpStream::connect(ours.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let url = format!("ws://{}/ws", ours.address);
    let (mut socket, response) = tungstenite::client(url, stream).unwrap();
    assert_eq!(response.status(), 101);
    for text in ["hello", "again"] {
        socket.send(text.into()).unwrap();
        assert_eq!(socket.read().unwrap().into_text().unwrap(), text);
    }
    socket.close(None).unwrap();
    let (head, _) = ask(ours.address, &request("GET", "/ws", "", b""), 1000);
    assert!(head.starts_with("HTTP/1.1 400 "), "not a handshake: {head}");
}

#[test]
fn a_connection_may_change_to_websocket_behind_ordinary_requests() {
    let ours = netwheel();
    let mut stream = TcpStream::connect(ours.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /handoff HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"done\n") {
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    let url = format!("ws://{}/ws", ours.address);
    let (mut socket, _) = tungstenite::client(url, stream).unwrap();
    socket.send("hello".into()).unwrap();
    assert_eq!(socket.read().unwrap().into_text().unwrap(), "hello");
}

#[test]
fn a_shutdown_completes_the_response() {
    let ours = netwheel();
    let mut stream = TcpStream::connect(ours.address).unwrap();
    stream.write_all(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    // The first byte of a response to `HEAD` shows that the loop works; the slow request is there.
    ask(ours.address, &request("HEAD", "/", "", b""), 1000);
    let report = ours.group.shutdown(ShutdownOptions::new().timeout(PATIENCE));
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nslow\n"), "{answer}");
    report.wait_timeout(PATIENCE).unwrap_or_else(|_| panic!("the shutdown ends")).unwrap();
}

/// Runs curl, if it is installed.
fn curl(arguments: &[&str]) -> Option<String> {
    let own = ["--silent", "--show-error", "--max-time", "60"];
    let output = Command::new("curl").args(own).args(arguments).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn curl_uploads_behind_100_continue() {
    let ours = netwheel();
    let path = std::env::temp_dir().join(format!("netwheel-axum-{}", std::process::id()));
    fs::write(&path, vec![b'x'; 3 << 20]).unwrap();
    let (upload, url) = (path.to_str().unwrap(), format!("http://{}/length", ours.address));
    let expect = ["-H", "Expect: 100-continue", "--expect100-timeout", "60"];
    let answer = curl(&[&["-T", upload, &url][..], &expect].concat());
    fs::remove_file(&path).unwrap();
    assert!(answer.is_none_or(|answer| answer == "3145728\n"));
}

#[test]
fn the_application_runs_over_tls() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificate = netwheel::tls::TlsCertificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    let tls = netwheel::tls::TlsServer::builder(certificate).build().unwrap();
    let runtime = runtime();
    let group = EventLoopGroup::builder().threads(1).executor(runtime.handle().clone()).build().unwrap();
    let (http, app) = (netwheel::http::HttpServer::new(), site::app(app::router()));
    let server = ServerBootstrap::new(&group)
        .tls(tls)
        .pipeline(move |_peer| http.pipeline().handler(app.handler()))
        .bind("127.0.0.1:0")
        .unwrap();
    let port = server.local_address().port();
    let path = std::env::temp_dir().join(format!("netwheel-axum-{}.pem", std::process::id()));
    fs::write(&path, chain).unwrap();
    let trust = ["--cacert", path.to_str().unwrap()];
    let url = |path: &str| format!("https://localhost:{port}{path}");
    let hello = curl(&[&trust[..], &[&url("/hello/TLS")]].concat());
    let upload = path.with_extension("upload");
    fs::write(&upload, "a".repeat(1 << 20)).unwrap();
    let data = format!("@{}", upload.display());
    let upper = curl(&[&trust[..], &["--data-binary", &data, &url("/upper")]].concat());
    fs::remove_file(&path).unwrap();
    fs::remove_file(&upload).unwrap();
    assert!(hello.is_none_or(|hello| hello == "Hello, TLS!\n"));
    assert!(upper.is_none_or(|upper| upper == "A".repeat(1 << 20)));
}
