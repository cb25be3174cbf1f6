//! `Forger`: a client that sends any record it likes, correctly encrypted.

use super::pair::{End, HOST, client_config};
use crate::tls::info::TlsVersion;
use rustls::{
    ClientConfig, ClientConnection, ConnectionTrafficSecrets, ContentType, ProtocolVersion,
    SupportedCipherSuite,
    crypto::cipher::{MessageEncrypter, OutboundPlainMessage},
    pki_types::ServerName,
};
use std::sync::Arc;

pub(super) struct Forger {
    encrypter: Box<dyn MessageEncrypter>,
    sequence: u64,
}

/// Starts a client of rustls' own.
pub(super) fn buffered_client(config: impl Into<Arc<ClientConfig>>) -> ClientConnection {
    let name = ServerName::try_from(HOST).expect("a host name");
    ClientConnection::new(config.into(), name).expect("a client")
}

/// Takes the client's output.
pub(super) fn sent(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).expect("memory");
    }
    bytes
}

/// Passes the server's output to the client.
pub(super) fn answer(server: &mut End, client: &mut ClientConnection) {
    let bytes = std::mem::take(&mut server.output);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        client.read_tls(&mut rest).expect("memory");
        client.process_new_packets().expect("valid records");
    }
}

impl Forger {
    /// Completes a handshake with `server`.
    pub(super) fn of(version: TlsVersion, server: &mut End) -> Self {
        let mut config = client_config(version);
        config.enable_secret_extraction = true;
        let mut client = buffered_client(config);
        while client.wants_write() || !server.output.is_empty() {
            server.receive(&sent(&mut client)).expect("a handshake");
            answer(server, &mut client);
        }
        // That of ring: the one of aws-lc-rs refuses sequence numbers that it has not counted
        // itself.
        let negotiated = client.negotiated_cipher_suite().expect("a suite").suite();
        let suites = rustls::crypto::ring::ALL_CIPHER_SUITES;
        let suite = suites.iter().find(|suite| suite.suite() == negotiated).expect("the suite in ring");
        let (sequence, secrets) = client.dangerous_extract_secrets().expect("secrets").tx;
        let (ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }) = secrets
        else {
            panic!("AES is preferred")
        };
        let encrypter = match *suite {
            SupportedCipherSuite::Tls13(suite) => suite.aead_alg.encrypter(key, iv),
            SupportedCipherSuite::Tls12(suite) => {
                suite.aead_alg.encrypter(key, &iv.as_ref()[..4], &iv.as_ref()[4..])
            }
        };
        Forger { encrypter, sequence }
    }

    pub(super) fn record(&mut self, kind: ContentType, payload: &[u8]) -> Vec<u8> {
        let message =
            OutboundPlainMessage { typ: kind, version: ProtocolVersion::TLSv1_2, payload: payload.into() };
        let record = self.encrypter.encrypt(message, self.sequence).expect("encryption");
        self.sequence += 1;
        record.encode()
    }

    pub(super) fn data(&mut self, payload: &[u8]) -> Vec<u8> {
        self.record(ContentType::ApplicationData, payload)
    }
}
