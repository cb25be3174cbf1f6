//! Peers that break the protocol.

use super::{
    certificates::certificate_for,
    forger::{Forger, answer, buffered_client, sent},
    pair::{End, VERSIONS, client_config, established, server_config, shake_hands, text, transfer},
};
use crate::tls::{info::TlsVersion, tls_certificates::TlsCertificates};
use rustls::{ContentType, HandshakeKind, ServerConnection, client::Resumption};
use std::{collections::BTreeMap, io::Write, sync::Arc};

const TLS12: TlsVersion = TlsVersion::Tls12;
const TLS13: TlsVersion = TlsVersion::Tls13;
/// KeyUpdate with `update_requested`.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 1];
/// The alert `decode_error`, unencrypted.
const DECODE_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 50];

/// S-04.
#[test]
fn http_on_a_tls_port_gets_one_alert_and_an_error_that_says_not_tls() {
    for first in [&b"GET / HTTP/1.1\r\n"[..], b"G", b"\x80\x2e\x01\x03\x01", b"\x16\x02"] {
        let mut server = End::server(server_config(TLS13));
        let error = text(server.receive(first));
        assert!(error.contains("TLS failed: not TLS"), "{error}");
        assert_eq!(server.output[..], DECODE_ERROR);
        let mut client = End::client(client_config(TLS13));
        client.output.clear();
        let error = text(client.receive(first));
        assert!(error.contains("not TLS"), "{error}");
        assert_eq!(client.output[..], DECODE_ERROR);
    }
}

/// S-03.
#[test]
fn a_client_hello_of_16_mib_is_refused_by_its_first_nine_bytes() {
    let mut server = End::server(server_config(TLS13));
    let hello = [22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff];
    server.receive(&hello[..8]).expect("the length is incomplete");
    let error = text(server.receive(&hello[8..]));
    assert!(error.contains("HandshakePayloadTooLarge"), "{error}");
    assert_eq!(server.output[..], DECODE_ERROR);
    assert!(server.most_kept <= 8);
}

/// S-03.
#[test]
fn a_client_hello_of_64_kib_that_never_ends_keeps_what_has_come() {
    let mut server = End::server(server_config(TLS13));
    let mut record = vec![22, 3, 1, 0x40, 0];
    record.extend([1, 0, 0xff, 0xff]);
    record.resize(5 + 0x4000, 0);
    for _ in 0..3 {
        server.receive(&record).expect("incomplete");
        record[5..9].fill(0);
    }
    assert_eq!(server.kept.len(), 3 * record.len());
}

const WARNING: [u8; 7] = [21, 3, 1, 0, 2, 1, 90];
const CLOSE_NOTIFY: [u8; 7] = [21, 3, 1, 0, 2, 1, 0];

/// S-15: warnings in front of a ClientHello do not hide the host that it names.
#[test]
fn a_warning_in_front_of_a_client_hello_does_not_hide_its_host() {
    let certificates = TlsCertificates::new(certificate_for("known.example"), BTreeMap::new(), true);
    for segment in [1, 7, 9, usize::MAX] {
        for warnings in 0..4 {
            let mut server = End::server_of(server_config(TLS12), certificates.clone());
            let mut client = End::client_of(client_config(TLS12), "unknown.example");
            for _ in 0..warnings {
                client.output.splice(..0, WARNING);
            }
            let error = text(transfer(&mut client, &mut server, segment));
            assert!(error.contains("a host without a certificate"), "{warnings}: {error}");
            assert_eq!(server.output[..], [21, 3, 3, 0, 2, 2, 112]);
        }
    }
}

#[test]
fn a_peer_that_ends_its_stream_instead_of_a_hello_does_not_wait_for_the_timeout() {
    for warnings in 0..3 {
        let input = [WARNING.repeat(warnings), CLOSE_NOTIFY.to_vec()].concat();
        for segment in [1, 3, usize::MAX] {
            let mut server = End::server(server_config(TLS13));
            let mut results = input.chunks(segment).map(|bytes| server.receive(bytes));
            let error = text(results.find(|result| result.is_err()).expect("an error"));
            assert!(error.contains("cut off"), "{error}");
            assert!(server.output.is_empty());
        }
    }
    let mut client = End::client(client_config(TLS13));
    client.output.clear();
    for (at, byte) in CLOSE_NOTIFY.iter().enumerate() {
        assert_eq!(client.receive(&[*byte]).is_err(), at == 6);
    }
}

