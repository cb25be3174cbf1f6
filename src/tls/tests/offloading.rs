//! Handshakes on a worker pool.

use super::pair::{
    End, VERSIONS, client_config, server_config, server_config_with_client_auth, shake_hands, text, transfer,
};
use crate::{tls::info::TlsVersion, worker_pool::WorkerPool};

/// Completes the handshake with a pool that has no threads. Returns how many steps it has run.
fn shake_hands_by(workers: &WorkerPool, client: &mut End, server: &mut End, segment: usize) -> usize {
    let mut steps = 0;
    while !client.output.is_empty() || !server.output.is_empty() || server.is_with_worker() {
        // Input that arrives during the work is kept, as a channel keeps it.
        transfer(client, server, segment).expect("a flight of the client");
        if server.is_with_worker() {
            assert!(!server.is_established() && server.output.is_empty());
            workers.run_waiting();
            steps += 1;
            server.receive(&[]).expect("woken");
        }
        transfer(server, client, segment).expect("a flight of the server");
    }
    steps
}

/// S-09.
#[test]
fn the_expensive_steps_of_a_server_run_on_a_worker() {
    for (version, expected) in [(TlsVersion::Tls12, 2), (TlsVersion::Tls13, 1)] {
        let workers = WorkerPool::by_hand();
        let mut client = End::client(client_config(version));
        let mut server = End::server_with(server_config(version), &workers);
        assert_eq!(shake_hands_by(&workers, &mut client, &mut server, usize::MAX), expected);
        assert!(client.is_established() && server.is_established());
        client.send(b"data", 4).expect("sealed");
        transfer(&mut client, &mut server, usize::MAX).expect("opened");
        assert_eq!(server.plain[..], b"data"[..]);
        assert_eq!(workers.metrics().pending, 0, "data is opened on the loop");
    }
}

#[test]
fn segments_that_arrive_during_a_step_are_processed_after_it() {
    for version in VERSIONS {
        for segment in [1, 3, 100] {
            let workers = WorkerPool::by_hand();
            let mut client = End::client(client_config(version));
            let mut server = End::server_with(server_config(version), &workers);
            assert!(shake_hands_by(&workers, &mut client, &mut server, segment) > 0);
            assert!(client.is_established() && server.is_established());
        }
    }
}

#[test]
fn a_spurious_wakeup_during_a_step_changes_nothing() {
    let workers = WorkerPool::by_hand();
    let mut client = End::client(client_config(TlsVersion::Tls13));
    let mut server = End::server_with(server_config(TlsVersion::Tls13), &workers);
    transfer(&mut client, &mut server, usize::MAX).expect("a ClientHello");
    let kept = server.kept.len();
    for _ in 0..3 {
        server.receive(&[]).expect("nothing happens");
        assert!(server.is_with_worker() && server.kept.len() == kept);
    }
    assert!(text(server.send(b"early", 5)).contains("closed"));
    assert!(text(server.end_of_input()).contains("cut off before its end"));
}

#[test]
fn a_full_pool_leaves_the_handshake_to_the_loop() {
    let workers = WorkerPool::builder().threads(1).max_pending(1).build().expect("a pool");
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (starts, started) = std::sync::mpsc::channel();
    workers.execute(move || starts.send(()).map(|()| released.recv())).expect("runs");
    started.recv().expect("runs");
    workers.execute(|| {}).expect("waits");
    for version in VERSIONS {
        let mut client = End::client(client_config(version));
        let mut server = End::server_with(server_config(version), &workers);
        shake_hands(&mut client, &mut server, usize::MAX).expect("a handshake");
        assert!(client.is_established() && server.is_established());
    }
    assert!(workers.metrics().refused >= 2);
    drop(release);
}

#[test]
fn the_step_of_a_channel_that_is_gone_is_skipped() {
    let workers = WorkerPool::by_hand();
    let mut client = End::client(client_config(TlsVersion::Tls13));
    let mut server = End::server_with(server_config(TlsVersion::Tls13), &workers);
    transfer(&mut client, &mut server, usize::MAX).expect("a ClientHello");
    drop(server);
    workers.run_waiting();
    assert_eq!((workers.metrics().skipped, workers.metrics().finished), (1, 0));
}

#[test]
fn an_error_on_a_worker_comes_with_its_alert() {
    let workers = WorkerPool::by_hand();
    let mut client = End::client(client_config(TlsVersion::Tls12));
    let mut server = End::server_with(server_config(TlsVersion::Tls13), &workers);
    transfer(&mut client, &mut server, usize::MAX).expect("a ClientHello");
    workers.run_waiting();
    let error = text(server.receive(&[]));
    assert!(error.contains("TLS failed"), "{error}");
    assert_eq!(server.output[0], 21);
}

#[test]
fn a_certificate_of_the_client_is_verified_on_a_worker() {
    for version in VERSIONS {
        let workers = WorkerPool::by_hand();
        let mut client = End::client(super::pair::client_config_with_certificate(version));
        let mut server = End::server_with(server_config_with_client_auth(version), &workers);
        assert_eq!(shake_hands_by(&workers, &mut client, &mut server, usize::MAX), 2);
        assert_eq!(server.info().peer_certificates().len(), 1);
    }
}
