//! Settings over sockets: hosts, protocols, client certificates, resumption, replaced certificates,
//! plaintext on the same port, workers.

use super::certificates::{certificate_for, self_signed};
use crate::{
    bootstrap::{ClientBootstrap, Server, ServerBootstrap},
    channel::{Channel, Peer, Pipeline},
    codec::Line,
    error::{Error, PeerError},
    group::EventLoopGroup,
    proxy::{ProxyHeader, ProxyProtocol},
    testing::wait::{PATIENCE, wait_until},
    tls::{
        certificate::TlsCertificate,
        client::TlsClient,
        info::{TlsInfo, TlsVersion},
        provider::provider,
        roots::TlsRoots,
        server::{ClientCertificates, TlsServer},
    },
    worker_pool::WorkerPool,
};
use bytes::Bytes;
use rustls::client::Tls12Resumption;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
};

/// Answers each line with it and the server's view of the connection.
fn serve(group: &EventLoopGroup, tls: TlsServer) -> Server<SocketAddr> {
    ServerBootstrap::new(group)
        .tls(tls)
        .pipeline(|peer| {
            let name = peer.tls().and_then(|tls| tls.server_name()).unwrap_or("-").to_owned();
            let certificates = peer.tls().map_or(0, |tls| tls.peer_certificates().len());
            Pipeline::codec(Line::new()).on_read(move |ctx, line: Bytes| {
                let line = String::from_utf8_lossy(&line);
                ctx.write(format!("{line} {name} {certificates}").into())
            })
        })
        .bind("127.0.0.1:0".parse::<SocketAddr>().unwrap())
        .unwrap()
}

struct Connected {
    channel: Channel<Bytes>,
    lines: Receiver<String>,
    info: TlsInfo,
}

impl Connected {
    fn ask(&self, line: &'static str) -> String {
        self.channel.write(line.into()).unwrap();
        self.lines.recv_timeout(PATIENCE).unwrap()
    }
}

fn connect(group: &EventLoopGroup, to: SocketAddr, tls: &TlsClient) -> crate::error::Result<Connected> {
    let (sender, lines) = channel();
    let (told, info) = channel();
    let client = ClientBootstrap::new(group).tls(tls.clone()).pipeline(move |peer| {
        told.send(peer.tls().cloned().unwrap()).unwrap();
        let sender = sender.clone();
        Pipeline::codec(Line::new()).on_read(move |_, line: Bytes| {
            let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
            Ok(())
        })
    });
    let channel = client.connect(to).wait()?;
    Ok(Connected { channel, lines, info: info.recv_timeout(PATIENCE).unwrap() })
}

/// Returns the error of rustls.
fn cause(error: &Error) -> &rustls::Error {
    let Error::Peer(PeerError::Protocol { protocol: "TLS", cause, .. }) = error else { panic!("{error:#}") };
    cause.as_error().downcast_ref().expect("an error of rustls")
}

fn group() -> EventLoopGroup {
    EventLoopGroup::builder().threads(1).build().unwrap()
}

fn client_for(name: &str, roots: &TlsRoots) -> TlsClient {
    TlsClient::builder(roots.clone()).server_name(name).build().unwrap()
}

/// S-15.
#[test]
fn each_host_has_its_certificate_and_unknown_ones_get_the_default_or_an_alert() {
    let group = group();
    let ((default, default_roots), (chat, chat_roots)) =
        (self_signed("default.example"), self_signed("chat.example"));
    let roots = default_roots.and(&chat_roots);
    for known_hosts_only in [false, true] {
        let tls = TlsServer::builder(default.clone()).host("Chat.Example.", chat.clone());
        let server = serve(&group, tls.known_hosts_only(known_hosts_only).build().unwrap());
        let to = server.local_address();
        let connected = connect(&group, to, &client_for("chat.example", &roots)).unwrap();
        assert_eq!(connected.ask("hi"), "hi chat.example 0");
        let unknown = connect(&group, to, &client_for("default.example", &roots)).map(drop);
        if known_hosts_only {
            let error = format!("{:#}", unknown.unwrap_err());
            assert!(error.contains("UnrecognisedName") || error.contains("unrecognised_name"), "{error}");
        } else {
            unknown.unwrap();
        }
    }
}

