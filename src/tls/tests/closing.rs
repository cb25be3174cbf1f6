//! Ends of streams, in both directions.

use super::pair::{
    End, VERSIONS, client_config, established, server_config, server_config_of, shake_hands, text, transfer,
};
use crate::{
    error::Error,
    tls::{info::TlsVersion, provider::provider},
};
use rustls::{
    SupportedCipherSuite, Tls12CipherSuite,
    crypto::{CipherSuiteCommon, CryptoProvider},
};
use std::sync::Arc;

/// S-05.
#[test]
fn close_notify_behind_data_delivers_the_data_and_ends_cleanly() {
    for version in VERSIONS {
        let (mut client, mut server) = established(version);
        client.send(b"last words", 4).expect("sealed");
        client.close();
        client.close();
        client.output.extend_from_slice(b"ignored: not even TLS");
        transfer(&mut client, &mut server, usize::MAX).expect("a clean end");
        assert_eq!(server.plain[..], b"last words"[..]);
        assert!(server.has_input_ended() && server.kept.is_empty());
        server.end_of_input().expect("a clean end");
        server.receive(b"also ignored").expect("ignored");
        assert_eq!(server.plain[..], b"last words"[..]);
    }
}

/// S-06.
#[test]
fn a_stream_without_close_notify_is_truncated() {
    for version in VERSIONS {
        let (mut client, mut server) = established(version);
        client.send(b"half of it", 10).expect("sealed");
        transfer(&mut client, &mut server, usize::MAX).expect("data");
        assert!(text(server.end_of_input()).contains("the stream is cut off before its end"));
        let mut server = End::server(server_config(version));
        server.receive(&End::client(client_config(version)).output[..20]).expect("a part");
        assert!(text(server.end_of_input()).contains("the stream is cut off before its end"));
    }
}

/// S-24.
#[test]
fn after_the_peer_has_ended_its_stream_output_is_still_possible() {
    for version in VERSIONS {
        let (mut client, mut server) = established(version);
        client.close();
        transfer(&mut client, &mut server, usize::MAX).expect("a clean end");
        assert!(server.has_input_ended() && !client.has_input_ended());
        server.send(&[1; 100_000], 16_384).expect("sealed");
        server.close();
        transfer(&mut server, &mut client, 1000).expect("data and a clean end");
        assert_eq!(client.plain[..], [1; 100_000]);
        client.end_of_input().expect("a clean end");
        assert!(text(server.send(b"late", 4)).contains("close_notify was sent before"));
        assert!(text(client.send(b"late", 4)).contains("close_notify was sent before"));
    }
}

#[test]
fn a_close_during_the_handshake_sends_nothing() {
    for version in VERSIONS {
        let mut client = End::client(client_config(version));
        client.output.clear();
        client.close();
        assert!(client.output.is_empty());
        assert!(text(client.send(b"early", 5)).contains("handshake"));
    }
}

#[test]
fn records_hold_16_kib_and_small_writes_are_one_record() {
    for version in VERSIONS {
        let (mut client, _) = established(version);
        client.send(&[0; 64], 64).expect("sealed");
        let overhead = std::mem::take(&mut client.output).len() - 64;
        assert!((22..=29).contains(&overhead), "{overhead}");
        client.send(&[0; 16_384], 16_384).expect("sealed");
        assert_eq!(std::mem::take(&mut client.output).len(), 16_384 + overhead);
        client.send(&[0; 16_385], 16_385).expect("sealed");
        assert_eq!(std::mem::take(&mut client.output).len(), 16_385 + 2 * overhead);
    }
}

/// Returns the usual cryptography, whose keys for TLS 1.2 may encrypt this number of records.
fn limited(records: u64) -> Arc<CryptoProvider> {
    let mut provider = CryptoProvider::clone(&provider());
    for suite in &mut provider.cipher_suites {
        if let SupportedCipherSuite::Tls12(usual) = *suite {
            let CipherSuiteCommon { suite: name, hash_provider, .. } = usual.common;
            let limited = Tls12CipherSuite {
                common: CipherSuiteCommon { suite: name, hash_provider, confidentiality_limit: records },
                prf_provider: usual.prf_provider,
                kx: usual.kx,
                sign: usual.sign,
                aead_alg: usual.aead_alg,
            };
            *suite = SupportedCipherSuite::Tls12(Box::leak(Box::new(limited)));
        }
    }
    Arc::new(provider)
}

/// TLS 1.2 cannot change its keys. Those of AES-GCM may encrypt 2^24 records.
#[test]
fn a_session_whose_keys_are_used_up_ends_with_close_notify_and_does_not_blame_its_peer() {
    const RECORDS: usize = 1024;
    let version = TlsVersion::Tls12;
    let mut client = End::client(client_config(version));
    let mut server = End::server(server_config_of(limited(RECORDS as u64), version));
    shake_hands(&mut client, &mut server, usize::MAX).expect("a handshake");
    let mut sent = 0;
    let error = loop {
        match server.send(b"x", 1) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent <= RECORDS, "the limit is ignored");
    };
    assert!(matches!(error, Error::Other(_)), "{error:?}");
    server.close();
    transfer(&mut server, &mut client, usize::MAX).expect("data and a clean end");
    assert_eq!(client.plain.len(), sent);
    client.end_of_input().expect("a clean end");
}