/// S-08.
#[test]
fn a_client_that_closes_right_behind_its_hello_does_not_confuse_the_server() {
    for version in VERSIONS {
        let mut server = End::server(server_config(version));
        let mut client = End::client(client_config(version));
        let mut bytes = std::mem::take(&mut client.output);
        bytes.extend_from_slice(&[21, 3, 3, 0, 2, 1, 0]);
        let _ = server.receive(&bytes);
        assert!(!server.is_established());
        assert!(text(server.end_of_input()).contains("cut off before its end"));
    }
}

/// S-10.
#[test]
fn key_updates_get_one_reply_with_the_next_data_and_are_limited() {
    let mut server = End::server(server_config(TLS13));
    let mut forger = Forger::of(TLS13, &mut server);
    // After the first one the keys of a real client change, those of the forger do not.
    server.receive(&forger.record(ContentType::Handshake, &KEY_UPDATE)).expect("a KeyUpdate");
    assert!(server.output.is_empty());
    server.send(b"reply", 5).expect("sealed");
    let first = std::mem::take(&mut server.output);
    server.send(b"reply", 5).expect("sealed");
    // A KeyUpdate is as long as a record of five bytes.
    assert_eq!(first.len(), 2 * server.output.len());

    let mut client = buffered_client(client_config(TLS13));
    let mut server = End::server(server_config(TLS13));
    while client.wants_write() || !server.output.is_empty() {
        server.receive(&sent(&mut client)).expect("a handshake");
        answer(&mut server, &mut client);
    }
    let mut refused = None;
    for n in 1..100 {
        client.refresh_traffic_keys().expect("a KeyUpdate");
        if let Err(error) = server.receive(&sent(&mut client)) {
            refused = Some((n, format!("{error:#}")));
            break;
        }
        assert!(server.output.is_empty());
    }
    let (n, error) = refused.expect("an error");
    assert!(n <= 33 && error.contains("TooManyKeyUpdateRequests"), "{n}: {error}");
}

#[test]
fn data_is_written_while_half_a_message_of_the_peer_has_come() {
    let mut server = End::server(server_config(TLS13));
    let mut forger = Forger::of(TLS13, &mut server);
    let first = forger.record(ContentType::Handshake, &KEY_UPDATE[..2]);
    let rest = forger.record(ContentType::Handshake, &KEY_UPDATE[2..]);
    server.receive(&first).expect("half a message");
    assert_eq!(server.kept.len(), first.len());
    server.send(b"meanwhile", 9).expect("sealed");
    let alone = server.output.len();
    for byte in rest {
        server.receive(&[byte]).expect("the rest");
        server.send(b"meanwhile", 9).expect("sealed");
    }
    assert!(server.kept.is_empty() && server.output.len() > alone);
    server.close();
    assert!(text(server.send(b"late", 4)).contains("close_notify was sent before"));
}

/// S-11.
#[test]
fn renegotiation_is_refused() {
    let mut server = End::server(server_config(TlsVersion::Tls12));
    let mut forger = Forger::of(TlsVersion::Tls12, &mut server);
    let mut hello = End::client(client_config(TlsVersion::Tls12)).output;
    let hello = hello.split_off(5);
    server.receive(&forger.record(ContentType::Handshake, &hello)).expect("refused politely");
    assert_eq!(std::mem::take(&mut server.output)[..3], [21, 3, 3], "the alert no_renegotiation");
    let error = text(server.receive(&forger.record(ContentType::Handshake, &hello)));
    assert!(error.contains("TooManyRenegotiationRequests"), "{error}");
}

/// S-12.
#[test]
fn thirty_three_empty_records_are_an_error() {
    for version in VERSIONS {
        let mut server = End::server(server_config(version));
        let mut forger = Forger::of(version, &mut server);
        for round in 0..2 {
            for _ in 0..32 {
                server.receive(&forger.data(b"")).expect("an empty record");
            }
            if round == 0 {
                server.receive(&forger.data(b"data")).expect("data");
            }
        }
        let error = text(server.receive(&forger.data(b"")));
        assert!(error.contains("TooManyEmptyFragments"), "{error}");
        assert_eq!(server.plain[..], b"data"[..]);
    }
}

