//! The example `gateway` between TLS clients and plain backends.

use crate::{
    interop::{files::Files, tls_echo::self_signed},
    support::{
        nobody::Nobody,
        process::{Process, example},
        tcp::ANY_PORT,
        wait::PATIENCE,
    },
};
use bytes::Bytes;
use netwheel::{
    channel::ChannelOptions,
    codec::RawBytes,
    prelude::*,
    proxy::ProxyHeader,
    tls::{TlsClient, TlsRoots},
};
use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    time::Duration,
};

/// A running gateway and clients for it.
struct Gateway {
    process: Process,
    address: SocketAddr,
    tls: TlsClient,
    group: EventLoopGroup,
    _files: Files,
}

impl Gateway {
    fn start(backends: &[SocketAddr], arguments: &[&str]) -> Self {
        let files = Files::new();
        let (certificate, key) = self_signed(&files, "localhost");
        let program = example("gateway");
        let own = [program.to_str().unwrap(), "--listen", ANY_PORT, "--cert", &certificate, "--key", &key];
        let backends: Vec<_> = backends.iter().map(|address| format!("--backend={address}")).collect();
        let backends: Vec<_> = backends.iter().map(String::as_str).collect();
        let mut process = Process::start(&[&own, &backends[..], arguments].concat());
        let address = process.stdout.wait_for("listening on ").parse().unwrap();
        let roots = TlsRoots::from_pem_file(&certificate).unwrap();
        let tls = TlsClient::builder(roots).server_name("localhost").build().unwrap();
        let group = EventLoopGroup::builder().threads(1).build().unwrap();
        Gateway { process, address, tls, group, _files: files }
    }

    /// Connects a client, which a load balancer announces with this address.
    fn connect(&self, announced: Option<SocketAddr>) -> Result<Client> {
        let (sender, input) = channel();
        let destination = self.address;
        let mut client = ClientBootstrap::new(&self.group)
            .channel_options(ChannelOptions::new().half_close(true))
            .tls(self.tls.clone());
        if let Some(source) = announced {
            client = client.proxy_protocol(move |_| ProxyHeader::v2(source, destination));
        }
        let channel = client
            .pipeline(move |_| Pipeline::codec(RawBytes).handler(Collector { sender: Some(sender.clone()) }))
            .connect(self.address)
            .wait()?;
        Ok(Client { channel, input })
    }
}

struct Client {
    channel: Channel<Bytes>,
    input: Receiver<Option<Bytes>>,
}

impl Client {
    fn write(&self, bytes: impl Into<Bytes>) {
        self.channel.write(bytes.into()).unwrap();
    }

    /// Returns all input until the server ends its stream with close_notify.
    #[track_caller]
    fn read_to_end(&self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(bytes) = self.input.recv_timeout(PATIENCE).expect("a clean end") {
            all.extend_from_slice(&bytes);
        }
        all
    }

    /// Waits for an error instead of input.
    #[track_caller]
    fn fail(&self) {
        assert_eq!(self.input.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
    }
}

/// Sends the input to the test, and `None` when the server has ended its stream. After an error it
/// drops the sender.
struct Collector {
    sender: Option<Sender<Option<Bytes>>>,
}

impl Collector {
    fn send(&self, input: Option<Bytes>) {
        if let Some(sender) = &self.sender {
            // The test may have ended.
            let _ = sender.send(input);
        }
    }
}

impl Handler for Collector {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, bytes: Bytes) -> Result {
        self.send(Some(bytes));
        Ok(())
    }

    fn read_closed(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.send(None);
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, _: Error) -> Result {
        self.sender = None;
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        // Instead of `read_closed` if this side had already ended its own stream.
        self.send(None);
        Ok(())
    }
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(ANY_PORT).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Returns the connection of the next client.
fn accept(listener: &TcpListener) -> TcpStream {
    let stream = listener.accept().unwrap().0;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn a_client_that_ends_its_stream_still_gets_the_whole_answer() {
    let (listener, backend) = listen();
    let gateway = Gateway::start(&[backend], &[]);
    let client = gateway.connect(None).unwrap();
    let question: Vec<u8> = (0..300_000_u32).map(|n| n as u8).collect();
    client.write(question.clone());
    client.channel.shutdown_write();
    let mut stream = accept(&listener);
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert!(received == question, "{} bytes", received.len());
    let answer = vec![7; 3_000_000];
    stream.write_all(&answer).unwrap();
    drop(stream);
    let received = client.read_to_end();
    assert!(received == answer, "{} bytes", received.len());
    client.channel.closed().wait().unwrap();
}

#[test]
fn a_backend_that_ends_its_stream_still_gets_the_rest_of_the_client() {
    let (listener, backend) = listen();
    let gateway = Gateway::start(&[backend], &[]);
    let client = gateway.connect(None).unwrap();
    let mut stream = accept(&listener);
    stream.write_all(b"bye").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read_to_end(), b"bye");
    client.write("the rest");
    client.channel.close();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "the rest");
}

#[test]
fn clients_get_the_backends_in_turn_and_the_next_one_if_a_backend_is_down() {
    let ((first, first_address), (second, second_address)) = (listen(), listen());
    let down = Nobody::new();
    let gateway = Gateway::start(&[first_address, down.address, second_address], &[]);
    for listener in [&first, &second, &second, &first] {
        let client = gateway.connect(None).unwrap();
        let mut stream = accept(listener);
        client.write("hello");
        let mut received = [0; 5];
        stream.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"hello");
    }
}

#[test]
fn a_client_is_reset_if_no_backend_can_be_reached() {
    let down = Nobody::new();
    let gateway = Gateway::start(&[down.address], &[]);
    // The connection may end before `connect` completes.
    if let Ok(client) = gateway.connect(None) {
        client.fail();
    }
}

#[test]
fn the_announced_address_is_limited_and_passed_on() {
    let (listener, backend) = listen();
    let arguments = ["--proxy-from", "127.0.0.0/8", "--announce", "--max-per-ip", "1"];
    let gateway = Gateway::start(&[backend], &arguments);
    let mut open = Vec::new();
    for source in ["192.0.2.1:1000", "192.0.2.2:2000"] {
        let source = source.parse().unwrap();
        let client = gateway.connect(Some(source)).unwrap();
        let mut stream = accept(&listener);
        let mut received = [0; 28];
        stream.read_exact(&mut received).unwrap();
        let (header, len) = ProxyHeader::parse(&received, ProxyHeader::DEFAULT_MAX_LEN).unwrap().unwrap();
        assert_eq!((header.source(), header.destination(), len), (Some(source), Some(gateway.address), 28));
        open.push((client, stream));
    }
    // The gateway counts an announced address after the handshake.
    if let Ok(third) = gateway.connect(Some("192.0.2.1:3000".parse().unwrap())) {
        third.fail();
    }
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().map(drop).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn a_drain_waits_for_open_connections_and_refuses_new_ones() {
    let (listener, backend) = listen();
    let mut gateway = Gateway::start(&[backend], &["--drain", "60s"]);
    let client = gateway.connect(None).unwrap();
    let mut stream = accept(&listener);
    gateway.process.signal("TERM");
    gateway.process.stdout.wait_for("draining 1 connections");
    assert!(TcpStream::connect_timeout(&gateway.address, Duration::from_secs(10)).is_err());
    stream.write_all(b"still here").unwrap();
    drop(stream);
    assert_eq!(client.read_to_end(), b"still here");
    client.channel.close();
    let (report, errors) = gateway.process.succeed();
    assert!(report.contains("1 of 1 connections ended"), "{report}");
    assert_eq!(errors, "");
}
