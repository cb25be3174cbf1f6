//! What the log of a TLS connection may not contain, at any level.

use crate::support::{
    logs::{self, Record},
    loops::{end, one_loop},
    tcp::ANY_PORT,
    wait::{done, receive},
};
use bytes::Bytes;
use netwheel::{
    channel::WireLog,
    codec::Line,
    prelude::*,
    tls::{TlsClient, TlsRoots, TlsServer},
};
use rustls::{
    KeyLog, ServerConfig, SupportedProtocolVersion,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    version::{TLS12, TLS13},
};
use std::sync::{Arc, Mutex, mpsc};

/// Collects the secrets of handshakes.
#[derive(Debug, Default)]
struct Secrets(Mutex<Vec<Vec<u8>>>);

impl KeyLog for Secrets {
    fn log(&self, _: &str, _: &[u8], secret: &[u8]) {
        self.0.lock().unwrap().push(secret.into());
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the bytes of the hex dump in a record, as hex digits without spaces.
fn dumped(record: &Record) -> String {
    let lines = record.text.lines().filter(|line| line.get(4..8) == Some(":   "));
    let digits = lines.map(|line| &line[8..line.len().min(58)]).collect::<String>();
    digits.split_whitespace().collect()
}

/// Returns whether a record shows the bytes: as text, as hex digits, in a dump, or as a list.
fn shows(record: &Record, bytes: &[u8]) -> bool {
    let list = format!("{bytes:?}");
    let text = String::from_utf8(bytes.into()).is_ok_and(|text| record.text.contains(&text));
    text || record.text.to_lowercase().contains(&hex(bytes))
        || dumped(record).contains(&hex(bytes))
        || record.text.contains(list.trim_matches(['[', ']']))
}

fn any_shows(records: &[Record], bytes: &[u8]) -> bool {
    records.iter().any(|record| shows(record, bytes))
}

struct Settings {
    tls: TlsServer,
    roots: TlsRoots,
    secrets: Arc<Secrets>,
    /// The number that is the private key of the certificate.
    scalar: Vec<u8>,
    pem: String,
}

fn settings(version: &'static SupportedProtocolVersion) -> Settings {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = made.signing_key.serialize_der();
    // In the structure of RFC 5915: version 1, and an octet string of 32 bytes.
    const BEFORE: [u8; 5] = [2, 1, 1, 4, 32];
    let at = key.windows(BEFORE.len()).position(|window| window == BEFORE).expect("a P-256 key");
    let scalar = key[at + BEFORE.len()..][..32].to_vec();
    let key: PrivateKeyDer<'static> = PrivatePkcs8KeyDer::from(key).into();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let secrets = Arc::new(Secrets::default());
    config.key_log = secrets.clone();
    Settings {
        tls: TlsServer::from_config(Arc::new(config)).unwrap(),
        roots: TlsRoots::from_pem(made.cert.pem().as_bytes()).unwrap(),
        secrets,
        scalar,
        pem: made.signing_key.serialize_pem(),
    }
}

/// Sends a line to a server that echoes it. Both ends have a wire log.
fn exchange(settings: &Settings, line: &'static str, wire: &WireLog) {
    let group = one_loop();
    let log = wire.clone();
    let server = ServerBootstrap::new(&group)
        .tls(settings.tls.clone())
        .pipeline(move |_| {
            Pipeline::codec(Line::new()).wire_log(log.clone()).on_read(|ctx, line: Bytes| ctx.write(line))
        })
        .bind(ANY_PORT)
        .unwrap();
    let tls = TlsClient::builder(settings.roots.clone()).server_name("localhost").build().unwrap();
    let (echo, echoed) = mpsc::channel();
    let log = wire.clone();
    let client = ClientBootstrap::new(&group).tls(tls).pipeline(move |_| {
        let echo = echo.clone();
        Pipeline::codec(Line::new())
            .wire_log(log.clone())
            .on_read(move |_, line: Bytes| echo.send(line).map_err(Error::other))
    });
    let channel = done(client.connect(server.local_address())).unwrap();
    channel.write(line.into()).unwrap();
    assert_eq!(receive(&echoed), line);
    end(&group);
}

#[test]
fn no_log_shows_secrets_of_tls_and_plaintext_is_shown_only_on_request() {
    logs::collect();
    for (version, hidden, shown) in
        [(&TLS12, "hidden-of-tls-12", "shown-of-tls-1.2"), (&TLS13, "hidden-of-tls-13", "shown-of-tls-1.3")]
    {
        let settings = settings(version);
        let wire = WireLog::new().max_bytes(usize::MAX).target("wire of secrets");
        exchange(&settings, hidden, &wire);
        let records = logs::records();
        assert!(logs::records_of("wire of secrets").iter().any(|record| !dumped(record).is_empty()));
        assert!(!any_shows(&records, hidden.as_bytes()));
        exchange(&settings, shown, &wire.plaintext(true));
        let records = logs::records();
        assert!(!any_shows(&records, hidden.as_bytes()));
        // The search finds an existing value, as text and in dumps.
        let found =
            |record: &&Record| record.text.contains(shown) && dumped(record).contains(&hex(shown.as_bytes()));
        assert_eq!(records.iter().filter(found).count(), 4, "opened, and sealed, by both ends");

        let secrets = settings.secrets.0.lock().unwrap();
        assert!(secrets.len() >= 2, "both handshakes have secrets");
        for secret in secrets.iter().chain([&settings.scalar]) {
            // A part is enough: a record may be cut off.
            assert!(!secret.chunks_exact(8).any(|part| any_shows(&records, part)));
        }
        for line in settings.pem.lines() {
            assert!(!any_shows(&records, line.as_bytes()), "the log shows a private key");
        }
    }
}
