//! Servers and clients with TLS, from the guide's chapter about TLS.

use crate::support::wait::{done, receive};
use bytes::Bytes;
use netwheel::{
    codec::{LengthField, Line},
    error::PeerError,
    prelude::*,
    shutdown::ShutdownOptions,
    time::ScheduledTask,
    tls::{ClientCertificates, TlsCertificate, TlsClient, TlsInfo, TlsRoots, TlsServer},
    worker_pool::WorkerPool,
};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::ring, pki_types::CertificateDer,
};
use std::{
    io::Write,
    net::{Shutdown, SocketAddr, TcpStream},
    path::Path,
    sync::{Arc, mpsc},
    time::Duration,
};

fn echo() -> Pipeline<Bytes> {
    Pipeline::codec(Line::new()).on_read(|ctx, line: Bytes| ctx.write(line))
}

fn serve(group: &EventLoopGroup, chain: &Path, key: &Path) -> Result<Server> {
    let certificate = TlsCertificate::from_pem_files(chain, key)?;
    ServerBootstrap::new(group)
        .tls(TlsServer::builder(certificate).build()?)
        .pipeline(|_peer| Pipeline::codec(Line::new()).on_read(|ctx, line: Bytes| ctx.write(line)))
        .bind("127.0.0.1:0")
}

/// Returns a certificate for `localhost`, and the roots that trust it.
fn self_signed() -> (TlsCertificate, TlsRoots) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificate = TlsCertificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    (certificate, TlsRoots::from_pem(chain.as_bytes()).unwrap())
}

fn group() -> EventLoopGroup {
    EventLoopGroup::builder().threads(1).build().unwrap()
}

fn end(group: &EventLoopGroup) {
    group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO)).wait().unwrap();
}

/// Returns the settings of a client of the server at `localhost`.
fn client_of(roots: TlsRoots) -> TlsClient {
    TlsClient::builder(roots).server_name("localhost").build().unwrap()
}

/// Sends the lines that it reads to a channel.
fn lines() -> (impl Fn(&Peer) -> Pipeline<Bytes> + Send + Sync + 'static, mpsc::Receiver<Bytes>) {
    let (sender, lines) = mpsc::channel();
    let factory = move |_: &Peer| {
        let sender = sender.clone();
        Pipeline::codec(Line::new()).on_read(move |_ctx, line: Bytes| {
            sender.send(line).unwrap_or_default();
            Ok(())
        })
    };
    (factory, lines)
}

/// Returns the error of TLS, if this is one.
fn tls_error(error: &Error) -> Option<&rustls::Error> {
    match error {
        Error::Peer(PeerError::Protocol { cause, .. }) => cause.as_error().downcast_ref(),
        _ => None,
    }
}

