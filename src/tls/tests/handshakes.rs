//! Handshakes that succeed: versions, segments, ALPN, client certificates, resumption.

use super::pair::{
    End, HOST, VERSIONS, client_config, client_config_with_certificate, established, server_config,
    server_config_with_client_auth, shake_hands, text, transfer,
};
use crate::tls::{
    client_hello::{ClientHello, Look},
    info::TlsVersion,
};
use rustls::{ServerConfig, client::Resumption};
use std::sync::Arc;

#[test]
fn both_ends_know_what_was_negotiated() {
    for version in VERSIONS {
        let (client, server) = established(version);
        let (of_client, of_server) = (client.info(), server.info());
        assert_eq!((of_client.version(), of_server.version()), (version, version));
        assert_eq!(of_client.cipher_suite(), of_server.cipher_suite());
        assert!(of_client.cipher_suite().starts_with("TLS"), "{of_client:?}");
        assert_eq!(of_client.key_exchange(), of_server.key_exchange());
        assert_eq!((of_client.server_name(), of_server.server_name()), (Some(HOST), Some(HOST)));
        assert_eq!(of_client.alpn_protocol(), None);
        assert_eq!((of_client.peer_certificates().len(), of_server.peer_certificates().len()), (1, 0));
        assert!(!of_client.is_resumed() && !of_server.is_resumed());
    }
}

#[test]
#[cfg(feature = "tls-aws-lc")]
fn the_key_exchange_is_post_quantum() {
    let (client, _) = established(TlsVersion::Tls13);
    assert_eq!(client.info().key_exchange(), Some("X25519MLKEM768"));
}

/// S-01.
#[test]
fn every_size_of_segments_gives_the_same_result() {
    for version in VERSIONS {
        for segment in [1, 2, 3, 5, 7, 64, 1000, usize::MAX] {
            let (mut client, mut server) =
                (End::client(client_config(version)), End::server(server_config(version)));
            shake_hands(&mut client, &mut server, segment).expect("a handshake");
            let data: Vec<u8> = (0..40_000).map(|i| i as u8).collect();
            client.send(&data, 16_384).expect("sealed");
            server.send(&data[..100], 7).expect("sealed");
            client.close();
            transfer(&mut client, &mut server, segment).expect("opened");
            transfer(&mut server, &mut client, segment).expect("opened");
            assert!(server.plain == data && client.plain == data[..100], "{version:?} by {segment}");
            server.end_of_input().expect("a clean end");
            assert!(server.kept.is_empty() && server.most_kept <= 16_384 + 256, "{}", server.most_kept);
        }
    }
}

#[test]
fn every_split_of_a_handshake_in_two_segments_gives_the_same_result() {
    for version in VERSIONS {
        let (client_config, server_config) =
            (Arc::new(client_config(version)), Arc::new(server_config(version)));
        let len = End::client(client_config.clone()).output.len();
        for split in (1..len).step_by(3) {
            let mut client = End::client(client_config.clone());
            let mut server = End::server(server_config.clone());
            transfer(&mut client, &mut server, split).expect("a ClientHello");
            shake_hands(&mut client, &mut server, split).expect("a handshake");
            assert!(client.is_established() && server.is_established(), "{version:?} at {split}");
        }
    }
}

/// S-01.
#[test]
fn a_client_hello_in_records_of_one_byte_is_read() {
    for version in VERSIONS {
        let mut server = End::server(server_config(version));
        let mut client = End::client(client_config(version));
        let hello = std::mem::take(&mut client.output);
        for byte in &hello[5..] {
            server.receive(&[22, 3, 1, 0, 1, *byte]).expect("a piece");
        }
        shake_hands(&mut client, &mut server, usize::MAX).expect("a handshake");
        assert_eq!(server.info().server_name(), Some(HOST));
    }
}

/// RFC 6066, section 3: the host name is sent without a trailing dot.
#[test]
fn a_host_name_with_a_trailing_dot_is_read_without_it() {
    let mut hello = End::client(client_config(TlsVersion::Tls13)).output;
    let at = hello.windows(HOST.len()).position(|bytes| bytes == HOST.as_bytes()).expect("the host name");
    hello[at + HOST.len() - 1] = b'.';
    let expected = Look::ServerName(HOST[..HOST.len() - 1].into());
    assert_eq!(ClientHello::default().look(&hello), expected);
}

/// rustls knows this version, and takes the record as a part of the message.
#[test]
fn a_client_hello_that_ends_in_a_record_of_ssl_2_is_read() {
    let hello = End::client(client_config(TlsVersion::Tls13)).output;
    let (first, last) = hello[5..].split_at(100);
    let length = |record: &[u8]| u16::try_from(record.len()).unwrap().to_be_bytes();
    let records = [&[22, 3, 1][..], &length(first), first, &[22, 0, 2], &length(last), last].concat();
    let expected = Look::ServerName(HOST.into());
    assert_eq!(ClientHello::default().look(&records), expected);
    End::server(server_config(TlsVersion::Tls13)).receive(&records).expect("a handshake");
}

