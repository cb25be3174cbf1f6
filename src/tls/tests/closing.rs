//! Ends of streams, in both directions.

use super::pair::{End, VERSIONS, client_config, established, server_config, text, transfer};

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