#[test]
fn a_server_with_files_and_a_client_with_roots() {
    let folder = std::env::temp_dir().join(format!("netwheel-guide-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (chain, key) = (folder.join("chain.pem"), folder.join("key.pem"));
    std::fs::write(&chain, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();

    let group = group();
    let server = serve(&group, &chain, &key).unwrap();
    let (factory, lines) = lines();
    let tls = client_of(TlsRoots::from_pem_file(&chain).unwrap());
    let client = ClientBootstrap::new(&group).tls(tls).pipeline(factory);
    let channel = done(client.connect(server.local_address())).unwrap();
    channel.write("hello".into()).unwrap();
    assert_eq!(receive(&lines), "hello");
    end(&group);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn an_untrusted_certificate_fails_the_connect() {
    let group = group();
    let (certificate, _) = self_signed();
    let tls = TlsServer::builder(certificate).build().unwrap();
    let server = ServerBootstrap::new(&group).tls(tls).pipeline(|_| echo()).bind("127.0.0.1:0").unwrap();
    let (_, other_roots) = self_signed();
    let client = ClientBootstrap::new(&group).tls(client_of(other_roots)).pipeline(|_| echo());
    let error = done(client.connect(server.local_address())).map(drop).unwrap_err();
    assert!(matches!(tls_error(&error), Some(rustls::Error::InvalidCertificate(_))), "{error:#}");
    end(&group);
}

fn by_protocol(group: &EventLoopGroup, certificate: TlsCertificate) -> Result<Server> {
    let tls = TlsServer::builder(certificate).alpn(["frames", "lines"]).build()?;
    ServerBootstrap::new(group)
        .tls(tls)
        .pipeline(|peer| match peer.tls().and_then(TlsInfo::alpn_protocol) {
            Some("frames") => Pipeline::codec(LengthField::u16()).on_read(|ctx, frame| ctx.write(frame)),
            _ => Pipeline::codec(Line::new()).on_read(|ctx, line| ctx.write(line)),
        })
        .bind("127.0.0.1:0")
}

/// S-14.
#[test]
fn the_client_chooses_the_pipeline_by_alpn() {
    let group = group();
    let (certificate, roots) = self_signed();
    let server = by_protocol(&group, certificate).unwrap();
    for protocols in [vec!["lines"], vec![]] {
        let tls = TlsClient::builder(roots.clone()).alpn(protocols).server_name("localhost");
        let (factory, lines) = lines();
        let client = ClientBootstrap::new(&group).tls(tls.build().unwrap()).pipeline(factory);
        let channel = done(client.connect(server.local_address())).unwrap();
        channel.write("hello".into()).unwrap();
        assert_eq!(receive(&lines), "hello");
    }
    let (sender, frames) = mpsc::channel();
    let tls = TlsClient::builder(roots).alpn(["frames"]).server_name("localhost").build().unwrap();
    let client = ClientBootstrap::new(&group).tls(tls).pipeline(move |_| {
        let sender = sender.clone();
        Pipeline::codec(LengthField::u16()).on_read(move |_ctx, frame: Bytes| {
            sender.send(frame).unwrap_or_default();
            Ok(())
        })
    });
    let channel = done(client.connect(server.local_address())).unwrap();
    channel.write("hello".into()).unwrap();
    assert_eq!(receive(&frames), "hello");
    end(&group);
}

/// Passes its errors on.
struct Errors(mpsc::Sender<Error>);

impl Handler for Errors {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _ctx: &mut Context<'_, Self>, _line: Bytes) -> Result {
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        self.0.send(error).unwrap_or_default();
        ctx.close();
        Ok(())
    }
}

/// S-16.
#[test]
fn a_client_without_a_required_certificate_is_refused() {
    let group = group();
    let (certificate, roots) = self_signed();
    let tls = TlsServer::builder(certificate)
        .client_certificates(ClientCertificates::Required(roots.clone()))
        .build()
        .unwrap();
    let server = ServerBootstrap::new(&group).tls(tls).pipeline(|_| echo()).bind("127.0.0.1:0").unwrap();
    let (sender, errors) = mpsc::channel();
    let client = ClientBootstrap::new(&group)
        .tls(client_of(roots))
        .pipeline(move |_| Pipeline::codec(Line::new()).handler(Errors(sender.clone())));
    // With TLS 1.3 the client's handshake ends before the server has checked its certificate.
    let channel = done(client.connect(server.local_address())).unwrap();
    let error = receive(&errors);
    assert!(matches!(tls_error(&error), Some(rustls::Error::AlertReceived(_))), "{error:#}");
    done(channel.closed()).unwrap();
    assert_eq!(group.metrics()[0].handshakes_failed, 1);
    end(&group);
}

fn reload_daily(group: &EventLoopGroup, workers: &WorkerPool, tls: &TlsServer) -> Result<ScheduledTask> {
    let certificates = tls.certificates().expect("not made from a configuration of rustls");
    let workers = workers.clone();
    group.next().schedule_periodic(Duration::from_secs(24 * 3600), move || {
        let certificates = certificates.clone();
        let reload = move || {
            if let Err(error) = certificates.reload() {
                log::error!("the old certificates stay in use: {error:#}");
            }
        };
        if workers.execute(reload).is_err() {
            log::error!("the old certificates stay in use: the worker pool is full");
        }
        Ok(()) // an error would end the task
    })
}

#[test]
fn certificates_are_reloaded_by_a_periodic_task() {
    let group = group();
    let workers = WorkerPool::builder().threads(1).build().unwrap();
    let tls = TlsServer::builder(self_signed().0).build().unwrap().offload_handshakes(&workers);
    let task = reload_daily(&group, &workers, &tls).unwrap();
    assert!(task.cancel());
    end(&group);
}

/// The server's side of a protocol with STARTTLS.
struct Session {
    tls: TlsServer,
}

impl Handler for Session {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        match (&line[..], ctx.tls()) {
            (b"STARTTLS", None) => {
                ctx.write("220 ready".into())?; // still plaintext
                ctx.start_tls(&self.tls)
            }
            (_, None) => ctx.write("530 STARTTLS first".into()),
            (_, Some(_)) => ctx.write(line),
        }
    }
}

/// The client's side.
struct Upgrade {
    tls: TlsClient,
    lines: mpsc::Sender<Bytes>,
}

impl Handler for Upgrade {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write("STARTTLS".into())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        if line == "220 ready" && ctx.tls().is_none() {
            ctx.start_tls(&self.tls)?;
            return ctx.write("hello".into()); // encrypted, after the handshake
        }
        self.lines.send(line).unwrap_or_default();
        Ok(())
    }
}

#[test]
fn both_sides_upgrade_with_starttls() {
    let group = group();
    let (certificate, roots) = self_signed();
    let tls = TlsServer::builder(certificate).build().unwrap();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| Pipeline::codec(Line::new()).handler(Session { tls: tls.clone() }))
        .bind("127.0.0.1:0")
        .unwrap();
    let (sender, lines) = mpsc::channel();
    let tls = client_of(roots);
    let client = ClientBootstrap::new(&group).pipeline(move |_| {
        Pipeline::codec(Line::new()).handler(Upgrade { tls: tls.clone(), lines: sender.clone() })
    });
    let _channel = done(client.connect(server.local_address())).unwrap();
    assert_eq!(receive(&lines), "hello");
    end(&group);
}