/// S-14.
#[test]
fn protocols_are_agreed_on_by_the_preference_of_the_server_or_refused() {
    let group = group();
    let (certificate, roots) = self_signed("localhost");
    let server = serve(&group, TlsServer::builder(certificate).alpn(["b", "a"]).build().unwrap());
    let client = |protocols: &[&str]| {
        let tls = TlsClient::builder(roots.clone()).server_name("localhost");
        let tls = tls.alpn(protocols.iter().copied()).build().unwrap();
        connect(&group, server.local_address(), &tls)
            .map(|connected| connected.info.alpn_protocol().map(str::to_owned))
    };
    assert_eq!(client(&["a", "b"]).unwrap().as_deref(), Some("b"));
    assert_eq!(client(&["a", "x"]).unwrap().as_deref(), Some("a"));
    assert_eq!(client(&[]).unwrap(), None);
    let error = format!("{:#}", client(&["x"]).unwrap_err());
    assert!(error.contains("NoApplicationProtocol"), "{error}");
}

/// S-16.
#[test]
fn client_certificates_are_verified_and_shown_to_the_factory() {
    let group = group();
    let (certificate, roots) = self_signed("localhost");
    let (own, own_roots) = self_signed("client.example");
    for (clients, required) in [
        (ClientCertificates::Optional(own_roots.clone()), false),
        (ClientCertificates::Required(own_roots.clone()), true),
    ] {
        let tls = TlsServer::builder(certificate.clone()).client_certificates(clients);
        let server = serve(&group, tls.build().unwrap());
        let to = server.local_address();
        let with = TlsClient::builder(roots.clone()).server_name("localhost").certificate(own.clone());
        let connected = connect(&group, to, &with.build().unwrap()).unwrap();
        assert_eq!(connected.ask("hi"), "hi localhost 1");
        let without = connect(&group, to, &client_for("localhost", &roots)).unwrap();
        if required {
            // A client of TLS 1.3 is established before the server has seen its certificate, and
            // receives the alert afterwards.
            without.channel.closed().wait().unwrap();
        } else {
            assert_eq!(without.ask("hi"), "hi localhost 0");
        }
    }
    let failed = group.event_loops()[0].metrics().handshakes_failed;
    assert_eq!(failed, 1, "no pipeline was made for it");
}

/// S-18.
#[test]
fn a_session_is_resumed_until_its_ticket_is_invalidated() {
    let group = group();
    let (certificate, roots) = self_signed("localhost");
    let tls = TlsServer::builder(certificate).build().unwrap();
    let server = serve(&group, tls.clone());
    let client = client_for("localhost", &roots);
    let resumed = || {
        let connected = connect(&group, server.local_address(), &client).unwrap();
        // The tickets of TLS 1.3 arrive with the first answer.
        connected.ask("hi");
        connected.info.is_resumed()
    };
    assert!(!resumed());
    assert!(resumed() && resumed());
    tls.invalidate_tickets().unwrap();
    assert!(!resumed());
    assert!(resumed());
}

/// S-18: nothing but tickets resumes a session, so nothing outlives their keys.
#[test]
fn a_client_without_tickets_gets_a_full_handshake_each_time() {
    let group = group();
    let (certificate, roots) = self_signed("localhost");
    let tls = TlsServer::builder(certificate).build().unwrap();
    let server = serve(&group, tls.clone());
    let mut config = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots.0)
        .with_no_client_auth();
    config.resumption = config.resumption.tls12_resumption(Tls12Resumption::SessionIdOnly);
    let client = TlsClient::from_config(Arc::new(config)).unwrap().with_server_name("localhost").unwrap();
    for _ in 0..3 {
        let connected = connect(&group, server.local_address(), &client).unwrap();
        connected.ask("hi");
        assert!(!connected.info.is_resumed());
    }
}

/// S-18: settings whose tickets belong to rustls do not pretend to invalidate them.
#[test]
fn tickets_of_a_configuration_of_rustls_cannot_be_invalidated() {
    let config = super::pair::server_config(TlsVersion::Tls13);
    let tls = TlsServer::from_config(Arc::new(config)).unwrap();
    let error = tls.invalidate_tickets().unwrap_err();
    assert!(matches!(error, Error::Setting(_)), "{error:?}");
    let (certificate, _) = self_signed("localhost");
    let none = TlsServer::builder(certificate).resumption(false).build().unwrap();
    none.invalidate_tickets().unwrap();
}

