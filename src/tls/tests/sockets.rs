//! Servers and clients with TLS over sockets.

use super::certificates::self_signed;
use crate::{
    bootstrap::{ClientBootstrap, ServerBootstrap},
    channel::Pipeline,
    codec::Line,
    error::{Error, PeerError},
    group::EventLoopGroup,
    pipeline::{Context, Handler},
    testing::wait::wait_until,
    tls::{client::TlsClient, info::TlsVersion, provider::provider, roots::TlsRoots, server::TlsServer},
    worker_pool::WorkerPool,
};
use bytes::Bytes;
use rustls::{
    pki_types::PrivatePkcs8KeyDer,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::sync::{
    Arc,
    mpsc::{Sender, channel},
};

struct Lines(Sender<String>);

impl Handler for Lines {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, line: Bytes) -> crate::error::Result {
        let _ = self.0.send(String::from_utf8_lossy(&line).into_owned());
        Ok(())
    }
}

#[test]
fn a_client_and_a_server_talk_over_tls() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (certificate, roots) = self_signed("localhost");
    let tls = TlsServer::builder(certificate).alpn(["chat", "echo"]).build().unwrap();
    let server = ServerBootstrap::new(&group)
        .tls(tls)
        .pipeline(|peer| {
            let info = peer.tls().expect("a handshake").clone();
            Pipeline::codec(Line::new()).on_read(move |ctx, line: Bytes| {
                let name = info.server_name().unwrap_or("nobody");
                ctx.write(format!("{name} {:?} {:?}", info.alpn_protocol(), info.version()).into())?;
                ctx.write(line)
            })
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let client = TlsClient::builder(roots).alpn(["echo"]).server_name("localhost").build().unwrap();
    let (sender, lines) = channel();
    let client = ClientBootstrap::new(&group)
        .tls(client)
        .pipeline(move |_| Pipeline::codec(Line::new()).handler(Lines(sender.clone())));
    let channel = client.connect(server.local_address()).wait().unwrap();
    channel.write("hello".into()).unwrap();
    assert_eq!(lines.recv().unwrap(), format!("localhost Some(\"echo\") {:?}", TlsVersion::Tls13));
    assert_eq!(lines.recv().unwrap(), "hello");
}

/// S-17.
#[test]
fn a_certificate_of_another_host_fails_the_connect() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (certificate, roots) = self_signed("other.example");
    let server = ServerBootstrap::new(&group)
        .tls(TlsServer::builder(certificate).build().unwrap())
        .pipeline(|_| Pipeline::codec(Line::new()).on_read(|ctx, line: Bytes| ctx.write(line)))
        .bind("127.0.0.1:0")
        .unwrap();
    let tls = TlsClient::builder(roots).server_name("localhost").build().unwrap();
    let client = ClientBootstrap::new(&group)
        .tls(tls)
        .pipeline(|_| Pipeline::codec(Line::new()).on_read(|_, _: Bytes| Ok(())));
    let error = client.connect(server.local_address()).wait().map(drop).unwrap_err();
    assert!(matches!(&error, Error::Peer(PeerError::Protocol { protocol: "TLS", .. })), "{error:#}");
    assert!(format!("{error:#}").contains("not valid for name"), "{error:#}");
}

/// Panics for the host `panics.example`, and has a certificate for all others.
#[derive(Debug)]
struct Panics(Arc<CertifiedKey>);

impl ResolvesServerCert for Panics {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        assert_ne!(hello.server_name(), Some("panics.example"), "on purpose");
        Some(self.0.clone())
    }
}

#[test]
fn a_panic_during_an_offloaded_handshake_closes_that_connection_and_is_counted() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let workers = WorkerPool::builder().threads(1).build().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let key = provider().key_provider.load_private_key(key.into()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Panics(Arc::new(CertifiedKey::new(
            vec![made.cert.der().clone()],
            key,
        )))));
    let server = ServerBootstrap::new(&group)
        .tls(TlsServer::from_config(Arc::new(config)).unwrap().offload_handshakes(&workers))
        .pipeline(|_| Pipeline::codec(Line::new()).on_read(|ctx, line: Bytes| ctx.write(line)))
        .bind("127.0.0.1:0")
        .unwrap();
    let roots = TlsRoots::from_pem(made.cert.pem().as_bytes()).unwrap();
    let (sender, lines) = channel();
    let connect = |host: &str| {
        let sender = sender.clone();
        ClientBootstrap::new(&group)
            .tls(TlsClient::builder(roots.clone()).server_name(host).build().unwrap())
            .pipeline(move |_| Pipeline::codec(Line::new()).handler(Lines(sender.clone())))
            .connect(server.local_address())
            .wait()
    };
    let first = connect("localhost").unwrap();
    assert!(connect("panics.example").is_err());
    let metrics = group.event_loops()[0].metrics();
    assert_eq!((metrics.handshakes, metrics.handshakes_failed), (2, 2), "both ends are counted");
    // The worker counts the panic after it has woken the channel.
    wait_until("the panic is counted", || workers.metrics().panicked > 0);
    let second = connect("localhost").unwrap();
    for channel in [first, second] {
        channel.write("still here".into()).unwrap();
        assert_eq!(lines.recv().unwrap(), "still here");
    }
    let workers = workers.metrics();
    assert_eq!((workers.panicked, workers.threads), (1, 1));
}
