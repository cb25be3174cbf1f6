//! The example `http_proxy`, between clients and backends that do not do their part.

use crate::support::{
    process::{Process, example},
    tcp::ANY_PORT,
    wait::PATIENCE,
};
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

/// A running `http_proxy`.
struct ProxyExample {
    _process: Process,
    address: String,
}

impl ProxyExample {
    fn start(backend: SocketAddr, arguments: &[&str]) -> Self {
        let (program, backend) = (example("http_proxy"), format!("--backend={backend}"));
        let own = [program.to_str().unwrap(), "--listen", ANY_PORT, "--threads", "1", &backend];
        let mut process = Process::start(&[&own, arguments].concat());
        let address = process.stdout.wait_for("listening on ");
        ProxyExample { _process: process, address }
    }

    fn send(&self, request: &str) -> TcpStream {
        let mut client = TcpStream::connect(&self.address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        client
    }
}

/// Reads up to the end of the head of a request or response.
fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

#[test]
fn clients_that_do_not_read_do_not_keep_the_connections_to_the_backend() {
    let listener = TcpListener::bind(ANY_PORT).unwrap();
    let backend = listener.local_addr().unwrap();
    // Responds without an end to the first request, and with an empty body to the others.
    let server = thread::spawn(move || -> io::Result<()> {
        for kind in ["endless", "empty"] {
            let (mut stream, _) = listener.accept()?;
            assert!(read_head(&mut stream).starts_with(&format!("GET /{kind} ")));
            if kind == "empty" {
                return stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            }
            let length = u64::from(u32::MAX);
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")?;
            // Until the proxy gives up.
            while stream.write(&[b'.'; 65536]).is_ok() {}
        }
        Ok(())
    });
    let proxy = ProxyExample::start(backend, &["--connections", "1", "--write-timeout", "1s"]);
    let mut first = proxy.send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(read_head(&mut first).starts_with("HTTP/1.1 200 "));
    let mut second = proxy.send("GET /empty HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(read_head(&mut second).starts_with("HTTP/1.1 200 "));
    server.join().unwrap().unwrap();
}

/// Like the response to another request.
#[cfg(target_os = "linux")]
#[test]
fn a_websocket_backend_that_does_not_accept_is_answered_with_504() {
    let backend = crate::support::nobody::BlackHole::open();
    let proxy = ProxyExample::start(backend.address, &["--timeout", "300ms"]);
    let mut client = proxy.send(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    assert!(read_head(&mut client).starts_with("HTTP/1.1 504 "));
}