/// S-13.
#[test]
fn an_altered_record_is_bad_record_mac_and_nothing_after_it_is_opened() {
    for version in VERSIONS {
        let (mut client, mut server) = established(version);
        client.send(b"first", 5).expect("sealed");
        let good = client.output.len();
        client.send(b"second", 6).expect("sealed");
        let second = client.output.len();
        client.send(b"third", 5).expect("sealed");
        for at in [5, 12, second - good - 1] {
            let (mut client, mut server) = established(version);
            client.send(b"first", 5).expect("sealed");
            client.send(b"second", 6).expect("sealed");
            client.send(b"third", 5).expect("sealed");
            client.output[good + at] ^= 1;
            let bytes = std::mem::take(&mut client.output);
            let error = text(server.receive(&bytes));
            assert!(error.contains("TLS failed: cannot decrypt"), "{error}");
            assert_eq!(server.plain[..], b"first"[..]);
            // The rest is valid, were it not for the error.
            assert_eq!(text(server.receive(&bytes[second..])), error);
            assert_eq!(server.plain[..], b"first"[..]);
            let error = text(transfer(&mut server, &mut client, usize::MAX));
            assert!(error.contains("BadRecordMac"), "{error}");
        }
        assert!(server.plain.is_empty(), "nothing was transferred");
        transfer(&mut client, &mut server, usize::MAX).expect("the unaltered records");
    }
}

#[test]
fn an_altered_record_after_our_close_notify_is_an_error() {
    for version in VERSIONS {
        let (mut client, mut server) = established(version);
        server.close();
        client.send(b"data", 4).expect("sealed");
        let last = client.output.len() - 1;
        client.output[last] ^= 1;
        assert!(text(transfer(&mut client, &mut server, usize::MAX)).contains("TLS failed"));
        assert!(server.plain.is_empty());
    }
}

/// S-23.
#[test]
fn early_data_that_the_server_does_not_accept_is_skipped() {
    let early = [7; 1000];
    for segment in [1, 100, usize::MAX] {
        let mut generous = server_config(TLS13);
        generous.max_early_data_size = 1024;
        let mut strict = generous.clone();
        strict.max_early_data_size = 0;
        assert!(Arc::ptr_eq(&generous.session_storage, &strict.session_storage));
        let mut of_client = client_config(TLS13);
        of_client.resumption = Resumption::in_memory_sessions(8);
        of_client.enable_early_data = true;
        let of_client = Arc::new(of_client);

        // A server of rustls' own offers to accept early data, later.
        let mut client = buffered_client(of_client.clone());
        let mut server = ServerConnection::new(Arc::new(generous)).expect("a server");
        while client.wants_write() || server.wants_write() {
            server.read_tls(&mut &sent(&mut client)[..]).expect("memory");
            server.process_new_packets().expect("valid records");
            let mut bytes = Vec::new();
            server.write_tls(&mut bytes).expect("memory");
            client.read_tls(&mut &bytes[..]).expect("memory");
            client.process_new_packets().expect("valid records");
        }

        let mut client = buffered_client(of_client);
        client.early_data().expect("a ticket").write_all(&early).expect("early data");
        let mut server = End::server(strict);
        let mut flights = 0;
        while client.wants_write() || !server.output.is_empty() {
            for segment in sent(&mut client).chunks(segment) {
                server.receive(segment).expect("early data is skipped");
            }
            answer(&mut server, &mut client);
            flights += 1;
        }
        assert!(flights > 1 && !client.is_early_data_accepted());
        client.writer().write_all(b"late").expect("memory");
        server.receive(&sent(&mut client)).expect("data");
        assert_eq!(server.plain[..], b"late"[..]);
        assert_eq!(client.handshake_kind(), Some(HandshakeKind::Resumed));
    }
}

/// S-23.
#[test]
fn a_configuration_that_accepts_early_data_is_refused() {
    let mut config = server_config(TLS13);
    config.max_early_data_size = 1;
    let error = text(crate::tls::filter::TlsFilter::server(Arc::new(config), None, None));
    assert!(error.contains("max_early_data_size must be 0"), "{error}");
}

#[test]
fn a_server_that_speaks_an_older_version_only_is_refused() {
    let mut client = End::client(client_config(TlsVersion::Tls12));
    let mut server = End::server(server_config(TLS13));
    let error = text(shake_hands(&mut client, &mut server, usize::MAX));
    assert!(error.contains("Tls12") || error.contains("Tls13") || error.contains("version"), "{error}");
    assert!(!server.output.is_empty(), "an alert");
}
