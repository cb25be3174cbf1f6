//! Connections with TLS.

use super::server::{Server, server};
use netwheel::durable::{PostgresStore, PostgresStoreBuilder, StoreError, StoreTransaction, TimerStore};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::Arc,
    thread,
    time::Duration,
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// A connector that trusts one certificate.
fn connector(certificate: Vec<u8>) -> MakeRustlsConnect {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.into()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    MakeRustlsConnect::new(config)
}

fn builder(server: &Server, schema: &str, rest: &str) -> PostgresStoreBuilder {
    let config = format!("host=localhost hostaddr=127.0.0.1 port={} dbname=postgres {rest}", server.port());
    PostgresStore::builder(&config).schema(schema).tls(connector(server.certificate()))
}

/// Returns whether the connection of a store is encrypted.
fn is_encrypted(store: &mut PostgresStore) -> bool {
    let (sender, found) = std::sync::mpsc::channel();
    let work = move |transaction: &mut StoreTransaction<'_>| {
        let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        let row = transaction.postgres()?.query_one(sql, &[]).map_err(netwheel::Error::other)?;
        sender.send(row.get(0)).map_err(netwheel::Error::other)
    };
    store.transaction(&mut (Box::new(work) as _)).unwrap();
    found.recv().unwrap()
}

fn message(refused: netwheel::Result<PostgresStore>) -> String {
    format!("{:#}", refused.map(drop).unwrap_err())
}

#[test]
fn a_store_uses_tls_as_the_configuration_says() {
    let Some(server) = server() else { return };
    for (mode, expected) in [("require", true), ("prefer", true), ("disable", false)] {
        let rest = format!("user=postgres sslmode={mode}");
        let mut store = builder(server, "tls_modes", &rest).open().unwrap();
        assert_eq!(is_encrypted(&mut store), expected, "{mode}");
    }
}

/// The password is bound to the connection, so a man in the middle cannot use it.
#[test]
fn a_password_is_bound_to_the_channel() {
    let Some(server) = server() else { return };
    let sql = "CREATE ROLE scram LOGIN PASSWORD 'secret'; GRANT CREATE ON DATABASE postgres TO scram";
    server.client().batch_execute(sql).unwrap();
    let rest = "user=scram password=secret sslmode=require channel_binding=require";
    let mut store = builder(server, "tls_scram", rest).open().unwrap();
    assert!(is_encrypted(&mut store));
    let wrong = "user=scram password=guess sslmode=require";
    let error = message(builder(server, "tls_scram", wrong).open());
    assert!(error.contains("password authentication failed"), "{error}");
    assert!(!error.contains("guess"), "{error}");
    let plain = "user=scram password=secret sslmode=disable";
    let error = message(builder(server, "tls_scram", plain).open());
    assert!(error.contains("pg_hba.conf"), "{error}");
}

#[test]
fn a_certificate_of_another_authority_is_refused() {
    let Some(server) = server() else { return };
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let builder = builder(server, "tls_other", "user=postgres sslmode=require");
    let error = message(builder.tls(connector(other.cert.der().to_vec())).open());
    assert!(error.contains("certificate"), "{error}");
}

/// A server that answers the request for TLS with `answer`, or not at all, and then says nothing.
fn silent_server(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut request = [0; 8];
            client.read_exact(&mut request).unwrap();
            assert_eq!(request, [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]);
            client.write_all(answer).unwrap();
            thread::spawn(move || {
                // Until the client gives up.
                let _ = client.read_to_end(&mut Vec::new());
            });
        }
    });
    port
}

#[test]
fn a_server_without_tls_is_refused_if_tls_is_required() {
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let config = format!("host=127.0.0.1 port={} user=postgres sslmode=require", silent_server(b"N"));
    let builder = PostgresStore::builder(&config).tls(connector(certificate.cert.der().to_vec()));
    let error = message(builder.open());
    assert!(error.contains("the server does not support TLS"), "{error}");
}

/// The request for TLS and the handshake have a time limit.
#[test]
fn a_silent_server_is_given_up_in_time() {
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    for answer in [b"".as_slice(), b"S"] {
        let config = format!("host=127.0.0.1 port={} user=postgres sslmode=require", silent_server(answer));
        let builder = PostgresStore::builder(&config)
            .tls(connector(certificate.cert.der().to_vec()))
            .connect_timeout(Duration::from_millis(50));
        let netwheel::Error::Other(error) = builder.open().map(drop).unwrap_err() else {
            panic!("an error of the store")
        };
        let error = error.downcast_ref::<StoreError>().unwrap();
        assert!(error.is_transient() && error.to_string().contains("timed out"), "{error}");
    }
}
