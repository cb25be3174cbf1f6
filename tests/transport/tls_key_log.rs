//! Key log files: both ends of a connection log the same secrets.

use crate::support::{
    loops::{end, one_loop},
    tcp::ANY_PORT,
    tls_peer::certificate,
    wait::{done, receive},
};
use bytes::Bytes;
use netwheel::{
    Error,
    codec::Line,
    prelude::*,
    tls::{TlsClient, TlsRoots, TlsServer},
};
use std::{collections::BTreeSet, fs, path::Path, sync::mpsc};

/// Returns the labels of a file, and the lines, whose order is that of the handshake of an end.
fn logged(path: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
    let text = fs::read_to_string(path).unwrap();
    let lines: BTreeSet<_> = text.lines().map(str::to_owned).collect();
    let label = |line: &String| {
        let fields: Vec<_> = line.split(' ').collect();
        let is_hex = |field: &str| field.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(fields.len() == 3 && fields[1].len() == 64, "{line}");
        assert!(is_hex(fields[1]) && is_hex(fields[2]), "{line}");
        fields[0].to_owned()
    };
    (lines.iter().map(label).collect(), lines)
}

#[test]
fn both_ends_log_the_same_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let [of_server, of_client] = ["server", "client"].map(|end| folder.path().join(end));
    let (certificate, root) = certificate();
    let group = one_loop();
    let tls = TlsServer::builder(certificate).key_log_file(&of_server);
    let server = ServerBootstrap::new(&group)
        .tls(tls.build().unwrap())
        .pipeline(|_| Pipeline::codec(Line::new()).on_read(|ctx, line: Bytes| ctx.write(line)))
        .bind(ANY_PORT)
        .unwrap();
    let roots = TlsRoots::from_der([root]).unwrap();
    let tls = TlsClient::builder(roots).server_name("localhost").key_log_file(&of_client);
    let (echo, echoed) = mpsc::channel();
    let client = ClientBootstrap::new(&group).tls(tls.build().unwrap()).pipeline(move |_| {
        let echo = echo.clone();
        Pipeline::codec(Line::new()).on_read(move |_, line: Bytes| echo.send(line).map_err(Error::other))
    });
    let channel = done(client.connect(server.local_address())).unwrap();
    channel.write("secret".into()).unwrap();
    assert_eq!(receive(&echoed), "secret");
    end(&group);
    let (labels, lines) = logged(&of_server);
    assert!(labels.contains("SERVER_TRAFFIC_SECRET_0"), "{labels:?}");
    assert_eq!(lines, logged(&of_client).1);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;

        assert_eq!(fs::metadata(&of_server).unwrap().permissions().mode() & 0o077, 0);
    }
}

#[test]
fn a_key_log_file_that_cannot_be_opened_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, root) = certificate();
    let server = TlsServer::builder(certificate).key_log_file(folder.path()).build();
    let roots = TlsRoots::from_der([root]).unwrap();
    let client = TlsClient::builder(roots).key_log_file(folder.path()).build();
    for refused in [server.err(), client.err()] {
        assert!(matches!(&refused, Some(Error::Setting(e)) if e.setting() == "key_log_file"), "{refused:?}");
    }
}
