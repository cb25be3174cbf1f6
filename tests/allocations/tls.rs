//! The heap memory of TLS connections.

use crate::support::{
    loops::{metrics, some_turns, turn_until},
    servers::Echo,
    tcp::{ANY_PORT, connect},
};
use crate::{heap, own_process};
use netwheel::{
    codec::RawBytes,
    prelude::*,
    testing::ManualClock,
    tls::{TlsCertificate, TlsServer},
};
use rustls::{ClientConfig, ClientConnection, RootCertStore, crypto::ring, pki_types::ServerName};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

/// Returns the settings of a server, and of clients that trust it.
fn settings() -> (TlsServer, Arc<ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificate = TlsCertificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (TlsServer::builder(certificate).build().unwrap(), Arc::new(config))
}

fn client(config: &Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(config.clone(), ServerName::try_from("localhost").unwrap()).unwrap()
}

/// A client sends its first message, gets the whole answer of the server, and never finishes.
/// S-02.
#[test]
fn a_thousand_half_finished_handshakes_are_closed_in_time_and_leave_no_memory_behind() {
    own_process!();
    const PEERS: usize = 1000;
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
    let (tls, config) = settings();
    let server = ServerBootstrap::new(&group)
        .tls(tls)
        .pipeline(|_| Pipeline::codec(RawBytes).handler(Echo))
        .bind(ANY_PORT)
        .unwrap();
    let come_and_go = |peers: usize| -> (usize, usize) {
        let mut streams: Vec<TcpStream> = (0..peers)
            .map(|_| {
                let mut stream = connect(server.local_address());
                let mut hello = Vec::new();
                client(&config).write_tls(&mut hello).unwrap();
                stream.write_all(&hello).unwrap();
                stream
            })
            .collect();
        // A byte of its answer shows that the server has computed it.
        streams.iter_mut().for_each(|stream| stream.read_exact(&mut [0]).unwrap());
        turn_until(&group, |metrics| metrics.channels == peers as u64);
        let full = heap::bytes_in_use();
        clock.advance(Duration::from_secs(10));
        turn_until(&group, |metrics| metrics.channels == 0 && metrics.timers_pending == 0);
        drop(streams);
        turn_until(&group, |metrics| metrics.lingering == 0);
        some_turns(&group);
        (full, heap::bytes_in_use())
    };
    let (_, start) = come_and_go(4);
    for round in 1..=3 {
        let (full, left) = come_and_go(PEERS);
        assert!(full > start + 1000 * PEERS, "handshakes use heap memory");
        // The lists of the loop, as without TLS, and spare buffers.
        let kept = left.saturating_sub(start);
        assert!(kept <= 104 * PEERS + 512 * 1024, "{kept} bytes are kept, of {}", full - start);
        let timed_out = metrics(&group).handshakes_timed_out;
        assert_eq!(timed_out, (4 + round * PEERS) as u64);
    }
}

/// The client's records are sealed before, and the replies are opened afterwards. So the count is
/// that of the server.
#[test]
fn a_steady_echo_over_tls_allocates_the_two_blocks_of_rustls() {
    own_process!();
    const ECHOES: usize = 1_000;
    const MESSAGE: &[u8] = &[b'x'; 64];
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (tls, config) = settings();
    let server = ServerBootstrap::new(&group)
        .tls(tls)
        .pipeline(|_| Pipeline::codec(RawBytes).handler(Echo))
        .bind(ANY_PORT)
        .unwrap();
    let mut stream = connect(server.local_address());
    let mut client = client(&config);
    let mut answer = [0; MESSAGE.len()];
    // Afterwards the tickets of the server have arrived.
    for _ in 0..ECHOES {
        let mut tls = rustls::Stream::new(&mut client, &mut stream);
        tls.write_all(MESSAGE).unwrap();
        tls.read_exact(&mut answer).unwrap();
    }
    let records: Vec<Vec<u8>> = (0..ECHOES)
        .map(|_| {
            let mut record = Vec::new();
            client.writer().write_all(MESSAGE).unwrap();
            client.write_tls(&mut record).unwrap();
            record
        })
        .collect();
    let size = records[0].len();
    let mut replies = vec![0; ECHOES * size];

    let before = heap::total_blocks();
    for (record, reply) in records.iter().zip(replies.chunks_exact_mut(size)) {
        stream.write_all(record).unwrap();
        stream.read_exact(reply).unwrap();
    }
    let blocks = heap::total_blocks() - before;

    for mut reply in replies.chunks_exact(size) {
        assert_eq!(client.read_tls(&mut reply).unwrap(), size);
        client.process_new_packets().unwrap();
        client.reader().read_exact(&mut answer).unwrap();
        assert_eq!(answer, MESSAGE);
    }
    assert_eq!(blocks, 2 * ECHOES as u64, "in {ECHOES} echoes");
}