#[test]
fn without_resumption_each_handshake_is_full() {
    let group = group();
    let (certificate, roots) = self_signed("localhost");
    let server = serve(&group, TlsServer::builder(certificate).resumption(false).build().unwrap());
    let client = client_for("localhost", &roots);
    for _ in 0..3 {
        let connected = connect(&group, server.local_address(), &client).unwrap();
        connected.ask("hi");
        assert!(!connected.info.is_resumed());
    }
}

/// S-19.
#[test]
fn certificates_are_replaced_and_reloaded_while_open_connections_go_on() {
    let group = group();
    let directory = std::env::temp_dir().join(format!("netwheel-tls-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let (chain, key) = (directory.join("chain.pem"), directory.join("key.pem"));
    let store = || {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        fs::write(&chain, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        TlsRoots::from_pem(made.cert.pem().as_bytes()).unwrap()
    };
    let first_roots = store();
    let tls = TlsServer::builder(TlsCertificate::from_pem_files(&chain, &key).unwrap()).build().unwrap();
    let certificates = tls.certificates().unwrap();
    let server = serve(&group, tls);
    let to = server.local_address();
    let open = connect(&group, to, &client_for("localhost", &first_roots)).unwrap();
    let second_roots = store();
    certificates.reload().unwrap();
    assert!(connect(&group, to, &client_for("localhost", &first_roots)).is_err());
    connect(&group, to, &client_for("localhost", &second_roots)).unwrap();
    assert_eq!(open.ask("still here"), "still here localhost 0");
    // A file that cannot be read changes nothing.
    fs::write(&key, "no key").unwrap();
    let error = certificates.reload().unwrap_err().to_string();
    assert!(error.contains("key.pem"), "{error}");
    connect(&group, to, &client_for("localhost", &second_roots)).unwrap();
    let (third, third_roots) = self_signed("localhost");
    certificates.replace(third);
    connect(&group, to, &client_for("localhost", &third_roots)).unwrap();
    fs::remove_dir_all(&directory).unwrap();
}

/// S-19: reading files takes time, and other threads change certificates during the read.
#[test]
#[cfg(unix)]
fn a_change_while_the_files_are_read_again_is_not_lost() {
    let directory = std::env::temp_dir().join(format!("netwheel-tls-reload-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let (chain, key) = (directory.join("chain.pem"), directory.join("key.pem"));
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    fs::write(&chain, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let from_files = || TlsCertificate::from_pem_files(&chain, &key).unwrap();
    let tls = TlsServer::builder(certificate_for("default.example"))
        .host("removed.example", certificate_for("removed.example"))
        .host("replaced.example", certificate_for("replaced.example"))
        .host("localhost", from_files())
        .known_hosts_only(true)
        .build()
        .unwrap();
    let certificates = tls.certificates().unwrap();
    let find = |host: &str| certificates.find(Some(host));
    let (old, replacement) = (find("localhost").unwrap(), certificate_for("replaced.example"));
    // A pipe: it is read when it was written.
    fs::remove_file(&key).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&key).status().unwrap().success());
    std::thread::scope(|scope| {
        let reloading = scope.spawn(|| certificates.reload());
        let mut pipe = fs::OpenOptions::new().write(true).open(&key).unwrap();
        assert!(certificates.remove_host("removed.example"));
        certificates.replace_host("replaced.example", replacement.clone()).unwrap();
        certificates.replace_host("added.example", certificate_for("added.example")).unwrap();
        pipe.write_all(made.signing_key.serialize_pem().as_bytes()).unwrap();
        drop(pipe);
        reloading.join().unwrap().unwrap();
    });
    fs::remove_dir_all(&directory).unwrap();
    assert!(find("removed.example").is_none() && find("added.example").is_some());
    assert!(Arc::ptr_eq(&find("replaced.example").unwrap(), &replacement.key));
    assert!(!Arc::ptr_eq(&find("localhost").unwrap(), &old), "it was read again");
}

#[test]
fn tls_and_plaintext_share_a_port() {
    let group = group();
    let (certificate, roots) = self_signed("localhost");
    let server = serve(&group, TlsServer::builder(certificate).build().unwrap().or_plaintext());
    let to = server.local_address();
    let connected = connect(&group, to, &client_for("localhost", &roots)).unwrap();
    assert_eq!(connected.ask("secret"), "secret localhost 0");
    // The second line begins like TLS, and goes on otherwise.
    for line in ["hello", "\u{16}x"] {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        for byte in format!("{line}\n").bytes() {
            stream.write_all(&[byte]).unwrap();
        }
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        assert_eq!(answer, format!("{line} - 0\n"));
    }
}

#[test]
fn handshakes_on_workers_give_the_same_result() {
    let group = group();
    let pool = WorkerPool::builder().threads(1).build().unwrap();
    let (certificate, roots) = self_signed("localhost");
    let tls = TlsServer::builder(certificate).build().unwrap().offload_handshakes(&pool);
    let server = serve(&group, tls);
    let client = client_for("localhost", &roots).offload_handshakes(&pool);
    let connected: Vec<_> =
        (0..16).map(|_| connect(&group, server.local_address(), &client).unwrap()).collect();
    for connected in connected {
        assert_eq!(connected.ask("hi"), "hi localhost 0");
    }
}

#[test]
fn settings_out_of_range_are_refused_with_their_names() {
    let refused = |result: crate::error::Result<()>, setting: &str, value: &str| {
        let Err(Error::Setting(error)) = result else { panic!("{setting} was accepted") };
        assert_eq!(error.setting(), setting);
        assert!(error.value().contains(value), "{error}");
    };
    let made = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
    let (chain, key) = (made.cert.pem(), other.signing_key.serialize_pem());
    let from_pem =
        |chain: &str, key: &str| TlsCertificate::from_pem(chain.as_bytes(), key.as_bytes()).map(drop);
    refused(from_pem(&chain, &key), "certificate", "PEM text");
    refused(from_pem("", &key), "certificates", "PEM text");
    refused(from_pem(&chain, &chain), "private key", "PEM text");
    refused(
        TlsCertificate::from_pem_files("/no/chain", "/no/key").map(drop),
        "certificate chain",
        "/no/chain",
    );
    refused(TlsCertificate::from_der([], vec![1]).map(drop), "private key", "DER");
    let key = other.signing_key.serialize_der();
    refused(TlsCertificate::from_der([], key).map(drop), "certificate chain", "DER");
    refused(TlsRoots::from_pem_file("/no/roots").map(drop), "trusted certificates", "/no/roots");
    refused(TlsRoots::from_pem(b"no certificate").map(drop), "certificates", "PEM text");
    let certificate = certificate_for("a.example");
    let server = || TlsServer::builder(certificate.clone());
    refused(server().alpn([""]).build().map(drop), "alpn", "\"\"");
    refused(server().alpn(["x".repeat(256)]).build().map(drop), "alpn", "xxx");
    refused(server().host("no name", certificate.clone()).build().map(drop), "host", "no name");
    let twice = server().host("b.example", certificate.clone()).host("B.example.", certificate.clone());
    refused(twice.build().map(drop), "host", "B.example");
    let (_, roots) = self_signed("a.example");
    let client = TlsClient::builder(roots).server_name("no name");
    refused(client.build().map(drop), "server_name", "no name");
}

#[test]
fn debug_output_shows_no_secret() {
    let made = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
    let key = made.signing_key.serialize_pem();
    let certificate = TlsCertificate::from_pem(made.cert.pem().as_bytes(), key.as_bytes()).unwrap();
    let tls = TlsServer::builder(certificate.clone()).host("b.example", certificate.clone());
    let builder = format!("{tls:?}");
    let text = format!("{certificate:?} {builder} {:?}", tls.build().unwrap());
    let body: String = key.lines().filter(|line| !line.starts_with('-')).collect();
    assert!(!text.contains(&body[..20]), "{text}");
    let der = made.signing_key.serialize_der();
    let bytes = format!("{:?}", &der[..8]);
    assert!(!text.contains(bytes.trim_matches(['[', ']'])), "{text}");
}

/// S-17.
#[test]
fn wrong_expired_and_unknown_certificates_fail_the_connect_with_that_cause() {
    use rustls::CertificateError::{Expired, ExpiredContext, NotValidForNameContext, UnknownIssuer};
    let group = group();
    let (other, other_roots) = self_signed("other.example");
    let (known, _) = self_signed("localhost");
    let mut old = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    old.not_before = rcgen::date_time_ymd(2020, 1, 1);
    old.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let old = old.self_signed(&key).unwrap();
    let expired = TlsCertificate::from_pem(old.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap();
    let expired_roots = TlsRoots::from_pem(old.pem().as_bytes()).unwrap();
    for (n, (certificate, roots)) in
        [(other, &other_roots), (expired, &expired_roots), (known, &other_roots)].into_iter().enumerate()
    {
        let server = serve(&group, TlsServer::builder(certificate).build().unwrap());
        let error = connect(&group, server.local_address(), &client_for("localhost", roots)).map(drop);
        let error = error.unwrap_err();
        let rustls::Error::InvalidCertificate(why) = cause(&error) else { panic!("{error:#}") };
        match n {
            0 => assert!(matches!(why, NotValidForNameContext { .. }), "{why:?}"),
            1 => assert!(matches!(why, Expired | ExpiredContext { .. }), "{why:?}"),
            _ => assert!(
                matches!(why, UnknownIssuer) || format!("{why:?}").contains("BadSignature"),
                "{why:?}"
            ),
        }
    }
}

#[test]
fn a_proxy_header_precedes_tls_whatever_the_order_of_the_settings() {
    let group = group();
    let (certificate, roots) = self_signed("localhost");
    let tls = TlsServer::builder(certificate).build().unwrap();
    let trusted = ProxyProtocol::required().trust("127.0.0.0/8").unwrap();
    let client = client_for("localhost", &roots);
    let announced: SocketAddr = "192.0.2.7:4321".parse().unwrap();
    for proxy_first in [true, false] {
        let server = ServerBootstrap::new(&group);
        let server = if proxy_first {
            server.proxy_protocol(trusted.clone()).tls(tls.clone())
        } else {
            server.tls(tls.clone()).proxy_protocol(trusted.clone())
        };
        let server = server
            .pipeline(|peer| {
                let seen = format!("{} {}", peer.address().unwrap(), peer.tls().is_some());
                Pipeline::codec(Line::new()).on_read(move |ctx, _: Bytes| ctx.write(seen.clone().into()))
            })
            .bind("127.0.0.1:0".parse::<SocketAddr>().unwrap())
            .unwrap();
        let header = move |peer: &Peer| ProxyHeader::v2(announced, peer.address().unwrap());
        let bootstrap = ClientBootstrap::new(&group);
        let bootstrap = if proxy_first {
            bootstrap.tls(client.clone()).proxy_protocol(header)
        } else {
            bootstrap.proxy_protocol(header).tls(client.clone())
        };
        let (sender, lines) = channel();
        let bootstrap = bootstrap.pipeline(move |_| {
            let sender = sender.clone();
            Pipeline::codec(Line::new()).on_read(move |_, line: Bytes| {
                let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
                Ok(())
            })
        });
        let channel = bootstrap.connect(server.local_address()).wait().unwrap();
        channel.write("who".into()).unwrap();
        assert_eq!(lines.recv_timeout(PATIENCE).unwrap(), "192.0.2.7:4321 true");
    }
}

#[test]
fn a_channel_that_closes_during_a_step_on_a_worker_drops_its_result() {
    let group = group();
    let pool = WorkerPool::builder().threads(1).build().unwrap();
    let (certificate, _) = self_signed("localhost");
    let tls = TlsServer::builder(certificate).build().unwrap().offload_handshakes(&pool);
    let server = serve(&group, tls);
    let mut hello = Vec::new();
    let mut config = super::pair::client_config(TlsVersion::Tls13);
    config.enable_sni = true;
    let mut client = super::forger::buffered_client(config);
    client.write_tls(&mut hello).unwrap();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(server.local_address()).unwrap();
        stream.write_all(&hello).unwrap();
        // Some of them leave before their step, some during it, some afterwards.
        drop(stream);
    }
    let metrics = || group.event_loops()[0].metrics();
    wait_until("all handshakes fail", || metrics().handshakes_failed >= 100 && metrics().channels == 0);
    assert_eq!(metrics().handshakes, 0);
}
