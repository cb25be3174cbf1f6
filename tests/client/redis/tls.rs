//! TLS: `rediss` URLs.

use super::{
    outcome,
    servers::{TestServer, group, redis},
    subscriptions::subscribe,
};
use crate::support::{
    process::{Process, are_installed},
    wait::{done, receive},
};
use netwheel::{
    ClientBootstrap, Error, Pipeline, ServerBootstrap,
    codec::RawBytes,
    redis::{RedisClient, RedisEvent},
    relay::Relay,
    tls::{TlsCertificate, TlsClient, TlsRoots, TlsServer},
};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use std::{
    net::{Ipv4Addr, TcpListener},
    sync::mpsc::channel,
};

/// A certificate for `localhost`, and its key, in PEM.
fn certificate() -> (String, String) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    (cert.pem(), signing_key.serialize_pem())
}

fn tls_client(certificate: &str) -> TlsClient {
    TlsClient::builder(TlsRoots::from_pem(certificate.as_bytes()).unwrap()).build().unwrap()
}

/// Uses commands and a subscription.
fn use_over_tls(server: &TestServer, url: &str, certificate: &str) {
    let redis = RedisClient::builder(&server.group, url).tls(tls_client(certificate)).connect().unwrap();
    assert_eq!(outcome(done(redis.call(["SET", "k", &"x".repeat(100_000)].map(str::to_owned)))), "OK");
    assert_eq!(outcome(done(redis.call(["STRLEN", "k"]))), "100000");
    let (sender, events) = channel();
    let _news = subscribe(&redis, "news", &sender);
    assert_eq!(receive(&events), "subscribed");
    assert_eq!(outcome(done(redis.call(["PUBLISH", "news", "hello"]))), "1");
    assert_eq!(receive(&events), "hello");
    redis.close();
    done(redis.closed()).unwrap();
}

/// Puts TLS in front of a simulated Redis. Returns the URL.
fn with_tls(server: &TestServer, certificate: &str, key: &str) -> String {
    let certificate = TlsCertificate::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
    let tls = TlsServer::builder(certificate).build().unwrap();
    let backend = server.url.strip_prefix("redis://").unwrap().to_owned();
    let client = ClientBootstrap::new(&server.group);
    let front = ServerBootstrap::new(&server.group)
        .tls(tls)
        .pipeline(move |_peer| {
            let (client, backend) = (client.clone(), backend.clone());
            Pipeline::codec(RawBytes).handler(Relay::dial(move |front| {
                client
                    .pipeline(move |_peer| Pipeline::codec(RawBytes).handler(Relay::to(front.clone())))
                    .connect(backend.clone())
            }))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    format!("rediss://localhost:{}", front.local_address().port())
}

#[test]
fn a_simulated_server_behind_tls_is_used() {
    let (certificate, key) = certificate();
    let server = TestServer::simulated(&redis());
    let url = with_tls(&server, &certificate, &key);
    use_over_tls(&server, &url, &certificate);
}

#[test]
fn a_server_with_another_certificate_is_refused() {
    let ((certificate, key), (other, _)) = (certificate(), self::certificate());
    let server = TestServer::simulated(&redis());
    let url = with_tls(&server, &certificate, &key);
    let (told, failed) = channel();
    let redis = RedisClient::builder(&server.group, url)
        .tls(tls_client(&other))
        .on_event(move |event| match event {
            RedisEvent::Failed { cause, .. } => drop(told.send(format!("{cause:#}"))),
            event => panic!("{event:?}"),
        })
        .connect()
        .unwrap();
    let waiting = redis.call(["PING"]);
    assert!(receive(&failed).contains("TLS"));
    redis.close();
    assert_eq!(outcome(done(waiting)), "closed");
}

#[test]
fn tls_settings_need_a_url_with_rediss() {
    let (certificate, _) = certificate();
    let refused = RedisClient::builder(&group(), "redis://localhost").tls(tls_client(&certificate)).connect();
    assert!(matches!(refused, Err(Error::Setting(_))));
}

/// Starts a `redis-server` with TLS. Another process may take the free port first.
fn start_with_tls(arguments: &[&str]) -> Option<(Process, u16)> {
    for _ in 0..20 {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let port_text = port.to_string();
        let own = ["redis-server", "--port", "0", "--tls-port", &port_text, "--save", ""];
        let mut process = Process::start(&[&own, arguments].concat());
        let marks = ["eady to accept connections", "Failed listening", "Bad directive"];
        let begun = process.stdout.wait_until("redis-server to start", |text| {
            marks.iter().enumerate().find_map(|(n, mark)| text.find(mark).map(|at| (n, at + mark.len())))
        });
        match begun {
            0 => return Some((process, port)),
            1 => {}
            // Built without TLS.
            _ => return None,
        }
    }
    panic!("no free port");
}

#[test]
fn a_redis_server_with_tls_is_used() {
    if !are_installed(&["redis-server"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (certificate, key) = certificate();
    std::fs::write(path("cert.pem"), &certificate).unwrap();
    std::fs::write(path("key.pem"), key).unwrap();
    let (cert_file, key_file) = (path("cert.pem"), path("key.pem"));
    let options = ["--tls-cert-file", &cert_file, "--tls-key-file", &key_file, "--tls-auth-clients", "no"];
    let Some((_process, port)) = start_with_tls(&[&options[..], &["--dir", &path("")]].concat()) else {
        return;
    };
    let server = TestServer::simulated(&redis());
    use_over_tls(&server, &format!("rediss://localhost:{port}"), &certificate);
}