#[test]
fn a_record_that_ends_a_client_hello_ends_it_in_any_segments() {
    // The first two bytes of a message, and a record that is too long.
    let input = [22, 3, 1, 0, 2, 1, 19, 22, 15, 3, 97, 0, 0, 0, 0];
    for first in 0..=input.len() {
        let mut hello = ClientHello::default();
        hello.look(&input[..first]);
        assert_eq!(hello.look(&input), Look::Ready, "{first}");
    }
}

#[test]
fn alpn_chooses_the_first_protocol_of_the_server_that_the_client_knows() {
    let name = |name: &str| name.as_bytes().to_vec();
    for version in VERSIONS {
        let mut config = server_config(version);
        config.alpn_protocols = vec![name("h2"), name("http/1.1")];
        let config = Arc::new(config);
        for (offered, agreed) in
            [(&["http/1.1", "h2"][..], Some("h2")), (&["http/1.1"][..], Some("http/1.1")), (&[][..], None)]
        {
            let mut of_client = client_config(version);
            of_client.alpn_protocols = offered.iter().copied().map(name).collect();
            let (mut client, mut server) = (End::client(of_client), End::server(config.clone()));
            shake_hands(&mut client, &mut server, usize::MAX).expect("a handshake");
            for end in [client, server] {
                assert_eq!(end.info().alpn_protocol(), agreed);
            }
        }
        let mut of_client = client_config(version);
        of_client.alpn_protocols = vec![name("irc")];
        let (mut client, mut server) = (End::client(of_client), End::server(config.clone()));
        let error = text(shake_hands(&mut client, &mut server, usize::MAX));
        assert!(error.contains("TLS failed"), "{error}");
        let error = text(transfer(&mut server, &mut client, usize::MAX));
        assert!(error.contains("NoApplicationProtocol"), "{error}");
        assert!(!client.is_established() && !server.is_established());
    }
}

#[test]
fn a_required_client_certificate_is_verified_or_missed() {
    for version in VERSIONS {
        let config = Arc::new(server_config_with_client_auth(version));
        let (mut client, mut server) =
            (End::client(client_config_with_certificate(version)), End::server(config.clone()));
        shake_hands(&mut client, &mut server, usize::MAX).expect("a handshake");
        assert_eq!(server.info().peer_certificates().len(), 1);

        let (mut client, mut server) = (End::client(client_config(version)), End::server(config));
        let error = text(shake_hands(&mut client, &mut server, usize::MAX));
        assert!(error.contains("peer sent no certificates"), "{error}");
        assert!(!server.is_established());
        let error = text(transfer(&mut server, &mut client, usize::MAX));
        assert!(error.contains("CertificateRequired") || error.contains("HandshakeFailure"), "{error}");
    }
}

#[test]
fn a_wrong_host_name_fails_the_handshake_with_that_cause() {
    for version in VERSIONS {
        let mut client = End::client_of(client_config(version), "other.example");
        let mut server = End::server(server_config(version));
        let error = text(shake_hands(&mut client, &mut server, usize::MAX));
        assert!(error.contains("TLS failed") && error.contains("other.example"), "{error}");
        let error = text(transfer(&mut client, &mut server, usize::MAX));
        assert!(error.contains("BadCertificate"), "{error}");
    }
}

/// S-18.
#[test]
fn a_session_is_resumed_by_its_ticket_until_the_keys_change() {
    for version in VERSIONS {
        let mut config = server_config(version);
        config.ticketer = ticketer();
        let config = Arc::new(config);
        let mut of_client = client_config(version);
        of_client.resumption = Resumption::in_memory_sessions(8);
        let of_client = Arc::new(of_client);
        let connect = |config: &Arc<ServerConfig>| {
            let (mut client, mut server) = (End::client(of_client.clone()), End::server(config.clone()));
            shake_hands(&mut client, &mut server, usize::MAX).expect("a handshake");
            [client, server].map(|end| end.info().is_resumed())
        };
        assert_eq!(connect(&config), [false, false]);
        assert_eq!(connect(&config), [true, true], "{version:?}");
        let mut rotated = (*config).clone();
        rotated.ticketer = ticketer();
        assert_eq!(connect(&Arc::new(rotated)), [false, false]);
    }
}

fn ticketer() -> Arc<dyn rustls::server::ProducesTickets> {
    #[cfg(feature = "tls-aws-lc")]
    return rustls::crypto::aws_lc_rs::Ticketer::new().expect("random keys");
    #[cfg(not(feature = "tls-aws-lc"))]
    rustls::crypto::ring::Ticketer::new().expect("random keys")
}