/// Counts messages whose framing says where they end.
struct Tolerant(mpsc::Sender<&'static str>);

impl Handler for Tolerant {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _ctx: &mut Context<'_, Self>, _frame: Bytes) -> Result {
        self.0.send("frame").unwrap_or_default();
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        if matches!(error, Error::Peer(PeerError::Truncated)) {
            self.0.send("truncated").unwrap_or_default();
            ctx.close();
            return Ok(()); // not logged
        }
        Err(error)
    }
}

/// Connects with rustls, sends a frame, and ends the stream of TCP without `close_notify`.
fn cut_off(address: SocketAddr, root: CertificateDer<'static>) -> TcpStream {
    let mut roots = RootCertStore::empty();
    roots.add(root).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let session = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut stream = StreamOwned::new(session, TcpStream::connect(address).unwrap());
    stream.write_all(b"\x00\x05hello").unwrap();
    stream.sock.shutdown(Shutdown::Write).unwrap();
    stream.sock
}

#[test]
fn a_connection_without_close_notify_is_truncated() {
    let group = group();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (root, key) = (made.cert.der().clone(), made.signing_key.serialize_der());
    let certificate = TlsCertificate::from_der([root.to_vec()], key).unwrap();
    let (sender, events) = mpsc::channel();
    let server = ServerBootstrap::new(&group)
        .tls(TlsServer::builder(certificate).build().unwrap())
        .pipeline(move |_| Pipeline::codec(LengthField::u16()).handler(Tolerant(sender.clone())))
        .bind("127.0.0.1:0")
        .unwrap();
    let _socket = cut_off(server.local_address(), root);
    assert_eq!(receive(&events), "frame");
    assert_eq!(receive(&events), "truncated");
    end(&group);
}
